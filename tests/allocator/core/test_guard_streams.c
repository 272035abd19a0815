/*
 * test_guard_streams.c - guard=fill where several streams, threads and captures meet: marked
 * blocks, streams that end or are lost, handles that come back, default streams of threads, pools.
 */
#include "tests/allocator/core/guard_fixture.h"

#include <ashlar/graph_pool.h>

#define LATE "memory=64MiB,mode=adversarial,seed=11"

static ashlar_stream new_stream(void) {
    ashlar_stream stream = NULL;
    CHECK(ashlar_stream_create(device, &stream) == ASHLAR_OK);
    return stream;
}

static void mark(void *ptr, ashlar_stream stream) {
    CHECK(ashlar_record_stream(allocator, ptr, stream) == ASHLAR_OK);
    check_all();
}

/* Free so many blocks that every older one leaves the quarantine of guard=fill. */
static void push_out_quarantine(void) {
    for (int i = 0; i < ASHLAR_QUARANTINE_BLOCKS; i++) {
        CHECK(ashlar_free(allocator, take(1, streams[3])) == ASHLAR_OK);
    }
}

static void end_without_report(void) {
    tear_down();
    CHECK(report_count == 0);
    CHECK(atomic_load(&payload_bad_count) == 0);
}

static bool set_up_late(ashlar_guard guard) {
    atomic_store(&payload_bad_count, 0);
    return set_up_guarded(LATE, guard);
}

/* ---- streams that end ---- */

static void check_lost(ashlar_guard guard, bool is_marked) {
    REQUIRE(set_up_late(guard));
    ashlar_stream doomed = new_stream();
    unsigned char *ptr = take(3000, is_marked ? streams[0] : doomed);
    if (is_marked) {
        mark(ptr, doomed);
    }
    queue_write(doomed, ptr, 3000, 0x21);
    queue_verify(doomed, ptr, 3000, 0x21);
    DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_event_record, 1, CU_UNKNOWN,
                    ashlar_stream_destroy(device, doomed));
    give(ptr);
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_EPOINTER);
    CHECK(stats_now().live_blocks == 0);
    for (int i = 0; i < 100; i++) {
        give(take(5000, streams[i % STREAMS]));
    }
    end_without_report();
}

CASE(a_filled_block_marked_for_a_stream_without_a_last_event_can_be_freed) {
    check_lost(ASHLAR_GUARD_FILL, true);
}

/* ---- captures ---- */

static void check_captured(ashlar_guard guard) {
    REQUIRE(set_up_late(guard));
    ashlar_graph_pool *pool = NULL;
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    unsigned char *before = take(700, streams[0]), *free_during = take(800, streams[1]);
    CHECK(ashlar_graph_pool_begin(allocator, streams[0], &pool) == ASHLAR_OK);
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.stream_begin_capture(streams[0], CU_CAPTURE_GLOBAL) == CU_SUCCESS);
    unsigned char *kept = take(600, streams[0]), *gone = take(600, streams[0]);
    const payload p = {gone, 600, 3}, q = {kept, 600, 4};
    CHECK(driver->table.launch_host_func(streams[0], payload_write, (void *)&p) == CU_SUCCESS);
    CHECK(driver->table.launch_host_func(streams[0], payload_write, (void *)&q) == CU_SUCCESS);
    give(gone);
    give(free_during);
    CHECK_FAILS(ashlar_free(allocator, before), ASHLAR_EINVAL, "captured");
    CHECK(driver->table.stream_end_capture(streams[0], &graph) == CU_SUCCESS);
    CHECK(driver->table.graph_instantiate(&exec, graph, 0) == CU_SUCCESS);
    CHECK(driver->table.graph_destroy(graph) == CU_SUCCESS);
    ashlar_graph_pool_end(pool);
    check_all(); /* a graph's blocks and pages in one snapshot */
    for (int i = 0; i < 3; i++) {
        CHECK(driver->table.graph_launch(exec, streams[0]) == CU_SUCCESS);
        push_out_quarantine();
    }
    give(before);
    queue_verify(streams[0], kept, 600, 4);
    CHECK(driver->table.graph_exec_destroy(exec) == CU_SUCCESS);
    ashlar__device_leave(device);
    CHECK(ashlar_graph_pool_release(pool, streams[0]) == ASHLAR_OK);
    give(kept);
    wait_for(streams[0]);
    end_without_report();
}

CASE(graphs_are_captured_and_launched_beside_filled_blocks) {
    check_captured(ASHLAR_GUARD_FILL);
}

/* What was freed before is in quarantine on a stream that may have ended by the time it leaves. */
CASE_WITH(the_quarantine_is_compared_when_watching_begins, set_up_late(ASHLAR_GUARD_FILL)) {
    ashlar_stream doomed = new_stream();
    unsigned char *ptr = take(5000, doomed);
    give(ptr);
    poke(doomed, ptr + 100, 0x21);
    ashlar_allocator_watch_streams(allocator);
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.stream_destroy(doomed) == CU_SUCCESS);
    ashlar__device_leave(device);
    CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_EDAMAGE);
    push_out_quarantine();
    CHECK(report_count == 1);
}

RUN_CASES()
