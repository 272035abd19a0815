/*
 * test_hit_threads.c - two threads' caches: hits beside a lock that is held, blocks that change
 * threads, and what becomes of a cache when somebody else needs the memory or its thread ends.
 */
#include "tests/allocator/core/hit_fixture.h"

#include "tests/allocator/core/helper_fixture.h"

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

CASE(hits_go_on_while_another_thread_holds_the_lock) {
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_takes_two) && helper_do(helper_gives_both));
    ashlar__lock_acquire(&allocator->lock);
    const bool went_on = helper_do(helper_hits);
    ashlar__lock_release(&allocator->lock);
    CHECK(went_on);
    helper_end();
    CHECK_ZU(stats_now().served_cached, 1000);
}

/* One stream by both of its names, and others; a free of the last one's and of others' blocks. */
static void helper_uses_many_streams(void) {
    unsigned char *ptrs[STREAMS + 1];
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < STREAMS; i++) {
            ptrs[i] = take_only(4096, streams[i]);
        }
        ptrs[STREAMS] =
            take_only(4096, round % 2 == 0 ? NULL : (ashlar_stream)(uintptr_t)CU_STREAM_LEGACY);
        for (int i = 0; i <= STREAMS; i++) {
            give_only(ptrs[i]);
        }
    }
}

CASE(hits_on_any_stream_need_no_lock) {
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_uses_many_streams));
    CHECK_ZU(stats_now().served_cached, 9 * (STREAMS + 1));
    ashlar__lock_acquire(&allocator->lock);
    const bool went_on = helper_do(helper_uses_many_streams);
    ashlar__lock_release(&allocator->lock);
    CHECK(went_on);
    helper_end();
    CHECK_ZU(stats_now().served_cached, 19 * (STREAMS + 1));
}

static ashlar_allocator *second;

static void helper_uses_two_allocators(void) {
    for (int i = 0; i < 10; i++) {
        void *ptr = NULL;
        unsigned char *mine = take_only(4096, streams[0]);
        CHECK(ashlar_alloc(second, 8192, streams[1], &ptr) == ASHLAR_OK);
        give_only(mine);
        CHECK(ashlar_free(second, ptr) == ASHLAR_OK);
    }
}

CASE(hits_of_two_allocators_in_turn_need_no_lock) {
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(ashlar_allocator_create(device, &second) == ASHLAR_OK);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_uses_two_allocators));
    ashlar__lock_acquire(&allocator->lock);
    REQUIRE(ashlar__lock_try_acquire(&second->lock)); /* two of one rank: not to be waited for */
    const bool went_on = helper_do(helper_uses_two_allocators);
    ashlar__lock_release(&second->lock);
    ashlar__lock_release(&allocator->lock);
    CHECK(went_on);
    helper_end();
    CHECK_ZU(stats_now().served_cached, 19);
    ashlar_allocator_destroy(second);
}

static unsigned char *helpers_many[ASHLAR_CACHE_PENDING_MAX];

/* On a stream that has nothing in the cache: a zone that grows takes what there is of its own. */
static void helper_takes_many(void) {
    for (int i = 0; i < ASHLAR_CACHE_PENDING_MAX; i++) {
        helpers_many[i] = take_only(512, streams[2]);
    }
}

static void helper_names_that_stream(void) {
    give_only(take_only(512, streams[2]));
}

static void helper_gives_many(void) {
    for (int i = 0; i < ASHLAR_CACHE_PENDING_MAX; i++) {
        give_only(helpers_many[i]);
    }
}

/*
 * If the thread holds the stream, they go to its zone at once; else they wait, and the next miss
 * gives them to the heap together.
 */
static void check_frees_into_a_full_cache(bool is_held) {
    unsigned char *ballast = take(MIB, streams[1]); /* so that no step seems to end */
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_names_that_stream) && helper_do(helper_takes_many));
    REQUIRE(helper_do(helper_takes_two) && helper_do(helper_gives_both)); /* no room for more */
    if (!is_held) {
        share(streams[2]);
    }
    ashlar__lock_acquire(&allocator->lock);
    const bool went_on = helper_do(helper_gives_many);
    ashlar__lock_release(&allocator->lock);
    CHECK(went_on);
    const size_t waiting = is_held ? 0 : (size_t)512 * ASHLAR_CACHE_PENDING_MAX;
    CHECK_ZU(stats_now().cached_bytes, 8192 + waiting);
    REQUIRE(helper_do(helper_takes_many));
    CHECK(stats_now().cached_bytes <= 8192);
    REQUIRE(helper_do(helper_gives_many));
    helper_end();
    give(ballast);
}

CASE(frees_into_a_full_cache_need_no_lock) {
    SET_UP("memory=32MiB", 64 * KIB);
    check_frees_into_a_full_cache(true);
}

CASE(frees_into_a_full_cache_of_a_shared_stream_need_no_lock_each) {
    SET_UP("memory=32MiB", 64 * KIB);
    check_frees_into_a_full_cache(false);
}

CASE(threads_on_one_stream_keep_their_own_blocks) {
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
}

CASE(a_block_goes_to_the_cache_of_the_thread_that_frees_it) {
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_takes_two));
    give(helpers[0]);
    CHECK_ZU(ashlar__cache_bytes(ashlar__cache_recent), 4096);
    CHECK(take_only(4096, streams[0]) == helpers[0]);
    CHECK_ZU(stats_now().served_cached, 1);
    REQUIRE(helper_do(helper_gives_both)); /* one of them taken here */
    CHECK_ZU(ashlar__cache_bytes(ashlar__cache_recent), 0);
    CHECK_ZU(stats_now().cached_bytes, 8192);
    CHECK_ZU(stats_now().live_blocks, 0);
    CHECK(ashlar_free(allocator, helpers[0]) == ASHLAR_EPOINTER);
    helper_end();
}

static void helper_takes_and_gives_a_large_one(void) {
    helpers[0] = take_only(2 * MIB, streams[1]);
    give_only(helpers[0]);
}

CASE(a_full_device_gets_what_idle_threads_hold) {
    SET_UP("memory=2MiB", ROOM);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_takes_and_gives_a_large_one));
    CHECK_ZU(stats_now().cached_bytes, 2 * MIB);
    unsigned char *whole = take(2 * MIB, streams[0]);
    CHECK_ZU(stats_now().served_drained, 1);
    CHECK_ZU(stats_now().cached_bytes, 0);
    give(whole); /* which goes home, not into the cache */
    CHECK_ZU(stats_now().cached_bytes, 0);
    allocator->heap.is_near_limit = false; /* else large blocks are not cached */
    give(take(2 * MIB, streams[1]));
    CHECK_ZU(stats_now().cached_bytes, 2 * MIB);
    REQUIRE(helper_do(helper_takes_and_gives_a_large_one)); /* in turn from this thread's cache */
    CHECK_ZU(stats_now().served_drained, 2);
    helper_end();
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
CASE(what_others_free_during_a_wait_is_found) {
    unsigned char *ptrs[6];
    SET_UP("memory=8MiB,mode=adversarial,seed=1", ROOM);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_takes_and_gives_a_large_one));
    REQUIRE(helper_do(helper_takes_it_again)); /* by a hit: its cache has room for it */
    for (int i = 0; i < 6; i++) {
        ptrs[i] = take(MIB, streams[0]);
    }
    CHECK(ashlar_launch(device, streams[0], have_helper_free, "", 1) == ASHLAR_OK);
    give(ptrs[0]); /* halves of handles: enough bytes, but none that could be moved */
    give(ptrs[2]);
    give(ptrs[4]);
    unsigned char *two = take(2 * MIB, streams[2]);
    CHECK(two == helpers[0]);
    CHECK_ZU(stats_now().served_after_sync, 1);
    give(two);
    give(ptrs[1]);
    give(ptrs[3]);
    give(ptrs[5]);
    helper_end();
}

CASE(a_thread_that_ends_returns_its_cache) {
    SET_UP("memory=32MiB", ROOM);
    for (int i = 0; i < 3; i++) {
        REQUIRE(helper_start());
        REQUIRE(helper_do(helper_takes_two) && helper_do(helper_gives_both));
        REQUIRE(helper_do(helper_hits));
        CHECK_ZU(stats_now().cached_bytes, 8192);
        helper_end();
        CHECK(allocator->caches == NULL);
        CHECK_ZU(stats_now().cached_bytes, 0);
        CHECK_ZU(ashlar__heap_used_bytes(&allocator->heap), 0);
    }
    CHECK_ZU(stats_now().served_cached, 3000); /* and its counts stay */
    CHECK_ZU(stats_now().alloc_count, 3006);
}

CASE(blocks_outlive_the_thread_that_took_them) {
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
}

static pthread_key_t late_key;
static int late_turns;

/* Runs twice, the second time after the thread's caches are gone for sure. */
static void take_while_ending(void *value) {
    give_only(take_only(4096, streams[0]));
    if (++late_turns < 2) {
        CHECK(pthread_setspecific(late_key, value) == 0);
    } else {
        CHECK(ashlar__cache_get(allocator) == NULL);
    }
}

static void helper_will_take_while_ending(void) {
    helper_takes_two();
    helper_gives_both();
    CHECK(pthread_setspecific(late_key, &late_key) == 0);
}

/* Nobody would free it. */
CASE(a_thread_that_ends_makes_no_new_cache) {
    SET_UP("memory=32MiB", ROOM);
    late_turns = 0;
    REQUIRE(pthread_key_create(&late_key, take_while_ending) == 0);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_will_take_while_ending));
    helper_end();
    CHECK(late_turns == 2);
    CHECK(allocator->caches == NULL);
    CHECK_ZU(stats_now().cached_bytes, 0);
    CHECK_ZU(stats_now().alloc_count, 4);
    CHECK(pthread_key_delete(late_key) == 0);
}

/* The thread lives on with what it kept of an allocator that is gone, and ends later. */
CASE(an_allocator_may_go_before_its_threads) {
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

RUN_CASES()
