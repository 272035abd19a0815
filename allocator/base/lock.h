/*
 * lock.h - mutexes with a rank and, in debug builds, a record of who holds them (internal).
 *
 * A thread takes locks in the order of their ranks, so no two threads can wait for each other. From
 * debug level 2 on, taking a lock out of order fails an assertion, even if no other thread holds
 * one. Below level 2 a lock is a mutex and nothing else.
 */
#ifndef ASHLAR_LOCK_H
#define ASHLAR_LOCK_H

#include <pthread.h>
#include <stdbool.h>

#include "allocator/base/check_level.h"

/*
 * A thread that holds a lock may take only locks of ranks further down this list. Each comment
 * names the file that has the lock, and the data that the lock guards or the work under way while
 * it is held.
 */
typedef enum ashlar_lock_rank {
    ASHLAR_RANK_NONE,           /* of zeroed memory in which no lock was made */
    ASHLAR_RANK_LIBRARY_HANDLE, /* rnn/layer, arena/reduce: a handle of cuDNN, cuBLAS, NCCL */
    ASHLAR_RANK_SHARED_LIBRARY, /* base/shared_library.c: a table of functions being filled */
    ASHLAR_RANK_TORCH_GRAPHS,   /* dropin/torch_graphs.c: memory of PyTorch's graphs */
    ASHLAR_RANK_DROPIN_FREES,   /* dropin/frees.c: an ashlar_frees being made */
    ASHLAR_RANK_DROPIN_DEVICES, /* dropin/devices.c: a device's allocator being made */
    ASHLAR_RANK_CAPTURES,       /* dropin/frees_wait.c: captures under way */
    ASHLAR_RANK_LEAK_LIST,      /* core/reports.c: allocators that report their leaks */
    ASHLAR_RANK_ALLOCATOR_LIST, /* core/allocators.c: every allocator */
    ASHLAR_RANK_CACHE_PARTING,  /* core/cache.c: which allocator each cache belongs to */
    ASHLAR_RANK_ALLOCATOR,      /* one per allocator; a thread holds only one of them at a time */
    ASHLAR_RANK_PATTERN_CHECK,  /* guard/guard_fill.c: comparisons under way */
    ASHLAR_RANK_DRIVER_OPEN,    /* driver/driver_cuda.c, soft/soft_device.c */
    ASHLAR_RANK_SOFT_SETUP,     /* soft/soft_device.c: the first configuration */
    ASHLAR_RANK_SOFT,           /* the software device's state */
    ASHLAR_RANK_WORKERS_OWNER,  /* arena/compute/workers.c: who may hand out work */
    ASHLAR_RANK_WORKERS,        /* arena/compute/workers.c: the work handed out */
} ashlar_lock_rank;

typedef struct ashlar_lock {
    pthread_mutex_t mutex;
#if ASHLAR_DEBUG >= 2
    ashlar_lock_rank rank;
    struct ashlar_lock *next_held; /* the next in the list of locks that its holder holds; only
                                    * the holder writes it */
#endif
} ashlar_lock;

/* Initial value of a lock that lives as long as the process:
 *     static ashlar_lock lock = ASHLAR_LOCK(RANK); */
#if ASHLAR_DEBUG >= 2
#define ASHLAR_LOCK(lock_rank) \
    { .mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (lock_rank) }
#else
#define ASHLAR_LOCK(lock_rank) \
    { .mutex = PTHREAD_MUTEX_INITIALIZER }
#endif

/*
 * Assert that the calling thread holds the lock (level 2). Every function that is named _locked or
 * says "Lock: held" begins with this, so that a test that calls it without the lock fails there.
 */
#define ASHLAR_OWNS(lock) ASHLAR_CHECK2(ashlar__lock_is_held(lock))

/* Whether the calling thread holds the lock. Only for assertions: always true below level 2. */
bool ashlar__lock_is_held(const ashlar_lock *lock);

/* For debug builds: keep the record of the locks that the calling thread holds.
 * ashlar__lock_about_to_acquire() asserts the order of ranks, before the thread can block. */
void ashlar__lock_about_to_acquire(const ashlar_lock *lock);
void ashlar__lock_acquired(ashlar_lock *lock);
void ashlar__lock_about_to_release(ashlar_lock *lock);

/* Make an unlocked lock. A forked child calls this, too, for a lock that some other thread of the
 * parent may have held at the fork. */
void ashlar__lock_init(ashlar_lock *lock, ashlar_lock_rank rank);
void ashlar__lock_finish(ashlar_lock *lock); /* no thread may hold it */

static inline void ashlar__lock_acquire(ashlar_lock *lock) {
    if (ASHLAR_DEBUG >= 2) {
        ashlar__lock_about_to_acquire(lock);
    }
    (void)pthread_mutex_lock(&lock->mutex);
    if (ASHLAR_DEBUG >= 2) {
        ashlar__lock_acquired(lock);
    }
}

/* False: another thread holds the lock. This never blocks, so it may be called out of rank
 * order. */
static inline bool ashlar__lock_try_acquire(ashlar_lock *lock) {
    const bool is_acquired = pthread_mutex_trylock(&lock->mutex) == 0;
    if (ASHLAR_DEBUG >= 2 && is_acquired) {
        ashlar__lock_acquired(lock);
    }
    return is_acquired;
}

/* Locks may be released in any order. */
static inline void ashlar__lock_release(ashlar_lock *lock) {
    if (ASHLAR_DEBUG >= 2) {
        ashlar__lock_about_to_release(lock);
    }
    (void)pthread_mutex_unlock(&lock->mutex);
}

/* Sleep until the condition is signalled; the sleep may also end without a signal. Lock: held by
 * the caller, and released during the sleep. */
static inline void ashlar__lock_wait(ashlar_lock *lock, pthread_cond_t *condition) {
    if (ASHLAR_DEBUG >= 2) {
        ashlar__lock_about_to_release(lock);
    }
    (void)pthread_cond_wait(condition, &lock->mutex);
    if (ASHLAR_DEBUG >= 2) {
        ashlar__lock_acquired(lock);
    }
}

#endif /* ASHLAR_LOCK_H */
