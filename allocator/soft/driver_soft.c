/* driver_soft.c - the software device's driver table, and the texts of its errors. */
#include "allocator/driver/driver.h"

#include "allocator/base/error.h"
#include "allocator/base/lock.h"
#include "allocator/soft/soft_state.h"

/* These two may be called inside a host function and before cuInit: they touch no device. */
cu_result ashlar__soft_get_error_name(cu_result error, const char **name) {
    if (name == NULL) {
        return CU_INVALID_VALUE;
    }
    switch (error) {
#define X(code, value)                                              \
    case CU_##code:                                                 \
        *name = (value) == 0 ? "CUDA_" #code : "CUDA_ERROR_" #code; \
        return CU_SUCCESS;
        CU_RESULT_MAP(X)
#undef X
    default:
        *name = NULL;
        return CU_INVALID_VALUE;
    }
}

cu_result ashlar__soft_get_error_string(cu_result error, const char **text) {
    static const struct {
        cu_result code;
        const char *text;
    } texts[] = {
        {CU_SUCCESS, "no error"},
        {CU_INVALID_VALUE, "an argument is outside what the call allows"},
        {CU_OUT_OF_MEMORY, "the software device's memory is used up"},
        {CU_NOT_INITIALIZED, "cuInit has not been called"},
        {CU_NO_DEVICE, "no software device could be set up; look at ASHLAR_SOFT"},
        {CU_INVALID_DEVICE, "there is no device with this ordinal"},
        {CU_INVALID_CONTEXT, "no context is current, or it has been released"},
        {CU_OPERATING_SYSTEM, "the kernel gives this process no more mappings; raise "
                              "vm.max_map_count, or use larger pieces of memory"},
        {CU_INVALID_HANDLE, "no live stream or event has this handle"},
        {CU_NOT_READY, "the work is not finished"},
        {CU_ILLEGAL_ADDRESS, "queued work found its memory unmapped or freed"},
        {CU_NOT_PERMITTED, "host functions may not call the device"},
        {CU_NOT_SUPPORTED, "the software device cannot do this"},
        {CU_PEER_ACCESS_UNSUPPORTED, "this device cannot reach the other's memory"},
        {CU_PEER_ACCESS_ALREADY_ENABLED, "this device can reach the other's memory already"},
        {CU_STREAM_CAPTURE_UNSUPPORTED, "not allowed while a stream is capturing"},
        {CU_STREAM_CAPTURE_INVALIDATED, "an earlier mistake has spoilt this capture"},
        {CU_STREAM_CAPTURE_MERGE, "this would join two captures"},
        {CU_STREAM_CAPTURE_UNMATCHED, "the capture was begun on another stream"},
        {CU_STREAM_CAPTURE_UNJOINED, "a stream in the capture was not joined to its first one"},
        {CU_STREAM_CAPTURE_ISOLATION, "captured work cannot wait for work outside the capture"},
        {CU_STREAM_CAPTURE_IMPLICIT, "the legacy stream is ordered with a stream that captures"},
        {CU_CAPTURED_EVENT, "the event was last recorded on a stream that was capturing"},
        {CU_STREAM_CAPTURE_WRONG_THREAD, "the capture was begun by another thread"},
    };
    if (text == NULL) {
        return CU_INVALID_VALUE;
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].code == error) {
            *text = texts[i].text;
            return CU_SUCCESS;
        }
    }
    return ashlar__soft_get_error_name(error, text);
}

ashlar_status ashlar__driver_open_soft(ashlar_driver **out) {
    static ashlar_lock open_lock = ASHLAR_LOCK(ASHLAR_RANK_DRIVER_OPEN);
    static bool is_open;
    static ashlar_driver driver = {
        .name = "soft",
        .wait_any = ashlar__soft_wait_any,
        .beginnings = PTHREAD_RWLOCK_INITIALIZER,
        .table =
            {
#define X(field, symbol, version, kind, safety, params) .field = ashlar__soft_##field,
                ASHLAR_DRIVER_MAP(X)
#undef X
            },
    };
    ashlar_status status = ASHLAR_OK;
    ashlar__lock_acquire(&open_lock);
    if (!is_open) {
        status = ashlar__soft_ensure();
        if (status == ASHLAR_OK && driver.table.init(0) != CU_SUCCESS) {
            status = ashlar__fail(ASHLAR_EDRIVER,
                                  "the software device was opened inside a host function");
        }
        is_open = status == ASHLAR_OK;
    }
    ashlar__lock_release(&open_lock);
    if (status == ASHLAR_OK) {
        *out = &driver;
    }
    return status;
}
