/*
 * test_streams.c - who gets a block freed on a stream, after which wait, and at what price.
 */
#include "tests/allocator/core/streams_fixture.h"

CASE_WITH(the_same_stream_reuses_a_block_at_once, set_up_streams("64MiB")) {
    unsigned char *ptr = take(BIG, streams[0]);
    use(streams[0], ptr, BIG, 1);
    order_calls before = order_calls_now();
    const uint64_t calls = stats_now().driver_calls;
    give(ptr);
    CHECK(take(BIG, streams[0]) == ptr);
    CHECK(stats_now().served_same_stream == 1);
    CHECK(stats_now().driver_calls == calls);
    check_calls(&before, (order_calls){0});
    check_owned(streams[0], ptr, BIG);
    give(ptr);
    const size_t destroyed = CALLS(event_destroy);
    tear_down();
    CHECK_ZU(CALLS(event_destroy) - destroyed, 0); /* there never was one */
}

CASE_WITH(another_stream_gets_a_block_after_an_in_stream_wait, set_up_streams("64MiB")) {
    unsigned char *ptr = take(BIG, streams[0]);
    use(streams[0], ptr, BIG, 1);
    give(ptr);
    order_calls before = order_calls_now();
    CHECK(take(BIG, streams[1]) == ptr);
    check_calls(&before, (order_calls){.created = 1, .recorded = 1, .waited = 1});
    const ashlar_stats s = stats_now();
    CHECK(s.served_waited == 1 && s.events_recorded == 1 && s.served_mapped == 1);
    check_owned(streams[1], ptr, BIG);
    give(ptr);
}

CASE_WITH(fresh_memory_serves_any_stream_without_a_wait, set_up_streams("64MiB")) {
    unsigned char *a = take(1000, streams[0]);
    use(streams[0], a, 1000, 1);
    order_calls before = order_calls_now();
    unsigned char *b = take(1000, streams[1]);
    CHECK(b == a + 1024);
    CHECK(stats_now().served_idle == 1);
    check_calls(&before, (order_calls){0});
    check_owned(streams[1], b, 1000);
    give(a);
    give(b);
}

CASE_WITH(a_streams_own_block_goes_before_a_better_fit_of_nobody, set_up_streams("64MiB")) {
    unsigned char *a = take(1000, streams[0]), *wall = take(1000, streams[0]);
    give(a); /* the rest of the 2 MiB behind the wall is idle */
    CHECK(take(512, streams[0]) == a);
    CHECK(stats_now().served_same_stream == 1);
    CHECK(take(512, streams[1]) > wall); /* a's other half is stream 0's: the idle rest is better */
    CHECK(stats_now().served_idle == 2 && stats_now().served_waited == 0);
}

/* Two blocks, apart: a of `first` bytes on stream 0, b of `second` on stream 1. */
static void check_best_of_two_streams(size_t first, size_t second, bool wants_first) {
    REQUIRE(set_up_streams("64MiB"));
    unsigned char *a = take(first, streams[0]), *b = take(second, streams[1]);
    give(a);
    give(b);
    CHECK(take(4 * MIB, streams[2]) == (wants_first ? a : b));
    CHECK(stats_now().served_waited == 1 && stats_now().events_recorded == 1);
    tear_down();
}

CASE(of_other_streams_blocks_the_smallest_that_fits_is_waited_for) {
    check_best_of_two_streams(8 * MIB, 4 * MIB, false);
    check_best_of_two_streams(4 * MIB, 8 * MIB, true);
    check_best_of_two_streams(8 * MIB, 2 * MIB, true);
    check_best_of_two_streams(2 * MIB, 8 * MIB, false);
}

CASE_WITH(an_event_covers_every_block_freed_before_it, set_up_streams("64MiB")) {
    unsigned char *a = take(BIG, streams[0]), *wall = take(2 * MIB, streams[0]);
    unsigned char *b = take(BIG, streams[0]);
    use(streams[0], a, BIG, 1);
    use(streams[0], b, BIG, 2);
    give(a);
    give(b);
    order_calls before = order_calls_now();
    CHECK(take(BIG, streams[1]) == a);
    check_calls(&before, (order_calls){.created = 1, .recorded = 1, .waited = 1});
    /* b was freed before that recording: it may be over, so it is asked for; it is not. */
    CHECK(take(BIG, streams[2]) == b);
    check_calls(&before, (order_calls){.queried = 1, .waited = 1});
    CHECK(stats_now().events_recorded == 1 && stats_now().served_waited == 2);
    check_owned(streams[1], a, BIG);
    check_owned(streams[2], b, BIG);
    give(wall);
}

CASE_WITH(a_block_freed_after_the_recording_needs_a_new_one, set_up_streams("64MiB")) {
    unsigned char *a = take(BIG, streams[0]), *wall = take(2 * MIB, streams[0]);
    unsigned char *b = take(BIG, streams[0]);
    give(a);
    CHECK(take(BIG, streams[1]) == a); /* recording 1 */
    wait_for(streams[1]);              /* and it has completed */
    use(streams[0], b, BIG, 2);
    give(b);
    order_calls before = order_calls_now();
    CHECK(take(BIG, streams[2]) == b); /* not asked for: no recording covers it */
    check_calls(&before, (order_calls){.recorded = 1, .waited = 1});
    CHECK(stats_now().events_recorded == 2);
    check_owned(streams[2], b, BIG);
    give(wall);
}

CASE_WITH(a_completed_event_needs_no_wait, set_up_streams("64MiB")) {
    unsigned char *blocks[3], *walls[3];
    for (int i = 0; i < 3; i++) {
        blocks[i] = take(BIG, streams[0]);
        walls[i] = take(2 * MIB, streams[0]);
        use(streams[0], blocks[i], BIG, 1);
    }
    for (int i = 0; i < 3; i++) {
        give(blocks[i]);
    }
    CHECK(take(BIG, streams[1]) == blocks[0]);
    wait_for(streams[1]);
    order_calls before = order_calls_now();
    CHECK(take(BIG, streams[2]) == blocks[1]); /* asked for, and over */
    check_calls(&before, (order_calls){.queried = 1});
    CHECK(stats_now().served_completed == 1);
    CHECK(take(BIG, streams[3]) == blocks[2]); /* known to be over */
    check_calls(&before, (order_calls){0});
    CHECK(stats_now().served_completed == 2 && stats_now().served_waited == 1);
    for (int i = 0; i < 3; i++) {
        check_owned(streams[i + 1], blocks[i], BIG);
        give(walls[i]);
    }
}

CASE(the_completed_block_of_one_stream_is_found_behind_anothers_busy_one) {
    for (int swapped = 0; swapped < 2; swapped++) {
        REQUIRE(set_up_streams("64MiB"));
        const ashlar_stream busy = streams[swapped], done = streams[1 - swapped];
        unsigned char *s0 = take(2 * MIB, done), *a = take(BIG, busy);
        unsigned char *wall = take(2 * MIB, busy), *b = take(BIG, done);
        use(busy, a, BIG, 1);
        give(s0);
        give(a);
        give(b);
        CHECK(take(2 * MIB, streams[2]) == s0); /* records on `done` */
        wait_for(streams[2]);
        CHECK(take(BIG, streams[3]) == b);
        CHECK(stats_now().served_completed == 1);
        give(wall);
        wait_for(busy);
        tear_down();
    }
}

CASE_WITH(free_on_names_the_stream_of_the_last_use, set_up_streams("64MiB")) {
    unsigned char *ptr = take(BIG, streams[0]);
    wait_for(streams[0]); /* the caller's own order between the two uses */
    use(streams[1], ptr, BIG, 1);
    order_calls before = order_calls_now();
    give_on(ptr, streams[1]);
    CHECK(take(BIG, streams[1]) == ptr); /* at once for stream 1 */
    check_calls(&before, (order_calls){0});
    use(streams[1], ptr, BIG, 2);
    give(ptr);
    CHECK(take(BIG, streams[0]) == ptr); /* and ordered for stream 0 */
    check_calls(&before, (order_calls){.created = 1, .recorded = 1, .waited = 1});
    CHECK(stats_now().served_same_stream == 1 && stats_now().served_waited == 1);
    check_owned(streams[0], ptr, BIG);
    give_on(ptr, streams[3]); /* a stream that is new here */
    CHECK(take(BIG, streams[3]) == ptr);
    give(ptr);
}

CASE_WITH(one_is_another_name_of_the_default_stream, set_up_streams("64MiB")) {
    const ashlar_stream legacy = (ashlar_stream)1;
    order_calls before = order_calls_now();
    unsigned char *ptr = take(BIG, legacy);
    give(ptr);
    CHECK(take(BIG, NULL) == ptr);
    give_on(ptr, NULL);
    CHECK(take(BIG, legacy) == ptr);
    give_on(ptr, legacy);
    CHECK(take(BIG, NULL) == ptr);
    CHECK(stats_now().served_same_stream == 3);
    check_calls(&before, (order_calls){0});
    give(ptr);
    CHECK(take(BIG, streams[0]) == ptr); /* any other handle is another stream */
    check_calls(&before, (order_calls){.created = 1, .recorded = 1, .waited = 1});
    give(ptr);
}

CASE_WITH(the_rest_of_a_waited_block_stays_the_old_streams, set_up_streams("64MiB")) {
    unsigned char *ptr = take(2 * BIG, streams[0]);
    use(streams[0], ptr, 2 * BIG, 1);
    give(ptr);
    CHECK(take(BIG, streams[1]) == ptr);
    order_calls before = order_calls_now();
    CHECK(take(BIG, streams[0]) == ptr + BIG); /* no wait for stream 0 */
    check_calls(&before, (order_calls){0});
    CHECK(stats_now().served_same_stream == 1);
    check_owned(streams[1], ptr, BIG);
    check_owned(streams[0], ptr + BIG, BIG);
}

CASE_WITH(one_event_per_stream_serves_for_good, set_up_streams("64MiB")) {
    order_calls before = order_calls_now();
    unsigned char *ptr = take(BIG, streams[0]);
    for (int i = 1; i <= 40; i++) {
        use(streams[(i - 1) % STREAMS], ptr, BIG, (unsigned char)i);
        give(ptr);
        CHECK(take(BIG, streams[i % STREAMS]) == ptr);
    }
    check_calls(&before, (order_calls){.created = STREAMS, .recorded = 40, .waited = 40});
    CHECK(stats_now().events_recorded == 40 && stats_now().served_waited == 40);
    check_owned(streams[0], ptr, BIG);
    give(ptr);
    const size_t destroyed = CALLS(event_destroy);
    tear_down();
    CHECK_ZU(CALLS(event_destroy) - destroyed, STREAMS);
}

CASE(events_are_recorded_on_the_allocators_own_device) {
    ashlar_device *second = NULL;
    ashlar_allocator *other = NULL;
    ashlar_stream theirs[2] = {NULL};
    void *ptr = NULL, *again = NULL;
    REQUIRE(set_up("devices=2,memory=16MiB,mode=adversarial"));
    REQUIRE(ashlar_device_open("soft:1", &second) == ASHLAR_OK);
    REQUIRE(ashlar_allocator_create(second, &other) == ASHLAR_OK);
    for (int i = 0; i < 2; i++) {
        REQUIRE(ashlar_stream_create(second, &theirs[i]) == ASHLAR_OK);
    }
    CHECK(ashlar__device_enter(device) == ASHLAR_OK); /* the program works with the first */
    CHECK(ashlar_alloc(other, BIG, theirs[0], &ptr) == ASHLAR_OK);
    CHECK(ashlar_free(other, ptr) == ASHLAR_OK);
    CHECK(ashlar_alloc(other, BIG, theirs[1], &again) == ASHLAR_OK);
    CHECK(ptr == again);
    cu_context context = NULL, none = NULL;
    CHECK(driver->table.ctx_pop_current(&context) == CU_SUCCESS);
    CHECK(context == device->context); /* still the program's own */
    CHECK(driver->table.ctx_pop_current(&none) == CU_INVALID_CONTEXT);
    ashlar_allocator_destroy(other);
    ashlar_device_close(second);
}

/* The n-th switch to the device fails while an allocator with one event is destroyed. */
static void check_destroy_with_failing_switch(uint64_t n) {
    cu_context context = NULL;
    REQUIRE(set_up_streams("16MiB"));
    give(take(BIG, streams[0]));
    give(take(BIG, streams[1]));
    const size_t destroyed = CALLS(event_destroy);
    CHECK(ashlar__device_enter(device) == ASHLAR_OK); /* the program's own context */
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_ctx_push_current, n, CU_UNKNOWN);
    ashlar_allocator_destroy(allocator);
    CHECK(atomic_load(&driver->fail_countdown) == 0);
    CHECK_ZU(CALLS(event_destroy) - destroyed, n == 1 ? 1 : 0);
    CHECK(driver->table.ctx_pop_current(&context) == CU_SUCCESS);
    CHECK(context == device->context);
    CHECK(driver->table.ctx_pop_current(&context) == CU_INVALID_CONTEXT);
    tear_down_device();
}

CASE(destroying_takes_no_context_that_it_did_not_set) {
    check_destroy_with_failing_switch(1); /* before the wait */
    check_destroy_with_failing_switch(2); /* before the event goes */
}

RUN_CASES()
