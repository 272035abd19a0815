/*
 * test_streams.c - who gets a block freed on a stream, after which wait, and at what price.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/core/streams_fixture.h"

#include <malloc.h>

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
    CHECK_ZU(order_calls_now().recorded - before.recorded, 3);        /* none on stream 3 itself */
    CHECK_ZU(stats_now().reserved_bytes, ALL);
    CHECK(stats_now().served_after_sync == 1 && stats_now().served_waited == 0);
    for (const ashlar_stream_state *state = allocator->stream_states; state != NULL;
         state = state->next) {
        CHECK(state->waiter_count == 0); /* else its record would stay for good */
    }
    queue_verify(streams[3], live, BIG, 9);
    check_owned(streams[3], ptr, 3 * BIG);
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

/* ---- blocks freed on another stream ---- */

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

/* ---- blocks that several streams use: ashlar_record_stream() ---- */

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

RUN_CASES()
