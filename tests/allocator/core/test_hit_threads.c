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
