/*
 * test_zero.c - zero=on: whoever takes a block finds zeros in it, in its stream's order, wherever
 * the block comes from; and what a failing fill leaves.
 */
#include "tests/allocator/core/guard_fixture.h"

#include <ashlar/allocator.h>
#include <ashlar/plan.h>

#include "allocator/base/random.h"

#define LATE "memory=16MiB,mode=adversarial,seed=11"

static bool set_up_with(const char *spec, ashlar_guard guard, bool is_zeroed) {
    ashlar_config config = {0};
    config.zero_blocks = is_zeroed;
    config.guard = guard;
    report_count = 0;
    atomic_store(&payload_bad_count, 0);
    if (!set_up_device(spec) ||
        ashlar_allocator_create_with(device, &config, &allocator) != ASHLAR_OK) {
        return false;
    }
    ashlar_allocator_set_report(allocator, keep_report, &report_count);
    return check_at_end(tear_down);
}

static bool set_up_zeroed(const char *spec) {
    return set_up_with(spec, ASHLAR_GUARD_OFF, true);
}

/* Queue what an owner does: find zeros, and leave something else. */
static void own(ashlar_stream stream, unsigned char *ptr, size_t bytes) {
    size_t usable = bytes;
    CHECK(ashlar_usable_bytes(allocator, ptr, &usable) == ASHLAR_OK);
    queue_verify(stream, ptr, usable, 0);
    queue_write(stream, ptr, usable, 0x5A);
}

static void check_zeros(void) {
    for (int i = 0; i < STREAMS; i++) {
        wait_for(streams[i]);
    }
    wait_for(NULL);
    CHECK(atomic_load(&payload_bad_count) == 0);
    check_all();
}

CASE_WITH(a_graph_clears_its_blocks_at_each_launch, set_up_zeroed(LATE)) {
    ashlar_graph_pool *pool = NULL;
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    CHECK(ashlar_graph_pool_begin(allocator, streams[0], NULL, &pool) == ASHLAR_OK);
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.stream_begin_capture(streams[0], CU_CAPTURE_GLOBAL) == CU_SUCCESS);
    unsigned char *ptr = take(5000, streams[0]);
    payload reads = {ptr, 5000, 0}, writes = {ptr, 5000, 0x5A};
    CHECK(driver->table.launch_host_func(streams[0], payload_verify, &reads) == CU_SUCCESS);
    CHECK(driver->table.launch_host_func(streams[0], payload_write, &writes) == CU_SUCCESS);
    give(ptr);
    CHECK(driver->table.stream_end_capture(streams[0], &graph) == CU_SUCCESS);
    CHECK(driver->table.graph_instantiate(&exec, graph, 0) == CU_SUCCESS);
    CHECK(driver->table.graph_destroy(graph) == CU_SUCCESS);
    ashlar_graph_pool_end(pool);
    for (int i = 0; i < 3; i++) {
        CHECK(driver->table.graph_launch(exec, streams[0]) == CU_SUCCESS);
    }
    wait_for(streams[0]);
    CHECK(driver->table.graph_exec_destroy(exec) == CU_SUCCESS);
    ashlar__device_leave(device);
    CHECK(ashlar_graph_pool_release(pool, streams[0]) == ASHLAR_OK);
    unsigned char *next = take(5000, streams[0]);
    CHECK(next == ptr);
    own(streams[0], next, 5000);
    give(next);
    check_zeros();
}

/* Large blocks and small ones, of plans and others: what is refused is to be had at the next try.
 */
CASE_WITH(fills_that_are_refused_now_and_then, set_up_zeroed("memory=32MiB,mode=adversarial")) {
    static const size_t sizes[] = {700, 40000, 3 * MIB};
    size_t refused = 0;
    for (int step = 0; step < 12; step++) {
        unsigned char *ptrs[6];
        CHECK(ashlar_step_begin(allocator, streams[0], 7) == ASHLAR_OK);
        for (size_t i = 0; i < 6; i++) {
            void *ptr = NULL;
            ashlar_status status = ASHLAR_OK;
            if (step > 5 && (i + (size_t)step) % 4 == 0) {
                DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_memset_d8_async, 1, CU_UNKNOWN,
                                status = ashlar_alloc(allocator, sizes[i % 3], streams[0], &ptr));
                CHECK(status == ASHLAR_EDRIVER && ptr == NULL);
                refused++;
            }
            ptrs[i] = take(sizes[i % 3], streams[0]);
            own(streams[0], ptrs[i], sizes[i % 3]);
        }
        for (size_t i = 0; i < 6; i++) {
            give(ptrs[i]);
        }
        CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    }
    CHECK(refused > 5 && stats_now().served_planned > 0);
    check_zeros();
}

RUN_CASES()
