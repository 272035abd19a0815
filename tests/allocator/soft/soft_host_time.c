/* soft_host_time.c - virtual time (time=on), as tests advance and read it. */
#include "tests/allocator/soft/soft_probe.h"

#include "allocator/base/error.h"

static ashlar_status fail(const char *what, cu_result result) {
    return result == CU_OUT_OF_MEMORY
               ? ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory", what)
               : ashlar__fail(ASHLAR_EINVAL,
                              "%s: CUDA error %u; make a context current that has no fault, and "
                              "give a live stream",
                              what, result);
}

ashlar_status ashlar__soft_work(cu_stream stream, uint64_t ns) {
    soft_stream *found = NULL;
    cu_result result = ashlar__soft_enter_work(ASHLAR_DRIVER_FN_launch_kernel, stream, &found);
    if (result == CU_SUCCESS) {
        const soft_op op = {.kind = SOFT_OP_WORK, .duration_ns = ns};
        result = ashlar__soft_leave(found->capture != NULL ? ashlar__soft_capture_op(found, &op)
                                                           : ashlar__soft_submit(found, &op));
    }
    return result == CU_SUCCESS ? ASHLAR_OK : fail("ashlar__soft_work", result);
}

void ashlar__soft_host_until(uint64_t ns) {
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    ashlar__soft_time_advance(ns);
    ashlar__lock_release(&ashlar__soft_state.lock);
}

uint64_t ashlar__soft_host_ns(void) {
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    const uint64_t ns = ashlar__soft_time_host();
    ashlar__lock_release(&ashlar__soft_state.lock);
    return ns;
}

void ashlar__soft_host_work(uint64_t ns) {
    ashlar__soft_host_until(ashlar__soft_host_ns() + ns);
}

ashlar_status ashlar__soft_stream_ns(cu_stream stream, uint64_t *ns) {
    soft_stream *found = NULL;
    const cu_result result = ashlar__soft_enter_stream(ASHLAR_DRIVER_FN_COUNT, stream, &found);
    if (result != CU_SUCCESS) {
        return fail("ashlar__soft_stream_ns", result);
    }
    *ns = found->tail_ns;
    (void)ashlar__soft_leave(CU_SUCCESS);
    return ASHLAR_OK;
}

ashlar_status ashlar__soft_get_figures(int ordinal, soft_figures *out) {
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    const soft_state *state = &ashlar__soft_state;
    const soft_device *device = ashlar__soft_device_at(ordinal);
    if (device != NULL) {
        *out = (soft_figures){.end_ns = device->end_ns,
                              .wait_count = device->wait_count,
                              .wait_ns = device->wait_ns,
                              .host_wait_count = state->host_wait_count,
                              .host_wait_ns = state->host_wait_ns,
                              .physical_bytes = device->pages_used * SOFT_PAGE_BYTES,
                              .physical_peak_bytes = device->pages_peak * SOFT_PAGE_BYTES};
    }
    ashlar__lock_release(&ashlar__soft_state.lock);
    return device != NULL
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EINVAL, "ashlar__soft_get_figures: there is no device %d",
                              ordinal);
}
