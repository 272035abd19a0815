/*
 * world_draw.h - draws a program from a seed: stretches of acts that have a thread, an allocator
 * and a stream in common, and steps that repeat.
 */
#ifndef ASHLAR_WORLD_DRAW_H
#define ASHLAR_WORLD_DRAW_H

#include "allocator/base/random.h"
#include "tests/allocator/world/world_program.h"

/* One allocation of a step that repeats: freed when `end` of them have been made. */
typedef struct step_item {
    uint32_t bytes;
    uint8_t tag, lane, other;
    uint8_t fate; /* 0 .. 3: at home; 4: moved; 5: shared; 6: outlives the step */
    uint8_t end;
} step_item;

typedef struct step_shape {
    step_item items[STEP_ITEMS];
    uint8_t count, lane, store;
} step_shape;

typedef struct drawing {
    uint64_t random;
    world_program *to;
    uint64_t small_part; /* of 16 sizes, how many are small */
    unsigned shares[ACT_COUNT], share_total;
    unsigned step_part; /* of 64 draws, how many are steps that repeat */
    step_shape shapes[KEYS];
    int thread, store, lane; /* of the stretch that is drawn */
} drawing;

static inline uint64_t drawn(drawing *d, uint64_t below) {
    return (ashlar__random_step(&d->random) >> 16) % below;
}

static inline uint32_t draw_bytes(drawing *d) {
    static const uint32_t usual[] = {512, 4096, 65536, 2 * 1048576 + 512};
    const size_t kind = drawn(d, 16) < d->small_part ? drawn(d, 128) : drawn(d, 200);
    if (drawn(d, 3) == 0) {
        return usual[drawn(d, kind < 128 ? 3 : 4)];
    }
    const uint64_t most = kind < 100   ? 4 * KIB
                          : kind < 150 ? 256 * KIB
                          : kind < 190 ? 2 * MIB
                          : kind < 199 ? 10 * MIB
                                       : d->to->set.memory_mib * MIB;
    return (uint32_t)(16 + drawn(d, most - 16));
}

static inline setting draw_setting(drawing *d, const world_wish *wish) {
    static const uint32_t memories[] = {16, 32, 64, 64};
    static const uint64_t caches[] = {0, 256 * KIB, CACHE_AUTO, CACHE_AUTO};
    setting s = {.is_adversarial = wish->mode < 0 ? drawn(d, 4) > 0 : wish->mode >= 1,
                 .overlaps = wish->mode == 2};
    s.has_vmm = drawn(d, 4) > 0;
    s.recycles = drawn(d, 2) == 0;
    s.zeroes = drawn(d, 32) == 0;
    s.reclaims = drawn(d, 4) == 0;
    s.goes_abroad = drawn(d, 8) == 0;
    s.guard = drawn(d, 20) == 0 ? ASHLAR_GUARD_FILL : ASHLAR_GUARD_OFF;
    s.thread_count = wish->threads > 0 ? wish->threads : drawn(d, 3) > 0 ? 1 : THREADS;
    s.store_count = drawn(d, 2) == 0 ? 1 : 2 + (int)drawn(d, 2);
    s.memory_mib = memories[s.zeroes || s.guard != 0 ? 0 : drawn(d, 4)]; /* fills are slow */
    s.handle_mib = drawn(d, 8) == 0 ? 8 : 2;
    s.cache_bytes = caches[drawn(d, 4)];
    s.waits = s.is_adversarial && drawn(d, 4) == 0;
    s.shares = s.has_vmm && drawn(d, 4) == 0;
    s.has_law = wish->has_law;
    return s;
}

/* Each kind of act but the plainest is left out of some programs, and frequent in others. */
static inline void draw_shares(drawing *d) {
    static const unsigned times[] = {0, 1, 1, 1, 4};
    for (int kind = 0; kind < ACT_COUNT; kind++) {
        const bool is_plain = kind == ACT_ALLOC || kind == ACT_FREE;
        d->shares[kind] = act_shares[kind] * (is_plain ? 1 : times[drawn(d, 5)]);
        d->share_total += d->shares[kind];
    }
    static const unsigned odds[] = {0, 2, 4, 8};
    d->step_part = odds[drawn(d, 4)];
}

static inline int draw_lane(drawing *d, int thread) {
    const int lane = (int)drawn(d, LANES_DRAWN);
    return lane >= LANE_OF_THREAD && lane < LANE_MADE ? LANE_OF_THREAD + thread : lane;
}

static inline void draw_shapes(drawing *d) {
    for (int key = 0; key < KEYS; key++) {
        step_shape *shape = &d->shapes[key];
        const int lane_count = 1 + (int)drawn(d, 3);
        const size_t plain = drawn(d, 3); /* how often a block stays at home */
        shape->count = (uint8_t)(2 + drawn(d, STEP_ITEMS - 2));
        shape->lane = (uint8_t)(LANE_MADE + drawn(d, LANES_DRAWN - LANE_MADE));
        shape->store = (uint8_t)drawn(d, (uint64_t)d->to->set.store_count);
        for (uint8_t i = 0; i < shape->count; i++) {
            step_item *it = &shape->items[i];
            const size_t lane = shape->lane + drawn(d, (uint64_t)lane_count);
            *it = (step_item){.bytes = draw_bytes(d), .tag = (uint8_t)drawn(d, 3)};
            it->lane = (uint8_t)(lane < LANES_DRAWN ? lane : lane - LANES_DRAWN + LANE_MADE);
            it->other = (uint8_t)draw_lane(d, 0);
            it->fate = drawn(d, 3) < plain ? 0 : (uint8_t)drawn(d, 7);
            it->end = (uint8_t)(i + 1 + drawn(d, (uint64_t)(shape->count - i)));
        }
    }
}

static inline void put_act(drawing *d, act a) {
    if (d->to->count < ACTS_MAX) {
        a.thread = (uint8_t)d->thread;
        d->to->acts[d->to->count++] = a;
    }
}

/* Behind a warm-up: steps of any lengths, and whatever lets the device go on in between. */
static inline void draw_warm_steps(drawing *d, act a) {
    static const act_kind kinds[] = {ACT_WARM_STEP, ACT_WARM_STEP, ACT_WARM_STEP,
                                     ACT_WARM_STEP, ACT_WAIT,      ACT_WAIT_ALL};
    for (uint64_t left = drawn(d, 24); left > 0; left--) {
        a.kind = (uint8_t)kinds[drawn(d, 6)];
        a.choice = (uint16_t)drawn(d, 1 << 16);
        a.lane = (uint8_t)draw_lane(d, d->thread);
        put_act(d, a);
    }
}

static inline void draw_act(drawing *d) {
    act a = {.store = (uint8_t)d->store, .key = (uint8_t)drawn(d, KEYS)};
    uint64_t at = drawn(d, d->share_total);
    while (at >= d->shares[a.kind]) {
        at -= d->shares[a.kind++];
    }
    a.slot = (uint8_t)(drawn(d, 16) > 0 ? drawn(d, FREE_SLOTS) : drawn(d, SLOTS));
    a.lane = (uint8_t)(drawn(d, 3) > 0 ? d->lane : draw_lane(d, d->thread));
    a.other = (uint8_t)draw_lane(d, d->thread);
    a.tag = (uint8_t)drawn(d, 8);
    a.bytes = draw_bytes(d);
    a.choice = (uint16_t)drawn(d, 1 << 16);
    put_act(d, a);
    if (a.kind == ACT_WARMUP) {
        draw_warm_steps(d, a);
    }
}

/* An act for item i of a key's step. */
static inline act item_act(const drawing *d, int key, uint8_t i, act_kind kind) {
    const step_item *it = &d->shapes[key].items[i];
    return (act){.kind = (uint8_t)kind,
                 .store = d->shapes[key].store,
                 .lane = kind == ACT_ALLOC ? it->lane : it->other,
                 .other = it->lane,
                 .key = (uint8_t)key,
                 .tag = it->tag,
                 .slot = (uint8_t)(FREE_SLOTS + key * STEP_ITEMS + i),
                 .bytes = it->bytes};
}

/* What becomes of the blocks that end when `made` have been taken. */
static inline void draw_ends(drawing *d, int key, uint8_t made, unsigned odds) {
    const step_shape *shape = &d->shapes[key];
    for (uint8_t i = 0; i < made; i++) {
        const step_item *it = &shape->items[i];
        if (it->end == made && it->fate != 6 && drawn(d, 256) >= odds) {
            if (it->fate == 4 || it->fate == 5) {
                put_act(d, item_act(d, key, i, it->fate == 4 ? ACT_MOVE : ACT_READ));
            }
            put_act(d, item_act(d, key, i, ACT_FREE));
        }
    }
}

/* What the last step left of a key; of 4 blocks, `part` are freed. */
static inline void draw_frees(drawing *d, int key, uint64_t part) {
    for (uint8_t i = 0; i < d->shapes[key].count; i++) {
        if (drawn(d, 4) < part) {
            put_act(d, item_act(d, key, i, ACT_FREE));
        }
    }
}

/* Of 256: how often an item of a step is left out or joined by an act; how often one is kept. */
typedef struct step_odds {
    unsigned change, keep;
} step_odds;

static inline void draw_step(drawing *d, int key, step_odds odds) {
    const step_shape *shape = &d->shapes[key];
    act a = {.kind = ACT_STEP_BEGIN, .store = shape->store, .lane = shape->lane};
    a.key = (uint8_t)key;
    put_act(d, a);
    for (uint8_t i = 0; i < shape->count; i++) {
        draw_ends(d, key, i, odds.keep);
        if (drawn(d, 256) >= odds.change) {
            put_act(d, item_act(d, key, i, ACT_ALLOC));
        }
        if (drawn(d, 256) < odds.change) {
            draw_act(d);
        }
    }
    draw_ends(d, key, shape->count, odds.keep);
    a.kind = ACT_STEP_END;
    put_act(d, a);
}

/* Blocks of a step outlive it and its stream, some marked for others, while its plan goes on. */
static inline void draw_carried_step(drawing *d, int key) {
    const step_shape *shape = &d->shapes[key];
    draw_frees(d, key, 4);
    draw_step(d, key, (step_odds){0, 48});
    for (uint8_t i = 0; i < shape->count; i++) {
        if (drawn(d, 2) == 0) {
            put_act(d, item_act(d, key, i, drawn(d, 2) == 0 ? ACT_READ : ACT_MARK));
        }
    }
    put_act(d, (act){.kind = ACT_END_STREAM,
                     .store = shape->store,
                     .lane = shape->lane,
                     .other = (uint8_t)draw_lane(d, d->thread),
                     .choice = (uint16_t)drawn(d, 1 << 16)});
    draw_frees(d, key, drawn(d, 3));
    draw_step(d, key, (step_odds){0});
    draw_frees(d, key, 4);
    draw_step(d, key, (step_odds){0});
}

static inline void draw_steps(drawing *d) {
    static const unsigned all_odds[] = {0, 0, 4, 24};
    const int key = (int)drawn(d, KEYS);
    const unsigned odds = all_odds[drawn(d, 4)];
    if (drawn(d, 16) == 0) {
        draw_carried_step(d, key);
    } else {
        draw_frees(d, key, 3);
        draw_step(d, key, (step_odds){odds, odds});
    }
}

static inline void draw_program(world_program *p, uint64_t seed, const world_wish *wish) {
    enum { STRETCH = 24 };
    drawing d = {.random = ashlar__random_mix(seed + 1), .to = p};
    p->seed = seed;
    p->count = 0;
    p->set = draw_setting(&d, wish);
    d.small_part = drawn(&d, 17);
    draw_shares(&d);
    draw_shapes(&d);
    const size_t is_slow = p->set.guard != 0 || p->set.zeroes;
    const size_t wanted = 64 + drawn(&d, is_slow ? 200 : ACTS_MAX - 64);
    while (p->count < wanted) {
        d.thread = (int)drawn(&d, (uint64_t)p->set.thread_count);
        d.store = (int)drawn(&d, (uint64_t)p->set.store_count);
        d.lane = draw_lane(&d, d.thread);
        for (int i = 0; i < STRETCH; i++) {
            if (drawn(&d, 64) < d.step_part) {
                draw_steps(&d);
            } else {
                draw_act(&d);
            }
        }
    }
}

#endif /* ASHLAR_WORLD_DRAW_H */
