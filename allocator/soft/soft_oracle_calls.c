/* soft_oracle_calls.c - ashlar__soft_clock_use() and ashlar__soft_clock_own(), of soft.h. */
#include "allocator/soft/soft_oracle.h"

#include "allocator/base/error.h"
#include "allocator/soft/soft.h"
#include "allocator/soft/soft_state.h"

static ashlar_status lost(const char *what) {
    return ashlar__fail(ASHLAR_EHOSTMEM,
                        "%s: host memory ran out, so that the order is no longer known; give the "
                        "process more memory, and the devices a new configuration",
                        what);
}

/* Begin a call of this file: check arguments and find the stream. On success the lock is held. */
static ashlar_status enter_oracle(const char *what, cu_ptr ptr, size_t bytes, cu_stream handle,
                                  soft_stream **stream) {
    if (bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)ptr) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "%s: %zu bytes at %#llx; give a range that is not empty "
                            "and does not wrap",
                            what, bytes, ptr);
    }
    const cu_result result = ashlar__soft_enter_stream(ASHLAR_DRIVER_FN_COUNT, handle, stream);
    if (result == CU_OUT_OF_MEMORY) {
        return lost(what);
    }
    if (result != CU_SUCCESS) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "%s: CUDA error %u; make a context current that has no "
                            "fault, and give a live stream",
                            what, result);
    }
    ashlar_status status = ASHLAR_OK;
    if (!ashlar__soft_state.config.has_clocks) {
        status = ashlar__fail(ASHLAR_EINVAL, "%s: put clocks=on into ASHLAR_SOFT", what);
    } else if ((*stream)->capture != NULL) {
        status = ashlar__fail(ASHLAR_EINVAL,
                              "%s: the stream is capturing; what is captured is not "
                              "queued",
                              what);
    } else if (ashlar__soft_state.oracle.is_lost) {
        status = lost(what);
    }
    if (status != ASHLAR_OK) {
        (void)ashlar__soft_leave(CU_SUCCESS);
    }
    return status;
}

ashlar_status ashlar__soft_clock_use(cu_ptr ptr, size_t bytes, cu_stream stream) {
    static const char what[] = "ashlar__soft_clock_use";
    soft_stream *found = NULL;
    ashlar_status status = enter_oracle(what, ptr, bytes, stream, &found);
    if (status != ASHLAR_OK) {
        return status;
    }
    soft_oracle *oracle = &ashlar__soft_state.oracle;
    const soft_op op = {.number = ++ashlar__soft_state.submitted};
    const soft_use use = {(uintptr_t)ptr, (uintptr_t)ptr + bytes, found->serial, op.number};
    ashlar__soft_oracle_submit(found, &op);
    oracle->is_lost |= !ashlar__soft_oracle_put_use(&use);
    if (oracle->is_lost) {
        status = lost(what);
    }
    (void)ashlar__soft_leave(CU_SUCCESS);
    return status;
}

ashlar_status ashlar__soft_clock_own(cu_ptr ptr, size_t bytes, cu_stream stream, bool *is_ordered) {
    static const char what[] = "ashlar__soft_clock_own";
    soft_stream *found = NULL;
    ashlar_status status = enter_oracle(what, ptr, bytes, stream, &found);
    if (status != ASHLAR_OK) {
        return status;
    }
    soft_clock after = {0};
    ashlar__soft_oracle_next(found, &after);
    if (ashlar__soft_state.oracle.is_lost) {
        status = lost(what);
    } else {
        *is_ordered =
            ashlar__soft_oracle_is_ordered((uintptr_t)ptr, (uintptr_t)ptr + bytes, &after);
    }
    ashlar__soft_clock_clear(&after);
    (void)ashlar__soft_leave(CU_SUCCESS);
    return status;
}
