/* lock.c - the list, kept by debug builds, of the locks that each thread holds. */
#include "allocator/base/lock.h"

#include <stddef.h>

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
    ASHLAR_CHECK2(lock->rank != ASHLAR_RANK_NONE);
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

void ashlar__lock_init(ashlar_lock *lock, ashlar_lock_rank rank) {
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
