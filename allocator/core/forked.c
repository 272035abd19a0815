/* forked.c - counting forks, and a child's start without the allocators of its parent. */
#include "allocator/core/forked.h"

#include <pthread.h>

#include "allocator/base/error.h"
#include "allocator/base/threads.h"

_Atomic uint32_t ashlar__fork_count;

static bool is_watching;

/*
 * Runs in the child, whose only thread is the one that called fork(). Takes no lock, since another
 * thread of the parent may have held it at the fork.
 */
static void begin_child(void) {
    atomic_fetch_add_explicit(&ashlar__fork_count, 1, memory_order_relaxed);
    ashlar__barrier_begin_child();
    ashlar__caches_begin_child();
    ashlar__allocators_begin_child();
    ashlar__leaks_begin_child();
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
