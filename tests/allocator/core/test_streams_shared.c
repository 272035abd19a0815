/* test_streams_shared.c - blocks that several streams use: ashlar_record_stream(). */
#include "tests/allocator/core/streams_fixture.h"

static void mark(void *ptr, ashlar_stream stream) {
    CHECK(ashlar_record_stream(allocator, ptr, stream) == ASHLAR_OK);
    check_all();
}

static ashlar_stream new_stream(void) {
    ashlar_stream stream = NULL;
    CHECK(ashlar_stream_create(device, &stream) == ASHLAR_OK);
    return stream;
}

CASE_WITH(a_marked_block_is_not_its_own_streams_at_once, set_up_streams("16MiB")) {
    unsigned char *ptr = take(4 * BIG, streams[0]);
    mark(ptr, streams[1]);
    mark(ptr, streams[1]); /* again changes nothing */
    mark(ptr, streams[0]); /* nor does its own */
    use(streams[1], ptr, 4 * BIG, 1);
    give(ptr);
    CHECK(stats_now().shared_bytes == 4 * BIG);
    order_calls before = order_calls_now();
    CHECK(take(4 * BIG, streams[0]) == ptr);
    CHECK(stats_now().served_same_stream == 0 && stats_now().served_waited == 1);
    check_calls(&before, (order_calls){.created = 2, .recorded = 2, .queried = 2, .waited = 1});
    CHECK(stats_now().shared_bytes == 0);
    check_owned(streams[0], ptr, 4 * BIG);
    give(ptr);
    CHECK(take(4 * BIG, streams[0]) == ptr); /* the mark went with the owner */
    CHECK(stats_now().served_same_stream == 1);
}

CASE_WITH(a_marked_block_is_free_for_all_once_every_user_is_done, set_up_streams("16MiB")) {
    unsigned char *ptr = take(4 * BIG, streams[0]);
    mark(ptr, streams[1]);
    mark(ptr, streams[2]);
    use(streams[0], ptr, 4 * BIG, 1);
    give(ptr);
    void *out = NULL;
    /* Have the events recorded, by a request that none of it helps. */
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    CHECK(stats_now().reserved_bytes == 16 * MIB && stats_now().shared_bytes == 16 * MIB);
    for (int i = 0; i < 3; i++) {
        wait_for(streams[i]);
    }
    order_calls before = order_calls_now();
    CHECK(ashlar_alloc(allocator, 4 * BIG, streams[3], &out) == ASHLAR_OK && out == ptr);
    CHECK(stats_now().served_completed == 1 && stats_now().shared_bytes == 0);
    check_calls(&before, (order_calls){.queried = 3});
    check_owned(streams[3], ptr, 4 * BIG);
}

CASE_WITH(what_is_known_to_be_done_is_no_longer_shared_at_the_next_miss, set_up_streams("16MiB")) {
    unsigned char *ptr = take(4 * BIG, streams[0]);
    mark(ptr, streams[1]);
    give(ptr);
    ashlar_stream_state *other = allocator->stream_states;
    while (other != NULL && other->stream != streams[1]) {
        other = other->next;
    }
    REQUIRE(other != NULL);
    uint64_t *recorded = &allocator->stats.events_recorded;
    CHECK(ashlar__stream_state_cover(other, &allocator->client, other->recorded, recorded) ==
          ASHLAR_OK);
    wait_for(streams[1]);
    CHECK(ashlar__stream_state_query(other, &allocator->client) == ASHLAR_OK);
    order_calls before = order_calls_now();
    CHECK(take(4 * BIG, streams[0]) == ptr);
    CHECK(stats_now().served_same_stream == 1 && stats_now().shared_bytes == 0);
    check_calls(&before, (order_calls){0});
    check_owned(streams[0], ptr, 4 * BIG);
}

CASE_WITH(a_marked_block_with_one_user_left_is_that_ones, set_up_streams("16MiB")) {
    unsigned char *ptr = take(4 * BIG, streams[0]);
    mark(ptr, streams[1]);
    use(streams[1], ptr, 4 * BIG, 1);
    give(ptr);
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK); /* records both, and nothing is done */
    wait_for(streams[0]);
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    CHECK(stats_now().shared_bytes == 0 && stats_now().reserved_bytes == 16 * MIB);
    order_calls before = order_calls_now();
    CHECK(take(4 * BIG, streams[1]) == ptr);
    CHECK(stats_now().served_same_stream == 1);
    check_calls(&before, (order_calls){0});
    check_owned(streams[1], ptr, 4 * BIG);
}

CASE_WITH(a_third_stream_waits_for_every_user, set_up_streams("16MiB")) {
    unsigned char *ptr = take(4 * BIG, streams[0]);
    mark(ptr, streams[1]);
    mark(ptr, streams[2]);
    for (int i = 0; i < 3; i++) {
        queue_write(streams[i], ptr, 4 * BIG, (unsigned char)i);
    }
    give(ptr);
    order_calls before = order_calls_now();
    CHECK(take(4 * BIG, streams[3]) == ptr);
    check_calls(&before, (order_calls){.created = 3, .recorded = 3, .queried = 3, .waited = 3});
    check_owned(streams[3], ptr, 4 * BIG);
}

CASE_WITH(a_block_freed_on_a_further_stream_keeps_the_marked_ones, set_up_streams("16MiB")) {
    unsigned char *ptr = take(4 * BIG, streams[0]);
    mark(ptr, streams[1]);
    use(streams[1], ptr, 4 * BIG, 1);
    wait_for(streams[0]); /* the order that ashlar_free_on() asks for */
    queue_write(streams[2], ptr, 1, 3);
    give_on(ptr, streams[2]); /* takes the place of stream 0 */
    order_calls before = order_calls_now();
    CHECK(take(4 * BIG, streams[0]) == ptr);
    check_calls(&before, (order_calls){.created = 2, .recorded = 2, .queried = 2, .waited = 2});
    check_owned(streams[0], ptr, 4 * BIG);
}

CASE_WITH(the_host_waits_for_every_user_where_that_is_what_helps, set_up_streams("16MiB")) {
    unsigned char *ptr = take(2 * BIG, streams[0]), *rest = take(2 * BIG, streams[0]);
    mark(ptr, streams[1]);
    mark(ptr, streams[2]);
    for (int i = 0; i < 3; i++) {
        queue_write(streams[i], ptr, 2 * BIG, (unsigned char)i);
    }
    give(ptr);
    give(rest);
    order_calls before = order_calls_now();
    CHECK(take(4 * BIG, streams[3]) == ptr); /* neither is enough by itself */
    CHECK(stats_now().served_after_sync == 1);
    /* Two of the users; then ptr is the third's, as `rest` is, and the stream can wait. */
    CHECK_ZU(order_calls_now().synchronized - before.synchronized, 2);
    for (const ashlar_stream_state *state = allocator->stream_states; state != NULL;
         state = state->next) {
        CHECK(state->waiter_count == 0);
    }
    check_owned(streams[3], ptr, 4 * BIG);
}

CASE_WITH(a_user_that_is_destroyed_before_the_free_is_waited_for, set_up_streams("16MiB")) {
    const ashlar_stream doomed = new_stream();
    unsigned char *ptr = take(4 * BIG, streams[0]);
    mark(ptr, doomed);
    use(doomed, ptr, 4 * BIG, 1);
    ashlar_stream_destroy(device, doomed);
    give(ptr);
    CHECK(take(4 * BIG, streams[0]) == ptr);
    CHECK(stats_now().served_waited == 1);
    check_owned(streams[0], ptr, 4 * BIG);
}

CASE_WITH(a_mark_lasts_beyond_recordings_of_before, set_up_streams("16MiB")) {
    see_recordings();
    unsigned char *ptr = take(4 * BIG, streams[0]);
    mark(ptr, streams[1]);
    queue_write(streams[0], ptr, 4 * BIG, 1);
    queue_write(streams[1], ptr, 4 * BIG, 2);
    give(ptr);
    order_calls before = order_calls_now();
    CHECK(take(4 * BIG, streams[2]) == ptr);
    check_calls(&before, (order_calls){.recorded = 2, .queried = 2, .waited = 2});
    check_owned(streams[2], ptr, 4 * BIG);
}

CASE(of_marked_blocks_the_smallest_that_fits_is_waited_for) {
    for (int swapped = 0; swapped < 2; swapped++) {
        REQUIRE(set_up_streams("16MiB"));
        unsigned char *large = take(3 * BIG, streams[0]), *small = take(BIG, streams[0]);
        mark(large, streams[1]);
        mark(small, streams[1]);
        queue_write(streams[1], large, BIG, 1);
        give(swapped == 0 ? large : small);
        give(swapped == 0 ? small : large);
        CHECK(take(BIG, streams[2]) == small);
        check_owned(streams[2], small, BIG);
        tear_down();
    }
}

CASE_WITH(marking_fails_whole, set_up_streams("16MiB")) {
    int foreign;
    unsigned char *ptr = take(4 * BIG, streams[0]);
    CHECK(ashlar_record_stream(allocator, &foreign, streams[1]) == ASHLAR_EPOINTER);
    CHECK(ashlar_record_stream(allocator, ptr + 512, streams[1]) == ASHLAR_EPOINTER);
    ashlar__host_fail_at(1); /* the stream's record */
    CHECK(ashlar_record_stream(allocator, ptr, streams[1]) == ASHLAR_EHOSTMEM);
    CHECK_ZU(order_count(), 1);
    for (int i = 0; i < 2; i++) { /* the two uses; the record is there after the first time */
        ashlar__host_fail_at(2);
        CHECK(ashlar_record_stream(allocator, ptr, streams[1]) == ASHLAR_EHOSTMEM);
        check_all();
    }
    ashlar__host_fail_at(0);
    order_calls before = order_calls_now();
    give(ptr);
    CHECK(take(4 * BIG, streams[0]) == ptr); /* it is not marked */
    check_calls(&before, (order_calls){0});
    mark(ptr, streams[1]);
    ashlar__host_fail_at(2); /* the stream's record, and one more use */
    CHECK(ashlar_record_stream(allocator, ptr, streams[2]) == ASHLAR_EHOSTMEM);
    ashlar__host_fail_at(0);
    give(ptr);
}

CASE(a_failing_wait_for_users_loses_nothing) {
    static const ashlar_driver_fn calls[] = {
        ASHLAR_DRIVER_FN_event_create,        ASHLAR_DRIVER_FN_event_record,
        ASHLAR_DRIVER_FN_event_query,         ASHLAR_DRIVER_FN_stream_wait_event,
        ASHLAR_DRIVER_FN_stream_is_capturing,
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        for (uint64_t n = 1; n <= 2; n++) {
            REQUIRE(set_up_streams("16MiB"));
            unsigned char *ptr = take(4 * BIG, streams[0]);
            void *out = NULL;
            mark(ptr, streams[1]);
            use(streams[1], ptr, 4 * BIG, 1);
            give(ptr);
            ashlar__driver_fail_at(driver, (int)calls[i], n, CU_UNKNOWN);
            CHECK(ashlar_alloc(allocator, 4 * BIG, streams[2], &out) == ASHLAR_EDRIVER);
            CHECK(out == NULL && atomic_load(&driver->fail_countdown) == 0);
            check_all();
            CHECK(take(4 * BIG, streams[2]) == ptr);
            check_owned(streams[2], ptr, 4 * BIG);
            tear_down();
        }
    }
}

RUN_CASES()
