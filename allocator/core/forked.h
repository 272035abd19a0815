/*
 * forked.h - an allocator in a child of fork(): public functions refuse it at once, without waiting
 * for a lock (internal).
 *
 * A child has only the thread that called fork(). Locks that other threads held stay taken, data
 * that they were changing stays half changed, and CUDA does not work. So the child cannot use an
 * allocator of the parent: each public function first asks in which process the allocator was made,
 * and on a mismatch touches none of its data. Hits need not ask, because a child starts without
 * caches.
 */
#ifndef ASHLAR_FORKED_H
#define ASHLAR_FORKED_H

#include "allocator/core/allocator_impl.h"

/* The number of forks between the process that first called ashlar__forks_watch() and this one. */
extern _Atomic uint32_t ashlar__fork_count;

/* Count forks from now on. Call it before making an allocator. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__forks_watch(void);

/* Whether the allocator was made in a process that is an ancestor of this one. Needs no lock. */
static inline bool ashlar__is_of_parent(const ashlar_allocator *a) {
    return a->fork_count != atomic_load_explicit(&ashlar__fork_count, memory_order_relaxed);
}

/* Set the error detail: the allocator belongs to the parent process. Returns ASHLAR_EDRIVER. */
ashlar_status ashlar__fail_of_parent(void);

/* The first line of a public function that returns a status: refuse an allocator of the parent. */
#define ASHLAR_REFUSE_OF_PARENT(allocator)     \
    do {                                       \
        if (ashlar__is_of_parent(allocator)) { \
            return ashlar__fail_of_parent();   \
        }                                      \
    } while (0)

/* ---- called in the child of a fork, before any other call ---- */

/*
 * Forget the thread's caches, the list of allocators, and the list of those that report leaks at
 * exit.
 */
void ashlar__caches_begin_child(void);
void ashlar__allocators_begin_child(void);
void ashlar__leaks_begin_child(void);

#endif /* ASHLAR_FORKED_H */
