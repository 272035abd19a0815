/* driver_soft.c - the driver table of the software device. */
#include "driver.h"

#include <pthread.h>

#include "error.h"
#include "soft_state.h"

static const struct {
    cu_result code;
    const char *name;
} error_names[] = {
#define X(name, value) {CU_##name, (value) == 0 ? "CUDA_" #name : "CUDA_ERROR_" #name},
    CU_RESULT_MAP(X)
#undef X
};
enum { ERROR_COUNT = sizeof error_names / sizeof error_names[0] };

/* These two may be called inside a host function and before cuInit: they touch no device. */
cu_result ashlar_soft_get_error_name(cu_result error, const char **name) {
    if (name == NULL) {
        return CU_INVALID_VALUE;
    }
    *name = NULL;
    for (size_t i = 0; i < ERROR_COUNT; i++) {
        if (error_names[i].code == error) {
            *name = error_names[i].name;
        }
    }
    return *name == NULL ? CU_INVALID_VALUE : CU_SUCCESS;
}

cu_result ashlar_soft_get_error_string(cu_result error, const char **text) {
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
        {CU_INVALID_HANDLE, "no live stream or event has this handle"},
        {CU_NOT_READY, "the work is not finished"},
        {CU_ILLEGAL_ADDRESS, "queued work found its memory unmapped or freed"},
        {CU_NOT_PERMITTED, "host functions may not call the device"},
        {CU_NOT_SUPPORTED, "the software device cannot do this"},
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
    return ashlar_soft_get_error_name(error, text);
}

ashlar_status ashlar_driver_open_soft(ashlar_driver **out) {
    static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
    static bool is_open;
    static ashlar_driver driver = {
        .name = "soft",
        .table =
            {
#define X(field, symbol, version, kind, params) .field = ashlar_soft_##field,
                ASHLAR_DRIVER_MAP(X)
#undef X
            },
    };
    ashlar_status status = ASHLAR_OK;
    pthread_mutex_lock(&open_lock);
    if (!is_open) {
        status = ashlar_soft_ensure();
        if (status == ASHLAR_OK && driver.table.init(0) != CU_SUCCESS) {
            status = ashlar_fail(ASHLAR_EDRIVER,
                                 "the software device was opened inside a host function");
        }
        is_open = status == ASHLAR_OK;
    }
    pthread_mutex_unlock(&open_lock);
    if (status == ASHLAR_OK) {
        *out = &driver;
    }
    return status;
}
