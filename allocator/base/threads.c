/* threads.c - numbering threads, and the kernel's call for a barrier in all threads. */
#include "allocator/base/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/membarrier.h>

#include "allocator/base/check_level.h"
#include "allocator/base/compiler.h"

uint32_t ashlar__thread_number(void) {
    static _Atomic uint32_t last;
    static _Thread_local uint32_t mine ASHLAR_INITIAL_EXEC; /* 0: none yet */
    if (mine == 0) {
        mine = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    }
    ASHLAR_CHECK2(mine != 0); /* 0 after 2^32 threads: it would be taken for "none yet" */
    return mine;
}

static atomic_bool is_hidden;
static bool is_registered;

static void do_register(void) {
    is_registered =
        syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

bool ashlar__barrier_init(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, do_register);
    return is_registered && !atomic_load(&is_hidden);
}

void ashlar__barrier_everywhere(void) {
    ASHLAR_CHECK2(is_registered); /* the kernel refuses an unregistered process */
    const long result = syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    ASHLAR_ASSERT(result == 0);
    (void)result;
}

void ashlar__barrier_pretend(bool is_there) {
    atomic_store(&is_hidden, !is_there);
}
