/*
 * test_hit.c - what a thread's cache hands out, to whom, and what becomes of it when somebody else
 * needs the memory.
 */
#include "allocator_fixture.h"

#include "allocator_impl.h"
#include "barrier.h"
#include "helper_fixture.h"

#define ROOM (8 * MIB) /* of a cache, where a case does not try its limits */

/* Where there can be no caches there is nothing to test. */
#define SET_UP(spec, cache_bytes)                 \
    if (!ashlar_barrier_init()) {                 \
        SKIP("this kernel has no membarrier(2)"); \
    }                                             \
    atomic_store(&payload_bad_count, 0);          \
    REQUIRE(set_up_cached(spec, cache_bytes))

/* As take() and give(), without the check that looks into every cache. */
static unsigned char *take_only(size_t bytes, ashlar_stream stream) {
    void *ptr = NULL;
    CHECK(ashlar_alloc(allocator, bytes, stream, &ptr) == ASHLAR_OK);
    return ptr;
}

static void give_only(void *ptr) {
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
}

static uint64_t all_calls(void) {
    uint64_t calls = 0;
    for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
        calls += atomic_load(&driver->calls[fn]);
    }
    return calls;
}

/* ---- one thread ---- */

static void a_freed_block_is_handed_out_again_without_a_driver_call(void) {
    SET_UP("memory=32MiB", ROOM);
    unsigned char *small = take(5000, streams[0]), *large = take(3 * MIB, streams[0]);
    give_only(small);
    give_only(large);
    const uint64_t calls = all_calls();
    for (int i = 0; i < 100; i++) {
        unsigned char *again = take_only(5100, streams[0]);
        CHECK(again == small);
        CHECK(take_only(3 * MIB - 100, streams[0]) == large);
        give_only(again);
        give_only(large);
    }
    CHECK(all_calls() == calls);
    const ashlar_stats s = stats_now();
    CHECK_ZU(s.served_cached, 200);
    CHECK_ZU(s.alloc_count, 202);
    CHECK_ZU(s.free_count, 202);
    CHECK_ZU(s.cached_bytes, 5120 + 3 * MIB);
    CHECK_ZU(s.live_peak_bytes, 5000 + 3 * MIB);
    tear_down();
}

static void each_stream_gets_its_own_blocks_back(void) {
    unsigned char *ptrs[STREAMS];
    SET_UP("memory=32MiB", ROOM);
    for (int i = 0; i < STREAMS; i++) {
        ptrs[i] = take(4096, streams[i]);
    }
    for (int i = 0; i < STREAMS; i++) {
        give(ptrs[i]);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = STREAMS - 1; i >= 0; i--) {
            CHECK(take_only(4096, streams[i]) == ptrs[i]);
        }
        for (int i = 0; i < STREAMS; i++) {
            give(ptrs[(i + round) % STREAMS]);
        }
    }
    CHECK_ZU(stats_now().served_cached, 3 * STREAMS);
    CHECK_ZU(stats_now().events_recorded, 0);
    tear_down();
}

static void the_legacy_stream_is_the_default_stream(void) {
    const ashlar_stream legacy = (ashlar_stream)(uintptr_t)CU_STREAM_LEGACY;
    SET_UP("memory=32MiB", ROOM);
    unsigned char *ptr = take(4096, NULL);
    give(ptr);
    for (int i = 0; i < 4; i++) {
        CHECK(take_only(4096, i % 2 == 0 ? legacy : NULL) == ptr);
        give_only(ptr);
    }
    CHECK_ZU(stats_now().served_cached, 4);
    tear_down();
}

static void a_block_freed_on_another_stream_is_that_streams(void) {
    SET_UP("memory=32MiB", ROOM);
    unsigned char *ptr = take(4096, streams[0]);
    wait_for(streams[0]);
    give_on(ptr, streams[1]);
    unsigned char *other = take(4096, streams[0]);
    CHECK(other != ptr);
    CHECK_ZU(stats_now().served_cached, 0);
    CHECK(take_only(4096, streams[1]) == ptr);
    CHECK_ZU(stats_now().served_cached, 1);
    give(ptr); /* and stays that stream's */
    CHECK(take_only(4096, streams[1]) == ptr);
    give(ptr);
    give(other);
    tear_down();
}

/* Several bad calls, each with a block's twin in the cache that it might damage. */
static void a_wrong_call_is_refused_and_changes_nothing(void) {
    void *out = &out;
    size_t bytes = 7;
    SET_UP("memory=32MiB", ROOM);
    unsigned char *held = take(4096, streams[0]), *freed = take(4096, streams[0]);
    give(freed);
    const ashlar_stats before = stats_now();
    CHECK(ashlar_free(allocator, freed) == ASHLAR_EPOINTER);
    CHECK_HAS(ashlar_error_detail(), "freed before");
    CHECK(ashlar_free_on(allocator, freed, streams[1]) == ASHLAR_EPOINTER);
    CHECK(ashlar_usable_bytes(allocator, freed, &bytes) == ASHLAR_EPOINTER && bytes == 7);
    CHECK(ashlar_free(allocator, held + 1) == ASHLAR_EPOINTER);
    CHECK_HAS(ashlar_error_detail(), "inside a block");
    CHECK(ashlar_free(allocator, held + 512) == ASHLAR_EPOINTER);
    CHECK(ashlar_free(allocator, freed + 512) == ASHLAR_EPOINTER);
    CHECK(ashlar_free(allocator, &out) == ASHLAR_EPOINTER);
    CHECK_HAS(ashlar_error_detail(), "not a block");
    CHECK(ashlar_free(allocator, NULL) == ASHLAR_OK);
    CHECK(ashlar_alloc(allocator, 0, streams[0], &out) == ASHLAR_EINVAL);
    CHECK(ashlar_alloc(allocator, SIZE_MAX, streams[0], &out) == ASHLAR_ENOMEM);
    CHECK(ashlar_alloc_tagged(allocator, 4096, ASHLAR_TAG_COUNT, streams[0], &out) ==
          ASHLAR_EINVAL);
    CHECK(ashlar_alloc_tagged(allocator, 4096, (ashlar_tag)-1, streams[0], &out) == ASHLAR_EINVAL);
    CHECK(ashlar_alloc(allocator, 4096, (ashlar_stream)(uintptr_t)CU_STREAM_PER_THREAD, &out) ==
          ASHLAR_ENOTSUP);
    CHECK(out == &out);
    const ashlar_stats after = stats_now();
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    give(held);
    tear_down();
}

static void a_block_that_waits_for_the_heap_cannot_be_freed_again(void) {
    SET_UP("memory=32MiB", 64 * KIB); /* room for a block of 4 KiB twice */
    unsigned char *ptrs[4];
    for (int i = 0; i < 4; i++) {
        ptrs[i] = take(4096, streams[0]);
    }
    for (int i = 0; i < 4; i++) {
        give(ptrs[i]);
    }
    CHECK(ashlar_cache_recent->pending_count > 0);
    for (int i = 0; i < 4; i++) {
        CHECK(ashlar_free(allocator, ptrs[i]) == ASHLAR_EPOINTER);
    }
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    tear_down();
}

static void what_a_cache_holds_is_bounded(void) {
    enum { COUNT = 100 };
    const size_t room = 256 * KIB;
    unsigned char *ptrs[COUNT];
    size_t most = 0;
    SET_UP("memory=64MiB", room);
    for (size_t i = 0; i < COUNT; i++) {
        ptrs[i] = take(512 * (1 + i), streams[i % STREAMS]);
    }
    for (size_t i = 0; i < COUNT; i++) {
        give(ptrs[i]);
        const size_t cached = stats_now().cached_bytes;
        most = cached > most ? cached : most;
    }
    CHECK(most > room / 4 && most <= room / 2 * 3);
    unsigned char *large = take(MIB + 512, streams[0]);
    give(large); /* alone too large for the cache: straight to the heap */
    CHECK(stats_now().cached_bytes <= room / 2);
    tear_down();
}

static void a_bigger_request_gets_what_many_small_ones_left(void) {
    enum { COUNT = 100 };
    unsigned char *ptrs[COUNT];
    SET_UP("memory=8MiB", ROOM);
    for (int i = 0; i < COUNT; i++) {
        ptrs[i] = take(4096, streams[0]);
    }
    for (int i = 0; i < COUNT; i++) {
        give(ptrs[i]);
    }
    CHECK_ZU(stats_now().cached_bytes, COUNT * (size_t)4096);
    unsigned char *big = take(2 * MIB, streams[0]);
    const ashlar_stats s = stats_now();
    CHECK_ZU(s.reserved_bytes, 2 * MIB);
    CHECK_ZU(s.cached_bytes, 0);
    CHECK_ZU(s.served_mapped, 1);
    give(big);
    tear_down();
}

/* Not even where no other memory is left: then only after a wait queued on the other stream. */
static void another_stream_gets_cached_memory_only_in_order(void) {
    SET_UP("memory=2MiB,mode=adversarial,seed=3", 4 * MIB);
    unsigned char *first = take(2 * MIB, streams[0]);
    queue_write(streams[0], first, 2 * MIB, 1);
    queue_verify(streams[0], first, 2 * MIB, 1);
    give(first);
    CHECK_ZU(stats_now().cached_bytes, 2 * MIB);
    unsigned char *second = take(2 * MIB, streams[1]);
    CHECK(second == first);
    CHECK_ZU(stats_now().served_waited, 1);
    CHECK_ZU(stats_now().served_cached, 0);
    queue_write(streams[1], second, 2 * MIB, 2);
    queue_verify(streams[1], second, 2 * MIB, 2);
    wait_for(streams[1]);
    wait_for(streams[0]);
    CHECK(atomic_load(&payload_bad_count) == 0);
    give(second);
    tear_down();
}

/* A cache of the one never serves the other, whichever was used last. */
static void allocators_do_not_mix(void) {
    ashlar_allocator *second = NULL;
    void *theirs = NULL, *again = NULL;
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(ashlar_allocator_create(device, &second) == ASHLAR_OK);
    unsigned char *ours = take(4096, streams[0]);
    CHECK(ashlar_alloc(second, 4096, streams[0], &theirs) == ASHLAR_OK);
    CHECK(ashlar_free(second, ours) == ASHLAR_EPOINTER);
    CHECK(ashlar_free(allocator, theirs) == ASHLAR_EPOINTER);
    CHECK(ashlar_free(second, theirs) == ASHLAR_OK);
    give(ours);
    for (int i = 0; i < 3; i++) {
        CHECK(ashlar_alloc(second, 4096, streams[0], &again) == ASHLAR_OK && again == theirs);
        CHECK(take_only(4096, streams[0]) == ours);
        CHECK(ashlar_free(second, theirs) == ASHLAR_OK);
        give(ours);
    }
    CHECK_ZU(stats_now().served_cached, 3);
    CHECK(ashlar_allocator_check(second) == ASHLAR_OK);
    ashlar_allocator_destroy(second);
    tear_down();
}

/* ---- two threads ---- */

static unsigned char *helpers[2];

static void helper_takes_two(void) {
    helpers[0] = take_only(4096, streams[0]);
    helpers[1] = take_only(4096, streams[0]);
}

static void helper_gives_both(void) {
    give_only(helpers[0]);
    give_only(helpers[1]);
}

static void helper_hits(void) {
    for (int i = 0; i < 1000; i++) {
        unsigned char *ptr = take_only(4096, streams[0]);
        CHECK(ptr == helpers[1]);
        give_only(ptr);
    }
}

static void hits_go_on_while_another_thread_holds_the_lock(void) {
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_takes_two) && helper_do(helper_gives_both));
    pthread_mutex_lock(&allocator->lock);
    const bool went_on = helper_do(helper_hits);
    pthread_mutex_unlock(&allocator->lock);
    CHECK(went_on);
    helper_end();
    CHECK_ZU(stats_now().served_cached, 1000);
    tear_down();
}

static void threads_on_one_stream_keep_their_own_blocks(void) {
    SET_UP("memory=32MiB", ROOM);
    unsigned char *mine = take(4096, streams[0]);
    give(mine);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_takes_two) && helper_do(helper_gives_both));
    CHECK(helpers[0] != mine && helpers[1] != mine);
    for (int i = 0; i < 3; i++) {
        CHECK(take_only(4096, streams[0]) == mine);
        REQUIRE(helper_do(helper_hits));
        give(mine);
    }
    CHECK_ZU(stats_now().served_cached, 3003);
    helper_end();
    tear_down();
}

static void a_block_goes_to_the_cache_of_the_thread_that_frees_it(void) {
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_takes_two));
    give(helpers[0]);
    CHECK_ZU(ashlar_cache_bytes(ashlar_cache_recent), 4096);
    CHECK(take_only(4096, streams[0]) == helpers[0]);
    CHECK_ZU(stats_now().served_cached, 1);
    REQUIRE(helper_do(helper_gives_both)); /* one of them taken here */
    CHECK_ZU(ashlar_cache_bytes(ashlar_cache_recent), 0);
    CHECK_ZU(stats_now().cached_bytes, 8192);
    CHECK_ZU(stats_now().live_blocks, 0);
    CHECK(ashlar_free(allocator, helpers[0]) == ASHLAR_EPOINTER);
    helper_end();
    tear_down();
}

static void helper_takes_and_gives_a_large_one(void) {
    helpers[0] = take_only(2 * MIB, streams[1]);
    give_only(helpers[0]);
}

static void a_full_device_gets_what_idle_threads_hold(void) {
    SET_UP("memory=2MiB", ROOM);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_takes_and_gives_a_large_one));
    CHECK_ZU(stats_now().cached_bytes, 2 * MIB);
    unsigned char *whole = take(2 * MIB, streams[0]);
    CHECK_ZU(stats_now().served_drained, 1);
    CHECK_ZU(stats_now().cached_bytes, 0);
    give(whole);
    REQUIRE(helper_do(helper_takes_and_gives_a_large_one)); /* in turn from this thread's cache */
    CHECK_ZU(stats_now().served_drained, 2);
    helper_end();
    tear_down();
}

static void helper_gives_it(void) {
    give_only(helpers[0]);
}

static void helper_takes_it_again(void) {
    helpers[0] = take_only(2 * MIB, streams[1]);
}

/* Work on a stream, at whose end the helper frees its block. */
static void have_helper_free(void *unused) {
    (void)unused;
    CHECK(helper_do(helper_gives_it));
}

/* While the host waits, other threads go on, and what they free counts. */
static void what_others_free_during_a_wait_is_found(void) {
    unsigned char *ptrs[3];
    SET_UP("memory=8MiB,mode=adversarial,seed=1", ROOM);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_takes_and_gives_a_large_one));
    REQUIRE(helper_do(helper_takes_it_again)); /* by a hit: its cache has room for it */
    for (int i = 0; i < 3; i++) {
        ptrs[i] = take(2 * MIB, streams[0]);
    }
    CHECK(ptrs[0] == helpers[0] + 2 * MIB);
    CHECK(ashlar_launch(device, streams[0], have_helper_free, "", 1) == ASHLAR_OK);
    give(ptrs[0]);
    give(ptrs[2]);
    unsigned char *two = take(4 * MIB, streams[2]); /* the helper's and the one above it */
    CHECK(two == helpers[0]);
    CHECK_ZU(stats_now().served_after_sync, 1);
    give(two);
    give(ptrs[1]);
    helper_end();
    tear_down();
}

static void a_thread_that_ends_returns_its_cache(void) {
    SET_UP("memory=32MiB", ROOM);
    for (int i = 0; i < 3; i++) {
        REQUIRE(helper_start());
        REQUIRE(helper_do(helper_takes_two) && helper_do(helper_gives_both));
        REQUIRE(helper_do(helper_hits));
        CHECK_ZU(stats_now().cached_bytes, 8192);
        helper_end();
        CHECK(allocator->caches == NULL);
        CHECK_ZU(stats_now().cached_bytes, 0);
        CHECK_ZU(allocator->heap.used_bytes, 0);
    }
    CHECK_ZU(stats_now().served_cached, 3000); /* and its counts stay */
    CHECK_ZU(stats_now().alloc_count, 3006);
    tear_down();
}

static void blocks_outlive_the_thread_that_took_them(void) {
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_takes_two));
    helper_end();
    CHECK_ZU(stats_now().live_blocks, 2);
    give(helpers[0]);
    CHECK(take_only(4096, streams[0]) == helpers[0]);
    give(helpers[0]);
    give(helpers[1]);
    CHECK_ZU(stats_now().live_bytes, 0);
    tear_down();
}

static pthread_key_t late_key;
static int late_turns;

/* The thread's end runs it again and again, as often as it does so at all. */
static void take_while_ending(void *value) {
    late_turns++;
    give_only(take_only(4096, streams[0]));
    CHECK(pthread_setspecific(late_key, value) == 0);
}

static void helper_will_take_while_ending(void) {
    helper_takes_two();
    helper_gives_both();
    CHECK(pthread_setspecific(late_key, &late_key) == 0);
}

/* Nobody would free it. */
static void a_thread_that_ends_makes_no_new_cache(void) {
    SET_UP("memory=32MiB", ROOM);
    late_turns = 0;
    REQUIRE(pthread_key_create(&late_key, take_while_ending) == 0);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_will_take_while_ending));
    helper_end();
    CHECK(late_turns > 1);
    CHECK(allocator->caches == NULL);
    CHECK_ZU(stats_now().cached_bytes, 0);
    CHECK_ZU(stats_now().alloc_count, 2 + (size_t)late_turns);
    CHECK(pthread_key_delete(late_key) == 0);
    tear_down();
}

/* The thread lives on with what it kept of an allocator that is gone, and ends later. */
static void an_allocator_may_go_before_its_threads(void) {
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_takes_two) && helper_do(helper_gives_both));
    tear_down();
    REQUIRE(set_up_cached("memory=32MiB", ROOM));
    REQUIRE(helper_do(helper_takes_two) && helper_do(helper_gives_both));
    CHECK_ZU(stats_now().served_cached, 0);
    tear_down();
    helper_end();
    CHECK(true);
}

int main(void) {
    RUN(a_freed_block_is_handed_out_again_without_a_driver_call);
    RUN(each_stream_gets_its_own_blocks_back);
    RUN(the_legacy_stream_is_the_default_stream);
    RUN(a_block_freed_on_another_stream_is_that_streams);
    RUN(a_wrong_call_is_refused_and_changes_nothing);
    RUN(a_block_that_waits_for_the_heap_cannot_be_freed_again);
    RUN(what_a_cache_holds_is_bounded);
    RUN(a_bigger_request_gets_what_many_small_ones_left);
    RUN(another_stream_gets_cached_memory_only_in_order);
    RUN(allocators_do_not_mix);
    RUN(hits_go_on_while_another_thread_holds_the_lock);
    RUN(threads_on_one_stream_keep_their_own_blocks);
    RUN(a_block_goes_to_the_cache_of_the_thread_that_frees_it);
    RUN(a_full_device_gets_what_idle_threads_hold);
    RUN(what_others_free_during_a_wait_is_found);
    RUN(a_thread_that_ends_returns_its_cache);
    RUN(a_thread_that_ends_makes_no_new_cache);
    RUN(blocks_outlive_the_thread_that_took_them);
    RUN(an_allocator_may_go_before_its_threads);
    return check_report();
}
