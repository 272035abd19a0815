/*
 * threads.h - a number for each thread of the process, memory that belongs to one thread, a memory
 * barrier that one thread puts into all others, and locks with ranks (internal).
 */
#ifndef ASHLAR_THREADS_H
#define ASHLAR_THREADS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/check_level.h"

/* The calling thread's number: 1, 2, ... in the order of the threads' first calls. Numbers of ended
 * threads are not reused. */
uint32_t ashlar__thread_number(void);

/* Register the process for membarrier(2), on which ashlar__barrier_everywhere() rests. Only the
 * first call asks the kernel. False: the kernel lacks membarrier(2), or has begun to refuse it. */
bool ashlar__barrier_init(void);

/* Have every other thread pass a full memory barrier before this call returns.
 * ashlar__barrier_init() must have returned true. False: the barrier worked once more, but by means
 * that take milliseconds, since the kernel now refuses membarrier(2) (a seccomp filter was
 * installed); do not rely on barriers from now on. */
bool ashlar__barrier_everywhere(void);

/* Register a child of fork() anew. The child calls this before it makes threads. */
void ashlar__barrier_begin_child(void);

/* For tests: have ashlar__barrier_init() return false from now on or, with true, the real answer
 * again. */
void ashlar__barrier_pretend(bool is_there);

/* ---- memory of a thread's own ---- */

/* What a thread keeps on the heap, behind one thread-local pointer. The fast (initial-exec) kind of
 * thread-local storage is a few hundred bytes for all libraries that dlopen() loads. A thread's
 * cache must be reached by it, so larger data lies here. */
typedef enum ashlar_thread_datum {
    ASHLAR_THREAD_ERROR_DETAIL,
    ASHLAR_THREAD_SOFT_CONTEXTS,
    ASHLAR_THREAD_SOFT_STREAMS,
    ASHLAR_THREAD_PRODUCTS,
    ASHLAR_THREAD_DATA_COUNT
} ashlar_thread_datum;

/* The calling thread's memory for `datum`, made and zeroed by the first call. It is freed when the
 * thread ends, after all other functions that run at the thread's end. bytes: the same in every
 * call. NULL: no host memory is left. The memory comes from calloc() itself, so that a simulated
 * lack of host memory (host.h) does not affect the error detail, which is kept here. */
void *ashlar__thread_data(ashlar_thread_datum datum, size_t bytes);

/* Like ashlar__thread_data(), but makes nothing: NULL if there has been no call. */
void *ashlar__thread_data_if_any(ashlar_thread_datum datum);

/* ---- locks ---- */

/*
 * A thread takes locks in the order of their ranks, so no two threads can wait for each other. From
 * debug level 2 on, taking a lock out of order fails an assertion, even if no other thread holds
 * one, and each thread has a list of the locks that it holds. Below level 2 a lock is a mutex and
 * nothing else.
 *
 * A thread that holds a lock may take only locks of ranks further down this list. Each comment
 * names the file that has the lock, and the data that the lock guards or the work under way while
 * it is held.
 */
typedef enum ashlar_lock_level {
    ASHLAR_LEVEL_NONE,           /* of zeroed memory where ashlar__lock_init() was not called */
    ASHLAR_LEVEL_LIBRARY_HANDLE, /* rnn/cuda, arena/reduce: a handle of cuDNN, cuBLAS, NCCL */
    ASHLAR_LEVEL_SHARED_LIBRARY, /* base/shared_library.c: a table of functions being filled */
    ASHLAR_LEVEL_TORCH_GRAPHS,   /* dropin/torch_graphs.c: memory of PyTorch's graphs */
    ASHLAR_LEVEL_DROPIN_FREES,   /* dropin/frees.c: an ashlar_frees being made */
    ASHLAR_LEVEL_DROPIN_DEVICES, /* dropin/devices.c: a device's allocator being made */
    ASHLAR_LEVEL_CAPTURES,       /* dropin/frees_wait.c: captures under way */
    ASHLAR_LEVEL_ALLOCATOR_LIST, /* core/allocators.c: the list of all allocators */
    ASHLAR_LEVEL_CACHE_PARTING,  /* core/cache.c: which allocator each cache belongs to */
    ASHLAR_LEVEL_ALLOCATOR,      /* one per allocator; a thread holds only one of them at a time */
    ASHLAR_LEVEL_PATTERN_CHECK,  /* guard/guard_fill.c: comparisons under way */
    ASHLAR_LEVEL_DRIVER_OPEN,    /* driver/driver_cuda.c, soft/soft_device.c */
    ASHLAR_LEVEL_SOFT_SETUP,     /* soft/soft_device.c: the first set-up of the devices */
    ASHLAR_LEVEL_SOFT,           /* the software device's state */
    ASHLAR_LEVEL_WORKERS_OWNER,  /* arena/compute/workers.c: who may hand out work */
    ASHLAR_LEVEL_WORKERS,        /* arena/compute/workers.c: the work handed out */
} ashlar_lock_level;

typedef struct ashlar_lock {
    pthread_mutex_t mutex;
#if ASHLAR_DEBUG >= 2
    ashlar_lock_level rank;
    struct ashlar_lock *next_held; /* the next in the holding thread's list of the locks that it
                                    * holds; only that thread writes it */
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

/* Assert that the calling thread holds the lock (level 2). Every function that is named _locked or
 * says "Lock: held" begins with this, so that a test that calls it without the lock fails there. */
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
void ashlar__lock_init(ashlar_lock *lock, ashlar_lock_level rank);
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

#endif /* ASHLAR_THREADS_H */
