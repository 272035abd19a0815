/* device.c - opening and entering a device; its streams, events and host memory. */
#include "allocator/device/device_impl.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

enum { ORDINAL_MAX = 1023 };

/* Read the ":N" after the name of a device kind. An empty suffix means device 0. */
static bool parse_ordinal(const char *suffix, int *ordinal) {
    if (*suffix == '\0') {
        *ordinal = 0;
        return true;
    }
    int value = 0;
    const char *digit = suffix + 1;
    if (*suffix != ':' || *digit == '\0') {
        return false;
    }
    for (; *digit != '\0'; digit++) {
        if (*digit < '0' || *digit > '9' || value > ORDINAL_MAX) {
            return false;
        }
        value = 10 * value + (*digit - '0');
    }
    ASHLAR_CHECK2(value >= 0);
    *ordinal = value;
    return true;
}

static bool parse_kind(const char *name, const char *kind, int *ordinal) {
    const size_t length = strlen(kind);
    return strncmp(name, kind, length) == 0 && parse_ordinal(name + length, ordinal);
}

/* Open the driver that `name` asks for; errors say that the name came from `source`. */
static ashlar_status choose_driver(const char *name, const char *source, ashlar_driver **driver,
                                   ashlar_device_kind *kind, int *ordinal) {
    if (parse_kind(name, "cuda", ordinal)) {
        *kind = ASHLAR_DEVICE_CUDA;
        return ashlar__driver_open_cuda(driver);
    }
    if (parse_kind(name, "soft", ordinal)) {
        *kind = ASHLAR_DEVICE_SOFT;
        return ashlar__driver_open_soft(driver);
    }
    if (strcmp(name, "auto") == 0) {
        *ordinal = 0;
        *kind = ASHLAR_DEVICE_CUDA;
        const ashlar_status status = ashlar__driver_open_cuda(driver);
        if (status != ASHLAR_ENODEVICE) {
            return status; /* report a broken driver instead of using the software device */
        }
        *kind = ASHLAR_DEVICE_SOFT;
        return ashlar__driver_open_soft(driver);
    }
    return ashlar__fail(ASHLAR_EINVAL,
                        "%s: \"%.64s\" is no device; use auto, cuda, cuda:N, soft or soft:N",
                        source, name);
}

/* Read the device's facts and, unless it has a context already, retain the primary one. */
static ashlar_status open_ordinal(ashlar_device *device) {
    ASHLAR_CHECK2(device->driver != NULL && !device->is_retained);
    ashlar_driver *driver = device->driver;
    int count = 0;
    cu_result result = ASHLAR_DRIVER_CALL(driver, device_get_count, (&count));
    if (result != CU_SUCCESS) {
        return ashlar__driver_error(driver, "cuDeviceGetCount", result);
    }
    if (device->info.ordinal >= count) {
        return ashlar__fail(ASHLAR_ENODEVICE,
                            "%s:%d: there %s only %d such device%s, numbered from 0", driver->name,
                            device->info.ordinal, count == 1 ? "is" : "are", count,
                            count == 1 ? "" : "s");
    }
    cu_device handle = 0;
    result = ASHLAR_DRIVER_CALL(driver, device_get, (&handle, device->info.ordinal));
    if (result == CU_SUCCESS) {
        result = ASHLAR_DRIVER_CALL(driver, device_get_name,
                                    (device->info.name, ASHLAR_DEVICE_NAME_BYTES, handle));
    }
    if (result == CU_SUCCESS) {
        result = ASHLAR_DRIVER_CALL(driver, device_total_mem, (&device->info.total_bytes, handle));
    }
    if (result != CU_SUCCESS) {
        return ashlar__driver_error(driver, "reading the device's name and size", result);
    }
    if (device->context != NULL) {
        return ASHLAR_OK;
    }
    result = ASHLAR_DRIVER_CALL(driver, primary_ctx_retain, (&device->context, handle));
    device->is_retained = result == CU_SUCCESS;
    ASHLAR_CHECK2(!device->is_retained || device->context != NULL);
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(driver, "cuDevicePrimaryCtxRetain", result);
}

/* The last step of opening a device. `status` is the status of choosing its driver. On success the
 * caller owns *out; on failure `device` is freed. */
static ashlar_status finish_open(ashlar_device *device, ashlar_status status, ashlar_device **out) {
    if (status == ASHLAR_OK) {
        status = open_ordinal(device);
    }
    if (status != ASHLAR_OK) {
        ashlar__host_free(device);
        return status;
    }
    ASHLAR_CHECK2(device->context != NULL &&
                  memchr(device->info.name, '\0', sizeof device->info.name) != NULL);
    *out = device;
    return ASHLAR_OK;
}

ashlar_status ashlar_device_open(const char *name, ashlar_device **out) {
    const char *source = "device";
    if (name == NULL) {
        source = "ASHLAR_DEVICE";
        name = secure_getenv("ASHLAR_DEVICE");
        if (name == NULL || *name == '\0') {
            name = "auto";
        }
    }
    ashlar_device *device = ashlar__host_calloc(1, sizeof *device);
    if (device == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a device");
    }
    const ashlar_status status =
        choose_driver(name, source, &device->driver, &device->info.kind, &device->info.ordinal);
    return finish_open(device, status, out);
}

ashlar_status ashlar__device_open_within(int ordinal, cu_context context, ashlar_device **out) {
    ashlar_device *device = ashlar__host_calloc(1, sizeof *device);
    if (device == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a device");
    }
    device->info.kind = ASHLAR_DEVICE_CUDA;
    device->info.ordinal = ordinal;
    device->context = context;
    const ashlar_status status = ashlar__driver_open_cuda(&device->driver);
    return finish_open(device, status, out);
}

void ashlar_device_close(ashlar_device *device) {
    if (device == NULL) {
        return;
    }
    ashlar__staging_close(device);
    if (device->is_retained) {
        (void)ASHLAR_DRIVER_CALL(device->driver, primary_ctx_release, (device->info.ordinal));
    }
    ashlar__host_free(device);
}

void ashlar_device_get_info(const ashlar_device *device, ashlar_device_info *info) {
    *info = device->info;
}

void ashlar_device_get_counts(const ashlar_device *device, ashlar_driver_counts *counts) {
    _Static_assert(ASHLAR_DRIVER_KIND_COUNT == 6, "every kind is read below");
    const ashlar_driver *driver = device->driver;
    const ashlar_driver_counts now = {
        .query = ashlar__driver_calls(driver, ASHLAR_DRIVER_QUERY),
        .memory = ashlar__driver_calls(driver, ASHLAR_DRIVER_MEMORY),
        .context = ashlar__driver_calls(driver, ASHLAR_DRIVER_CONTEXT),
        .order = ashlar__driver_calls(driver, ASHLAR_DRIVER_ORDER),
        .work = ashlar__driver_calls(driver, ASHLAR_DRIVER_WORK),
        .wait = ashlar__driver_calls(driver, ASHLAR_DRIVER_WAIT),
    };
    *counts = now;
}

ashlar_status ashlar__device_enter(ashlar_device *device) {
    ASHLAR_CHECK2(device->context != NULL);
    const cu_result result =
        ASHLAR_DRIVER_CALL(device->driver, ctx_push_current, (device->context));
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(device->driver, "cuCtxPushCurrent", result);
}

void ashlar__device_leave(ashlar_device *device) {
    cu_context popped = NULL;
    const cu_result result = ASHLAR_DRIVER_CALL(device->driver, ctx_pop_current, (&popped));
    /* `popped` is some other context if an earlier pop has failed. */
    ASHLAR_CHECK2(result != CU_SUCCESS || popped != NULL);
}

ashlar_status ashlar__device_enter_relaxed(ashlar_device *device) {
    ASHLAR_TRY(ashlar__device_enter(device));
    ashlar__driver_relax(device->driver);
    return ASHLAR_OK;
}

void ashlar__device_leave_relaxed(ashlar_device *device) {
    ashlar__driver_unrelax(device->driver);
    ashlar__device_leave(device);
}

ashlar_status ashlar_stream_create(ashlar_device *device, ashlar_stream *out) {
    ASHLAR_IN_CONTEXT(device, "cuStreamCreate", stream_create, (out, CU_STREAM_BLOCKING));
}

static _Atomic(const ashlar_device_listener *) listener; /* NULL: none is set */

void ashlar__device_listen(const ashlar_device_listener *set) {
    atomic_store(&listener, set);
}

/* Each attempt comes after memory was given back, and there is only so much: so attempts end. */
bool ashlar__device_has_room(const ashlar_device *device, cu_result result) {
    const ashlar_device_listener *told = result == CU_OUT_OF_MEMORY ? atomic_load(&listener) : NULL;
    return told != NULL && (told->make_room(device, false) || told->make_room(device, true));
}

static ashlar_status stream_destroy(ashlar_device *device, ashlar_stream stream) {
    ASHLAR_IN_CONTEXT(device, "cuStreamDestroy", stream_destroy, (stream));
}

void ashlar_stream_destroy(ashlar_device *device, ashlar_stream stream) {
    if (stream != NULL) {
        const ashlar_device_listener *told = atomic_load(&listener);
        if (told != NULL) {
            told->end_stream(device, stream);
        }
        (void)stream_destroy(device, stream); /* a caller could do nothing about a failure */
    }
}

static ashlar_status stream_synchronize(ashlar_device *device, ashlar_stream stream) {
    ASHLAR_IN_CONTEXT(device, "cuStreamSynchronize", stream_synchronize, (stream));
}

ashlar_status ashlar_stream_synchronize(ashlar_device *device, ashlar_stream stream) {
    const ashlar_device_listener *told = atomic_load(&listener);
    const uint64_t wait = told != NULL ? told->begin_wait(device, stream) : 0;
    const ashlar_status status = stream_synchronize(device, stream);
    if (told != NULL && status == ASHLAR_OK) {
        told->end_wait(device, stream, wait);
    }
    return status;
}

ashlar_status ashlar__device_synchronize(ashlar_device *device) {
    ASHLAR_IN_CONTEXT(device, "cuCtxSynchronize", ctx_synchronize, ());
}

ashlar_status ashlar__device_try_synchronize(ashlar_device *device) {
    ASHLAR_TRY(ashlar__device_enter(device));
    const cu_result result = ashlar__driver_try_synchronize(device->driver);
    ashlar__device_leave(device);
    ASHLAR_FAIL_IF(result == CU_STREAM_CAPTURE_UNSUPPORTED || result == CU_STREAM_CAPTURE_IMPLICIT,
                   ASHLAR_EINVAL, "the device cannot be waited for during a capture");
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(device->driver, "cuCtxSynchronize", result);
}

/* Wait in the device's primary context, if it is active. If it is not, there is nothing to wait
 * for, and retaining the context would create it. */
static cu_result synchronize_if_active(ashlar_driver *driver, cu_device handle) {
    unsigned int flags = 0;
    int is_active = 0;
    cu_context context = NULL;
    cu_result result =
        ASHLAR_DRIVER_CALL(driver, primary_ctx_get_state, (handle, &flags, &is_active));
    if (result != CU_SUCCESS || !is_active) {
        return result;
    }
    result = ASHLAR_DRIVER_CALL(driver, primary_ctx_retain, (&context, handle));
    if (result != CU_SUCCESS) {
        return result;
    }
    result = ASHLAR_DRIVER_CALL(driver, ctx_push_current, (context));
    if (result == CU_SUCCESS) {
        cu_context popped = NULL;
        result = ashlar__driver_try_synchronize(driver);
        const cu_result left = ASHLAR_DRIVER_CALL(driver, ctx_pop_current, (&popped));
        ASHLAR_CHECK2(left != CU_SUCCESS || popped == context);
    }
    (void)ASHLAR_DRIVER_CALL(driver, primary_ctx_release, (handle));
    return result;
}

ashlar_status ashlar__device_synchronize_all(ashlar_device *device) {
    ashlar_driver *driver = device->driver;
    int count = 0;
    cu_result result = ASHLAR_DRIVER_CALL(driver, device_get_count, (&count));
    for (int ordinal = 0; ordinal < count && result == CU_SUCCESS; ordinal++) {
        cu_device handle = 0;
        result = ASHLAR_DRIVER_CALL(driver, device_get, (&handle, ordinal));
        if (result == CU_SUCCESS) {
            result = synchronize_if_active(driver, handle);
        }
    }
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(driver, "waiting for every device", result);
}

ashlar_status ashlar_event_create(ashlar_device *device, ashlar_event *out) {
    ASHLAR_IN_CONTEXT(device, "cuEventCreate", event_create, (out, CU_EVENT_NO_TIMING));
}

static ashlar_status event_destroy(ashlar_device *device, ashlar_event event) {
    ASHLAR_IN_CONTEXT(device, "cuEventDestroy", event_destroy, (event));
}

void ashlar_event_destroy(ashlar_device *device, ashlar_event event) {
    if (event != NULL) {
        (void)event_destroy(device, event); /* a caller could do nothing about a failure */
    }
}

ashlar_status ashlar_event_record(ashlar_device *device, ashlar_event event, ashlar_stream stream) {
    ASHLAR_IN_CONTEXT(device, "cuEventRecord", event_record, (event, stream));
}

ashlar_status ashlar_event_query(ashlar_device *device, ashlar_event event, bool *is_done) {
    const ashlar_status entered = ashlar__device_enter(device);
    if (entered != ASHLAR_OK) {
        return entered;
    }
    const cu_result result = ASHLAR_DRIVER_CALL(device->driver, event_query, (event));
    ashlar__device_leave(device);
    if (result != CU_SUCCESS && result != CU_NOT_READY) {
        return ashlar__driver_error(device->driver, "cuEventQuery", result);
    }
    *is_done = result == CU_SUCCESS;
    return ASHLAR_OK;
}

ashlar_status ashlar_event_synchronize(ashlar_device *device, ashlar_event event) {
    ASHLAR_IN_CONTEXT(device, "cuEventSynchronize", event_synchronize, (event));
}

ashlar_status ashlar_stream_wait(ashlar_device *device, ashlar_stream stream, ashlar_event event) {
    ASHLAR_IN_CONTEXT(device, "cuStreamWaitEvent", stream_wait_event, (stream, event, 0));
}

ashlar_status ashlar_device_host_alloc(ashlar_device *device, size_t bytes, void **out) {
    if (bytes == 0) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "bytes: 0 bytes of page-locked memory; ask for at least 1");
    }
    ASHLAR_IN_CONTEXT(device, "cuMemHostAlloc", mem_host_alloc, (out, bytes, 0));
}

static ashlar_status host_free(ashlar_device *device, void *ptr) {
    ASHLAR_IN_CONTEXT(device, "cuMemFreeHost", mem_free_host, (ptr));
}

void ashlar_device_host_free(ashlar_device *device, void *ptr) {
    if (ptr != NULL) {
        (void)host_free(device, ptr);
    }
}
