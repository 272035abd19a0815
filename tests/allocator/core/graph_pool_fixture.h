/*
 * graph_pool_fixture.h - captures on the software device, and pools for them, for tests.
 */
#ifndef ASHLAR_GRAPH_POOL_FIXTURE_H
#define ASHLAR_GRAPH_POOL_FIXTURE_H

#include "tests/allocator/core/streams_fixture.h"

#include <ashlar/allocator.h>

static inline ashlar_graph_pool *pool_begin(ashlar_stream stream) {
    ashlar_graph_pool *pool = NULL;
    CHECK(ashlar_graph_pool_begin(allocator, stream, NULL, &pool) == ASHLAR_OK);
    check_all();
    return pool;
}

static inline void pool_end(ashlar_graph_pool *pool) {
    ashlar_graph_pool_end(pool);
    check_all();
}

static inline void pool_release(ashlar_graph_pool *pool, ashlar_stream stream) {
    CHECK(ashlar_graph_pool_release(pool, stream) == ASHLAR_OK);
    check_all();
}

static inline void capture_begin(ashlar_stream stream) {
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.stream_begin_capture(stream, CU_CAPTURE_GLOBAL) == CU_SUCCESS);
    ashlar__device_leave(device);
}

/* With success, which it does not have once anything illegal was called. */
static inline cu_graph_exec capture_end(ashlar_stream stream) {
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.stream_end_capture(stream, &graph) == CU_SUCCESS);
    CHECK(driver->table.graph_instantiate(&exec, graph, 0) == CU_SUCCESS);
    CHECK(driver->table.graph_destroy(graph) == CU_SUCCESS);
    ashlar__device_leave(device);
    return exec;
}

static inline void launch_graph(cu_graph_exec exec, ashlar_stream stream) {
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.graph_launch(exec, stream) == CU_SUCCESS);
    ashlar__device_leave(device);
}

static inline void drop_graph(cu_graph_exec exec) {
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.graph_exec_destroy(exec) == CU_SUCCESS);
    ashlar__device_leave(device);
}

/* A node of a graph runs as often as that is launched: its arguments are not ashlar_launch()'s. */
static inline void queue_node(ashlar_stream stream, void (*fn)(void *), payload *p) {
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.launch_host_func(stream, fn, p) == CU_SUCCESS);
    ashlar__device_leave(device);
}

static inline void use_in_graph(ashlar_stream stream, payload *p) {
    queue_node(stream, payload_write, p);
    queue_node(stream, payload_verify, p);
}

static inline uint64_t captures_now(void) {
    return atomic_load(&driver->capture_count);
}

#endif /* ASHLAR_GRAPH_POOL_FIXTURE_H */
