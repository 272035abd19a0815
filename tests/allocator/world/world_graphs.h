/*
 * world_graphs.h - captures: a graph with a pool of its own, launched and released at other times.
 *
 * A capture is one act, with ordinary requests on another stream in the middle. What is live when
 * it ends is the graph's result: the program frees it some time, before or after the release.
 */
#ifndef ASHLAR_WORLD_GRAPHS_H
#define ASHLAR_WORLD_GRAPHS_H

#include <ashlar/graph_pool.h>

#include "tests/allocator/world/world_blocks.h"

/* The store's graph; it has one at most. */
static inline bool has_graph(const store *s) {
    return s->pool != NULL;
}

/* One block of the graph: written, and found, at each launch. */
static inline void act_node(store *s, const act *a, bool is_kept) {
    world_block *b = &world.blocks[a->slot];
    if (is_live(b)) {
        return;
    }
    act_alloc(s, a);
    if (is_live(b)) {
        queue_verify(s, b, a->lane);
        b->is_frozen = true; /* it has contents only behind a launch */
        if (!is_kept) {
            (void)free_block(b, a->thread, true);
        }
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
        if (!is_live(&world.blocks[other.slot])) {
            act_alloc(s, &other);
        }
    }
}

static inline cu_graph_exec end_capture(place *at, int lane) {
    const ashlar_driver_table *table = &at->device->driver->table;
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    EXPECT_OK(ashlar__device_enter(at->device));
    const cu_result result = table->stream_end_capture(at->made[lane], &graph);
    EXPECT(result == CU_SUCCESS);
    if (result == CU_SUCCESS) {
        EXPECT(table->graph_instantiate(&exec, graph, 0) == CU_SUCCESS);
        EXPECT(table->graph_destroy(graph) == CU_SUCCESS);
    }
    ashlar__device_leave(at->device);
    return exec;
}

static inline void drop_exec(store *s) {
    TELL("drop_graph(exec%d);", store_number(s));
    EXPECT_OK(ashlar__device_enter(s->at->device));
    EXPECT(s->at->device->driver->table.graph_exec_destroy(s->exec) == CU_SUCCESS);
    ashlar__device_leave(s->at->device);
    s->exec = NULL;
}

/* A new pool, or that of the graph before, which ends. */
static inline void begin_pool(store *s, int lane) {
    const ashlar_stream stream = s->at->made[lane];
    if (!has_graph(s)) {
        TELL("CHECK(ashlar_graph_pool_begin(a%d, %s, &pool%d) == ASHLAR_OK);", store_number(s),
             name_of(s->at, lane), store_number(s));
        EXPECT_OK(ashlar_graph_pool_begin(s->allocator, stream, &s->pool));
        s->graph_lane = lane;
        return;
    }
    drop_exec(s);
    TELL("CHECK(ashlar_graph_pool_continue(pool%d, %s) == ASHLAR_OK);", store_number(s),
         name_of(s->at, lane));
    EXPECT_OK(ashlar_graph_pool_continue(s->pool, stream));
}

/* On a stream that the legacy one is not ordered with, since that would be an error in a capture;
 * the ordinary requests meanwhile are on another such stream. */
static inline void act_graph(store *s, const act *a) {
    enum { UNORDERED = LANE_MADE + 1, UNORDERED_TOO = LANE_MADE + 3 };
    act inside = *a;
    inside.lane = a->lane % 2 == 0 ? UNORDERED : UNORDERED_TOO;
    inside.other = UNORDERED + UNORDERED_TOO - inside.lane;
    if ((has_graph(s) && a->choice % 3 != 0) || s->is_watched || world.set->has_clocks) {
        return;
    }
    const ashlar_stream stream = s->at->made[inside.lane];
    const unsigned mode = a->choice % 2 == 0 ? CU_CAPTURE_GLOBAL : CU_CAPTURE_RELAXED;
    begin_pool(s, inside.lane);
    TELL("capture_begin(%s);", name_of(s->at, inside.lane));
    EXPECT_OK(ashlar__device_enter(s->at->device));
    EXPECT(s->at->device->driver->table.stream_begin_capture(stream, mode) == CU_SUCCESS);
    ashlar__device_leave(s->at->device);
    s->is_capturing = true;
    s->captured = stream;
    fill_graph(s, &inside);
    s->is_capturing = false;
    TELL("exec%d = capture_end(%s);", a->store, name_of(s->at, inside.lane));
    s->exec = end_capture(s->at, inside.lane);
    TELL("ashlar_graph_pool_end(pool%d);", a->store);
    ashlar_graph_pool_end(s->pool);
}

static inline void act_launch(store *s, const act *a) {
    if (!has_graph(s) || a->lane == LANE_LEGACY || !can_name(a->lane, a->thread) ||
        a->lane < LANE_MADE) {
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
static inline void act_release(store *s) {
    if (!has_graph(s)) {
        return;
    }
    drop_exec(s);
    TELL("CHECK(ashlar_graph_pool_release(pool%d, %s) == ASHLAR_OK);", store_number(s),
         name_of(s->at, s->graph_lane));
    EXPECT_OK(ashlar_graph_pool_release(s->pool, handle_of(s->at, s->graph_lane)));
    s->pool = NULL;
    for (size_t i = 0; i < SLOTS; i++) {
        world_block *b = &world.blocks[i];
        if (is_live(b) && b->is_of_pool && &world.stores[b->store] == s) {
            b->is_of_pool = false;
            b->home = b->last = s->graph_lane;
        }
    }
}

#endif /* ASHLAR_WORLD_GRAPHS_H */
