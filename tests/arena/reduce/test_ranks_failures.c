/*
 * test_ranks_failures.c - ranks that differ, come late, go away, or whose engine fails: who is
 * named on which rank, that nothing runs from then on, and that none waits for ever.
 *
 * Where ranks wait for their timeouts, the clock of these processes runs faster.
 */
#include "tests/arena/reduce/ranks_fixture.h"

#include <sys/syscall.h>
#include <time.h>

enum { QUICK = 8, VERY_QUICK = 40, TIMEOUT_MS = 2000 };

/* From when on the clock of this process is so many times as fast; 0: it is not. */
static struct { uint64_t since, times; } haste;

static uint64_t real_ns(void) {
    struct timespec now;
    (void)syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void hurry(uint64_t times) {
    haste.since = real_ns();
    haste.times = times;
}

/* In place of the C library's. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_MONOTONIC) {
        return (int)syscall(SYS_clock_gettime, clock, now);
    }
    if (haste.times == 0 && world != NULL && world->is_quick &&
        atomic_load(&world->is_collecting)) {
        hurry(QUICK);
    }
    uint64_t ns = real_ns();
    ns += haste.times == 0 ? 0 : (ns - haste.since) * (haste.times - 1);
    now->tv_sec = (time_t)(ns / UINT64_C(1000000000));
    now->tv_nsec = (long)(ns % UINT64_C(1000000000));
    return 0;
}

/* Naps, and the time that a failing rank leaves its launcher, are as much shorter. */
int nanosleep(const struct timespec *wanted, struct timespec *left) {
    const struct timespec nap = {.tv_nsec = wanted->tv_nsec / VERY_QUICK};
    (void)left;
    return (int)syscall(SYS_nanosleep, &nap, NULL);
}

static float *data; /* [64] */

static ashlar_status sum_of_elements(size_t elements) {
    return table->all_reduce(table->context, data, elements, ASHLAR_F32, stream);
}

static void open_table(uint32_t timeout_ms, ashlar_ranks_order order) {
    open_soft(timeout_ms);
    data = locked;
    CHECK(ashlar_ranks_collectives(ranks, device, order, &table) == ASHLAR_OK);
    ashlar_ranks_mark(ranks, 7, 6);
}

/* After a failure nothing runs, and every check says the same. */
static void check_failed_with(const char *words) {
    char first[400];
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    CHECK_FAILS(ashlar_ranks_check(ranks), ASHLAR_EIO, words);
    (void)snprintf(first, sizeof first, "%s", ashlar_error_detail());
    const size_t calls = own->call_count;
    const float before = data[0];
    CHECK(sum_of_elements(64) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    CHECK(own->call_count == calls);
    CHECK_NEAR(data[0], before, 0, 0);
    CHECK_FAILS(ashlar_ranks_check(ranks), ASHLAR_EIO, first);
}

/* ---- ranks that differ ---- */

static struct difference {
    size_t elements, root;
    ashlar_dtype dtype;
    ashlar_engine_collective kind;
    uint64_t facts, step;
    bool has_one_more;
    const char *words;
} other;

static void queue_second(const struct difference *d) {
    void *c = table->context;
    ashlar_ranks_mark(ranks, d->step, d->facts);
    if (d->has_one_more) {
        CHECK(sum_of_elements(20) == ASHLAR_OK);
        CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    }
    CHECK((d->kind == ASHLAR_ENGINE_BROADCAST
               ? table->broadcast(c, data, d->elements, d->dtype, d->root, stream)
           : d->kind == ASHLAR_ENGINE_ALL_GATHER
               ? table->all_gather(c, data, d->elements, d->dtype, stream)
           : d->kind == ASHLAR_ENGINE_REDUCE_SCATTER
               ? table->reduce_scatter(c, data, d->elements, d->dtype, stream)
               : table->all_reduce(c, data, d->elements, d->dtype, stream)) == ASHLAR_OK);
}

static const struct difference usual = {
    .elements = 18, .dtype = ASHLAR_F32, .kind = ASHLAR_ENGINE_ALL_REDUCE, .facts = 6, .step = 8};

static void differ(void) {
    open_table(0, ASHLAR_RANKS_FASTEST);
    CHECK(sum_of_elements(20) == ASHLAR_OK);
    queue_second(rank == 1 ? &other : &usual);
    check_failed_with("rank 1 has diverged: it is at bucket ");
    CHECK_HAS(ashlar_error_detail(), other.words);
    CHECK(ashlar_ranks_get_info(ranks).reports == (rank == 0));
    CHECK_ZU(own->call_count, 1);
    close_soft(true);
    CHECK(world->aborted[rank] == 1);
}

CASE(a_rank_that_does_something_else_is_named_on_all) {
    struct difference all[10];
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        all[i] = usual;
        all[i].words = "rank 0 at bucket 0 of step 8, with other sizes, options, data or program";
    }
    all[0].elements = 21;
    all[1].dtype = ASHLAR_F16;
    all[2].facts = 5;
    all[3].kind = ASHLAR_ENGINE_BROADCAST;
    all[4].kind = ASHLAR_ENGINE_ALL_GATHER;
    all[5].kind = ASHLAR_ENGINE_REDUCE_SCATTER;
    all[6].kind = ASHLAR_ENGINE_BROADCAST;
    all[6].root = 2;
    all[7].step = 9;
    all[7].words = "at bucket 0 of step 9, rank 0 at bucket 0 of step 8";
    all[8].step = 7;
    all[8].words = "at bucket 0 of step 7, rank 0 at bucket 0 of step 8";
    all[9].elements = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        REQUIRE(set_up_world(3));
        other = all[i];
        run_ranks(differ);
        tear_down_world();
    }
}

/* ---- ranks that do not come ---- */

static size_t absent;

static void be_late(void) {
    char words[100];
    open_table(TIMEOUT_MS, ASHLAR_RANKS_FASTEST);
    meet();
    hurry(VERY_QUICK);
    if (rank != absent) {
        CHECK(sum_of_elements(20) == ASHLAR_OK);
        if (rank == 0) {
            (void)snprintf(words, sizeof words,
                           "rank %zu did not come to bucket 0 of step 7 within 2 s", absent);
        } else {
            (void)snprintf(words, sizeof words,
                           "rank 0 did not answer rank %zu at bucket 0 of step 7", rank);
        }
        check_failed_with(words);
        CHECK(ashlar_ranks_get_info(ranks).reports);
        CHECK_ZU(own->call_count, 0);
    }
    meet();
    close_soft(true);
}

CASE(a_rank_that_does_not_come_is_named) {
    for (absent = 0; absent < 3; absent++) {
        REQUIRE(set_up_world(3));
        run_ranks(be_late);
        tear_down_world();
    }
}

static void be_deaf(void) {
    open_table(TIMEOUT_MS, ASHLAR_RANKS_FASTEST);
    meet();
    hurry(VERY_QUICK);
    if (rank == 0) {
        CHECK(sum_of_elements(20) == ASHLAR_OK);
        check_failed_with("rank 1 does not listen any more");
    } else if (rank == 1) {
        CHECK(sum_of_elements(20) == ASHLAR_OK);
        check_failed_with("rank 0 did not answer rank 1");
    } else {
        CHECK(sum_of_elements(20) == ASHLAR_OK);
        CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    }
    meet();
    close_soft(true);
}

CASE(a_rank_that_does_not_listen_is_named) {
    REQUIRE(set_up_world(2));
    world->deaf_kind = ASHLAR_MESSAGE_ANSWER;
    world->deaf_rank = 1;
    run_ranks(be_deaf);
}

/* ---- collectives that do not end ---- */

static void be_stuck(void) {
    open_table(TIMEOUT_MS, ASHLAR_RANKS_FASTEST);
    CHECK(sum_of_elements(20) == ASHLAR_OK);
    check_failed_with(rank == 0 ? "bucket 0 of step 7 took longer than 2 s"
                                : "rank 0 stopped in bucket 0 of step 7");
    meet();
    close_soft(true);
}

CASE(a_collective_that_is_too_slow_for_all_is_named) {
    REQUIRE(set_up_world(3));
    world->is_stuck = world->is_quick = true;
    run_ranks(be_stuck);
}

/* Rank 1 agrees to the sum, and never says that it waits, too. */
static void be_gone(void) {
    open_table(TIMEOUT_MS, ASHLAR_RANKS_FASTEST);
    CHECK(sum_of_elements(20) == ASHLAR_OK);
    if (rank == 0) {
        check_failed_with("rank 1 stopped in bucket 0 of step 7: it has ended, or hangs");
    }
    CHECK_FAILS(ashlar_ranks_check(ranks), ASHLAR_EIO, "stopped in bucket 0 of step 7");
    meet();
    close_soft(true);
}

CASE(a_rank_that_stops_in_a_collective_is_named) {
    REQUIRE(set_up_world(2));
    world->is_stuck = world->is_quick = true;
    world->deaf_kind = ASHLAR_MESSAGE_HERE; /* what rank 1 says does not come */
    run_ranks(be_gone);
}

/* ---- an engine that fails ---- */

static const engine_act acts[] = {ENGINE_SEND, ENGINE_RECEIVE, ENGINE_COLLECT, ENGINE_TEST};
static const char *const words_of[] = {
    [ENGINE_SEND] = "no sending",
    [ENGINE_RECEIVE] = "no receiving",
    [ENGINE_COLLECT] = "no collective",
    [ENGINE_TEST] = "no test",
};
static engine_act failing;
static int failing_at;
static ashlar_ranks_order order;

/* One rank's n-th call fails: it says why; the others, at the latest after their time, something.
 */
static void fail_once(void) {
    char words[64];
    open_table(TIMEOUT_MS, order);
    meet();
    hurry(VERY_QUICK);
    CHECK(table->reduce_scatter(table->context, data, 16, ASHLAR_F32, stream) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    const ashlar_status status = ashlar_ranks_check(ranks);
    const bool has_failed = rank == world->failing_rank && world->fails_at[failing] == 0;
    CHECK(!has_failed || status == ASHLAR_EIO);
    (void)snprintf(words, sizeof words, "rank %zu: %s", rank, words_of[failing]);
    if (has_failed) {
        CHECK_HAS(ashlar_error_detail(), words);
        CHECK(ashlar_ranks_get_info(ranks).reports);
    }
    meet();
    close_soft(status != ASHLAR_OK);
}

/* How often each act is done in one agreement and one sum of two ranks, but for tests. */
CASE(a_call_of_the_engine_that_fails_is_told) {
    for (size_t i = 0; i < 2 * sizeof acts / sizeof acts[0]; i++) {
        failing = acts[i / 2];
        order = i % 2 == 0 ? ASHLAR_RANKS_FASTEST : ASHLAR_RANKS_TREE;
        for (size_t where = 0; where < 2; where++) {
            for (failing_at = 1; failing_at <= 2; failing_at++) {
                REQUIRE(set_up_world(2));
                fail_on(where, failing, failing_at);
                run_ranks(fail_once);
                tear_down_world();
            }
        }
    }
}

/* Where one piece of a sum could not be sent, the next one would be taken for it. */
static void fail_to_give(void) {
    enum { PIECE = ASHLAR_RANKS_STAGING_BYTES / sizeof(float) };
    open_table(TIMEOUT_MS, ASHLAR_RANKS_TREE);
    float *const pieces = locked;
    fill(pieces, ASHLAR_F32, 2 * PIECE, rank);
    meet();
    hurry(VERY_QUICK);
    CHECK(table->all_reduce(table->context, pieces, 2 * PIECE, ASHLAR_F32, stream) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    CHECK_FAILS(ashlar_ranks_check(ranks), ASHLAR_EIO, rank == 0 ? "rank 1" : "rank 1: no sending");
    CHECK_NEAR(pieces[0], number_of(rank, 0), 0, 0);
    meet();
    close_soft(true);
}

CASE(a_piece_that_was_not_sent_is_not_replaced_by_the_next) {
    REQUIRE(set_up_world(2));
    fail_on(1, ENGINE_SEND, 2); /* the first one agrees on the sum */
    run_ranks(fail_to_give);
}

RUN_CASES()
