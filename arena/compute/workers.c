/* workers.c - a pool of threads that runs one parallel loop at a time on the CPU. */
#include "arena/compute/workers.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <ashlar/device.h>

#include "allocator/base/check_level.h"
#include "allocator/base/compiler.h"
#include "allocator/base/error.h"
#include "allocator/base/threads.h"
#include "allocator/base/parse.h"

enum { SPINS = 2000 /* turns of a wait loop, a few tens of nanoseconds each */ };

/* A thread that the pool has started. */
typedef struct helper {
    pthread_t thread;
    bool sleeps;
    int shunned; /* the processor that the thread may not run on; -1: none */
} helper;

/* There is one loop at a time, a call of ashlar__workers_run() by the thread that holds `owner`,
 * called the owner. While `lock` is held:
 *
 *   fn, context and count are the loop's; a helper joins it by room-- and users++, while room > 0
 *   helpers call fn only while users > 0; before the owner returns it sets room = 0 and waits for
 *   users == 0
 *   number grows with every loop, so that a helper joins each loop at most once
 *
 * `announced` is the number of the last loop that helpers were told of. The owner writes it after
 * it released `lock`, so that helpers that spin on it need not wait for the lock. No wake-up is
 * lost: a helper first counts itself in `sleepers`, then reads `announced` once more before it
 * sleeps; the owner first writes `announced`, then reads `sleepers`. */
static struct {
    ashlar_lock owner;
    size_t started;       /* number of helpers that exist; only the owner uses it */
    bool is_start_futile; /* the system refused to start one; only the owner uses it */
    ashlar_lock lock;
    pthread_cond_t has_work, has_ended;
    size_t room; /* how many more helpers may join the loop */
    void (*fn)(void *context, size_t i);
    void *context;
    size_t count;
    size_t number;
    atomic_size_t next; /* the next i to pass to fn */
    atomic_size_t users;
    _Alignas(ASHLAR_CACHE_LINE) atomic_size_t announced;
    _Alignas(ASHLAR_CACHE_LINE) atomic_size_t sleepers; /* helpers that sleep, or are about to */
    atomic_bool owner_sleeps;
    helper helpers[ASHLAR_WORKERS_MAX]; /* [started] */
} pool = {
    .owner = ASHLAR_LOCK(ASHLAR_LEVEL_WORKERS_OWNER),
    .lock = ASHLAR_LOCK(ASHLAR_LEVEL_WORKERS),
    .has_work = PTHREAD_COND_INITIALIZER,
    .has_ended = PTHREAD_COND_INITIALIZER,
};

static atomic_size_t chosen; /* set by ashlar__workers_set_count(); 0: ask the environment */
static _Atomic(ashlar_parallel_fn) lender; /* of a program's own threads; NULL: there is none */
static atomic_bool refuses_start;

static pthread_once_t environment_once = PTHREAD_ONCE_INIT;
static size_t environment_count;
static bool is_environment_bad;

static size_t count_processors(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        return (size_t)CPU_COUNT(&set);
    }
    const long online = sysconf(_SC_NPROCESSORS_ONLN); /* a cpu_set_t is too small for all */
    return online > 0 ? (size_t)online : 1;
}

static void read_environment(void) {
    const char *text = secure_getenv("ASHLAR_THREADS");
    uint64_t count = 0;
    if (text == NULL) {
        const size_t processors = count_processors();
        environment_count = processors < ASHLAR_WORKERS_MAX ? processors : ASHLAR_WORKERS_MAX;
    } else if (ashlar__parse_count(ashlar__piece_of(text), &count) && count >= 1 &&
               count <= ASHLAR_WORKERS_MAX) {
        environment_count = (size_t)count;
    } else {
        environment_count = 1;
        is_environment_bad = true;
    }
}

ashlar_status ashlar__workers_check(void) {
    pthread_once(&environment_once, read_environment);
    ASHLAR_FAIL_IF(is_environment_bad, ASHLAR_EINVAL,
                   "ASHLAR_THREADS: not a number of threads; give 1 to %d", ASHLAR_WORKERS_MAX);
    return ASHLAR_OK;
}

size_t ashlar__workers_count(void) {
    const size_t count = atomic_load_explicit(&chosen, memory_order_relaxed);
    pthread_once(&environment_once, read_environment);
    return count != 0 ? count : environment_count;
}

void ashlar__workers_set_count(size_t count) {
    ASHLAR_CHECK2(count <= ASHLAR_WORKERS_MAX);
    atomic_store_explicit(&chosen, count, memory_order_relaxed);
}

ashlar_status ashlar_set_threads(size_t count, ashlar_parallel_fn parallel) {
    ASHLAR_FAIL_IF(count > ASHLAR_WORKERS_MAX, ASHLAR_EINVAL,
                   "ashlar_set_threads: %zu threads; give 1 to %d, or 0 for the environment's",
                   count, ASHLAR_WORKERS_MAX);
    ashlar__workers_set_count(count);
    atomic_store_explicit(&lender, parallel, memory_order_relaxed);
    return ASHLAR_OK;
}

void ashlar__workers_refuse_start(int refuse) {
    atomic_store(&refuses_start, refuse != 0);
}

static void work(void (*fn)(void *context, size_t i), void *context, size_t count) {
    for (;;) {
        const size_t i = atomic_fetch_add_explicit(&pool.next, 1, memory_order_relaxed);
        if (i >= count) {
            return;
        }
        fn(context, i);
    }
}

/* Wait until there is a loop after number `seen`. Takes the lock; returns the loop's number. */
static size_t wait_for_loop_and_lock(helper *self, size_t seen) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&pool.announced, memory_order_relaxed) > seen) {
            break;
        }
        ASHLAR_PAUSE();
    }
    ashlar__lock_acquire(&pool.lock);
    if (atomic_load_explicit(&pool.announced, memory_order_relaxed) <= seen) {
        self->sleeps = true;
        atomic_fetch_add(&pool.sleepers, 1);
        while (atomic_load(&pool.announced) <= seen) {
            ashlar__lock_wait(&pool.lock, &pool.has_work);
        }
        atomic_fetch_sub(&pool.sleepers, 1);
        self->sleeps = false;
    }
    return pool.number;
}

/* Leave the loop. The last helper to leave wakes the owner, if that sleeps in close_loop(). */
static void leave(void) {
    const size_t before = atomic_fetch_sub(&pool.users, 1);
    ASHLAR_CHECK2(before > 0);
    if (before == 1 && atomic_load(&pool.owner_sleeps)) {
        ashlar__lock_acquire(&pool.lock);
        pthread_cond_signal(&pool.has_ended);
        ashlar__lock_release(&pool.lock);
    }
}

static void *run_thread(void *own) {
    helper *const self = own;
    size_t seen = 0;
    for (;;) {
        seen = wait_for_loop_and_lock(self, seen);
        const bool joins = pool.room > 0;
        void (*const fn)(void *, size_t) = pool.fn;
        void *const context = pool.context;
        const size_t count = pool.count;
        if (joins) {
            pool.room--;
            atomic_fetch_add_explicit(&pool.users, 1, memory_order_relaxed);
        }
        ashlar__lock_release(&pool.lock);
        if (joins) {
            work(fn, context, count);
            leave();
        }
    }
    return NULL;
}

/* Start afresh in a child of fork(): it has no helpers, only the thread that forked. */
static void forget_in_child(void) {
    ashlar__lock_init(&pool.owner, ASHLAR_LEVEL_WORKERS_OWNER);
    ashlar__lock_init(&pool.lock, ASHLAR_LEVEL_WORKERS);
    pool.has_work = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool.has_ended = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool.room = 0;
    pool.started = 0;
    pool.is_start_futile = false;
    atomic_store(&pool.users, 0);
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.owner_sleeps, false);
}

static bool may_start;

static void prepare(void) {
    may_start = pthread_atfork(NULL, NULL, forget_in_child) == 0;
}

/* Install the handler for fork(). Call this before taking a lock: a child forked without the
 * handler might find the lock taken forever. */
static bool is_prepared(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
    return may_start;
}

/* Start a thread with all signals blocked, so that handlers run on the program's own threads. */
static bool start_thread(helper *own) {
    sigset_t all, old;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) {
        return false;
    }
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const bool is_started = pthread_create(&own->thread, &attributes, run_thread, own) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return is_started;
}

/* Start helpers until `wanted` exist or the system refuses. Returns how many can join the loop. */
static size_t start_threads(size_t wanted) {
    ASHLAR_OWNS(&pool.owner);
    while (pool.started < wanted && !pool.is_start_futile) {
        helper *const next = &pool.helpers[pool.started];
        *next = (helper){.shunned = -1};
        pool.is_start_futile = atomic_load(&refuses_start) || !start_thread(next);
        pool.started += !pool.is_start_futile;
    }
    ASHLAR_CHECK2(pool.started < ASHLAR_WORKERS_MAX); /* the caller's is not counted */
    return pool.started < wanted ? pool.started : wanted;
}

/*
 * Let sleeping helpers wake on other processors than the caller's. Linux may wake a thread on its
 * waker's processor, though others are idle (in a virtual machine these may look busy), and let it
 * wait there for milliseconds, so that the caller would run the loop alone.
 */
static void keep_off_own_processor(void) {
    cpu_set_t set;
    const int processor = sched_getcpu();
    bool is_known = false;
    ASHLAR_OWNS(&pool.lock);
    for (size_t i = 0; i < pool.started; i++) {
        helper *const h = &pool.helpers[i];
        if (!h->sleeps || h->shunned == processor) {
            continue;
        }
        if (!is_known) {
            if (processor < 0 || sched_getaffinity(0, sizeof set, &set) != 0 ||
                CPU_COUNT(&set) < 2) {
                return;
            }
            CPU_CLR((size_t)processor, &set);
            is_known = true;
        }
        h->shunned = processor;
        (void)pthread_setaffinity_np(h->thread, sizeof set, &set);
    }
}

static void open_loop(size_t helpers, void (*fn)(void *context, size_t i), void *context,
                      size_t count) {
    ASHLAR_OWNS(&pool.owner);
    ashlar__lock_acquire(&pool.lock);
    ASHLAR_CHECK2(pool.room == 0 && atomic_load(&pool.users) == 0); /* the last loop is closed */
    pool.fn = fn;
    pool.context = context;
    pool.count = count;
    pool.room = helpers;
    const size_t number = ++pool.number;
    atomic_store_explicit(&pool.next, 0, memory_order_relaxed);
    ashlar__lock_release(&pool.lock);
    atomic_store(&pool.announced, number);
    if (atomic_load(&pool.sleepers) > 0) {
        ashlar__lock_acquire(&pool.lock);
        keep_off_own_processor();
        for (size_t i = 0; i < helpers; i++) {
            pthread_cond_signal(&pool.has_work);
        }
        ashlar__lock_release(&pool.lock);
    }
}

/* Let no more helpers join the loop, and wait for those that have joined. */
static void close_loop(void) {
    ASHLAR_OWNS(&pool.owner);
    ashlar__lock_acquire(&pool.lock);
    ASHLAR_CHECK2(atomic_load(&pool.next) >= pool.count); /* the owner found no call left */
    pool.room = 0;
    ashlar__lock_release(&pool.lock);
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&pool.users, memory_order_acquire) == 0) {
            return;
        }
        ASHLAR_PAUSE();
    }
    ashlar__lock_acquire(&pool.lock);
    atomic_store(&pool.owner_sleeps, true);
    while (atomic_load(&pool.users) != 0) {
        ashlar__lock_wait(&pool.lock, &pool.has_ended);
    }
    atomic_store(&pool.owner_sleeps, false);
    ashlar__lock_release(&pool.lock);
}

/* A loop on lent threads. */
typedef struct lent_loop {
    void (*fn)(void *context, size_t i);
    void *context;
    size_t count;
    atomic_size_t next;
} lent_loop;

static void run_lent(void *data) {
    lent_loop *const loop = data;
    for (size_t i;
         (i = atomic_fetch_add_explicit(&loop->next, 1, memory_order_relaxed)) < loop->count;) {
        loop->fn(loop->context, i);
    }
}

void ashlar__workers_run(size_t count, void (*fn)(void *context, size_t i), void *context) {
    const size_t threads = count > 1 ? ashlar__workers_count() : 1;
    const ashlar_parallel_fn lent = atomic_load_explicit(&lender, memory_order_relaxed);
    if (threads > 1 && lent != NULL) {
        lent_loop loop = {.fn = fn, .context = context, .count = count};
        /* Always of one number: OpenMP ends the threads that a smaller team lacks. */
        lent(run_lent, &loop, (unsigned)threads, 0);
        return;
    }
    if (threads > 1 && is_prepared() && ashlar__lock_try_acquire(&pool.owner)) {
        const size_t helpers = start_threads((count < threads ? count : threads) - 1);
        if (helpers > 0) {
            open_loop(helpers, fn, context, count);
            work(fn, context, count);
            close_loop();
        }
        ashlar__lock_release(&pool.owner);
        if (helpers > 0) {
            return;
        }
    }
    for (size_t i = 0; i < count; i++) {
        fn(context, i);
    }
}

/* What ashlar__workers_share() splits: items, into runs of about equal length. */
typedef struct shared_items {
    void (*fn)(void *context, size_t first, size_t end);
    void *context;
    size_t each, longer; /* run i has each + (i < longer) items */
} shared_items;

static void run_items(void *context, size_t i) {
    const shared_items *const s = context;
    const size_t first = i * s->each + (i < s->longer ? i : s->longer);
    s->fn(s->context, first, first + s->each + (i < s->longer));
}

void ashlar__workers_share(size_t count, size_t least,
                           void (*fn)(void *context, size_t first, size_t end), void *context) {
    ASHLAR_CHECK2(least > 0);
    const size_t worth = count / least, threads = worth > 1 ? ashlar__workers_count() : 1;
    const size_t runs = worth < threads ? worth : threads;
    if (runs <= 1) {
        fn(context, 0, count);
        return;
    }
    shared_items s = {.fn = fn, .context = context, .each = count / runs, .longer = count % runs};
    ashlar__workers_run(runs, run_items, &s);
}

/* What ashlar__workers_share_columns() splits: a matrix's columns, into whole cache lines. */
typedef struct shared_columns {
    void (*fn)(void *context, size_t first, size_t end);
    void *context;
    size_t count, line; /* columns in all, and in a cache line */
} shared_columns;

static void run_lines(void *context, size_t first_line, size_t end_line) {
    const shared_columns *const s = context;
    const size_t end = end_line * s->line;
    s->fn(s->context, first_line * s->line, end < s->count ? end : s->count);
}

void ashlar__workers_share_columns(size_t rows, size_t columns, size_t item, size_t least,
                                   void (*fn)(void *context, size_t first, size_t end),
                                   void *context) {
    ASHLAR_CHECK2(item > 0 && ASHLAR_CACHE_LINE % item == 0);
    const size_t line = ASHLAR_CACHE_LINE / item, elements = (rows > 0 ? rows : 1) * line;
    shared_columns s = {.fn = fn, .context = context, .count = columns, .line = line};
    ashlar__workers_share((columns + line - 1) / line, (least + elements - 1) / elements, run_lines,
                          &s);
}
