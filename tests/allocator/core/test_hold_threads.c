/*
 * test_hold_threads.c - whose a stream is: misses beside a lock that is held, a stream that passes
 * from one thread to another or is nobody's, and blocks that go home to the thread that holds it.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/core/hit_fixture.h"
#include "allocator/core/watch.h"

#include <ashlar/graph_pool.h>

#include "allocator/base/random.h"
#include "tests/allocator/core/helper_fixture.h"
#include "tests/allocator/soft/soft_probe.h"

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

static const ashlar_cache *holder_of(ashlar_stream stream) {
    return ashlar__holder_of(state_of(stream));
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

CASE(live_bytes_that_changed_much_are_published_from_inside) {
    enum { TAKEN = 12 };
    unsigned char *ptrs[TAKEN];
    SET_UP("memory=64MiB", ROOM);
    const ashlar_cache *own = ashlar__cache_get(allocator);
    for (int round = 0; round < 2; round++) {
        const uint64_t without_lock = own->counters.miss_count;
        for (int i = 0; i < TAKEN; i++) {
            ptrs[i] = take_only((size_t)(i + 5) * 128 * KIB, streams[0]);
        }
        if (round > 0) { /* the zone has memory for all of them */
            CHECK_ZU(own->counters.miss_count - without_lock, TAKEN);
            CHECK(allocator->stats.live_bytes > allocator->constants.unpublished_bytes);
        }
        for (int i = 0; i < TAKEN; i++) {
            give_only(ptrs[i]);
        }
    }
    CHECK_ZU(stats_now().live_peak_bytes, 63 * MIB / 4);
}

CASE(a_thread_without_the_lock_hands_out_what_one_with_it_would) {
    static size_t offsets[2][COUNT];
    for (int with_lock = 0; with_lock < 2; with_lock++) {
        SET_UP("memory=1GiB", ROOM);
        allocator->bypasses_caches = with_lock;
        unsigned char *ptrs[COUNT];
        for (int i = 0; i < COUNT; i++) {
            ptrs[i] = take_only(bytes_of(i), streams[i % 2]);
            offsets[with_lock][i] = (uintptr_t)ptrs[i] - allocator->constants.base;
            if (i % 3 == 2) {
                give_only(ptrs[i - 1]);
                ptrs[i - 1] = NULL;
            }
        }
        for (int i = 0; i < COUNT; i++) {
            give_only(ptrs[i]);
        }
        tear_down();
    }
    CHECK(memcmp(offsets[0], offsets[1], sizeof offsets[0]) == 0);
}

/* ---- after memory was short ---- */

/* Have stream 2 take memory that was another stream's. */
static void run_short(void) {
    give(take((size_t)5 << 30, streams[1]));
    unsigned char *used = take(MIB, streams[1]);
    queue_write(streams[1], used, MIB, 1);
    give(used);
    give(take((size_t)5 << 30, streams[2]));
}

/* A miss or two each time. Most of them are only counted where each takes long. */
static void use_much(void) {
    enum { USES = CHECK_SHARE(ASHLAR_SHORT_USES, ASHLAR_SHORT_USES / 16) };
    ashlar__heap_catch_up(&allocator->heap,
                          ashlar__heap_clock(&allocator->heap) + ASHLAR_SHORT_USES - USES);
    for (int i = 0; i < USES; i++) {
        give_only(take_only((size_t)(1 + i % 2) * 2 * MIB, streams[1]));
    }
}

CASE(memory_that_is_plentiful_again_is_had_without_the_lock) {
    static const char *const specs[] = {"memory=8GiB", "memory=8GiB,mode=adversarial,seed=4"};
    for (size_t i = CHECK_SHARE(0, 1); i < sizeof specs / sizeof specs[0]; i++) {
        SET_UP(specs[i], ROOM);
        REQUIRE(helper_start());
        run_short();
        CHECK(ashlar__heap_is_short(&allocator->heap));
        CHECK(ashlar__heap_has_waited(&allocator->heap) == (i == 1));
        use_much();
        CHECK(!ashlar__heap_is_short(&allocator->heap));
        CHECK(!ashlar__heap_has_waited(&allocator->heap));
        REQUIRE(helper_do(helper_takes_all) && helper_do(give_all));
        ashlar__lock_acquire(&allocator->lock);
        const bool went_on = helper_do(helper_takes_all) && helper_do(give_all);
        ashlar__lock_release(&allocator->lock);
        CHECK(went_on);
        helper_end();
        CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
        tear_down();
    }
}

CASE(a_use_without_the_lock_counts_where_the_oldest_is_looked_for) {
    SET_UP("memory=16MiB", ROOM);
    unsigned char *ptrs[2][4];
    for (int stream = 0; stream < 2; stream++) {
        for (int i = 0; i < 4; i++) {
            ptrs[stream][i] = take(2 * MIB, streams[stream]);
        }
        for (int i = 0; i < 4; i++) {
            give(ptrs[stream][i]);
        }
    }
    ashlar__lock_acquire(&allocator->lock); /* which the calling thread needs for nothing here */
    allocator->heap.is_near_limit = false;  /* nor for an event behind the free */
    give_only(take_only(MIB, streams[0]));
    ashlar__lock_release(&allocator->lock);
    unsigned char *lent = take(2 * MIB, streams[2]);
    CHECK_ZU(stats_now().served_completed, 1);
    CHECK(lent >= ptrs[1][0] && lent < ptrs[1][0] + 8 * MIB);
}

/* ---- whose it is ---- */

static size_t helper_bytes = 4096;

static void helper_takes_one(void) {
    blocks[0] = take_only(helper_bytes, streams[0]);
}

static void helper_gives_one(void) {
    give_only(blocks[0]);
}

CASE(a_stream_passes_to_the_thread_that_asks_and_in_the_end_to_none) {
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(helper_start());
    give(take(4096, streams[0]));
    ashlar_cache *mine = ashlar__cache_get(allocator);
    CHECK(holder_of(streams[0]) == mine);
    REQUIRE(helper_do(helper_takes_one));
    CHECK(holder_of(streams[0]) != NULL && holder_of(streams[0]) != mine);
    REQUIRE(helper_do(helper_gives_one));
    for (size_t i = 1; i <= 8; i++) {
        give(take(8192 + 512 * i, streams[0]));
        helper_bytes = 4096 + 512 * i;
        REQUIRE(helper_do(helper_takes_one) && helper_do(helper_gives_one));
    }
    helper_bytes = 4096;
    CHECK(holder_of(streams[0]) == NULL);
    give(take(8192, streams[1]));
    CHECK(holder_of(streams[1]) == mine);
    helper_end();
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
}

CASE(a_stream_whose_thread_has_ended_is_free_to_be_held) {
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_takes_one));
    CHECK(holder_of(streams[0]) != NULL);
    helper_end();
    CHECK(holder_of(streams[0]) == NULL);
    give(blocks[0]);
    give(take(8192, streams[0]));
    CHECK(holder_of(streams[0]) == ashlar__cache_get(allocator));
}

CASE(nobody_holds_a_stream_that_is_forgotten_or_captured) {
    ashlar_graph_pool *pool = NULL;
    SET_UP("memory=32MiB", ROOM);
    give(take(4096, streams[0]));
    give(take(4096, streams[1]));
    REQUIRE(ashlar_graph_pool_begin(allocator, streams[0], &pool) == ASHLAR_OK);
    CHECK(ashlar__holder_of(state_of(streams[0])) == NULL);
    give(take(4096, streams[0]));
    ashlar_graph_pool_end(pool);
    CHECK(ashlar_graph_pool_release(pool, streams[0]) == ASHLAR_OK);
    const ashlar_stream_state *state = state_of(streams[1]);
    CHECK(ashlar_allocator_forget_stream(allocator, streams[1]) == ASHLAR_OK);
    CHECK(ashlar__holder_of(state) == NULL);
}

CASE(without_virtual_memory_nobody_holds_a_stream) {
    if (!ashlar__barrier_init()) {
        SKIP("this kernel has no membarrier(2)");
    }
    REQUIRE(set_up_cached("memory=32MiB,vmm=off", ROOM));
    give(take(4096, streams[0]));
    CHECK(holder_of(streams[0]) == NULL);
}

CASE(a_thread_puts_no_block_into_a_zone_that_another_one_holds) {
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(helper_start());
    unsigned char *mine = take_only(4096, streams[0]);
    give_only(mine); /* into this thread's magazines */
    helper_bytes = 8192;
    REQUIRE(helper_do(helper_takes_one));
    helper_bytes = 4096;
    ashlar_cache *own = ashlar__cache_get(allocator);
    CHECK(holder_of(streams[0]) != own && !ashlar__cache_is_empty(own));
    REQUIRE(ashlar__cache_enter(own));
    ashlar__cache_flush(own); /* without the lock */
    ashlar__cache_leave(own);
    CHECK(!ashlar__cache_is_empty(own));
    ashlar__lock_acquire(&allocator->lock);
    ashlar__cache_flush(own); /* with the lock, but the helper is not shut out */
    ashlar__lock_release(&allocator->lock);
    const ashlar_block *sent = atomic_load(&state_of(streams[0])->returned);
    CHECK(sent != NULL && sent->state == ASHLAR_BLOCK_USED && ashlar__cache_is_empty(own));
    REQUIRE(helper_do(helper_gives_one));
    helper_end();
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
}

/* ---- who else is there ---- */

enum { ROUNDS = 3000, LIVE = 24 };

static atomic_int refused;

/*
 * Random work of one thread on a stream of its own, with blocks that the other thread's stream uses
 * as well: those go home, into this thread's zones, by whoever finds out that their uses are over.
 */
static void work_on(int own) {
    void *live[LIVE] = {NULL};
    uint64_t state = (uint64_t)own + 1;
    for (int i = 0; i < ROUNDS; i++) {
        const size_t at = (size_t)ashlar__random_step_below(&state, LIVE);
        const size_t bytes = 512 * (1 + (size_t)ashlar__random_step_below(&state, 3000));
        const bool is_marked = ashlar__random_step_below(&state, 4) == 0;
        if (live[at] != NULL) {
            refused += ashlar_free(allocator, live[at]) != ASHLAR_OK;
            live[at] = NULL;
        } else if (ashlar_alloc(allocator, bytes, streams[own], &live[at]) != ASHLAR_OK) {
            refused++;
        } else if (is_marked) {
            refused += ashlar_record_stream(allocator, live[at], streams[1 - own]) != ASHLAR_OK;
        }
    }
    for (size_t i = 0; i < LIVE; i++) {
        refused += ashlar_free(allocator, live[i]) != ASHLAR_OK;
    }
}

static void *second_thread(void *unused) {
    work_on(1);
    return unused;
}

/* For ThreadSanitizer, mostly. */
CASE(two_threads_in_their_zones_are_never_in_each_others) {
    static const char *const specs[] = {"memory=256MiB", "memory=256MiB,mode=adversarial,seed=5",
                                        "memory=96MiB,mode=adversarial,seed=6"};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        pthread_t thread;
        SET_UP(specs[i], ROOM);
        REQUIRE(pthread_create(&thread, NULL, second_thread, NULL) == 0);
        work_on(0);
        REQUIRE(pthread_join(thread, NULL) == 0);
        CHECK(refused == 0);
        CHECK_ZU(stats_now().live_blocks, 0);
        CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
        tear_down();
    }
}

/* ---- going home ---- */

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

static const ashlar_outbox *my_outbox(void) {
    return &ashlar__cache_get(allocator)->outbox;
}

CASE(blocks_freed_elsewhere_go_home_together_and_without_the_lock) {
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(helper_start());
    give(take(4096, streams[1])); /* this thread has a cache */
    REQUIRE(helper_do(helper_takes_a_batch));
    const ashlar_stream_state *state = state_of(streams[0]);
    for (int i = 0; i < BATCH - 1; i++) {
        give_only(blocks[i]);
    }
    CHECK(my_outbox()->count == BATCH - 1 && atomic_load(&state->returned) == NULL);
    CHECK_ZU(stats_now().cached_bytes, BATCH * (size_t)4096); /* one of them this thread's */
    give_only(blocks[BATCH - 1]);
    CHECK(my_outbox()->count == 0 && atomic_load(&state->returned) != NULL);
    CHECK_ZU(stats_now().cached_bytes, (BATCH + 1) * (size_t)4096);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    ashlar__lock_acquire(&allocator->lock);
    const bool went_on = helper_do(helper_takes_a_batch);
    ashlar__lock_release(&allocator->lock);
    CHECK(went_on && atomic_load(&state->returned) == NULL);
    CHECK_ZU(stats_now().live_blocks, BATCH);
    REQUIRE(helper_do(helper_gives_a_batch));
    helper_end();
}

CASE(a_large_block_goes_home_at_once) {
    SET_UP("memory=256MiB", ROOM);
    REQUIRE(helper_start());
    give(take(4096, streams[1]));
    REQUIRE(helper_do(helper_takes_all));
    for (int i = 0; i < COUNT; i++) {
        const bool is_large = bytes_of(i) > MIB;
        give_only(blocks[i]);
        CHECK(!is_large || my_outbox()->count == 0);
    }
    helper_end();
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    CHECK_ZU(stats_now().reserved_bytes, 0);
}

CASE(an_outbox_has_the_blocks_of_one_stream) {
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(helper_start());
    give(take(4096, streams[2]));
    REQUIRE(helper_do(helper_takes_one));
    unsigned char *first = blocks[0];
    give_only(first);
    CHECK_ZU(my_outbox()->count, 1);
    unsigned char *mine = take_only(4096, streams[0]); /* the stream is this thread's now */
    CHECK(mine == first && my_outbox()->count == 0);
    give_only(mine);
    helper_end();
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
}

CASE(a_full_device_gets_what_is_on_its_way) {
    SET_UP("memory=8MiB", ROOM);
    REQUIRE(helper_start());
    give(take(4096, streams[1]));
    REQUIRE(helper_do(helper_takes_a_batch));
    for (int i = 0; i < BATCH; i++) {
        give_only(blocks[i]);
    }
    CHECK(atomic_load(&state_of(streams[0])->returned) != NULL);
    unsigned char *all = take(6 * MIB, streams[1]); /* this thread's cache keeps 2 MiB in use */
    CHECK(atomic_load(&state_of(streams[0])->returned) == NULL);
    CHECK_ZU(stats_now().served_drained, 0); /* no other cache had to be emptied */
    give(all);
    helper_end();
}

static void helper_takes_a_large_one(void) {
    blocks[0] = take_only(2 * MIB, streams[2]);
}

static size_t say_unfinished(size_t ways) {
    (void)ways;
    return 0;
}

/* An event recorded when the block comes home would make the idle stream busy. */
CASE(trim_behind_a_synchronisation_gives_back_what_was_on_its_way_after_a_wait) {
    SET_UP("memory=4MiB,mode=adversarial", ROOM);
    REQUIRE(helper_start());
    unsigned char *first = take_only(4 * MIB, streams[0]);
    queue_write(streams[0], first, 64, 1);
    give_only(first);
    give_only(take_only(4 * MIB, streams[1])); /* behind a wait for the first stream */
    CHECK_ZU(stats_now().served_waited, 1);
    wait_for(streams[1]);
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    REQUIRE(helper_do(helper_takes_a_large_one));
    queue_write(streams[2], blocks[0], 64, 2);
    give_only(blocks[0]);
    CHECK(atomic_load(&state_of(streams[2])->returned) != NULL);
    wait_for(streams[2]);
    ashlar__soft_choose_by(say_unfinished);
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    ashlar__soft_choose_by(NULL);
    CHECK_ZU(stats_now().reserved_bytes, 0);
    helper_end();
}

static void helper_sends_to_the_first_thread(void) {
    give_only(take_only(4096, streams[1]));
    give_only(blocks[0]);
}

CASE(what_a_thread_that_ends_has_for_others_goes_home) {
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(helper_start());
    blocks[0] = take(4096, streams[0]);
    REQUIRE(helper_do(helper_sends_to_the_first_thread));
    helper_end();
    CHECK_ZU(stats_now().cached_bytes, 4096);
    CHECK(take_only(4096, streams[0]) == blocks[0]);
    give(blocks[0]);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
}

CASE(a_stream_may_be_forgotten_while_its_blocks_are_on_their_way) {
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(helper_start());
    give(take(4096, streams[1]));
    REQUIRE(helper_do(helper_takes_a_batch));
    for (int i = 0; i < BATCH - 1; i++) {
        give_only(blocks[i]);
    }
    CHECK(ashlar_allocator_forget_stream(allocator, streams[0]) == ASHLAR_OK);
    CHECK_ZU(my_outbox()->count, 0);
    give(blocks[BATCH - 1]);
    CHECK_ZU(stats_now().live_blocks, 0);
    helper_end();
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
}

CASE(a_watched_stream_is_nobodys_and_nothing_is_on_its_way) {
    SET_UP("memory=256MiB", ROOM);
    REQUIRE(helper_start());
    give(take(4096, streams[1]));
    REQUIRE(helper_do(helper_takes_all));
    const ashlar_stream_state *state = state_of(streams[0]);
    give_all();
    CHECK(my_outbox()->count > 0 && atomic_load(&state->returned) != NULL);
    ashlar_allocator_watch_streams(allocator);
    for (int i = 0; i < 2; i++) {
        CHECK(my_outbox()->count == 0 && atomic_load(&state->returned) == NULL);
        CHECK(ashlar__holder_of(state) == NULL && holder_of(streams[1]) == NULL);
        REQUIRE(helper_do(helper_takes_all));
        give(take(8192, streams[1]));
        give_all();
    }
    helper_end();
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
}

static atomic_bool went_on;

static void helper_goes_on(void *unused) {
    (void)unused;
    atomic_store(&went_on, helper_do(helper_takes_all) && helper_do(give_all));
}

/* What the work on the device waits for must not wait for the thread that waits for the device. */
CASE(others_go_on_while_a_thread_waits_for_the_device) {
    SET_UP("memory=8GiB,mode=adversarial", ROOM);
    REQUIRE(helper_start());
    REQUIRE(helper_do(helper_takes_all) && helper_do(give_all));
    CHECK(ashlar_launch(device, streams[1], helper_goes_on, NULL, 0) == ASHLAR_OK);
    CHECK(ashlar__watch_settle(allocator) == ASHLAR_OK);
    CHECK(atomic_load(&went_on));
    helper_end();
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
}

RUN_CASES()
