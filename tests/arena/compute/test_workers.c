/*
 * test_workers.c - that every piece of a work is done once, by the threads that it may use, and
 * seen by its caller.
 */
#include "arena/compute/workers.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include <ashlar/device.h>

#include "tests/check.h"

enum { PIECES = 1000, THREADS = 4 };

static atomic_int calls[PIECES];
static size_t squares[PIECES]; /* plain memory: its caller must see what others wrote */

static void square(void *context, size_t i) {
    atomic_fetch_add(&calls[i], context == squares);
    squares[i] = i * i;
}

/* Work of `count` pieces is done, once each, and nothing beyond it. */
static void check_work(size_t count) {
    size_t wrong = 0;
    memset(squares, 0xff, sizeof squares);
    memset(calls, 0, sizeof calls);
    ashlar__workers_run(count, square, squares);
    for (size_t i = 0; i < PIECES; i++) {
        wrong += i < count ? squares[i] != i * i || calls[i] != 1 : calls[i] != 0;
    }
    CHECK_ZU(wrong, 0);
}

CASE(every_piece_is_done_once) {
    for (size_t threads = 1; threads <= THREADS; threads++) {
        ashlar__workers_set_count(threads);
        CHECK_ZU(ashlar__workers_count(), threads);
        for (size_t count = 0; count < 20; count++) {
            check_work(count);
        }
        for (int turn = 0; turn < 200; turn++) {
            check_work(PIECES);
        }
    }
}

CASE(programs_choose_how_many_threads) {
    CHECK(ashlar_set_threads(3, NULL) == ASHLAR_OK);
    CHECK_ZU(ashlar__workers_count(), 3);
    CHECK_FAILS(ashlar_set_threads(ASHLAR_WORKERS_MAX + 1, NULL), ASHLAR_EINVAL, "257 threads");
    CHECK_ZU(ashlar__workers_count(), 3);
    CHECK(ashlar_set_threads(0, NULL) == ASHLAR_OK);
}

static size_t lent_count;

typedef struct lent_call {
    void (*fn)(void *data);
    void *data;
} lent_call;

static void *call_lent(void *argument) {
    const lent_call *const call = argument;
    call->fn(call->data);
    return NULL;
}

static void lend(void (*fn)(void *data), void *data, unsigned threads, unsigned flags) {
    pthread_t other;
    lent_call call = {fn, data};
    lent_count++;
    CHECK(threads == THREADS && flags == 0);
    REQUIRE(pthread_create(&other, NULL, call_lent, &call) == 0);
    fn(data);
    REQUIRE(pthread_join(other, NULL) == 0);
}

CASE(programs_may_lend_their_threads) {
    CHECK(ashlar_set_threads(THREADS, lend) == ASHLAR_OK);
    check_work(PIECES);
    check_work(2);
    CHECK_ZU(lent_count, 2);
    CHECK(ashlar_set_threads(1, lend) == ASHLAR_OK);
    check_work(PIECES);
    CHECK(ashlar_set_threads(0, NULL) == ASHLAR_OK);
    check_work(PIECES);
    CHECK_ZU(lent_count, 2);
}

/* Of the last work that was shared: how many runs it had, and the items of the shortest. */
static struct { atomic_size_t runs, shortest; } shared;

static void take_items(void *context, size_t first, size_t end) {
    const size_t items = end - first;
    size_t shortest = atomic_load(&shared.shortest);
    atomic_fetch_add(&shared.runs, 1);
    while (items < shortest && !atomic_compare_exchange_weak(&shared.shortest, &shortest, items)) {
    }
    for (size_t i = first; i < end; i++) {
        square(context, i);
    }
}

static void check_shared(size_t count, size_t least, size_t threads) {
    size_t wrong = 0;
    const size_t worth = count / least, most = worth < threads ? worth : threads;
    memset(calls, 0, sizeof calls);
    atomic_store(&shared.runs, 0);
    atomic_store(&shared.shortest, PIECES);
    ashlar__workers_share(count, least, take_items, squares);
    for (size_t i = 0; i < PIECES; i++) {
        wrong += calls[i] != (i < count);
    }
    CHECK_ZU(wrong, 0);
    CHECK_ZU(shared.runs, most > 1 ? most : 1);
    CHECK(most <= 1 || shared.shortest >= least);
}

CASE(items_are_shared_in_runs_that_are_worth_a_thread) {
    for (size_t threads = 1; threads <= THREADS; threads++) {
        ashlar__workers_set_count(threads);
        for (size_t count = 0; count < 30; count++) {
            for (size_t least = 1; least < 12; least++) {
                check_shared(count, least, threads);
            }
        }
        check_shared(PIECES, 1, threads);
        check_shared(PIECES, PIECES, threads);
    }
}

/* ---- who does it ---- */

static atomic_size_t doer_count;
static pthread_t doers[PIECES];
static pthread_barrier_t all_here;

static void meet(void *context, size_t i) {
    (void)context;
    doers[i] = pthread_self();
    pthread_barrier_wait(&all_here);
}

/* Ends only if `threads` threads are in it at once, the caller among them. */
static void check_meeting(size_t threads) {
    size_t pairs = 0, mine = 0;
    pthread_barrier_init(&all_here, NULL, (unsigned)threads);
    ashlar__workers_set_count(threads);
    ashlar__workers_run(threads, meet, NULL);
    for (size_t i = 0; i < threads; i++) {
        mine += pthread_equal(doers[i], pthread_self()) != 0;
        for (size_t k = i + 1; k < threads; k++) {
            pairs += pthread_equal(doers[i], doers[k]) != 0;
        }
    }
    CHECK_ZU(pairs, 0);
    CHECK_ZU(mine, 1);
    pthread_barrier_destroy(&all_here);
}

static void note_doer(void *context, size_t i) {
    (void)context;
    doers[i] = pthread_self();
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

/* Different threads among the first `count` of doers. */
static size_t count_doers(size_t count) {
    size_t different = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_new = true;
        for (size_t k = 0; k < i; k++) {
            is_new = is_new && !pthread_equal(doers[i], doers[k]);
        }
        different += is_new;
    }
    return different;
}

CASE(no_more_threads_join_than_were_asked_for) {
    check_meeting(THREADS); /* so that there are too many */
    for (size_t threads = 1; threads < THREADS; threads++) {
        ashlar__workers_set_count(threads);
        for (int turn = 0; turn < 20; turn++) {
            ashlar__workers_run(100, note_doer, NULL);
            CHECK(count_doers(100) <= threads);
        }
    }
}

static void inner(void *context, size_t i) {
    pthread_t *outer = context;
    atomic_fetch_add(&doer_count, pthread_equal(*outer, pthread_self()) && i < 10);
}

static void outer(void *context, size_t i) {
    pthread_t self = pthread_self();
    (void)context;
    (void)i;
    ashlar__workers_run(10, inner, &self);
}

CASE(work_within_work_is_done_by_its_caller) {
    ashlar__workers_set_count(THREADS);
    atomic_store(&doer_count, 0);
    ashlar__workers_run(50, outer, NULL);
    CHECK_ZU(atomic_load(&doer_count), 500);
}

/* ---- several callers ---- */

typedef struct claim {
    atomic_int calls[PIECES];
    int wrong;
} claim;

static void count_call(void *context, size_t i) {
    claim *c = context;
    atomic_fetch_add_explicit(&c->calls[i], 1, memory_order_relaxed);
}

static void *call_often(void *arg) {
    claim *c = arg;
    for (int turn = 1; turn <= 200; turn++) {
        ashlar__workers_run(PIECES, count_call, c);
        for (size_t i = 0; i < PIECES; i++) {
            c->wrong += atomic_load_explicit(&c->calls[i], memory_order_relaxed) != turn;
        }
    }
    return NULL;
}

CASE(several_callers_do_not_meet) {
    static claim claims[THREADS];
    pthread_t threads[THREADS];
    ashlar__workers_set_count(3);
    for (size_t i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, call_often, &claims[i]) == 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(claims[i].wrong == 0);
    }
}

static atomic_int blocked;

static void look_at_signals(void *context, size_t i) {
    sigset_t set;
    (void)context;
    (void)i;
    pthread_barrier_wait(&all_here);
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    atomic_fetch_add(&blocked, sigismember(&set, SIGALRM) == 1);
}

/* And the caller's mask is its own again. */
CASE(signals_are_left_to_the_programs_threads) {
    pthread_barrier_init(&all_here, NULL, THREADS);
    ashlar__workers_set_count(THREADS);
    atomic_store(&blocked, 0);
    ashlar__workers_run(THREADS, look_at_signals, NULL);
    CHECK(atomic_load(&blocked) == THREADS - 1);
    pthread_barrier_destroy(&all_here);
}

static void use_usual_count(void) {
    ashlar__workers_set_count(0);
}

RUN_CASES_AFTER(check_each = use_usual_count)
