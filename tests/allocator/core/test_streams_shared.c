/* test_streams_shared.c - blocks that several streams use: ashlar_record_stream(). */
#include "tests/allocator/core/streams_fixture.h"

#include <malloc.h>

static void mark(void *ptr, ashlar_stream stream) {
    CHECK(ashlar_record_stream(allocator, ptr, stream) == ASHLAR_OK);
    check_all();
}

CASE_WITH(a_marked_block_is_not_its_own_streams_at_once, set_up_streams("64MiB")) {
    unsigned char *ptr = take(BIG, streams[0]);
    mark(ptr, streams[1]);
    mark(ptr, streams[1]); /* again changes nothing */
    mark(ptr, streams[0]); /* nor does its own */
    use(streams[1], ptr, BIG, 1);
    order_calls before = order_calls_now();
    give(ptr);
    check_calls(&before, (order_calls){.created = 1, .recorded = 1}); /* one, on stream 1 */
    CHECK(stats_now().shared_bytes == BIG);
    unsigned char *more = take(BIG, streams[0]);
    CHECK(more != ptr && stats_now().served_mapped == 2); /* nobody waits while there is memory */
    check_calls(&before, (order_calls){.queried = 1});
    wait_for(streams[1]);
    CHECK(take(BIG, streams[0]) == ptr); /* back home */
    CHECK(stats_now().served_idle == 1 && stats_now().shared_bytes == 0);
    check_owned(streams[0], ptr, BIG);
    give(ptr);
    CHECK(take(BIG, streams[0]) == ptr); /* the mark went with the owner */
    CHECK(stats_now().served_same_stream == 1);
    give(more);
}

CASE_WITH(on_a_full_device_the_home_waits_for_the_further_user, set_up_streams("16MiB")) {
    unsigned char *ptr = take(ALL, streams[0]);
    mark(ptr, streams[1]);
    use(streams[0], ptr, ALL, 1);
    wait_for(streams[0]); /* the program's own order */
    use(streams[1], ptr, ALL, 2);
    give(ptr);
    order_calls before = order_calls_now();
    CHECK(take(ALL, streams[0]) == ptr);
    CHECK_ZU(order_calls_now().waited - before.waited, 1);
    CHECK_ZU(order_calls_now().synchronized - before.synchronized, 0);
    CHECK(stats_now().served_waited == 1 && stats_now().shared_bytes == 0);
    check_owned(streams[0], ptr, ALL);
}

CASE_WITH(a_marked_block_is_free_for_all_once_every_user_is_done, set_up_streams("16MiB")) {
    unsigned char *ptr = take(ALL, streams[0]);
    mark(ptr, streams[1]);
    mark(ptr, streams[2]);
    use(streams[0], ptr, ALL, 1);
    give(ptr);
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK); /* records; nothing is done */
    CHECK(stats_now().reserved_bytes == ALL && stats_now().shared_bytes == ALL);
    for (int i = 0; i < 3; i++) {
        wait_for(streams[i]);
    }
    order_calls before = order_calls_now();
    CHECK(take(ALL, streams[3]) == ptr);
    CHECK(stats_now().served_completed == 1 && stats_now().shared_bytes == 0);
    check_calls(&before, (order_calls){0}); /* the waits have told */
    check_owned(streams[3], ptr, ALL);
}

CASE(a_block_with_further_users_serves_a_stream_only_behind_all_of_them) {
    for (int users = 1; users <= 2; users++) {
        for (int wants = 0; wants < STREAMS; wants++) {
            REQUIRE(set_up_streams("16MiB"));
            unsigned char *ptr = take(ALL, streams[0]);
            for (int i = 1; i <= users; i++) {
                mark(ptr, streams[i]);
            }
            for (int i = 0; i <= users; i++) {
                use(streams[i], ptr + (size_t)i * BIG, BIG, (unsigned char)i);
            }
            give(ptr);
            CHECK(take(ALL, streams[wants]) == ptr);
            CHECK(atomic_load(&payload_bad_count) == 0);
            check_owned(streams[wants], ptr, ALL);
            tear_down();
        }
    }
}

CASE_WITH(a_block_freed_on_a_further_stream_keeps_the_marked_ones, set_up_streams("16MiB")) {
    unsigned char *ptr = take(ALL, streams[0]);
    mark(ptr, streams[1]);
    use(streams[1], ptr, ALL, 1);
    wait_for(streams[0]); /* the order that ashlar_free_on() asks for */
    queue_write(streams[2], ptr, 1, 3);
    order_calls before = order_calls_now();
    give_on(ptr, streams[2]); /* beside stream 0 and 1 */
    CHECK_ZU(order_calls_now().recorded - before.recorded, 2);
    before = order_calls_now();
    CHECK(take(ALL, streams[0]) == ptr);
    CHECK_ZU(order_calls_now().waited - before.waited, 2);
    check_owned(streams[0], ptr, ALL);
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
    CHECK(take(ALL, streams[3]) == ptr); /* neither is enough by itself */
    CHECK(stats_now().served_after_sync == 1);
    for (const ashlar_stream_state *state = allocator->stream_states; state != NULL;
         state = state->next) {
        CHECK(state->waiter_count == 0);
    }
    check_owned(streams[3], ptr, ALL);
}

CASE(a_user_that_is_destroyed_is_waited_for) {
    for (int is_freed_first = 0; is_freed_first < 2; is_freed_first++) {
        REQUIRE(set_up_streams("16MiB"));
        const ashlar_stream doomed = new_stream();
        unsigned char *ptr = take(ALL, streams[0]);
        mark(ptr, doomed);
        use(doomed, ptr, ALL, 1);
        if (is_freed_first) {
            give(ptr);
        }
        ashlar_stream_destroy(device, doomed);
        if (!is_freed_first) {
            give(ptr);
        }
        CHECK(take(ALL, streams[0]) == ptr);
        CHECK(stats_now().served_waited == 1);
        check_owned(streams[0], ptr, ALL);
        tear_down();
    }
}

/* The stream that has the block as its own goes; another uses it still. */
CASE(a_marked_block_of_a_destroyed_stream_comes_back) {
    for (int is_freed_first = 0; is_freed_first < 2; is_freed_first++) {
        REQUIRE(set_up_streams("16MiB"));
        const ashlar_stream doomed = new_stream();
        unsigned char *ptr = take(ALL, doomed);
        mark(ptr, streams[1]);
        use(doomed, ptr, ALL, 1);
        wait_for(doomed);
        use(streams[1], ptr, ALL, 2);
        if (is_freed_first) {
            give(ptr);
        }
        ashlar_stream_destroy(device, doomed);
        if (!is_freed_first) {
            give(ptr);
        }
        CHECK(stats_now().shared_bytes == ALL);
        CHECK(take(ALL, streams[2]) == ptr);
        CHECK(stats_now().shared_bytes == 0);
        check_owned(streams[2], ptr, ALL);
        tear_down();
    }
}

CASE_WITH(a_mark_lasts_beyond_recordings_of_before, set_up_streams("16MiB")) {
    see_recordings();
    unsigned char *ptr = take(ALL, streams[0]);
    mark(ptr, streams[1]);
    queue_write(streams[0], ptr, ALL, 1);
    queue_write(streams[1], ptr, ALL, 2);
    order_calls before = order_calls_now();
    give(ptr);
    check_calls(&before, (order_calls){.recorded = 1}); /* behind what stream 1 did since */
    CHECK(take(ALL, streams[2]) == ptr);
    check_owned(streams[2], ptr, ALL);
}

/* ---- cost ---- */

typedef struct step_cost {
    uint64_t calls;
    size_t host_bytes, records; /* at its end */
} step_cost;

/* Blocks that stream 0 takes, and that others read: the same in each step. */
static step_cost run_step(void) {
    enum { BLOCKS = 12 };
    unsigned char *ptrs[BLOCKS];
    const uint64_t calls = stats_now().driver_calls;
    for (int i = 0; i < BLOCKS; i++) {
        const size_t bytes = (size_t)(i % 4 + 1) * (i % 2 == 0 ? 512 * KIB : 1000);
        ptrs[i] = take(bytes, streams[0]);
        use(streams[0], ptrs[i], 1, 1);
        mark(ptrs[i], streams[i % 3 + 1]);
    }
    for (int i = 0; i < BLOCKS; i++) {
        give(ptrs[i]);
    }
    for (int i = 0; i < STREAMS; i++) {
        wait_for(streams[i]);
    }
    return (step_cost){stats_now().driver_calls - calls, mallinfo2().uordblks, order_count()};
}

CASE_WITH(the_thousandth_step_costs_what_the_tenth_did, set_up_streams("64MiB")) {
    step_cost tenth = {0}, middle = {0}, last = {0};
    uint64_t reserved = 0;
    for (int i = 1; i <= 1000; i++) {
        last = run_step();
        if (i == 10) {
            tenth = last;
            reserved = stats_now().reserved_bytes;
        }
        middle = i == 500 ? last : middle; /* by then malloc's own caches are full */
    }
    CHECK_ZU((size_t)last.calls, (size_t)tenth.calls);
    CHECK(last.host_bytes < middle.host_bytes + 8 * 500); /* no pointer for each step */
    CHECK_ZU(last.records, tenth.records);
    CHECK(stats_now().reserved_bytes == reserved && stats_now().served_waited == 0);
    CHECK(stats_now().served_after_sync == 0);
}

enum { SHARING = 32 }; /* small blocks that have one event */

static void mark_and_give(int count, size_t bytes) {
    for (int i = 0; i < count; i++) {
        unsigned char *ptr = take(bytes, streams[0]);
        mark(ptr, streams[1]);
        use(streams[1], ptr, 1, 1);
        give(ptr);
    }
}

CASE_WITH(small_blocks_share_an_event, set_up_streams("16MiB")) {
    order_calls before = order_calls_now();
    mark_and_give(SHARING - 1, 4096);
    check_calls(&before, (order_calls){0});
    mark_and_give(1, 4096);
    check_calls(&before, (order_calls){.created = 1, .recorded = 1});
    mark_and_give(1, 4096); /* which comes behind that event */
    wait_for(streams[1]);
    unsigned char *ptr = take(BIG, streams[0]);
    CHECK_ZU(stats_now().shared_bytes, 0); /* asked for together, the last one's event too */
    give(ptr);
    before = order_calls_now();
    mark_and_give(4, 128 * KIB);
    check_calls(&before, (order_calls){0});
    mark_and_give(1, 128 * KIB); /* many bytes need not be many blocks */
    check_calls(&before, (order_calls){.recorded = 1});
    mark_and_give(1, BIG);
    CHECK_ZU(order_calls_now().recorded - before.recorded, 1);
}

CASE_WITH(a_block_without_its_event_is_not_handed_out_early, set_up_streams("4MiB")) {
    enum { FILLING = 4 };
    const size_t bytes = 512 * KIB;
    unsigned char *ptrs[FILLING], *rest = take(2 * MIB, streams[0]);
    for (int i = 0; i < FILLING; i++) {
        ptrs[i] = take(bytes, streams[0]);
    }
    mark(ptrs[1], streams[1]);
    use(streams[1], ptrs[1], bytes, 1);
    order_calls before = order_calls_now();
    give(ptrs[1]);
    check_calls(&before, (order_calls){0});
    CHECK(take(bytes, streams[0]) == ptrs[1]); /* behind an event that is recorded now */
    CHECK_ZU(order_calls_now().recorded - before.recorded, 2); /* one is on stream 0 */
    CHECK_ZU(order_calls_now().waited - before.waited, 1);
    check_owned(streams[0], ptrs[1], bytes);
    give(rest);
}

CASE_WITH(marks_that_went_home_leave_their_memory_to_the_next, set_up_streams("64MiB")) {
    for (int round = 0; round < 3; round++) {
        unsigned char *ptrs[SHARING];
        for (int i = 0; i < SHARING; i++) {
            ptrs[i] = take(4096, streams[0]);
            if (round == 0) {
                mark(ptrs[i], streams[1]);
            } else {
                HOST_FAILS_AT(
                    1, CHECK(ashlar_record_stream(allocator, ptrs[i], streams[1]) == ASHLAR_OK));
            }
        }
        for (int i = 0; i < SHARING; i++) {
            give(ptrs[i]);
        }
        wait_for(streams[1]);
        give(take(4 * BIG + (size_t)round * BIG, streams[0])); /* asks, and they come home */
        CHECK_ZU(stats_now().shared_bytes, 0);
    }
}

/* ---- failures ---- */

CASE_WITH(marking_fails_whole, set_up_streams("16MiB")) {
    int foreign;
    unsigned char *ptr = take(ALL, streams[0]);
    CHECK(ashlar_record_stream(allocator, &foreign, streams[1]) == ASHLAR_EPOINTER);
    CHECK(ashlar_record_stream(allocator, ptr + 512, streams[1]) == ASHLAR_EPOINTER);
    HOST_FAILS_AT(1, /* the stream's record */
                  CHECK(ashlar_record_stream(allocator, ptr, streams[1]) == ASHLAR_EHOSTMEM));
    CHECK_ZU(order_count(), 1);
    HOST_FAILS_AT(2, /* its use of the block */
                  CHECK(ashlar_record_stream(allocator, ptr, streams[1]) == ASHLAR_EHOSTMEM));
    check_all();
    order_calls before = order_calls_now();
    give(ptr);
    CHECK(take(ALL, streams[0]) == ptr); /* it is not marked */
    check_calls(&before, (order_calls){0});
    mark(ptr, streams[1]);
    HOST_FAILS_AT(2, CHECK(ashlar_record_stream(allocator, ptr, streams[2]) == ASHLAR_EHOSTMEM));
    give(ptr);
}

CASE(a_failing_wait_for_users_loses_nothing) {
    static const ashlar_driver_fn calls[] = {
        ASHLAR_DRIVER_FN_event_create,        ASHLAR_DRIVER_FN_event_record,
        ASHLAR_DRIVER_FN_event_query,         ASHLAR_DRIVER_FN_stream_wait_event,
        ASHLAR_DRIVER_FN_stream_is_capturing,
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        for (int at_free = 0; at_free < 2; at_free++) {
            const bool is_of_free = calls[i] != ASHLAR_DRIVER_FN_event_query &&
                                    calls[i] != ASHLAR_DRIVER_FN_stream_wait_event;
            if (at_free && !is_of_free) {
                continue;
            }
            REQUIRE(set_up_streams("16MiB"));
            unsigned char *ptr = take(ALL, streams[0]);
            void *out = NULL;
            mark(ptr, streams[1]);
            use(streams[1], ptr, ALL, 1);
            ashlar__driver_fail_at(driver, (int)calls[i], at_free || !is_of_free ? 1 : 2,
                                   CU_UNKNOWN);
            CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK); /* what cannot be now is done later */
            if (!at_free) {
                CHECK(ashlar_alloc(allocator, ALL, streams[0], &out) == ASHLAR_EDRIVER);
            }
            CHECK(out == NULL && atomic_load(&driver->fail_countdown) == 0);
            check_all();
            CHECK(take(ALL, streams[0]) == ptr);
            check_owned(streams[0], ptr, ALL);
            tear_down();
        }
    }
}

/* The stream that was marked has the block's zone by then. */
CASE_WITH(an_heir_that_is_marked_is_waited_for, set_up("memory=16MiB,mode=adversarial,seed=2")) {
    ashlar_stream doomed = NULL;
    CHECK(ashlar_stream_create(device, &doomed) == ASHLAR_OK);
    unsigned char *ptr = take(64 * KIB, doomed);
    queue_write(doomed, ptr, 64 * KIB, 1);
    order_behind(doomed, streams[0]);
    ashlar_stream_destroy(device, doomed);
    CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    unsigned char *next = take(64 * KIB, streams[1]);
    CHECK(next == ptr + 64 * KIB); /* in the zone of the one that ended */
    CHECK(ashlar_record_stream(allocator, ptr, streams[1]) == ASHLAR_OK);
    queue_verify(streams[1], ptr, 64 * KIB, 1);
    give_on(ptr, streams[0]);
    unsigned char *again = take(64 * KIB, streams[0]);
    queue_write(streams[0], again, 64 * KIB, 2);
    wait_for(streams[0]);
    wait_for(streams[1]);
    CHECK(atomic_load(&payload_bad_count) == 0);
    give(again);
    give(next);
}

RUN_CASES()
