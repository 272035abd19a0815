/*
 * test_hit_threads.c - what several threads' caches do beside a lock that is held: hits, misses, a
 * stream that passes from one thread's cache to another's or that none owns, remote frees; what
 * becomes of a cache when its thread ends, and of all on a kernel without a barrier in every
 * thread.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/core/hit_fixture.h"

#include "allocator/base/random.h"
#include "tests/allocator/core/helper_fixture.h"

enum { COUNT = 200, BATCH = 32 };

static unsigned char *blocks[COUNT];

/* Sizes that the magazines cannot have. */
static size_t bytes_of(int i) {
    return 512 * (size_t)(1 + i * 7 % COUNT) + (i % 3 == 0 ? MIB : 0);
}

static void helper_takes_all(void) {
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = take_only(bytes_of(i), streams[0]);
    }
}

static void give_all(void) {
    for (int i = 0; i < COUNT; i++) {
        give_only(blocks[i]);
    }
}

static const ashlar_stream_state *state_of(ashlar_stream stream) {
    const ashlar_stream_state *state = allocator->stream_states;
    while (state != NULL && state->stream != stream) {
        state = state->next;
    }
    return state;
}

/* ---- without the lock ---- */

CASE(misses_go_on_while_another_thread_holds_the_lock) {
    SET_UP("memory=8GiB", ROOM); /* much: a thread whose live bytes change much must publish them */
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_takes_all) && helper_do(give_all));
    const ashlar_stats before = stats_now();
    ashlar__lock_acquire(&allocator->lock);
    const bool went_on = helper_do(helper_takes_all) && helper_do(give_all);
    ashlar__lock_release(&allocator->lock);
    CHECK(went_on);
    const ashlar_stats after = stats_now();
    CHECK_ZU(after.alloc_count - before.alloc_count, COUNT);
    CHECK(after.served_same_stream > before.served_same_stream);
    CHECK(after.driver_calls == before.driver_calls && after.live_blocks == 0);
    CHECK(after.reserved_bytes == before.reserved_bytes);
    helper_end();
}

/* ---- who else is there ---- */

enum { ROUNDS = 3000, LIVE = 24 };

/* ---- remote frees ---- */

static void helper_takes_a_batch(void) {
    for (int i = 0; i < BATCH; i++) {
        blocks[i] = take_only(4096, streams[0]);
    }
}

static void helper_gives_a_batch(void) {
    for (int i = 0; i < BATCH; i++) {
        give_only(blocks[i]);
    }
}

static const ashlar_remote_frees *my_remote_frees(void) {
    return &ashlar__cache_get(allocator)->remote;
}

CASE(remote_frees_are_sent_together_and_without_the_lock) {
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(helper_start());
    give(take(4096, streams[1])); /* this thread has a cache */
    REQUIRE(helper_do(helper_takes_a_batch));
    const ashlar_stream_state *state = state_of(streams[0]);
    for (int i = 0; i < BATCH - 1; i++) {
        give_only(blocks[i]);
    }
    CHECK(my_remote_frees()->count == BATCH - 1 && atomic_load(&state->remote_frees) == NULL);
    CHECK_ZU(stats_now().cached_bytes, BATCH * (size_t)4096); /* one of them this thread's */
    give_only(blocks[BATCH - 1]);
    CHECK(my_remote_frees()->count == 0 && atomic_load(&state->remote_frees) != NULL);
    CHECK_ZU(stats_now().cached_bytes, (BATCH + 1) * (size_t)4096);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    ashlar__lock_acquire(&allocator->lock);
    const bool went_on = helper_do(helper_takes_a_batch);
    ashlar__lock_release(&allocator->lock);
    CHECK(went_on && atomic_load(&state->remote_frees) == NULL);
    CHECK_ZU(stats_now().live_blocks, BATCH);
    REQUIRE(helper_do(helper_gives_a_batch));
    helper_end();
}

/* ---- hits, and threads that end ---- */

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

/* ---- where there is no barrier ---- */

static void *take_and_give(void *unused) {
    void *ptr = NULL;
    (void)unused;
    return ashlar_alloc(allocator, 4096, streams[1], &ptr) == ASHLAR_OK &&
                   ashlar_free(allocator, ptr) == ASHLAR_OK
               ? allocator
               : NULL;
}

CASE(without_a_barrier_there_are_no_caches_and_all_works) {
    pthread_t other;
    void *worked = NULL;
    ashlar__barrier_pretend(false);
    CHECK(!ashlar__barrier_init());
    REQUIRE(set_up_cached("memory=16MiB", MIB));
    for (int i = 0; i < 3; i++) {
        give(take(4096, streams[0]));
        give_on(take(2 * MIB, streams[0]), streams[1]);
    }
    REQUIRE(pthread_create(&other, NULL, take_and_give, NULL) == 0);
    REQUIRE(pthread_join(other, &worked) == 0);
    CHECK(worked != NULL);
    CHECK(allocator->caches == NULL);
    CHECK_ZU(stats_now().served_cached, 0);
    CHECK_ZU(stats_now().alloc_count, 7);
    CHECK_ZU(stats_now().free_count, 7);
    CHECK_ZU(stats_now().live_peak_bytes, 2 * MIB);
    tear_down();
    ashlar__barrier_pretend(true);
}

RUN_CASES()
