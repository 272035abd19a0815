/*
 * test_pinned_streams.c - blocks given back while queued copies still use them. Everything runs in
 * adversarial mode: nothing queued runs before the host waits for it, and then only what the wait
 * needs, so that memory handed out too early is really overwritten.
 */
#include "tests/allocator/pinned/pinned_fixture.h"
#include "tests/allocator/device/planted_capture.h"

enum { BLOCKS = 8, SIDE = 300 };

#define ADVERSARIAL "mode=adversarial,seed=3"

static bool set_up_adversarial(const ashlar_pinned_config *config) {
    return set_up_pool(ADVERSARIAL, config);
}

/* jemalloc begins large blocks anywhere in their first page. */
static bool is_same_page(const void *a, const void *b) {
    return (uintptr_t)a / (4 * KIB) == (uintptr_t)b / (4 * KIB);
}

static bool is_in_one_of(unsigned char *const *blocks, size_t count, size_t bytes,
                         const unsigned char *ptr) {
    for (size_t i = 0; i < count; i++) {
        if (ptr < blocks[i] + bytes && blocks[i] < ptr + bytes) {
            return true;
        }
    }
    return false;
}

/* Each look at an event may let one piece of work run: here is more than any case looks. */
static void keep_busy(ashlar_stream stream) {
    for (int i = 0; i < 200; i++) {
        queue_verify(stream, NULL, 0, 0);
    }
}

static void trim_until_nothing_is_pending(void) {
    for (int i = 0; i < 10000 && pinned_now().pending_blocks != 0; i++) {
        trim_pinned();
    }
    CHECK(pinned_now().pending_blocks == 0);
}

/* All of a copy's source is as it was, although the block was given back and others taken. */
CASE_WITH(contents_survive_until_the_copy_has_run, set_up_adversarial(NULL)) {
    static unsigned char seen[BLOCKS][64 * KIB];
    unsigned char *blocks[BLOCKS];
    REQUIRE(ashlar_allocator_create(device, &allocator) == ASHLAR_OK);
    for (size_t bytes = 64; bytes <= 64 * KIB; bytes *= 8) {
        unsigned char *on_device[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) {
            const ashlar_stream stream = streams[i % STREAMS];
            on_device[i] = take(bytes, stream);
            blocks[i] = take_pinned(bytes);
            memset(blocks[i], 10 + i, bytes);
            keep_busy(stream);
            CHECK(ashlar_copy_to_device(device, on_device[i], blocks[i], bytes, stream) ==
                  ASHLAR_OK);
            give_pinned_on(blocks[i], stream);
        }
        CHECK(pinned_now().pending_blocks == BLOCKS && pinned_now().live_blocks == 0);
        for (int i = 0; i < 40; i++) { /* others write wherever they get memory */
            unsigned char *other = take_pinned(bytes);
            CHECK(!is_in_one_of(blocks, BLOCKS, bytes, other));
            memset(other, 0xEE, bytes);
            give_pinned(other);
        }
        trim_pinned();
        for (int i = 0; i < BLOCKS; i++) {
            CHECK(ashlar_copy_to_host(device, seen[i], on_device[i], bytes, streams[i % STREAMS]) ==
                  ASHLAR_OK);
            wait_for(streams[i % STREAMS]);
            CHECK(seen[i][0] == 10 + i && seen[i][bytes / 2] == 10 + i &&
                  seen[i][bytes - 1] == 10 + i);
            give(on_device[i]);
        }
        trim_pinned();
        CHECK(pinned_now().pending_blocks == 0 && pinned_now().reserved_bytes == 0);
    }
    ashlar_allocator_destroy(allocator);
}

CASE(a_block_serves_again_once_its_work_is_over) {
    const ashlar_pinned_config config = {.limit_bytes = 2 * MIB};
    REQUIRE(set_up_adversarial(&config));
    unsigned char *ptr = take_pinned(1536 * KIB);
    queue_write(streams[0], ptr, 1536 * KIB, 1);
    queue_verify(streams[0], ptr, 1536 * KIB, 1);
    give_pinned_on(ptr, streams[0]);
    wait_for(streams[0]);
    unsigned char *again = take_pinned(1536 * KIB);
    CHECK(is_same_page(again, ptr));
    const ashlar_pinned_stats s = pinned_now();
    CHECK(s.pending_blocks == 0 && s.host_waits == 0 && s.released_count == 1);
    CHECK(s.driver_alloc_count == 1);
    give_pinned(again);
}

/* Streams 1 to 3 are done, stream 0 is not and was first. */
CASE_WITH(a_slow_stream_holds_back_its_own_blocks_only, set_up_adversarial(NULL)) {
    void *blocks[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        blocks[i] = take_pinned(1 * MIB);
        queue_write(streams[i], blocks[i], 1 * MIB, (unsigned char)i);
        queue_verify(streams[i], blocks[i], 1 * MIB, (unsigned char)i);
        keep_busy(streams[i]);
        give_pinned_on(blocks[i], streams[i]);
    }
    for (int i = 1; i < STREAMS; i++) {
        wait_for(streams[i]);
    }
    trim_pinned();
    CHECK(pinned_now().pending_blocks == 1 && pinned_now().released_count == STREAMS - 1);
    CHECK_ZU(host_blocks(), 1); /* a block and jemalloc's page are more than half a segment */
    wait_for(streams[0]);
    trim_pinned();
    CHECK(pinned_now().pending_blocks == 0 && pinned_now().reserved_bytes == 0);
}

/* Also on one stream: what is over is released though more follows. */
CASE_WITH(batches_of_one_stream_are_released_in_turn, set_up_adversarial(NULL)) {
    ashlar_event middle = NULL;
    REQUIRE(ashlar_event_create(device, &middle) == ASHLAR_OK);
    for (int i = 0; i < 2; i++) {
        unsigned char *ptr = take_pinned(1 * MIB);
        queue_write(streams[0], ptr, 1 * MIB, 1);
        keep_busy(streams[0]);
        give_pinned_on(ptr, streams[0]);
        if (i == 0) {
            CHECK(ashlar_event_record(device, middle, streams[0]) == ASHLAR_OK);
        }
    }
    CHECK(ashlar_event_synchronize(device, middle) == ASHLAR_OK);
    trim_pinned();
    CHECK(pinned_now().pending_blocks == 1);
    ashlar_event_destroy(device, middle);
}

CASE_WITH(giving_back_waits_for_nothing_and_records_seldom, set_up_adversarial(NULL)) {
    static void *blocks[SIDE];
    take_many(blocks, SIDE, 1000);
    const size_t waits = CALLS(event_synchronize) + CALLS(stream_synchronize);
    const size_t records = CALLS(event_record), queries = CALLS(event_query);
    for (int i = 0; i < SIDE; i++) {
        give_pinned_on(blocks[i], streams[1]);
    }
    CHECK_ZU(CALLS(event_synchronize) + CALLS(stream_synchronize), waits);
    CHECK_ZU(CALLS(event_record), records + SIDE / 32);
    CHECK_ZU(CALLS(event_query), queries);
    CHECK(pinned_now().events_recorded == SIDE / 32 && pinned_now().pending_blocks == SIDE);
    wait_for(streams[1]);
    trim_pinned(); /* the last ones have no event yet, and their work is not over for certain */
    CHECK_ZU(CALLS(event_record), records + SIDE / 32 + 1);
    CHECK(pinned_now().pending_blocks <= SIDE % 32);
    wait_for(streams[1]);
    trim_pinned();
    CHECK(pinned_now().pending_blocks == 0 && pinned_now().reserved_bytes == 0);
}

CASE_WITH(large_blocks_do_not_wait_for_a_batch_to_fill, set_up_adversarial(NULL)) {
    give_pinned_on(take_pinned(600 * KIB), streams[0]);
    CHECK(pinned_now().events_recorded == 0);
    give_pinned_on(take_pinned(600 * KIB), streams[0]);
    CHECK(pinned_now().events_recorded == 1);
}

CASE_WITH(events_are_used_again, set_up_adversarial(NULL)) {
    const size_t created = CALLS(event_create);
    for (int i = 0; i < 50; i++) {
        unsigned char *ptr = take_pinned(2 * MIB);
        queue_write(streams[i % STREAMS], ptr, 2 * MIB, 1);
        give_pinned_on(ptr, streams[i % STREAMS]);
        wait_for(streams[i % STREAMS]);
    }
    CHECK(CALLS(event_create) - created <= 2);
    wait_for(streams[1]);
    trim_pinned();
    CHECK_ZU(live_events(), 0); /* a trim returns them too */
}

CASE(a_block_of_several_streams_waits_for_all) {
    for (int last = 0; last < 3; last++) {
        REQUIRE(set_up_adversarial(NULL));
        const ashlar_stream named[] = {streams[0], streams[1], streams[2], streams[1]};
        unsigned char *ptr = take_pinned(1 * MIB);
        for (int i = 0; i < 3; i++) {
            keep_busy(streams[i]);
        }
        CHECK(ashlar_pinned_free_on_all(pool, ptr, named, 4) == ASHLAR_OK);
        CHECK(pinned_now().pending_blocks == 1 && pinned_now().deferred_count == 1);
        for (int i = 0; i < 3; i++) {
            if (i != last) {
                wait_for(streams[i]);
            }
        }
        trim_pinned();
        CHECK(pinned_now().pending_blocks == 1);
        wait_for(streams[last]);
        trim_pinned();
        CHECK(pinned_now().pending_blocks == 0 && pinned_now().released_count == 1);
        CHECK(pinned_now().reserved_bytes == 0);
        tear_down_pool();
    }
}

CASE(at_the_limit_the_host_waits_for_the_oldest) {
    const ashlar_pinned_config config = {.limit_bytes = 6 * MIB};
    REQUIRE(set_up_adversarial(&config));
    unsigned char *first = take_pinned(2 * MIB - 256 * KIB), *second = take_pinned(1792 * KIB),
                  *third = take_pinned(1792 * KIB);
    queue_write(streams[2], second, 1792 * KIB, 2);
    give_pinned_on(second, streams[2]); /* the older event, in the newer stream record's */
    queue_write(streams[1], first, 1792 * KIB, 1);
    queue_verify(streams[1], first, 1792 * KIB, 1);
    give_pinned_on(first, streams[1]);
    CHECK(is_same_page(take_pinned(1792 * KIB), second));
    CHECK(pinned_now().host_waits == 1 && pinned_now().pending_blocks == 1);
    CHECK(is_same_page(take_pinned(1792 * KIB), first));
    CHECK(pinned_now().host_waits == 2 && pinned_now().pending_blocks == 0);
    void *out = NULL;
    CHECK(ashlar_pinned_alloc(pool, 1792 * KIB, &out) == ASHLAR_ENOMEM);
    CHECK(pinned_now().host_waits == 2);
    (void)third;
}

CASE_WITH(below_the_limit_nobody_waits, set_up_adversarial(NULL)) {
    const size_t waits = CALLS(event_synchronize);
    for (int i = 0; i < 20; i++) {
        unsigned char *ptr = take_pinned(1 * MIB);
        queue_write(streams[0], ptr, 1 * MIB, 5);
        keep_busy(streams[0]);
        give_pinned_on(ptr, streams[0]);
    }
    CHECK(pinned_now().host_waits == 0 && pinned_now().pending_blocks > 10);
    CHECK_ZU(CALLS(event_synchronize), waits);
}

CASE_WITH(a_stream_may_be_destroyed_once_it_was_left,
          set_up_pool(ADVERSARIAL "," HANDLES_COME_BACK, NULL)) {
    ashlar_stream stream = NULL, next = NULL;
    REQUIRE(ashlar_stream_create(device, &stream) == ASHLAR_OK);
    CHECK(ashlar_pinned_forget_stream(pool, stream) == ASHLAR_OK); /* never named */
    unsigned char *ptr = take_pinned(5000);
    queue_write(stream, ptr, 5000, 1);
    queue_verify(stream, ptr, 5000, 1);
    keep_busy(stream);
    give_pinned_on(ptr, stream);
    CHECK(ashlar_pinned_forget_stream(pool, stream) == ASHLAR_OK);
    CHECK(pinned_now().events_recorded == 1);
    ashlar_stream_destroy(device, stream);
    CHECK(ashlar_pinned_trim(pool) == ASHLAR_OK);
    CHECK(pinned_now().pending_blocks == 1);
    REQUIRE(ashlar_stream_create(device, &next) == ASHLAR_OK);
    CHECK(next == stream); /* the handle is another stream's now */
    give_pinned_on(take_pinned(1 * MIB), next);
    wait_for(next);
    CHECK(pinned_now().pending_blocks == 2);
    trim_pinned();
    CHECK(pinned_now().pending_blocks == 1); /* not held back by the old one's */
    trim_until_nothing_is_pending();
    ashlar_stream_destroy(device, next);
}

CASE_WITH(a_stream_that_is_gone_keeps_its_blocks_pending,
          set_up_pool(ADVERSARIAL "," STRICT_NOT_HERE, NULL)) {
    ashlar_stream stream = NULL;
    REQUIRE(ashlar_stream_create(device, &stream) == ASHLAR_OK);
    give_pinned_on(take_pinned(5000), streams[0]);
    give_pinned_on(take_pinned(5000), stream);
    give_pinned_on(take_pinned(5000), streams[1]);
    ashlar_stream_destroy(device, stream); /* without leaving it */
    CHECK(ashlar_pinned_forget_stream(pool, stream) == ASHLAR_EDRIVER);
    wait_for(streams[0]);
    wait_for(streams[1]);
    CHECK_FAILS(ashlar_pinned_trim(pool), ASHLAR_EDRIVER, "cuEventRecord"); /* of one of three */
    for (int i = 0; i < 1000 && pinned_now().pending_blocks > 1; i++) {
        CHECK(ashlar_pinned_trim(pool) == ASHLAR_EDRIVER);
    }
    CHECK(pinned_now().pending_blocks == 1);
    give_pinned(take_pinned(3 * MIB)); /* nobody else is concerned */
}

CASE_WITH(the_per_thread_default_stream_is_refused, set_up_adversarial(NULL)) {
    const ashlar_stream named[] = {streams[0], (ashlar_stream)(uintptr_t)CU_STREAM_PER_THREAD};
    unsigned char *ptr = take_pinned(100);
    CHECK(ashlar_pinned_free_on(pool, ptr, named[1]) == ASHLAR_ENOTSUP);
    CHECK_FAILS(ashlar_pinned_free_on_all(pool, ptr, named, 2), ASHLAR_ENOTSUP,
                "per-thread default stream");
    CHECK(pinned_now().live_blocks == 1 && pinned_now().pending_blocks == 0);
    give_pinned_on(ptr, NULL); /* the legacy one is a stream like another */
    wait_for(NULL);
    trim_until_nothing_is_pending();
}

/* What is pending when the pool goes has run by then: nothing is written to memory that is gone. */
CASE_WITH(destroying_a_pool_waits_for_what_is_pending, set_up_adversarial(NULL)) {
    for (int i = 0; i < 100; i++) {
        unsigned char *ptr = take_pinned(30 * KIB);
        const ashlar_stream both[] = {streams[i % STREAMS], streams[(i + 1) % STREAMS]};
        queue_write(both[0], ptr, 30 * KIB, 1);
        queue_verify(both[0], ptr, 30 * KIB, 1);
        CHECK(ashlar_pinned_free_on_all(pool, ptr, both, 1 + (size_t)(i % 2)) == ASHLAR_OK);
    }
}

/* Misses, events, waits, and what goes back to the driver. */
CASE_WITH(no_call_of_a_pool_spoils_another_threads_capture, set_up_adversarial(NULL)) {
    planted other;
    plant(&other);
    for (size_t bytes = 64; bytes <= MIB; bytes *= 16) {
        for (int i = 0; i < BLOCKS; i++) {
            const ashlar_stream stream = streams[i % STREAMS];
            unsigned char *block = take_pinned(bytes);
            queue_write(stream, block, bytes, (unsigned char)i);
            give_pinned_on(block, stream);
        }
        CHECK(ashlar_pinned_forget_stream(pool, streams[0]) == ASHLAR_OK);
        trim_pinned();
    }
    for (int i = 0; i < STREAMS; i++) {
        wait_for(streams[i]);
    }
    trim_until_nothing_is_pending();
    CHECK(dig_up(&other) == CU_SUCCESS);
}

RUN_CASES()
