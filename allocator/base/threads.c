/* threads.c - a number for each thread; memory of its own, which is freed after all else at the
 * thread's end; a memory barrier in all threads; and the locks that a thread holds. */
#include "allocator/base/threads.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/membarrier.h>

#include "allocator/base/check_level.h"
#include "allocator/base/compiler.h"

uint32_t ashlar__thread_number(void) {
    static _Atomic uint32_t last;
    static _Thread_local uint32_t number ASHLAR_INITIAL_EXEC; /* 0: none yet */
    if (number == 0) {
        number = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    }
    ASHLAR_CHECK2(number != 0); /* 0 after 2^32 threads: it would be taken for "none yet" */
    return number;
}

static atomic_bool is_hidden;     /* a test pretends that there is no membarrier(2) */
static atomic_bool is_registered; /* false once membarrier(2) was refused */

static void do_register(void) {
    atomic_store(&is_registered,
                 syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0);
}

bool ashlar__barrier_init(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, do_register);
    return atomic_load(&is_registered) && !atomic_load(&is_hidden);
}

void ashlar__barrier_begin_child(void) {
    if (atomic_load(&is_registered)) {
        const long result =
            syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
        atomic_store(&is_registered, result == 0);
    }
}

/* ---- without membarrier(2) ---- */

enum { LONG_BITS = sizeof(long) * CHAR_BIT, MASK_LONGS = 8192 / LONG_BITS };

/* Run on each processor in turn. When the calling thread runs there, the kernel has switched away
 * from the thread that ran before, and a switch is a full barrier on every architecture. EINVAL:
 * no such processor, or this process may not use it. False: the kernel refuses to move a thread. */
static bool visit_processors(void) {
    unsigned long before[MASK_LONGS] = {0};
    bool is_allowed = true;
    const long bytes = syscall(__NR_sched_getaffinity, 0, sizeof before, before);
    for (long cpu = 0; cpu < bytes * CHAR_BIT && is_allowed; cpu++) {
        unsigned long mask[MASK_LONGS] = {0};
        mask[cpu / LONG_BITS] = 1ul << (cpu % LONG_BITS);
        is_allowed =
            syscall(__NR_sched_setaffinity, 0, (size_t)bytes, mask) == 0 || errno == EINVAL;
    }
    return bytes > 0 && syscall(__NR_sched_setaffinity, 0, (size_t)bytes, before) == 0 &&
           is_allowed;
}

bool ashlar__barrier_everywhere(void) {
    if (ASHLAR_LIKELY(atomic_load_explicit(&is_registered, memory_order_relaxed) &&
                      syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)) {
        return true;
    }
    atomic_store(&is_registered, false);
    const bool is_put = visit_processors();
    ASHLAR_ASSERT(is_put); /* without the barrier two threads might be given the same memory */
    return false;
}

void ashlar__barrier_pretend(bool is_there) {
    atomic_store(&is_hidden, !is_there);
}

/* ---- memory of a thread's own ---- */

typedef struct thread_data {
    void *data[ASHLAR_THREAD_DATA_COUNT];
    int rounds; /* how often end_thread(), the key's destructor, has been called for this data */
} thread_data;

/* The destructor frees the data in the second round only: in the first, destructors of other keys
 * may still run after it, and need the data. */
enum { ROUNDS = 2 };

static _Thread_local thread_data *mine;
static pthread_key_t key;
static bool has_key;

static void end_thread(void *value) {
    thread_data *ending = value;
    if (++ending->rounds < ROUNDS && pthread_setspecific(key, ending) == 0) {
        return;
    }
    mine = NULL;
    for (size_t i = 0; i < ASHLAR_THREAD_DATA_COUNT; i++) {
        free(ending->data[i]);
    }
    free(ending);
}

static void make_key(void) {
    has_key = pthread_key_create(&key, end_thread) == 0;
}

static bool make_mine(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_key);
    thread_data *made = has_key ? calloc(1, sizeof *made) : NULL;
    if (made != NULL && pthread_setspecific(key, made) == 0) {
        mine = made;
    } else {
        free(made);
    }
    return mine != NULL;
}

void *ashlar__thread_data(ashlar_thread_datum datum, size_t bytes) {
    ASHLAR_ASSERT(datum < ASHLAR_THREAD_DATA_COUNT && bytes > 0);
    if (mine == NULL && !make_mine()) {
        return NULL;
    }
    if (mine->data[datum] == NULL) {
        mine->data[datum] = calloc(1, bytes);
    }
    return mine->data[datum];
}

void *ashlar__thread_data_if_any(ashlar_thread_datum datum) {
    ASHLAR_ASSERT(datum < ASHLAR_THREAD_DATA_COUNT);
    return mine != NULL ? mine->data[datum] : NULL;
}

/* ---- locks: the list, kept by debug builds, of those that each thread holds ---- */

#if ASHLAR_DEBUG >= 2

static _Thread_local ashlar_lock *held_locks; /* the newest first */

bool ashlar__lock_is_held(const ashlar_lock *lock) {
    const ashlar_lock *held = held_locks;
    while (held != NULL && held != lock) {
        held = held->next_held;
    }
    return held == lock;
}

void ashlar__lock_about_to_acquire(const ashlar_lock *lock) {
    for (const ashlar_lock *held = held_locks; held != NULL; held = held->next_held) {
        ASHLAR_CHECK2(held->rank < lock->rank);
    }
}

void ashlar__lock_acquired(ashlar_lock *lock) {
    ASHLAR_CHECK2(lock->rank != ASHLAR_LEVEL_NONE);
    ASHLAR_CHECK2(!ashlar__lock_is_held(lock)); /* otherwise the list would become circular */
    lock->next_held = held_locks;
    held_locks = lock;
}

static void forget(const ashlar_lock *lock) {
    ashlar_lock **link = &held_locks;
    while (*link != NULL && *link != lock) {
        link = &(*link)->next_held;
    }
    if (*link != NULL) {
        *link = lock->next_held;
    }
}

void ashlar__lock_about_to_release(ashlar_lock *lock) {
    ASHLAR_OWNS(lock);
    forget(lock);
}

#else

bool ashlar__lock_is_held(const ashlar_lock *lock) {
    (void)lock;
    return true;
}

void ashlar__lock_about_to_acquire(const ashlar_lock *lock) {
    (void)lock;
}

void ashlar__lock_acquired(ashlar_lock *lock) {
    (void)lock;
}

void ashlar__lock_about_to_release(ashlar_lock *lock) {
    (void)lock;
}

#endif

void ashlar__lock_init(ashlar_lock *lock, ashlar_lock_level rank) {
#if ASHLAR_DEBUG >= 2
    forget(lock); /* in a forked child, the calling thread may have held it */
#endif
    *lock = (ashlar_lock)ASHLAR_LOCK(rank);
    (void)rank;
}

void ashlar__lock_finish(ashlar_lock *lock) {
    ASHLAR_CHECK2(!ashlar__lock_is_held(lock));
    (void)pthread_mutex_destroy(&lock->mutex);
}
