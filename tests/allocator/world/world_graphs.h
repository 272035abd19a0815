/*
 * world_graphs.h - captures: a graph with a pool of its own, launched and released at other times.
 *
 * A capture is one act, with ordinary requests on another stream in the middle; or it begins with
 * one act and ends with another, and whatever is legal meanwhile comes between. What is live when
 * it ends is the graph's result: the program frees it some time, before or after the release.
 */
#ifndef ASHLAR_WORLD_GRAPHS_H
#define ASHLAR_WORLD_GRAPHS_H

#include <ashlar/allocator.h>

#include "tests/allocator/world/world_blocks.h"

/* The store's graph; it has one at most. */
static inline bool has_graph(const store *s) {
    return s->pool != NULL;
}

static inline void drop_exec(store *s) {
    TELL("drop_graph(exec%d);", store_number(s));
    EXPECT_OK(ashlar__device_enter(s->at->device));
    EXPECT(s->at->device->driver->table.graph_exec_destroy(s->exec) == CU_SUCCESS);
    ashlar__device_leave(s->at->device);
    s->exec = NULL;
}

/* ---- where a capture begins and ends ---- */

/* A new pool, or that of the graph before, which ends. */
static inline void begin_pool(store *s, int lane) {
    const ashlar_stream stream = s->at->made[lane];
    if (!has_graph(s)) {
        TELL("CHECK(ashlar_graph_pool_begin(a%d, %s, NULL, &pool%d) == ASHLAR_OK);",
             store_number(s), name_of(s->at, lane), store_number(s));
        EXPECT_OK(ashlar_graph_pool_begin(s->allocator, stream, NULL, &s->pool));
        s->graph_lane = lane;
        return;
    }
    drop_exec(s);
    TELL("CHECK(ashlar_graph_pool_begin(a%d, %s, pool%d, &pool%d) == ASHLAR_OK);", store_number(s),
         name_of(s->at, lane), store_number(s), store_number(s));
    EXPECT_OK(ashlar_graph_pool_begin(s->allocator, stream, s->pool, &s->pool));
}

/* On a watched stream an event is recorded at each call. */
static inline bool may_capture(const store *s, int lane, int thread) {
    return !s->capture.is_on && lane >= LANE_MADE && can_name(s->at, lane, thread) &&
           !s->is_watched;
}

/* For all streams, or at least for those that cannot be asked until the capture ends. */
static inline void wait_before_capture(place *at, const act *a, int lane) {
    const int lanes[] = {lane, LANE_LEGACY, LANE_OF_THREAD + a->thread};
    if (a->choice / 6 % 2 == 0) {
        wait_all(at);
        return;
    }
    for (int i = 0; i < 3; i++) {
        TELL("wait_for(%s);", name_of(at, lanes[i]));
        EXPECT_OK(ashlar_stream_synchronize(at->device, handle_of(at, lanes[i])));
    }
}

/* waits: before it begins, so that what is idle can be known to be. */
static inline void begin_capture(store *s, const act *a, int lane, bool waits) {
    static const char *const names[] = {"GLOBAL", "THREAD_LOCAL", "RELAXED"};
    static const unsigned modes[] = {CU_CAPTURE_GLOBAL, CU_CAPTURE_THREAD_LOCAL,
                                     CU_CAPTURE_RELAXED};
    const bool may_settle = waits && may_wait_all(s->at);
    if (may_settle) {
        wait_before_capture(s->at, a, lane);
    }
    if (!is_any_captured()) {
        forget_gaps(s); /* nothing is closed but what is freed from now on */
    }
    begin_pool(s, lane);
    s->capture = (world_capture){.is_on = true,
                                 .is_settled = may_settle || !world.set->is_adversarial,
                                 .lane = lane,
                                 .thread = a->thread,
                                 .mode = modes[a->choice % 3],
                                 .lanes = bit_of(lane),
                                 .plan_bytes = plan_bytes(s)};
    TELL("capture_begin(%s, CU_CAPTURE_%s);", name_of(s->at, lane), names[a->choice % 3]);
    EXPECT_OK(ashlar__device_enter(s->at->device));
    EXPECT(s->at->device->driver->table.stream_begin_capture(s->at->made[lane], s->capture.mode) ==
           CU_SUCCESS);
    ashlar__device_leave(s->at->device);
    s->at->captured |= s->capture.lanes;
}

/* Nothing that was called since has spoilt it. */
static inline void end_capture(store *s) {
    place *at = s->at;
    const ashlar_driver_table *table = &at->device->driver->table;
    cu_graph graph = NULL;
    TELL("exec%d = capture_end(%s);", store_number(s), name_of(at, s->capture.lane));
    EXPECT_OK(ashlar__device_enter(at->device));
    const cu_result result = table->stream_end_capture(at->made[s->capture.lane], &graph);
    EXPECT(result == CU_SUCCESS);
    if (result == CU_SUCCESS) {
        EXPECT(table->graph_instantiate(&s->exec, graph, 0) == CU_SUCCESS);
        EXPECT(table->graph_destroy(graph) == CU_SUCCESS);
    }
    ashlar__device_leave(at->device);
    at->captured &= ~s->capture.lanes;
    s->capture = (world_capture){.is_on = false};
    TELL("ashlar_graph_pool_end(pool%d);", store_number(s));
    ashlar_graph_pool_end(s->pool);
}

/* ---- what is captured ---- */

/* Its last use is on the fork, which the allocator is told at the free or before. */
static inline void free_on_fork(store *s, world_block *b, const act *a) {
    if (a->choice / 8 % 3 == 2) {
        mark_block(s, b, LANE_FORK);
        (void)free_block(b, a->thread, true);
        return;
    }
    TELL("CHECK(ashlar_free_on(a%d, p[%d], %s) == ASHLAR_OK);", b->store, slot_of(b),
         name_of(s->at, LANE_FORK));
    EXPECT_OK(ashlar_free_on(s->allocator, b->ptr, handle_of(s->at, LANE_FORK)));
    b->last = LANE_FORK;
    block_freed(s, b);
}

/* A second stream takes part, has a block last, and the captured one goes on beside it. */
static inline void fork_capture(store *s, const act *a) {
    world_block *b = &world.blocks[a->slot];
    act next = *a;
    if (is_live(b) || (s->at->captured & bit_of(LANE_FORK)) != 0) {
        return;
    }
    next.lane = (uint8_t)s->capture.lane;
    take_node(s, &next);
    if (!is_live(b)) {
        return;
    }
    order_lanes(s->at, s->capture.lane, LANE_FORK);
    s->at->captured |= bit_of(LANE_FORK);
    s->capture.lanes |= bit_of(LANE_FORK);
    queue_verify(s, b, LANE_FORK);
    free_on_fork(s, b, a);
    if (a->choice % 4 != 0) {
        take_node(s, &next);
    }
    order_lanes(s->at, LANE_FORK, s->capture.lane);
}

/* One block of the graph, which may be freed at once. */
static inline void act_node(store *s, const act *a, bool is_kept) {
    world_block *b = &world.blocks[a->slot];
    if (is_live(b)) {
        return;
    }
    take_node(s, a);
    if (is_live(b) && !is_kept) {
        (void)free_block(b, a->thread, true);
    }
}

static inline void fill_graph(store *s, const act *a) {
    uint64_t random = a->choice;
    const uint64_t count = 1 + ashlar__random_step_below(&random, 5);
    for (uint64_t i = 0; i < count; i++) {
        act node = *a;
        node.slot = (uint8_t)ashlar__random_step_below(&random, FREE_SLOTS);
        node.bytes = (uint32_t)(16 + ashlar__random_step_below(&random, i == 3 ? MIB : 8 * KIB));
        act_node(s, &node, ashlar__random_step_below(&random, 3) == 0);
        act other = node;
        other.slot = (uint8_t)ashlar__random_step_below(&random, FREE_SLOTS);
        other.lane = a->other;
        act_alloc(s, &other);
    }
}

/* In a guard mode work is queued at each call, which would be an error on the legacy stream, or a
 * node, with a blocking stream in a capture. */
static inline void act_graph(store *s, const act *a) {
    enum { UNORDERED = LANE_MADE + 1, UNORDERED_TOO = LANE_MADE + 3 };
    act inside = *a;
    if (world.set->guard != 0) {
        inside.lane = a->lane % 2 == 0 ? UNORDERED : UNORDERED_TOO;
        inside.other = UNORDERED + UNORDERED_TOO - inside.lane;
    }
    if ((has_graph(s) && a->choice % 5 < 3) || !may_capture(s, inside.lane, a->thread)) {
        return;
    }
    begin_capture(s, a, inside.lane, a->choice / 3 % 2 == 0);
    fill_graph(s, &inside);
    if (world.set->has_law && a->choice / 6 % 2 == 0) {
        inside.bytes = a->bytes;
        fork_capture(s, &inside);
    }
    end_capture(s);
}

/* ---- captures of many acts ---- */

static inline void act_capture(store *s, const act *a) {
    if (world.set->guard == 0 && may_capture(s, a->lane, a->thread)) {
        begin_capture(s, a, a->lane, a->choice / 3 % 2 == 0);
    }
}

static inline void act_capture_fork(store *s, const act *a) {
    if (s->capture.is_on && world.set->has_law) {
        fork_capture(s, a);
    }
}

/* On the thread that began it, or on any. */
static inline void act_capture_end(store *s, const act *a) {
    const world_capture *c = &s->capture;
    if (c->is_on && (c->thread == a->thread || c->mode == CU_CAPTURE_RELAXED)) {
        end_capture(s);
    }
}

/* Whether a thread has captures that only it can end. */
static inline bool has_captures(int thread) {
    bool has_some = false;
    for (int i = 0; i < STORES; i++) {
        has_some =
            has_some || (world.stores[i].capture.is_on && world.stores[i].capture.thread == thread);
    }
    return has_some;
}

/* ---- launches ---- */

static inline void act_launch(store *s, const act *a) {
    if (!has_graph(s) || s->capture.is_on || a->lane < LANE_MADE ||
        !can_name(s->at, a->lane, a->thread) || !can_name(s->at, s->graph_lane, a->thread)) {
        return;
    }
    order_lanes(s->at, s->graph_lane, a->lane);
    TELL("launch_graph(exec%d, %s);", a->store, name_of(s->at, a->lane));
    EXPECT_OK(ashlar__device_enter(s->at->device));
    EXPECT(s->at->device->driver->table.graph_launch(s->exec, s->at->made[a->lane]) == CU_SUCCESS);
    ashlar__device_leave(s->at->device);
    s->graph_lane = a->lane;
}

/* Behind the last launch. What is live counts as taken for that stream. */
static inline void act_release(store *s, const act *unused) {
    (void)unused;
    if (!has_graph(s) || s->capture.is_on || (s->at->captured & bit_of(s->graph_lane)) != 0) {
        return;
    }
    drop_exec(s);
    TELL("CHECK(ashlar_graph_pool_release(pool%d, %s) == ASHLAR_OK);", store_number(s),
         name_of(s->at, s->graph_lane));
    EXPECT_OK(ashlar_graph_pool_release(s->pool, handle_of(s->at, s->graph_lane)));
    s->pool = NULL;
    if (!is_any_captured()) {
        forget_gaps(s);
    }
    for (size_t i = 0; i < SLOTS; i++) {
        world_block *b = &world.blocks[i];
        if (is_live(b) && b->is_of_pool && &world.stores[b->store] == s) {
            b->is_of_pool = false;
            b->home = b->last = s->graph_lane;
        }
    }
}

#endif /* ASHLAR_WORLD_GRAPHS_H */
