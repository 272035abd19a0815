/*
 * test_streams_merge.c - what neighbouring free blocks of several uses become, growth beside a
 * busy block, the full device, and steps of the ladder that fail.
 */
#include "tests/allocator/core/streams_fixture.h"

#include "allocator/core/allocator_impl.h"

/* Two neighbours freed on stream 0, the upper or the lower one after the recording. */
static void check_later_use_is_kept(int upper_is_later) {
    REQUIRE(set_up_streams("64MiB"));
    unsigned char *small = take(2 * MIB, streams[0]), *wall = take(2 * MIB, streams[0]);
    unsigned char *pair[2] = {take(BIG, streams[0])};
    pair[1] = take(BIG, streams[0]);
    CHECK(pair[1] == pair[0] + BIG);
    give(pair[!upper_is_later]);
    give(small);
    CHECK(take(2 * MIB, streams[1]) == small); /* recording 1 covers the earlier one */
    use(streams[0], pair[upper_is_later], BIG, 7);
    give(pair[upper_is_later]);
    wait_for(streams[1]); /* recording 1 has completed; the later use has not begun */
    order_calls before = order_calls_now();
    CHECK(take(2 * BIG, streams[2]) == pair[0]);
    check_calls(&before, (order_calls){.recorded = 1, .waited = 1});
    check_owned(streams[2], pair[0], 2 * BIG);
    give(wall);
    tear_down();
}

CASE(merged_blocks_of_one_stream_keep_the_later_use) {
    check_later_use_is_kept(0);
    check_later_use_is_kept(1);
}

/* A neighbour whose use on stream 0 is known to be past, and one that stream 1 still uses. */
static void check_busy_use_is_kept(int upper_is_busy) {
    REQUIRE(set_up_streams("64MiB"));
    unsigned char *small[2], *wall[2], *pair[2];
    for (int i = 0; i < 2; i++) {
        small[i] = take(2 * MIB, streams[0]);
        wall[i] = take(2 * MIB, streams[0]);
    }
    pair[0] = take(BIG, streams[0]);
    pair[1] = take(BIG, streams[0]);
    give(pair[!upper_is_busy]);
    give(small[0]);
    give(small[1]);
    CHECK(take(2 * MIB, streams[2]) == small[0]); /* recording 1 */
    wait_for(streams[2]);
    CHECK(take(2 * MIB, streams[3]) == small[1]); /* found to have completed */
    CHECK(stats_now().served_completed == 1);
    use(streams[1], pair[upper_is_busy], BIG, 7);
    give_on(pair[upper_is_busy], streams[1]);
    order_calls before = order_calls_now();
    CHECK(take(2 * BIG, streams[2]) == pair[0]); /* one block, of stream 1 */
    check_calls(&before, (order_calls){.created = 1, .recorded = 1, .waited = 1});
    check_owned(streams[2], pair[0], 2 * BIG);
    give(wall[0]);
    give(wall[1]);
    tear_down();
}

CASE(a_past_block_merged_with_a_busy_one_is_busy) {
    check_busy_use_is_kept(0);
    check_busy_use_is_kept(1);
}

CASE_WITH(busy_blocks_of_two_streams_stay_apart, set_up_streams("64MiB")) {
    unsigned char *a = take(BIG, streams[0]), *b = take(BIG, streams[1]);
    unsigned char *top = take(2 * MIB, streams[2]); /* which has no free block to ask for */
    CHECK(b == a + BIG);
    use(streams[0], a, BIG, 1);
    use(streams[1], b, BIG, 2);
    give(a);
    give(b);
    order_calls before = order_calls_now();
    unsigned char *both = take(2 * BIG, streams[0]);
    CHECK(both > top); /* newly mapped, after asking whether the other stream is done */
    CHECK_ZU(stats_now().reserved_bytes, 18 * MIB);
    check_calls(&before, (order_calls){.created = 1, .recorded = 1, .queried = 1});
    before = order_calls_now();
    CHECK(take(BIG, streams[1]) == b);
    CHECK(take(BIG, streams[0]) == a);
    check_calls(&before, (order_calls){0});
    check_owned(streams[1], b, BIG);
    check_owned(streams[0], a, BIG);
}

CASE_WITH(growth_does_not_take_on_another_streams_use, set_up_streams("64MiB")) {
    unsigned char *ptr = take(BIG, streams[0]);
    use(streams[0], ptr, BIG, 1);
    give(ptr);
    order_calls before = order_calls_now();
    unsigned char *next = take(2 * BIG, streams[1]);
    CHECK(next == ptr + BIG);
    CHECK_ZU(stats_now().reserved_bytes, 12 * MIB);
    CHECK(stats_now().served_mapped == 2);
    check_calls(&before, (order_calls){0});
    give(next);
    CHECK(take(2 * BIG + 2 * MIB, streams[1]) == next); /* its own at the top is extended */
    CHECK_ZU(stats_now().reserved_bytes, 14 * MIB);
    /* There were enough free bytes in all, so the other stream was asked. */
    check_calls(&before, (order_calls){.created = 1, .recorded = 1, .queried = 1});
    check_owned(streams[1], next, 2 * BIG + 2 * MIB);
}

/* ---- the full device ---- */

CASE_WITH(a_full_device_waits_and_merges_what_streams_kept_apart, set_up_streams("16MiB")) {
    unsigned char *a = take(BIG, streams[0]), *b = take(BIG, streams[1]);
    unsigned char *c = take(BIG, streams[2]), *live = take(BIG, streams[3]);
    unsigned char *const ptrs[] = {a, b, c};
    for (int i = 0; i < 3; i++) {
        use(streams[i], ptrs[i], BIG, (unsigned char)i);
        give(ptrs[i]);
    }
    order_calls before = order_calls_now();
    CHECK(take(3 * BIG, streams[3]) == a);
    /* The host waits for two; then all is merged with what stream 2 still has in use. */
    check_calls(&before,
                (order_calls){
                    .created = 3, .recorded = 3, .queried = 6, .waited = 1, .synchronized = 2});
    ashlar_stats s = stats_now();
    CHECK(s.served_after_sync == 1 && s.events_recorded == 3);
    CHECK(atomic_load(&payload_bad_count) == 0);
    check_owned(streams[3], a, 3 * BIG);
    give(live);
}

CASE_WITH(blocks_of_streams_that_are_done_serve_together, set_up("memory=64MiB")) {
    unsigned char *a = take(BIG, streams[0]), *b = take(BIG, streams[1]);
    unsigned char *c = take(BIG, streams[0]);
    use(streams[1], b, BIG, 1);
    give(a);
    give(b);
    give(c);
    CHECK(ashlar_stream_synchronize(device, streams[1]) == ASHLAR_OK);
    order_calls before = order_calls_now();
    CHECK(take(3 * BIG, streams[0]) == a); /* stream 0's own, with what stream 1 is done with */
    CHECK(order_calls_now().recorded == before.recorded + 1);
    CHECK_ZU(stats_now().reserved_bytes, 12 * MIB);
    CHECK(stats_now().served_same_stream == 1 && stats_now().served_after_sync == 0);
    check_owned(streams[0], a, 3 * BIG);
}

CASE_WITH(a_full_device_grows_after_the_wait_from_what_became_idle, set_up_streams("16MiB")) {
    unsigned char *live = take(2 * BIG, streams[0]), *top = take(BIG, streams[1]);
    use(streams[1], top, BIG, 1);
    give(top);
    CHECK(take(2 * BIG, streams[2]) == top); /* 4 MiB that were busy, 4 that were not mapped */
    CHECK(stats_now().served_after_sync == 1);
    CHECK_ZU(stats_now().reserved_bytes, 16 * MIB);
    check_owned(streams[2], top, 2 * BIG);
    give(live);
}

CASE_WITH(a_wait_that_cannot_help_is_not_made, set_up_streams("16MiB")) {
    void *out = NULL;
    unsigned char *a = take(BIG, streams[0]), *live = take(BIG, streams[1]);
    use(streams[0], a, BIG, 1);
    give(a);
    order_calls before = order_calls_now();
    CHECK(ashlar_alloc(allocator, 3 * BIG + 1, streams[1], &out) == ASHLAR_ENOMEM);
    check_calls(&before, (order_calls){0}); /* 4 MiB are free and 8 not mapped */
    CHECK(out == NULL);
    give(live);
}

/* A device that streams 0 and 1 have filled and given back, still in use. */
static unsigned char *fill_and_free(void) {
    unsigned char *a = take(2 * BIG, streams[0]), *b = take(2 * BIG, streams[1]);
    use(streams[0], a, 2 * BIG, 1);
    use(streams[1], b, 2 * BIG, 2);
    give(a);
    give(b);
    return a;
}

CASE_WITH(the_requests_own_stream_is_waited_for_too, set_up_streams("16MiB")) {
    void *out = NULL;
    unsigned char *a = fill_and_free();
    const uint64_t calls = stats_now().driver_calls;
    order_calls before = order_calls_now();
    CHECK(take(4 * BIG, streams[0]) == a);
    check_calls(&before,
                (order_calls){.created = 2, .recorded = 2, .queried = 1, .synchronized = 1});
    CHECK_ZU(stats_now().driver_calls, calls + 10); /* the limit refuses growth without one */
    check_owned(streams[0], a, 4 * BIG);
    tear_down();
    REQUIRE(set_up_streams("16MiB"));
    a = fill_and_free();
    /* Stream 1's event is recorded when it is asked for; stream 0's only before the wait. */
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_record, 2, CU_UNKNOWN);
    CHECK_FAILS(ashlar_alloc(allocator, 4 * BIG, streams[0], &out), ASHLAR_EDRIVER,
                "cuEventRecord on");
    CHECK(atomic_load(&driver->fail_countdown) == 0);
    CHECK(take(4 * BIG, streams[0]) == a); /* stream 0 need not wait for itself */
    CHECK(stats_now().served_after_sync == 1 && stats_now().served_same_stream == 0);
    check_owned(streams[0], a, 4 * BIG);
}

CASE_WITH(what_lies_scattered_is_gathered_after_the_wait, set_up_streams("16MiB")) {
    unsigned char *a = take(BIG, streams[0]), *live = take(BIG, streams[1]);
    unsigned char *b = take(2 * BIG, streams[2]);
    use(streams[0], a, BIG, 1);
    use(streams[1], live, BIG, 2);
    use(streams[2], b, 2 * BIG, 3);
    give(a);
    give(b);
    unsigned char *whole = take(3 * BIG, streams[1]); /* 4 MiB below `live`, 8 above */
    const ashlar_stats s = stats_now();
    CHECK(s.served_gathered == 1 && s.served_after_sync == 0 && s.reserved_bytes == 16 * MIB);
    CHECK(whole == b); /* what was at `a` is behind it now */
    queue_verify(streams[1], live, BIG, 2);
    check_owned(streams[1], whole, 3 * BIG);
    give(live);
}

/* ---- failing steps ---- */

typedef struct failing_step {
    ashlar_driver_fn fn;
    const char *name;
} failing_step;

/* With `fn` failing, stream 1 is refused what the retry gets. */
static void check_step(failing_step step, size_t bytes, const unsigned char *want) {
    void *out = &out;
    const ashlar_stats before = stats_now();
    for (int is_full = 0; is_full < 2; is_full++) {
        const cu_result result = is_full ? CU_OUT_OF_MEMORY : CU_UNKNOWN;
        ashlar__driver_fail_at(driver, (int)step.fn, 1, result);
        CHECK(ashlar_alloc(allocator, bytes, streams[1], &out) ==
              (is_full ? ASHLAR_ENOMEM : ASHLAR_EDRIVER));
        CHECK_HAS(ashlar_error_detail(), is_full ? "out of memory on soft:0" : step.name);
        CHECK(atomic_load(&driver->fail_countdown) == 0);
        CHECK(out == &out);
        CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
        CHECK(stats_now().live_blocks == before.live_blocks);
        CHECK(driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT);
    }
    ashlar__host_fail_at(0);
    unsigned char *ptr = take(bytes, streams[1]);
    CHECK(ptr == want);
    check_owned(streams[1], ptr, bytes);
    give(ptr);
}

CASE(a_failing_wait_loses_nothing) {
    static const failing_step steps[] = {
        {ASHLAR_DRIVER_FN_ctx_push_current, "cuCtxPushCurrent on"},
        {ASHLAR_DRIVER_FN_event_create, "cuEventCreate on"},
        {ASHLAR_DRIVER_FN_event_record, "cuEventRecord on"},
        {ASHLAR_DRIVER_FN_stream_wait_event, "cuStreamWaitEvent on"},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        REQUIRE(set_up_streams("64MiB"));
        unsigned char *ptr = take(BIG, streams[0]);
        use(streams[0], ptr, BIG, 1);
        give(ptr);
        check_step(steps[i], BIG, ptr);
        /* Only what was really recorded counts, and once it is, a retry does not do it again. */
        CHECK(stats_now().events_recorded == 1);
        tear_down();
    }
}

CASE(a_failing_query_loses_nothing) {
    static const failing_step steps[] = {
        {ASHLAR_DRIVER_FN_ctx_push_current, "cuCtxPushCurrent on"},
        {ASHLAR_DRIVER_FN_event_query, "cuEventQuery on"},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        REQUIRE(set_up_streams("64MiB"));
        unsigned char *small = take(2 * MIB, streams[0]), *wall = take(2 * MIB, streams[0]);
        unsigned char *ptr = take(BIG, streams[0]);
        use(streams[0], ptr, BIG, 1);
        give(small);
        give(ptr);
        CHECK(take(2 * MIB, streams[2]) == small);
        check_step(steps[i], BIG, ptr);
        give(wall);
        tear_down();
    }
}

CASE(a_failing_synchronization_loses_nothing) {
    static const failing_step steps[] = {
        {ASHLAR_DRIVER_FN_ctx_push_current, "cuCtxPushCurrent on"},
        {ASHLAR_DRIVER_FN_event_record, "cuEventRecord on"},
        {ASHLAR_DRIVER_FN_event_synchronize, "cuEventSynchronize on"},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        REQUIRE(set_up_streams("16MiB"));
        unsigned char *a = take(2 * BIG, streams[0]), *b = take(2 * BIG, streams[2]);
        use(streams[0], a, 2 * BIG, 1);
        use(streams[2], b, 2 * BIG, 2);
        give(a);
        give(b);
        check_step(steps[i], 4 * BIG, a);
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
