/*
 * world_rounds.h - the same again and again: captures with small pools, and streams that live for
 * one block. What they took serves the next round, so that nothing grows.
 */
#ifndef ASHLAR_WORLD_ROUNDS_H
#define ASHLAR_WORLD_ROUNDS_H

#include "tests/allocator/world/world_graphs.h"

enum {
    ROUNDS_FIRST = 4,
    ROUNDS_FEW = 24,
    ROUNDS_MANY = ASHLAR_DEBUG >= 3 ? 40 : 700,
    HANDLES_MORE = 6
};

/* Behind the first rounds, when all is over in each: so many handles more, and no others. */
static inline void check_growth(const store *s, size_t before, const char *of) {
    const ashlar_range *range = range_of(s);
    if (range->mapped_bytes > before + HANDLES_MORE * range->handle_bytes) {
        wrong("%s leave more and more memory: %zu bytes, and then %zu", of, before,
              range->mapped_bytes);
    }
}

static inline bool may_repeat(const store *s) {
    return world.set->has_law && world.set->guard == 0 && !is_any_captured() && !s->is_watched &&
           !is_in_any_step(s) && atomic_load(&world.work_count) < WORKS_MAX / 2;
}

/* Each is released, and waited for, before the next one begins. */
static inline void act_tiny_pools(store *s, const act *a) {
    const int rounds = a->choice % 16 == 15 ? ROUNDS_MANY : ROUNDS_FEW;
    const int lane = a->lane >= LANE_MADE ? a->lane : LANE_MADE + a->lane;
    world_block *b = &world.blocks[a->slot];
    size_t before = 0;
    act node = *a;
    node.lane = (uint8_t)lane;
    node.bytes = (uint32_t)least(a->bytes, MIB);
    if (!may_repeat(s) || has_graph(s) || is_live(b) || !may_capture(s, lane, a->thread)) {
        return;
    }
    for (int i = 0; i < rounds && failure[0] == '\0'; i++) {
        before = i == ROUNDS_FIRST ? range_of(s)->mapped_bytes : before;
        begin_capture(s, a, lane, true);
        act_node(s, &node, false);
        end_capture(s);
        act_release(s);
    }
    check_growth(s, before, "small pools");
}

/* Used on another stream, which is told of at the free or before; then its own stream ends. */
static inline void act_short_streams(store *s, const act *a) {
    const int lane = a->lane >= LANE_MADE ? a->lane : LANE_MADE + a->lane;
    const int other = a->other == lane ? LANE_LEGACY : a->other;
    world_block *b = &world.blocks[a->slot];
    size_t before = 0;
    act one = *a;
    one.lane = (uint8_t)lane;
    one.other = (uint8_t)other;
    one.bytes = (uint32_t)least(a->bytes, MIB);
    if (!may_repeat(s) || is_live(b) || !can_name(s->at, other, a->thread)) {
        return;
    }
    for (int i = 0; i < ROUNDS_FEW && failure[0] == '\0'; i++) {
        before = i == ROUNDS_FIRST ? range_of(s)->mapped_bytes : before;
        act_alloc(s, &one);
        if (!is_live(b) || !hand_on(s, b, other, a->thread)) {
            return;
        }
        if (a->choice % 2 == 0) {
            mark_block(s, b, other);
        }
        queue_rewrite(s, b, other);
        b->is_plain = (b->recorded >> other & 1) != 0;
        (void)free_block(b, a->thread, true);
        wait_all(s->at);
        act_end_stream(s, &one);
    }
    check_growth(s, before, "streams that end");
}

#endif /* ASHLAR_WORLD_ROUNDS_H */
