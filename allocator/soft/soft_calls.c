/* soft_calls.c - how each call of the driver table enters the software device and leaves it. */
#include "allocator/soft/soft_state.h"

cu_result ashlar__soft_enter(ashlar_driver_fn fn) {
    ashlar__soft_call = fn;
    if (ashlar__soft_in_host_fn) {
        return ashlar__soft_undefined(CU_NOT_PERMITTED, "called inside a host function");
    }
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(!ashlar__soft_state.is_initialized || ashlar__soft_state.generation > 0);
    if (!ashlar__soft_state.is_initialized) {
        return ashlar__soft_leave(CU_NOT_INITIALIZED);
    }
    ashlar__soft_time_charge(fn);
    return CU_SUCCESS;
}

cu_result ashlar__soft_leave(cu_result result) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2((ashlar__soft_state.first_stream == NULL) ==
                  (ashlar__soft_state.last_stream == NULL));
    ashlar__lock_release(&ashlar__soft_state.lock);
    return result;
}

soft_device *ashlar__soft_device_at(cu_device ordinal) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    return ordinal >= 0 && ordinal < ashlar__soft_state.config.device_count
               ? &ashlar__soft_state.devices[ordinal]
               : NULL;
}
