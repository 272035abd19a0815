/*
 * test_streams_merge.c - what neighbouring free blocks of several uses become, the full device, and
 * steps of the ladder that fail.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/core/streams_fixture.h"

/* Two neighbours freed on stream 0, the upper or the lower one after the recording. */
static void check_later_use_is_kept(int upper_is_later) {
    REQUIRE(set_up_streams("16MiB"));
    unsigned char *small = take(BIG, streams[0]);
    unsigned char *pair[2] = {take(BIG, streams[0]), take(BIG, streams[0])};
    unsigned char *wall = take(BIG, streams[0]);
    CHECK(pair[1] == pair[0] + BIG);
    give(small);
    CHECK(take(BIG, streams[1]) == small); /* recording 1 covers the earlier one */
    give(pair[!upper_is_later]);
    CHECK(ashlar_allocator_trim(allocator, ALL - 1) == ASHLAR_OK); /* recording 2 */
    use(streams[0], pair[upper_is_later], BIG, 7);
    order_calls before = order_calls_now();
    give(pair[upper_is_later]);
    CHECK(take(2 * BIG, streams[2]) == pair[0]);
    CHECK_ZU(order_calls_now().recorded - before.recorded, 1);
    CHECK_ZU(order_calls_now().waited - before.waited, 1);
    check_owned(streams[2], pair[0], 2 * BIG);
    give(wall);
    tear_down();
}

CASE(merged_blocks_of_one_stream_keep_the_later_use) {
    check_later_use_is_kept(0);
    check_later_use_is_kept(1);
}

/* A neighbour whose use on stream 0 is past, and one that stream 1 still uses. */
CASE(a_block_that_another_stream_uses_is_not_merged_before_that_is_past) {
    for (int upper_is_busy = 0; upper_is_busy < 2; upper_is_busy++) {
        REQUIRE(set_up_streams("16MiB"));
        unsigned char *pair[2] = {take(2 * BIG, streams[0]), take(2 * BIG, streams[0])};
        give(pair[!upper_is_busy]);
        use(streams[1], pair[upper_is_busy], 2 * BIG, 7);
        give_on(pair[upper_is_busy], streams[1]);
        order_calls before = order_calls_now();
        CHECK(take(BIG, streams[0]) == pair[!upper_is_busy]); /* not behind stream 1's work */
        check_calls(&before, (order_calls){0});
        give(pair[!upper_is_busy]);
        CHECK(take(ALL, streams[0]) == pair[0]); /* which nothing else can serve */
        CHECK(atomic_load(&payload_bad_count) == 0);
        check_owned(streams[0], pair[0], ALL);
        tear_down();
    }
}

CASE_WITH(a_zone_that_grows_takes_on_no_other_streams_use, set_up_streams("64MiB")) {
    unsigned char *a = take(BIG, streams[0]), *b = take(BIG, streams[1]);
    use(streams[0], a, BIG, 1);
    use(streams[1], b, BIG, 2);
    give(a);
    give(b);
    order_calls before = order_calls_now();
    CHECK(take(2 * BIG, streams[1]) == b); /* its own is extended */
    CHECK(take(2 * BIG, streams[0]) == a);
    CHECK_ZU(stats_now().reserved_bytes, 4 * BIG);
    CHECK(stats_now().served_mapped == 4);
    check_calls(&before, (order_calls){0});
    check_owned(streams[0], a, 2 * BIG);
    check_owned(streams[1], b, 2 * BIG);
}

/* ---- the full device ---- */

CASE_WITH(a_full_device_waits_on_the_host_for_what_several_streams_have, set_up_streams("16MiB")) {
    for (int i = 0; i < 3; i++) {
        unsigned char *ptr = take(BIG, streams[i]);
        use(streams[i], ptr, BIG, (unsigned char)i);
        give(ptr);
    }
    unsigned char *live = take(BIG, streams[3]);
    use(streams[3], live, BIG, 9);
    order_calls before = order_calls_now();
    unsigned char *ptr = take(3 * BIG, streams[3]);
    CHECK(order_calls_now().synchronized - before.synchronized <= 3); /* for any of those left */
    CHECK_ZU(order_calls_now().recorded - before.recorded, 3); /* none on stream 3 itself */
    CHECK_ZU(stats_now().reserved_bytes, ALL);
    CHECK(stats_now().served_after_sync == 1 && stats_now().served_waited == 0);
    queue_verify(streams[3], live, BIG, 9);
    check_owned(streams[3], ptr, 3 * BIG);
    give(live);
}

CASE_WITH(what_streams_are_done_with_is_gathered_without_a_wait, set_up_streams("16MiB")) {
    unsigned char *a = take(BIG, streams[0]), *live = take(BIG, streams[1]);
    unsigned char *b = take(2 * BIG, streams[2]);
    use(streams[0], a, BIG, 1);
    use(streams[1], live, BIG, 2);
    use(streams[2], b, 2 * BIG, 3);
    give(a);
    give(b);
    CHECK(ashlar_allocator_trim(allocator, ALL - 1) == ASHLAR_OK); /* records */
    wait_for(streams[0]);
    wait_for(streams[2]);
    order_calls before = order_calls_now();
    unsigned char *whole = take(3 * BIG, streams[1]);
    check_calls(&before, (order_calls){0}); /* the waits have told */
    CHECK(stats_now().served_gathered == 1 && stats_now().reserved_bytes == ALL);
    queue_verify(streams[1], live, BIG, 2);
    check_owned(streams[1], whole, 3 * BIG);
    give(live);
}

CASE_WITH(what_was_never_mapped_adds_to_what_was_waited_for, set_up_streams("16MiB")) {
    unsigned char *live = take(2 * BIG, streams[0]), *top = take(BIG, streams[1]);
    use(streams[1], top, BIG, 1);
    give(top);
    unsigned char *ptr = take(2 * BIG, streams[2]); /* 4 MiB that were busy, 4 not mapped */
    CHECK(stats_now().served_after_sync == 1);
    CHECK_ZU(stats_now().reserved_bytes, ALL);
    check_owned(streams[2], ptr, 2 * BIG);
    give(live);
}

CASE_WITH(a_wait_that_cannot_help_is_not_made, set_up_streams("16MiB")) {
    void *out = NULL;
    unsigned char *a = take(BIG, streams[0]), *live = take(BIG, streams[1]);
    use(streams[0], a, BIG, 1);
    give(a);
    const size_t calls = memory_calls();
    order_calls before = order_calls_now();
    CHECK(ashlar_alloc(allocator, 3 * BIG + 1, streams[1], &out) == ASHLAR_ENOMEM);
    CHECK_ZU(order_calls_now().synchronized - before.synchronized, 0);
    CHECK_ZU(order_calls_now().waited - before.waited, 0);
    CHECK_ZU(memory_calls() - calls, 0); /* 4 MiB are free and 8 not mapped */
    CHECK(out == NULL);
    give(live);
}

/* ---- failing steps ---- */

typedef struct failing_step {
    ashlar_driver_fn fn;
    const char *name;
} failing_step;

/* With `fn` failing, stream 1 is refused all of the device, which the retry gets. */
static void check_step(failing_step step) {
    void *out = &out;
    const ashlar_stats before = stats_now();
    for (int is_full = 0; is_full < 2; is_full++) {
        const cu_result result = is_full ? CU_OUT_OF_MEMORY : CU_UNKNOWN;
        ashlar__driver_fail_at(driver, (int)step.fn, 1, result);
        CHECK(ashlar_alloc(allocator, ALL, streams[1], &out) ==
              (is_full ? ASHLAR_ENOMEM : ASHLAR_EDRIVER));
        CHECK_HAS(ashlar_error_detail(), is_full ? "out of memory on soft:0" : step.name);
        CHECK(atomic_load(&driver->fail_countdown) == 0);
        CHECK(out == &out);
        CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
        CHECK(stats_now().live_blocks == before.live_blocks);
        CHECK(driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT);
    }
    ashlar__host_fail_at(0);
    unsigned char *ptr = take(ALL, streams[1]);
    check_owned(streams[1], ptr, ALL);
    give(ptr);
}

CASE(a_failing_wait_loses_nothing) {
    static const failing_step steps[] = {
        {ASHLAR_DRIVER_FN_ctx_push_current, "cuCtxPushCurrent on"},
        {ASHLAR_DRIVER_FN_event_create, "cuEventCreate on"},
        {ASHLAR_DRIVER_FN_event_record, "cuEventRecord on"},
        {ASHLAR_DRIVER_FN_event_query, "cuEventQuery on"},
        {ASHLAR_DRIVER_FN_stream_wait_event, "cuStreamWaitEvent on"},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        REQUIRE(set_up_streams("16MiB"));
        unsigned char *ptr = take(ALL, streams[0]);
        use(streams[0], ptr, ALL, 1);
        give(ptr);
        check_step(steps[i]);
        /* Only what was really recorded counts, and a retry does not do it again: one for the
         * borrower's wait, and one behind its own use. */
        CHECK(stats_now().events_recorded == 2 && stats_now().served_waited == 1);
        tear_down();
    }
}

CASE(a_failing_synchronization_loses_nothing) {
    static const failing_step steps[] = {
        {ASHLAR_DRIVER_FN_ctx_push_current, "cuCtxPushCurrent on"},
        {ASHLAR_DRIVER_FN_event_record, "cuEventRecord on"},
        {ASHLAR_DRIVER_FN_event_query, "cuEventQuery on"},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        REQUIRE(set_up_streams("16MiB"));
        unsigned char *a = take(2 * BIG, streams[0]), *b = take(2 * BIG, streams[2]);
        use(streams[0], a, 2 * BIG, 1);
        use(streams[2], b, 2 * BIG, 2);
        allocator->heap.is_near_limit = false; /* else the frees record the events */
        give(a);
        give(b);
        check_step(steps[i]);
        CHECK(stats_now().served_after_sync == 1);
        tear_down();
    }
}

CASE_WITH(a_new_stream_without_host_memory_is_refused, set_up_streams("64MiB")) {
    void *out = &out;
    unsigned char *ptr = take(BIG, streams[0]);
    ashlar__host_fail_at(1);
    CHECK_FAILS(ashlar_alloc(allocator, BIG, streams[1], &out), ASHLAR_EHOSTMEM,
                "the record of a stream");
    CHECK(out == &out);
    ashlar__host_fail_at(1);
    CHECK(ashlar_free_on(allocator, ptr, streams[1]) == ASHLAR_EHOSTMEM);
    CHECK(stats_now().live_blocks == 1);
    give(ptr); /* nothing has changed: it is stream 0's still */
    CHECK(take(BIG, streams[0]) == ptr);
    CHECK(stats_now().served_same_stream == 1);
}

RUN_CASES()
