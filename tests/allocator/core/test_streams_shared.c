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
