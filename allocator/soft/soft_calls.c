/* soft_calls.c - the state of the software device, and how each call of the table gets at it. */
#include "allocator/soft/soft_state.h"

soft_state ashlar_soft_state = {
    .lock = ASHLAR_LOCK(ASHLAR_RANK_SOFT),
    .op_finished = PTHREAD_COND_INITIALIZER,
};

_Atomic uint32_t ashlar_soft_latency_ns[ASHLAR_DRIVER_FN_COUNT];

_Thread_local bool ashlar_soft_in_host_fn;

cu_result ashlar_soft_enter(void) {
    if (ashlar_soft_in_host_fn) {
        return CU_NOT_PERMITTED;
    }
    ashlar_lock_acquire(&ashlar_soft_state.lock);
    ASHLAR_CHECK2(!ashlar_soft_state.is_initialized || ashlar_soft_state.generation > 0);
    return ashlar_soft_state.is_initialized ? CU_SUCCESS : ashlar_soft_leave(CU_NOT_INITIALIZED);
}

cu_result ashlar_soft_leave(cu_result result) {
    ASHLAR_OWNS(&ashlar_soft_state.lock);
    ASHLAR_CHECK2((ashlar_soft_state.first_stream == NULL) ==
                  (ashlar_soft_state.last_stream == NULL));
    ashlar_lock_release(&ashlar_soft_state.lock);
    return result;
}

soft_device *ashlar_soft_device_at(cu_device ordinal) {
    ASHLAR_OWNS(&ashlar_soft_state.lock);
    return ordinal >= 0 && ordinal < ashlar_soft_state.config.device_count
               ? &ashlar_soft_state.devices[ordinal]
               : NULL;
}
