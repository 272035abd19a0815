/* soft_state.c - the software device's state: what all its files share. */
#include "allocator/soft/soft_state.h"

soft_state ashlar__soft_state = {
    .lock = ASHLAR_LOCK(ASHLAR_RANK_SOFT),
    .op_finished = PTHREAD_COND_INITIALIZER,
};

_Atomic uint32_t ashlar__soft_latency_ns[ASHLAR_DRIVER_FN_COUNT];

_Thread_local bool ashlar__soft_in_host_fn;

_Thread_local ashlar_driver_fn ashlar__soft_call = ASHLAR_DRIVER_FN_COUNT;
