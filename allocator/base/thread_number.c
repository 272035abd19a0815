#include "allocator/base/thread_number.h"

#include <stdatomic.h>

#include "allocator/base/compiler.h"

uint32_t ashlar__thread_number(void) {
    static _Atomic uint32_t last;
    static _Thread_local uint32_t mine ASHLAR_INITIAL_EXEC; /* 0: none yet */
    if (mine == 0) {
        mine = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    }
    return mine;
}
