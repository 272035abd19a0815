/*
 * test_streams.c - who gets a block freed on a stream, after which wait, and at what price.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

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

/* ---- while there is memory ---- */

/* Every pair of streams, the default one too; blocks with a size class, and larger ones. */
CASE(no_stream_waits_for_another_while_memory_can_be_mapped) {
    static const size_t sizes[] = {1000, BIG};
    for (int pair = 0; pair < 2 * (STREAMS + 1) * (STREAMS + 1); pair++) {
        const size_t bytes = sizes[pair % 2];
        const int first = pair / 2 % (STREAMS + 1), second = pair / 2 / (STREAMS + 1);
        if (first == second) {
            continue;
        }
        REQUIRE(set_up_cached_streams("16MiB", pair % 3 == 0 ? 16 * MIB : 0));
        const ashlar_stream one = first < STREAMS ? streams[first] : NULL;
        const ashlar_stream other = second < STREAMS ? streams[second] : NULL;
        order_calls before = order_calls_now();
        unsigned char *a = take(bytes, one);
        use(one, a, bytes, 1);
        give(a);
        unsigned char *b = take(bytes, other);
        CHECK(stats_now().served_mapped == 2);
        check_calls(&before, (order_calls){0});
        check_owned(other, b, bytes);
        CHECK(take(bytes, one) == a); /* which nobody took meanwhile */
        check_calls(&before, (order_calls){0});
        tear_down();
    }
}

CASE_WITH(a_streams_own_memory_comes_first, set_up_streams("16MiB")) {
    unsigned char *a = take(BIG, streams[0]), *b = take(3 * BIG, streams[1]);
    use(streams[0], a, BIG, 1);
    use(streams[1], b, 3 * BIG, 2);
    give(a);
    give(b);
    wait_for(streams[0]); /* a is free for all, was used longest ago, and fits exactly */
    order_calls before = order_calls_now();
    CHECK(take(BIG, streams[1]) == b);
    CHECK(stats_now().served_same_stream == 1);
    check_calls(&before, (order_calls){0});
    check_owned(streams[1], b, BIG);
}

/* ---- the full device ---- */

CASE_WITH(an_event_covers_every_block_freed_before_it, set_up_streams("16MiB")) {
    unsigned char *a = take(2 * BIG, streams[0]), *b = take(2 * BIG, streams[0]);
    use(streams[0], a, 2 * BIG, 1);
    use(streams[0], b, 2 * BIG, 2);
    give(a);
    give(b);
    order_calls before = order_calls_now();
    CHECK(take(2 * BIG, streams[1]) == a);
    check_calls(&before, (order_calls){.created = 1, .recorded = 1, .queried = 1, .waited = 1});
    CHECK(take(2 * BIG, streams[2]) == b);
    check_calls(&before, (order_calls){.queried = 1, .waited = 1});
    CHECK(stats_now().events_recorded == 1 && stats_now().served_waited == 2);
    check_owned(streams[1], a, 2 * BIG);
    check_owned(streams[2], b, 2 * BIG);
}

CASE_WITH(a_block_freed_after_the_recording_needs_a_new_one, set_up_streams("16MiB")) {
    unsigned char *a = take(2 * BIG, streams[0]), *b = take(2 * BIG, streams[0]);
    give(a);
    CHECK(take(2 * BIG, streams[1]) == a); /* recording 1 */
    wait_for(streams[1]);                  /* and it has completed */
    use(streams[0], b, 2 * BIG, 2);
    order_calls before = order_calls_now();
    give(b); /* recorded at once, since a stream had to wait before */
    check_calls(&before, (order_calls){.created = 1, .recorded = 1});
    CHECK(take(2 * BIG, streams[2]) == b);
    check_calls(&before, (order_calls){.queried = 2, .waited = 1});
    check_owned(streams[2], b, 2 * BIG);
}

CASE_WITH(a_completed_event_needs_no_wait, set_up_streams("16MiB")) {
    unsigned char *a = take(2 * BIG, streams[0]), *b = take(2 * BIG, streams[0]);
    use(streams[0], a, 2 * BIG, 1);
    use(streams[0], b, 2 * BIG, 1);
    give(a);
    give(b);
    CHECK(take(2 * BIG, streams[1]) == a);
    wait_for(streams[1]);
    order_calls before = order_calls_now();
    CHECK(take(BIG, streams[2]) == b); /* asked for, and over */
    check_calls(&before, (order_calls){.queried = 1});
    CHECK(take(BIG, streams[3]) == b + BIG); /* known to be over */
    check_calls(&before, (order_calls){0});
    CHECK(stats_now().served_completed == 2 && stats_now().served_waited == 1);
    check_owned(streams[2], b, BIG);
    check_owned(streams[3], b + BIG, BIG);
}

/* Streams 0 and 1 give back half a device each, in either order; one of them may be done. */
static void check_lender(int later, bool is_later_done) {
    unsigned char *blocks[2];
    REQUIRE(set_up_streams("16MiB"));
    for (int i = 0; i < 2; i++) {
        blocks[i] = take(2 * BIG, streams[i]);
        use(streams[i], blocks[i], 2 * BIG, 1);
    }
    give(blocks[!later]);
    give(blocks[later]);
    if (is_later_done) { /* an event of its own shows it */
        CHECK(ashlar_allocator_trim(allocator, 4 * BIG - 1) == ASHLAR_OK);
        wait_for(streams[later]);
    }
    CHECK(take(2 * BIG, streams[2]) == blocks[is_later_done ? later : !later]);
    CHECK(stats_now().served_waited == !is_later_done);
    CHECK(stats_now().served_completed == is_later_done);
    check_owned(streams[2], blocks[is_later_done ? later : !later], 2 * BIG);
    tear_down();
}

CASE(the_stream_that_used_its_memory_longest_ago_lends_first) {
    check_lender(0, false);
    check_lender(1, false);
}

CASE(a_stream_that_is_done_lends_before_one_that_is_not) {
    check_lender(0, true);
    check_lender(1, true);
}

CASE_WITH(the_rest_of_a_borrowed_block_stays_the_old_streams, set_up_streams("16MiB")) {
    unsigned char *ptr = take(ALL, streams[0]);
    use(streams[0], ptr, ALL, 1);
    give(ptr);
    CHECK(take(2 * BIG, streams[1]) == ptr);
    order_calls before = order_calls_now();
    CHECK(take(2 * BIG, streams[0]) == ptr + 2 * BIG); /* no wait for stream 0 */
    check_calls(&before, (order_calls){0});
    CHECK(stats_now().served_same_stream == 1);
    check_owned(streams[1], ptr, 2 * BIG);
    check_owned(streams[0], ptr + 2 * BIG, 2 * BIG);
}

/* ---- blocks away from home ---- */

CASE_WITH(a_block_freed_elsewhere_goes_home_once_that_is_past, set_up_streams("64MiB")) {
    unsigned char *ptr = take(BIG, streams[0]);
    wait_for(streams[0]); /* the caller's own order between the two uses */
    use(streams[1], ptr, BIG, 1);
    order_calls before = order_calls_now();
    give_on(ptr, streams[1]);
    check_calls(&before, (order_calls){.created = 1, .recorded = 1});
    CHECK(stats_now().shared_bytes == BIG);
    CHECK(take(BIG, streams[0]) != ptr); /* its home maps more, and does not wait */
    check_calls(&before, (order_calls){.queried = 1});
    CHECK(take(BIG, streams[1]) == ptr); /* where it was freed, at once */
    check_calls(&before, (order_calls){0});
    CHECK(stats_now().shared_bytes == 0 && stats_now().served_waited == 0);
    use(streams[1], ptr, BIG, 2);
    give(ptr);
    wait_for(streams[1]);
    CHECK(take(BIG, streams[0]) == ptr);
    CHECK(stats_now().shared_bytes == 0 && stats_now().served_idle == 2);
    check_owned(streams[0], ptr, BIG);
}

CASE_WITH(a_few_events_per_stream_serve_for_good, set_up_streams("16MiB")) {
    enum { EVENTS = 2 * ASHLAR_EVENTS_MAX, ROUNDS = 4 * EVENTS };
    const size_t created = CALLS(event_create);
    unsigned char *ptr = take(ALL, streams[0]);
    for (int i = 1; i <= ROUNDS; i++) {
        use(streams[(i - 1) % 2], ptr, ALL, (unsigned char)i);
        give(ptr);
        CHECK(take(ALL, streams[i % 2]) == ptr);
        check_ordered(streams[i % 2], ptr, ALL);
    }
    CHECK(CALLS(event_create) - created <= EVENTS);
    CHECK(stats_now().served_waited == ROUNDS);
    check_owned(streams[0], ptr, ALL);
    give(ptr);
    const size_t made = CALLS(event_create) - created, destroyed = CALLS(event_destroy);
    tear_down();
    CHECK_ZU(CALLS(event_destroy) - destroyed, made);
}

/* ---- contexts ---- */

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
    CHECK(ashlar_alloc(other, ALL, theirs[0], &ptr) == ASHLAR_OK);
    CHECK(ashlar_free(other, ptr) == ASHLAR_OK);
    CHECK(ashlar_alloc(other, ALL, theirs[1], &again) == ASHLAR_OK);
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
    give(take(ALL, streams[0]));
    CHECK(take(ALL, streams[1]) != NULL);
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
