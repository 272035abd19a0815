/* allocators.c - the list of all allocators of the process: telling those of a device that a stream
 * ends, having them give idle memory back, reporting their leaks at exit, and forgetting them in a
 * child of fork(). */
#include "allocator/core/core.h"

#include <pthread.h>
#include <stdlib.h>

#include "allocator/base/error.h"
#include "allocator/base/threads.h"

/* Guards the list, and each allocator's `next` and `visitor_count`. */
static ashlar_lock list_lock = ASHLAR_LOCK(ASHLAR_LEVEL_ALLOCATOR_LIST);
static pthread_cond_t visitor_left = PTHREAD_COND_INITIALIZER;
static ashlar_allocator *allocators;
static bool is_expecting_exit;

const ashlar_allocator_acts *ashlar__allocator_acts;

/* ---- visits, during which an allocator stays in the list although the lock is dropped ---- */

static bool is_of(const ashlar_allocator *a, const ashlar_driver *driver, int ordinal) {
    return a->device->driver == driver && a->device->info.ordinal == ordinal &&
           a->heap.range.kind != ASHLAR_RANGE_HOST;
}

/* End the visit of `at`, and begin that of the next allocator of the device; NULL: there is none.
 * At first, `at` is NULL. */
static ashlar_allocator *visit_next(ashlar_allocator *at, const ashlar_driver *driver, int ordinal,
                                    const ashlar_allocator *except) {
    ashlar__lock_acquire(&list_lock);
    ashlar_allocator *next = at == NULL ? allocators : at->next;
    while (next != NULL && (next == except || !is_of(next, driver, ordinal))) {
        next = next->next;
    }
    if (next != NULL) {
        next->visitor_count++;
    }
    if (at != NULL && --at->visitor_count == 0) {
        (void)pthread_cond_broadcast(&visitor_left);
    }
    ashlar__lock_release(&list_lock);
    return next;
}

bool ashlar__allocators_give_back(const ashlar_driver *driver, int ordinal,
                                  const ashlar_allocator *except, size_t bytes, bool may_wait,
                                  ashlar_others *others) {
    ashlar_others sum = {0};
    bool has_any = false;
    for (ashlar_allocator *a = visit_next(NULL, driver, ordinal, except); a != NULL;
         a = visit_next(a, driver, ordinal, except)) {
        has_any = ashlar__allocator_acts->give_back(a, bytes, may_wait, &sum) || has_any;
    }
    if (others != NULL) {
        *others = sum;
    }
    return has_any;
}

static bool make_room(const ashlar_device *device, bool may_wait) {
    return ashlar__allocators_give_back(device->driver, device->info.ordinal, NULL, SIZE_MAX,
                                        may_wait, NULL);
}

/* ---- streams ---- */

static void end_stream(const ashlar_device *device, ashlar_stream stream) {
    ashlar__lock_acquire(&list_lock);
    for (ashlar_allocator *a = allocators; a != NULL; a = a->next) {
        if (a->device->context == device->context) {
            ashlar__allocator_acts->end_stream(a, stream);
        }
    }
    ashlar__lock_release(&list_lock);
}

static uint64_t begin_wait(const ashlar_device *device, ashlar_stream stream) {
    const uint64_t wait = ashlar__next_wait();
    ashlar__lock_acquire(&list_lock);
    for (ashlar_allocator *a = allocators; a != NULL; a = a->next) {
        if (a->device->context == device->context) {
            ashlar__allocator_acts->begin_wait(a, stream, wait);
        }
    }
    ashlar__lock_release(&list_lock);
    return wait;
}

static void end_wait(const ashlar_device *device, ashlar_stream stream, uint64_t wait) {
    ashlar__lock_acquire(&list_lock);
    for (ashlar_allocator *a = allocators; a != NULL; a = a->next) {
        if (a->device->context == device->context) {
            ashlar__allocator_acts->end_wait(a, stream, wait);
        }
    }
    ashlar__lock_release(&list_lock);
}

/* ---- the list ---- */

/* When the process exits, the device may be gone, and threads may still run. What one of them has
 * locked is left out of the report: waiting might take forever. */
static void report_leaks_at_exit(void) {
    if (!ashlar__lock_try_acquire(&list_lock)) {
        return;
    }
    for (ashlar_allocator *a = allocators; a != NULL; a = a->next) {
        if (a->reports_leaks) {
            ashlar__allocator_acts->report_leaks(a);
        }
    }
    ashlar__lock_release(&list_lock);
}

void ashlar__allocator_enlist(ashlar_allocator *a) {
    static const ashlar_device_listener listener = {
        .end_stream = end_stream,
        .begin_wait = begin_wait,
        .end_wait = end_wait,
        .make_room = make_room,
    };
    ashlar__device_listen(&listener);
    ashlar__lock_acquire(&list_lock);
    if (a->reports_leaks && !is_expecting_exit) { /* if atexit() fails, the next one tries again */
        is_expecting_exit = atexit(report_leaks_at_exit) == 0;
    }
    a->next = allocators;
    allocators = a;
    ashlar__lock_release(&list_lock);
}

void ashlar__allocator_delist(ashlar_allocator *a) {
    ashlar__lock_acquire(&list_lock);
    while (a->visitor_count > 0) {
        ashlar__lock_wait(&list_lock, &visitor_left);
    }
    ashlar_allocator **link = &allocators;
    while (*link != NULL && *link != a) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = a->next;
    }
    ashlar__lock_release(&list_lock);
}

/* ---- forks ---- */

_Atomic uint32_t ashlar__fork_count;

static bool is_watching;

/* Called in the child of fork(). Takes no lock: another thread may have held it at the fork. */
static void begin_child(void) {
    atomic_fetch_add_explicit(&ashlar__fork_count, 1, memory_order_relaxed);
    ashlar__barrier_begin_child();
    ashlar__caches_begin_child();
    ashlar__lock_init(&list_lock, ASHLAR_LEVEL_ALLOCATOR_LIST);
    allocators = NULL;
}

static void watch(void) {
    is_watching = pthread_atfork(NULL, NULL, begin_child) == 0;
}

ashlar_status ashlar__forks_watch(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch);
    return is_watching ? ASHLAR_OK
                       : ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a handler of forks");
}

ashlar_status ashlar__fail_of_parent(void) {
    return ashlar__fail(ASHLAR_EDRIVER,
                        "allocator: it was made before this process was forked, and CUDA does not "
                        "survive that; fork before any device is opened, or start processes anew "
                        "(in Python: multiprocessing's \"spawn\")");
}
