/*
 * test_guard_streams.c - guard=fill where several streams, threads and captures meet: marked
 * blocks, streams that end or are lost, handles that come back, default streams of threads, pools.
 */
#include "tests/allocator/core/guard_fixture.h"

#include <pthread.h>

#include <ashlar/graph_pool.h>

#define PAGE (2 * MIB)
#define LATE "memory=64MiB,mode=adversarial,seed=11"
#define PER_THREAD ((ashlar_stream)(uintptr_t)CU_STREAM_PER_THREAD)

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

/* ---- marked blocks ---- */

CASE_WITH(a_free_that_fails_forgets_no_marked_stream, set_up_late(ASHLAR_GUARD_FILL)) {
    unsigned char *ptr = take(5000, streams[0]);
    mark(ptr, streams[1]);
    queue_write(streams[1], ptr, 5000, 0x21);
    queue_verify(streams[1], ptr, 5000, 0x21);
    DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_memset_d8_async, 1, CU_UNKNOWN,
                    CHECK(ashlar_free(allocator, ptr) == ASHLAR_EDRIVER));
    give_on(ptr, streams[2]);
    wait_for(streams[2]); /* the fill comes behind what streams[1] does */
    wait_for(streams[1]);
    push_out_quarantine();
    end_without_report();
}

CASE_WITH(the_stream_that_owns_the_zone_by_now_can_be_marked_too, set_up_late(ASHLAR_GUARD_FILL)) {
    ashlar_stream doomed = new_stream();
    unsigned char *ptr = take(5000, doomed), *other = take(5000, doomed);
    give(other);
    ashlar_stream_destroy(device, doomed);
    CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    unsigned char *heir = NULL;
    for (int i = 0; i < 40 && heir != other;
         i++) { /* until it has the zone of the one that ended */
        heir = take(5000, streams[0]);
    }
    CHECK(heir == other);
    queue_write(streams[0], ptr, 5000, 0x21);
    wait_for(streams[0]);
    queue_verify(streams[0], ptr, 5000, 0x21);
    mark(ptr, streams[0]);
    give_on(ptr, streams[1]);
    wait_for(streams[1]);
    end_without_report();
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

CASE(a_filled_block_of_a_stream_without_a_last_event_can_be_freed) {
    check_lost(ASHLAR_GUARD_FILL, false);
}

CASE(a_filled_block_marked_for_a_stream_without_a_last_event_can_be_freed) {
    check_lost(ASHLAR_GUARD_FILL, true);
}

CASE_WITH(a_stream_that_ends_leaves_other_streams_blocks_in_quarantine,
          set_up_late(ASHLAR_GUARD_FILL)) {
    ashlar_stream doomed = new_stream();
    unsigned char *mine = take(600, streams[0]), *its = take(600, doomed);
    unsigned char *next = take(600, streams[1]);
    give(mine);
    give(its);
    give(next);
    ashlar_stream_destroy(device, doomed);
    CHECK_ZU(stats_now().cached_bytes, 2 * 1536);
    push_out_quarantine();
    CHECK(take(600, streams[0]) == mine);
    end_without_report();
}

/* With any seed, one of which draws the fill first where it does not wait. */
CASE(a_block_of_a_stream_that_ended_is_filled_behind_its_last_work) {
    for (int seed = 1; seed <= 6; seed++) {
        char spec[64];
        (void)snprintf(spec, sizeof spec, "memory=64MiB,mode=adversarial,seed=%d", seed);
        atomic_store(&payload_bad_count, 0);
        REQUIRE(set_up_guarded(spec, ASHLAR_GUARD_FILL));
        ashlar_stream doomed =
            NULL; /* for which the legacy default stream does not wait by itself */
        REQUIRE(ashlar__device_enter(device) == ASHLAR_OK);
        CHECK(driver->table.stream_create(&doomed, CU_STREAM_UNORDERED) == CU_SUCCESS);
        ashlar__device_leave(device);
        unsigned char *ptr = take(1000, doomed);
        queue_write(doomed, ptr, 1000, 0x21);
        queue_verify(doomed, ptr, 1000, 0x21);
        ashlar_stream_destroy(device, doomed);
        give(ptr);
        wait_for(NULL);
        end_without_report();
    }
}

/* Streams that come and go while their comparisons wait; their records are deleted and made again,
 * often where an older one was. */
static void check_short_lives(const char *more) {
    enum { LIVES = 100 };
    char spec[128];
    for (int seed = 1; seed <= 6; seed++) {
        (void)snprintf(spec, sizeof spec, "memory=64MiB,mode=adversarial,seed=%d%s", seed, more);
        atomic_store(&payload_bad_count, 0);
        REQUIRE(set_up_guarded(spec, ASHLAR_GUARD_FILL));
        const size_t before = CALLS(mem_host_alloc);
        for (int i = 0; i < LIVES; i++) {
            ashlar_stream stream = new_stream();
            for (int k = 0; k < 4; k++) {
                unsigned char *ptr = take((size_t)100 + 700 * (size_t)k, stream);
                queue_write(stream, ptr, 100, 7);
                CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
            }
            ashlar_stream_destroy(device, stream);
            if (i % 7 == 0) {
                wait_for(NULL); /* and so for all */
            }
        }
        CHECK(CALLS(mem_host_alloc) - before < LIVES / 2); /* buffers are used again */
        end_without_report();
    }
}

CASE(comparisons_of_streams_that_come_and_go_are_kept_apart) {
    check_short_lives("");
}

CASE(comparisons_of_streams_whose_handles_come_back_are_kept_apart) {
    check_short_lives("," HANDLES_COME_BACK);
}

/* ---- default streams of threads ---- */

static void *use_own_stream(void *unused) {
    (void)unused;
    for (int i = 0; i < 5; i++) {
        void *ptr = NULL;
        if (ashlar_alloc(allocator, 700, PER_THREAD, &ptr) != ASHLAR_OK) {
            return allocator;
        }
        queue_write(PER_THREAD, ptr, 700, 9);
        if (i > 0 && ashlar_free(allocator, ptr) != ASHLAR_OK) { /* one stays */
            return allocator;
        }
    }
    return NULL;
}

static void use_thread(void) {
    pthread_t thread;
    void *failed = allocator;
    /* No check in between: the thread is at some. */
    const bool is_over = pthread_create(&thread, NULL, use_own_stream, NULL) == 0 &&
                         pthread_join(thread, &failed) == 0;
    REQUIRE(is_over && failed == NULL);
}

CASE(another_threads_default_stream_is_compared_in_its_order) {
    for (int seed = 1; seed <= 6; seed++) {
        atomic_store(&payload_bad_count, 0);
        REQUIRE(set_up_guarded(drawn_order("memory=64MiB", seed), ASHLAR_GUARD_FILL));
        CHECK(ashlar_free(allocator, take(1, PER_THREAD)) == ASHLAR_OK); /* a stream of this name */
        use_thread();
        push_out_quarantine();
        wait_for(PER_THREAD);
        end_without_report();
    }
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

CASE_WITH(a_capture_without_a_pool_is_refused_and_not_spoiled, set_up_late(ASHLAR_GUARD_FILL)) {
    cu_graph graph = NULL;
    void *out = NULL;
    unsigned char *ptr = take(600, streams[0]);
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.stream_begin_capture(streams[0], CU_CAPTURE_RELAXED) == CU_SUCCESS);
    CHECK_FAILS(ashlar_alloc(allocator, 600, streams[0], &out), ASHLAR_EINVAL, "captured");
    CHECK_FAILS(ashlar_free(allocator, ptr), ASHLAR_EINVAL, "captured");
    CHECK(driver->table.stream_end_capture(streams[0], &graph) == CU_SUCCESS);
    CHECK(driver->table.graph_destroy(graph) == CU_SUCCESS);
    ashlar__device_leave(device);
    give(ptr);
    end_without_report();
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
