/*
 * world_blocks.h - the acts on blocks: taken, used on streams one after another or beside each
 * other, freed; and streams that end under them.
 */
#ifndef ASHLAR_WORLD_BLOCKS_H
#define ASHLAR_WORLD_BLOCKS_H

#include "tests/allocator/world/world_memory.h"

static inline bool is_live(const world_block *b) {
    return b->ptr != NULL;
}

/* The live map's value of a block: its slot. */
static inline uint32_t live_value(const world_block *b) {
    return (uint32_t)slot_of(b) + 1;
}

static inline void block_taken(store *s, const act *a, world_block *b, void *ptr) {
    size_t usable = 0;
    *b = (world_block){.ptr = ptr,
                       .bytes = a->bytes,
                       .stamp = ++next_stamp,
                       .store = a->store,
                       .tag = a->tag,
                       .home = a->lane,
                       .last = a->lane,
                       .is_plain = true,
                       .is_of_pool = s->capture.is_on && a->lane == s->capture.lane,
                       .is_of_step = s->step_depth[a->thread] > 0};
    b->block_bytes = bytes_of_block(a->bytes);
    sums_take(s, b);
    EXPECT((uintptr_t)ptr % ASHLAR_BLOCK_ALIGN == 0);
    const bool was_free = shadow_visit(ptr, b->bytes, SHADOW_LIVE, true, 0, true, live_value(b));
    EXPECT(was_free); /* else it overlaps a live block */
    if (a->choice % 8 == 0) {
        EXPECT_OK(ashlar_usable_bytes(s->allocator, ptr, &usable));
        EXPECT(usable >= b->bytes);
        EXPECT(b->is_of_step || b->is_of_pool ||
               usable == (world.set->guard != 0 ? b->bytes : b->block_bytes));
    }
    queue_first(s, b);
}

/* Another allocator's capture has a stream that this one may have memory of, and no pool for. */
static inline bool is_refused_rightly(const store *s, ashlar_status status) {
    return status == ASHLAR_EINVAL && is_beside_capture(s) &&
           strstr(ashlar_error_detail(), "without a pool of its own") != NULL;
}

static inline void take_block(store *s, const act *a) {
    world_block *b = &world.blocks[a->slot];
    void *ptr = NULL;
    TELL("CHECK(ashlar_alloc_tagged(a%d, %u, (ashlar_tag)%d, %s, &p[%d]) == ASHLAR_OK);", a->store,
         a->bytes, a->tag, name_of(s->at, a->lane), a->slot);
    const ashlar_status status = ashlar_alloc_tagged(s->allocator, a->bytes, (ashlar_tag)a->tag,
                                                     handle_of(s->at, a->lane), &ptr);
    if (status == ASHLAR_ENOMEM) {
        world.refused_count++;
        EXPECT(ptr == NULL && strstr(ashlar_error_detail(), " bytes asked for") != NULL);
        check_refusal(s, a->lane, bytes_of_block(a->bytes));
    } else if (status == ASHLAR_OK) {
        block_taken(s, a, b, ptr);
    } else if (is_refused_rightly(s, status)) {
        check_refused_beside(s, a->lane, bytes_of_block(a->bytes));
    } else {
        wrong("alloc: %s", ashlar_error_detail());
    }
}

/* A block of the graph that is captured: written, and found, at each launch. */
static inline void take_node(store *s, const act *a) {
    world_block *b = &world.blocks[a->slot];
    take_block(s, a);
    if (is_live(b)) {
        queue_verify(s, b, a->lane);
        b->is_frozen = true; /* it has contents only behind a launch */
    }
}

static inline void act_alloc(store *s, const act *a) {
    if (is_live(&world.blocks[a->slot])) {
        return;
    }
    if (s->capture.is_on && a->lane == s->capture.lane) {
        take_node(s, a);
    } else if (can_name(s->at, a->lane, a->thread)) {
        take_block(s, a);
    }
}

/* ---- frees ---- */

static inline void block_freed(store *s, world_block *b) {
    const bool was_own = shadow_visit(b->ptr, b->bytes, SHADOW_LIVE, true, live_value(b), true, 0);
    EXPECT(was_own);
    sums_give(s, b);
    note_gap(s, b);
    world.gone[world.gone_count++ % GONE_MAX] = b->ptr;
    *b = (world_block){0};
}

/* The last use, which finds what was written last; then the block is the allocator's. False: it is
 * another thread's to free. */
static inline bool free_block(world_block *b, int thread, bool wants_plain) {
    store *s = &world.stores[b->store];
    const bool has_last = b->last != NO_LANE && can_name(s->at, b->last, thread);
    const bool is_plain = b->is_plain && (wants_plain || !has_last);
    ashlar_status status = ASHLAR_OK;
    if (!is_plain &&
        (!has_last || !come_after(s->at, b->readers & ~b->recorded, b->last, thread))) {
        return false;
    }
    if (has_last && !b->is_frozen) {
        queue_verify(s, b, b->last);
    }
    if (is_plain) {
        TELL("CHECK(ashlar_free(a%d, p[%d]) == ASHLAR_OK);", b->store, slot_of(b));
        status = ashlar_free(s->allocator, b->ptr);
    } else {
        TELL("CHECK(ashlar_free_on(a%d, p[%d], %s) == ASHLAR_OK);", b->store, slot_of(b),
             name_of(s->at, b->last));
        status = ashlar_free_on(s->allocator, b->ptr, handle_of(s->at, b->last));
    }
    if (status != ASHLAR_OK) {
        wrong("free: %s", ashlar_error_detail());
    }
    block_freed(s, b);
    return true;
}

static inline void act_free(store *unused, const act *a) {
    (void)unused;
    world_block *b = &world.blocks[a->slot];
    if (is_live(b)) {
        (void)free_block(b, a->thread, a->choice % 2 == 0);
    }
}

static inline void act_free_many(store *unused, const act *a) {
    (void)unused;
    for (size_t i = a->slot; i < SLOTS; i++) {
        if (is_live(&world.blocks[i]) && (a->choice >> i % 8 & 1) != 0) {
            (void)free_block(&world.blocks[i], a->thread, (a->choice >> i % 16 & 1) == 0);
        }
    }
}

/* Whether the block's last use is on a stream that is captured now, so that one more would be the
 * graph's. In a guard mode a free may need what is not to be queued in a capture. */
static inline bool is_captured(const world_block *b) {
    return (shut_lanes(world.stores[b->store].at) & bit_of(b->last)) != 0 ||
           (world.set->guard != 0 && is_any_captured());
}

/* Where memory is out: give up the last block that may be freed from here. */
static inline bool reclaim_block(void *user, size_t bytes) {
    const store *s = user;
    EXPECT(bytes > 0);
    for (size_t i = SLOTS; i-- > 0;) {
        world_block *b = &world.blocks[i];
        if (is_live(b) && b->store == store_number(s) && b->is_plain && !is_captured(b)) {
            return free_block(b, world.now->thread, true);
        }
    }
    return false;
}

/* ---- uses ---- */

static inline void mark_block(store *s, world_block *b, int lane) {
    TELL("CHECK(ashlar_record_stream(a%d, p[%d], %s) == ASHLAR_OK);", b->store, slot_of(b),
         name_of(s->at, lane));
    EXPECT_OK(ashlar_record_stream(s->allocator, b->ptr, handle_of(s->at, lane)));
    b->recorded |= lane != b->home ? 1u << lane : 0; /* the block's own changes nothing */
    b->told |= 1u << lane;
}

/* The block is another lane's from now on, behind all who use it. */
static inline bool hand_on(store *s, world_block *b, int lane, int thread) {
    if (!come_after(s->at, bit_of(b->last) | b->readers, lane, thread)) {
        return false;
    }
    b->last = lane;
    b->readers = 0;
    b->is_plain = lane == b->home || (b->recorded >> lane & 1) != 0;
    return true;
}

static inline void act_use(store *unused, const act *a) {
    (void)unused;
    world_block *b = &world.blocks[a->slot];
    store *s = &world.stores[b->store];
    if (is_live(b) && !b->is_frozen && b->last != NO_LANE && can_name(s->at, b->last, a->thread) &&
        hand_on(s, b, b->last, a->thread)) {
        queue_rewrite(s, b, b->last);
    }
}

/* Used on another lane; the allocator is told before, after, or not at all. */
static inline void act_move(store *unused, const act *a) {
    (void)unused;
    world_block *b = &world.blocks[a->slot];
    store *s = &world.stores[b->store];
    if (!is_live(b) || b->is_frozen || b->last == NO_LANE || !can_name(s->at, a->lane, a->thread) ||
        !hand_on(s, b, a->lane, a->thread)) {
        return;
    }
    if (a->choice % 4 == 1) {
        mark_block(s, b, a->lane);
    }
    queue_rewrite(s, b, a->lane);
    if (a->choice % 4 == 3) {
        mark_block(s, b, a->lane);
    }
    b->is_plain = a->lane == b->home || (b->recorded >> a->lane & 1) != 0;
}

/* Read on another lane, beside whoever else does, which the allocator is told of. */
static inline void act_read(store *unused, const act *a) {
    (void)unused;
    world_block *b = &world.blocks[a->slot];
    store *s = &world.stores[b->store];
    if (is_live(b) && !b->is_frozen && b->last != NO_LANE && can_name(s->at, a->lane, a->thread) &&
        come_after(s->at, bit_of(b->last), a->lane, a->thread)) {
        mark_block(s, b, a->lane);
        queue_verify(s, b, a->lane);
        b->readers |= a->lane != b->last ? 1u << a->lane : 0;
    }
}

static inline void act_mark(store *unused, const act *a) {
    (void)unused;
    world_block *b = &world.blocks[a->slot];
    store *s = &world.stores[b->store];
    if (is_live(b) && can_name(s->at, a->lane, a->thread)) {
        mark_block(s, b, a->lane);
        if (b->last == a->lane) {
            b->is_plain = true;
        }
    }
}

/* ---- streams that end ---- */

/* Whether the allocator knows of all that the lane did with the block. */
static inline bool is_covered(const world_block *b, int lane) {
    return lane == b->home || (b->recorded >> lane & 1) != 0;
}

/* The lane is about to be gone: `heir` takes its uses over where the allocator knows nothing of
 * them or, in half of all cases, though it does. */
static inline void leave_block(world_block *b, int lane, int heir, bool hands_over) {
    store *s = &world.stores[b->store];
    const bool is_reader = (b->readers >> lane & 1) != 0;
    if (b->last == lane && is_covered(b, lane) && !hands_over &&
        (b->readers & ~b->recorded & ~bit_of(b->home)) == 0) {
        b->last = NO_LANE;
        b->is_frozen = true;
        b->is_plain = true;
    } else if (b->last == lane) {
        order_lanes(s->at, lane, heir);
        b->last = heir;
        b->readers &= ~bit_of(heir);
        b->is_plain = is_covered(b, heir);
    }
    if (is_reader && b->last != NO_LANE && b->last != lane) {
        if (lane == b->home || hands_over) {
            order_lanes(s->at, lane, b->last);
        } else {
            b->is_frozen = true;
        }
    }
    b->readers &= ~bit_of(lane);
    b->recorded &= ~bit_of(lane);
    b->told &= ~bit_of(lane);
    b->home = b->home == lane ? NO_LANE : b->home;
}

/* Watched streams are not to end while a live block is marked for them. */
static inline bool may_end(const place *at, int lane, int heir, int thread) {
    if ((at->captured & bit_of(lane)) != 0) {
        return false;
    }
    for (size_t i = 0; i < SLOTS; i++) {
        const world_block *b = &world.blocks[i];
        const store *s = &world.stores[b->store];
        if (!is_live(b) || s->at != at) {
            continue;
        }
        const bool is_reader = (b->readers >> lane & 1) != 0;
        if ((s->is_watched && (b->told >> lane & 1) != 0) ||
            (is_reader && b->last != NO_LANE && !can_name(at, b->last, thread)) ||
            !can_name(at, heir, thread)) {
            return false;
        }
    }
    return true;
}

static inline void leave_blocks(const place *at, int lane, int heir, unsigned choice) {
    for (size_t i = 0; i < SLOTS; i++) {
        world_block *b = &world.blocks[i];
        if (is_live(b) && world.stores[b->store].at == at) {
            leave_block(b, lane, heir, (choice >> i % 8 & 1) != 0);
        }
    }
}

/* A stream that has nothing to do with the program's takes over what comes behind a graph. */
static inline void leave_graphs(place *at, int lane) {
    for (int i = 0; i < world.set->store_count; i++) {
        store *s = &world.stores[i];
        if (s->at == at && s->pool != NULL && s->graph_lane == lane) {
            s->graph_lane = LANE_MADE;
            while (s->graph_lane == lane || (at->captured & bit_of(s->graph_lane)) != 0) {
                s->graph_lane++;
            }
            order_lanes(at, lane, s->graph_lane);
        }
    }
}

/* By the library, or by the program itself behind ashlar_allocator_forget_stream(). */
static inline void end_stream(place *at, int lane, bool by_library) {
    const ashlar_driver_table *table = &at->device->driver->table;
    if (by_library) {
        TELL("ashlar_stream_destroy(device%d, %s);", place_number(at), name_of(at, lane));
        ashlar_stream_destroy(at->device, at->made[lane]);
        return;
    }
    for (int i = 0; i < world.set->store_count; i++) {
        store *s = &world.stores[i];
        if (s->at == at && !s->is_watched) {
            TELL("CHECK(ashlar_allocator_forget_stream(a%d, %s) == ASHLAR_OK);", i,
                 name_of(at, lane));
            EXPECT_OK(ashlar_allocator_forget_stream(s->allocator, at->made[lane]));
        }
    }
    TELL("destroy_only(%s); /* cuStreamDestroy */", name_of(at, lane));
    EXPECT_OK(ashlar__device_enter(at->device));
    EXPECT(table->stream_destroy(at->made[lane]) == CU_SUCCESS);
    ashlar__device_leave(at->device);
}

/* The calling thread's own default streams are about to be gone. False: they cannot be. */
static inline bool leave_thread(int thread) {
    const int lane = LANE_OF_THREAD + thread;
    for (int i = 0; i < PLACES; i++) {
        if (!may_end(&world.places[i], lane, LANE_LEGACY, thread)) {
            return false;
        }
    }
    for (int i = 0; i < PLACES; i++) {
        leave_blocks(&world.places[i], lane, LANE_LEGACY, UINT32_MAX);
    }
    return true;
}

static inline void act_end_stream(store *s, const act *a) {
    const int lane = a->lane >= LANE_MADE ? a->lane : LANE_MADE + a->lane;
    const int heir = a->other == lane ? LANE_LEGACY : a->other;
    if (may_end(s->at, lane, heir, a->thread)) {
        leave_graphs(s->at, lane);
        leave_blocks(s->at, lane, heir, a->choice);
        end_stream(s->at, lane, (a->choice & 0x100) != 0);
        make_lane(s->at, lane);
    }
}

#endif /* ASHLAR_WORLD_BLOCKS_H */
