/*
 * test_ranks_beside.c - sums on a thread of their own, beside a stream: what is in order with what,
 * and what becomes of them when the thread is stopped or refused.
 */
#include "tests/arena/reduce/ranks_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

static bool refuses_threads, starts_blocked;
static int (*real_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* clang's leak sanitizer, whose pthread_join() knows its own threads only. */
extern int __interceptor_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *),
                                        void *) __attribute__((weak));

/* Whether signals wait on this thread. */
static bool is_blocked(void) {
    sigset_t now;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &now);
    return sigismember(&now, SIGINT) == 1;
}

/* In place of the C library's. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *context) {
    void *symbol = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&real_create, &symbol, sizeof symbol);
    if (__interceptor_pthread_create != NULL) {
        real_create = __interceptor_pthread_create;
    }
    starts_blocked = is_blocked();
    return refuses_threads ? EAGAIN : real_create(thread, attributes, run, context);
}

enum { MANY = 100 /* sums, more than wait at a time */ };
static float *data; /* [MANY + 2] */

static ashlar_status add(size_t first, size_t count) {
    return table->all_reduce(table->context, data + first, count, ASHLAR_F32, stream);
}

static void open_table(ashlar_ranks_order order) {
    open_soft(0);
    data = locked;
    CHECK(ashlar_ranks_collectives(ranks, device, order, &table) == ASHLAR_OK);
    fill(data, ASHLAR_F32, MANY + 2, rank);
}

static void check_sums(size_t end) {
    size_t wrong = 0;
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    CHECK(ashlar_ranks_check(ranks) == ASHLAR_OK);
    for (size_t i = 0; i < MANY + 2; i++) {
        wrong += element(data, ASHLAR_F32, i) != (i < end ? sum_of(i) : number_of(rank, i));
    }
    CHECK_ZU(wrong, 0);
}

static void add_beside(void) {
    open_table(world->count == 4 ? ASHLAR_RANKS_TREE : ASHLAR_RANKS_FASTEST);
    CHECK(ashlar__ranks_hidden_seconds(ranks) <= 0);
    CHECK(ashlar__ranks_beside_open(ranks) == ASHLAR_OK);
    CHECK(starts_blocked && !is_blocked()); /* signals are for the program's own threads */
    CHECK(ashlar__ranks_hidden_seconds(ranks) <= 0);
    ashlar__ranks_beside_begin(ranks);
    for (size_t i = 0; i < MANY; i++) {
        CHECK(add(i, 1) == ASHLAR_OK);
    }
    CHECK(ashlar__ranks_beside_end(ranks, stream) == ASHLAR_OK);
    check_sums(MANY);
    CHECK(ashlar__ranks_hidden_seconds(ranks) >= 0);
    CHECK(ashlar__ranks_hidden_seconds(ranks) <= ashlar_ranks_seconds(ranks));
    CHECK(add(MANY, 1) == ASHLAR_OK); /* in the order of the stream again */
    check_sums(MANY + 1);
    ashlar__ranks_beside_close(ranks);
    CHECK(ranks->beside == NULL);
    ashlar__ranks_beside_close(ranks);
    CHECK(add(MANY + 1, 1) == ASHLAR_OK);
    check_sums(MANY + 2);
    close_soft(false);
}

CASE(sums_beside_the_stream_are_there_behind_the_end) {
    for (size_t count = 1; count <= ENGINE_RANKS; count++) {
        REQUIRE(set_up_world(count));
        run_ranks(add_beside);
        tear_down_world();
    }
}

/* Other collectives stay in the order of the stream, and without a thread sums do, too. */
static void add_without(void) {
    open_table(ASHLAR_RANKS_FASTEST);
    ashlar__ranks_beside_begin(ranks);
    CHECK(add(0, MANY) == ASHLAR_OK);
    CHECK(ashlar__ranks_beside_end(ranks, stream) == ASHLAR_OK);
    check_sums(MANY);
    CHECK(ashlar__ranks_beside_open(ranks) == ASHLAR_OK);
    ashlar__ranks_beside_begin(ranks);
    fill(data, ASHLAR_F32, MANY + 2, rank);
    CHECK(table->broadcast(table->context, data, 1, ASHLAR_F32, 1, stream) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    CHECK_NEAR(data[0], number_of(1, 0), 0, 0);
    CHECK(ashlar__ranks_beside_end(ranks, stream) == ASHLAR_OK);
    ashlar__ranks_beside_close(ranks);
    ashlar__ranks_beside_close(NULL);
    close_soft(false);
}

CASE(what_is_not_beside_is_in_the_order_of_the_stream) {
    REQUIRE(set_up_world(2));
    run_ranks(add_without);
}

/* The last rank begins a sum that no other comes to. */
static void leave(void) {
    open_table(ASHLAR_RANKS_FASTEST);
    CHECK(ashlar__ranks_beside_open(ranks) == ASHLAR_OK);
    if (rank == 1) {
        ashlar__ranks_beside_begin(ranks);
        CHECK(add(0, 1) == ASHLAR_OK);
    }
    ashlar__ranks_beside_close(ranks);
    if (rank == 1) {
        CHECK_FAILS(ashlar_ranks_check(ranks), ASHLAR_EIO, "rank 1 left before the sums had ended");
    } else {
        CHECK(ashlar_ranks_check(ranks) == ASHLAR_OK);
    }
    close_soft(rank == 1);
}

CASE(to_stop_the_thread_gives_up_what_is_under_way) {
    REQUIRE(set_up_world(2));
    run_ranks(leave);
}

static void refuse(void) {
    open_table(ASHLAR_RANKS_FASTEST);
    refuses_threads = true;
    CHECK_FAILS(ashlar__ranks_beside_open(ranks), ASHLAR_EHOSTMEM,
                "ranks: the system refuses a thread");
    refuses_threads = false;
    CHECK(ranks->beside == NULL);
    HOST_FAILS_AT(1, CHECK(ashlar__ranks_beside_open(ranks) == ASHLAR_EHOSTMEM));
    CHECK(ranks->beside == NULL);
    CHECK(add(0, MANY) == ASHLAR_OK);
    check_sums(MANY);
    close_soft(false);
}

CASE(without_a_thread_or_memory_there_is_none) {
    REQUIRE(set_up_world(1));
    run_ranks(refuse);
}

RUN_CASES()
