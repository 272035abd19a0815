/* device.c - opening and entering a device; its streams, events and host memory. */
#include "allocator/device/device_impl.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/soft/soft.h"
#include "allocator/base/parse.h"

/* Whether `name` is "KIND" or "KIND:N". Without N the ordinal is 0. */
static bool parse_kind(const char *name, const char *kind, int *ordinal) {
    const size_t length = strlen(kind);
    uint64_t number = 0;
    if (strncmp(name, kind, length) != 0 ||
        (name[length] != '\0' &&
         (name[length] != ':' ||
          !ashlar__parse_count(ashlar__piece_of(name + length + 1), &number)))) {
        return false;
    }
    *ordinal = (int)number;
    return number <= INT_MAX;
}

/* Open the driver that `name` asks for; errors say that the name came from `source`. */
static ashlar_status choose_driver(const char *name, const char *source, ashlar_driver **driver,
                                   ashlar_device_kind *kind, int *ordinal) {
    const bool is_auto = strcmp(name, "auto") == 0;
    *ordinal = 0;
    if (is_auto || parse_kind(name, "cuda", ordinal)) {
        *kind = ASHLAR_DEVICE_CUDA;
        const ashlar_status status = ashlar__driver_open_cuda(driver);
        if (!is_auto || status != ASHLAR_ENODEVICE) {
            return status; /* report a broken driver instead of using the software device */
        }
    }
    if (is_auto || parse_kind(name, "soft", ordinal)) {
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
    ashlar_device_info *info = &device->info;
    int count = 0;
    cu_device handle = 0;
    ASHLAR_TRY(ashlar__driver_status(driver, "cuDeviceGetCount",
                                     ASHLAR_DRIVER_CALL(driver, device_get_count, (&count))));
    ASHLAR_FAIL_IF(info->ordinal >= count, ASHLAR_ENODEVICE,
                   "%s:%d: there %s only %d such device%s, numbered from 0", driver->name,
                   info->ordinal, count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
    ASHLAR_TRY(ashlar__driver_status(
        driver, "cuDeviceGet", ASHLAR_DRIVER_CALL(driver, device_get, (&handle, info->ordinal))));
    ASHLAR_TRY(
        ashlar__driver_status(driver, "cuDeviceGetName",
                              ASHLAR_DRIVER_CALL(driver, device_get_name,
                                                 (info->name, ASHLAR_DEVICE_NAME_BYTES, handle))));
    ASHLAR_TRY(ashlar__driver_status(
        driver, "cuDeviceTotalMem",
        ASHLAR_DRIVER_CALL(driver, device_total_mem, (&info->total_bytes, handle))));
    if (device->context == NULL) {
        ASHLAR_TRY(ashlar__driver_status(
            driver, "cuDevicePrimaryCtxRetain",
            ASHLAR_DRIVER_CALL(driver, primary_ctx_retain, (&device->context, handle))));
        device->is_retained = true;
    }
    ASHLAR_CHECK2(device->context != NULL && memchr(info->name, '\0', sizeof info->name) != NULL);
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
    ashlar_device *device;
    ASHLAR_HOST_NEW(device, 1, "no host memory for a device");
    ashlar_status status =
        choose_driver(name, source, &device->driver, &device->info.kind, &device->info.ordinal);
    ASHLAR_THEN(status, open_ordinal(device));
    ASHLAR_HAND_OUT(status, device, ashlar__host_free, out);
}

ashlar_status ashlar__device_open_within(int ordinal, cu_context context, ashlar_device **out) {
    ashlar_device *device;
    ASHLAR_HOST_NEW(device, 1, "no host memory for a device");
    device->info.kind = ASHLAR_DEVICE_CUDA;
    device->info.ordinal = ordinal;
    device->context = context;
    ashlar_status status = ashlar__driver_open_cuda(&device->driver);
    ASHLAR_THEN(status, open_ordinal(device));
    ASHLAR_HAND_OUT(status, device, ashlar__host_free, out);
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

ashlar_device_info ashlar_device_get_info(const ashlar_device *device) {
    _Static_assert(ASHLAR_DRIVER_KIND_COUNT == 6, "every kind is read below");
    const ashlar_driver *driver = device->driver;
    ashlar_device_info info = device->info;
    info.calls = (ashlar_driver_counts){
        .query = ashlar__driver_calls(driver, ASHLAR_DRIVER_QUERY),
        .memory = ashlar__driver_calls(driver, ASHLAR_DRIVER_MEMORY),
        .context = ashlar__driver_calls(driver, ASHLAR_DRIVER_CONTEXT),
        .order = ashlar__driver_calls(driver, ASHLAR_DRIVER_ORDER),
        .work = ashlar__driver_calls(driver, ASHLAR_DRIVER_WORK),
        .wait = ashlar__driver_calls(driver, ASHLAR_DRIVER_WAIT),
    };
    return info;
}

ashlar_status ashlar__device_enter(ashlar_device *device) {
    ASHLAR_CHECK2(device->context != NULL);
    return ashlar__driver_status(
        device->driver, "cuCtxPushCurrent",
        ASHLAR_DRIVER_CALL(device->driver, ctx_push_current, (device->context)));
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

/* The caller's loop ends: it tries again only after memory was given back, which runs out. */
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
    return ashlar__driver_status(device->driver, "cuCtxSynchronize", result);
}

/* Wait in the device's primary context, if it is active. If it is not, there is nothing to wait
 * for, and retaining the context would create it. */
static ashlar_status synchronize_if_active(ashlar_driver *driver, cu_device handle) {
    ashlar_device device = {.driver = driver};
    unsigned int flags = 0;
    int is_active = 0;
    ASHLAR_TRY(ashlar__driver_status(
        driver, "cuDevicePrimaryCtxGetState",
        ASHLAR_DRIVER_CALL(driver, primary_ctx_get_state, (handle, &flags, &is_active))));
    if (!is_active) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__driver_status(
        driver, "cuDevicePrimaryCtxRetain",
        ASHLAR_DRIVER_CALL(driver, primary_ctx_retain, (&device.context, handle))));
    const ashlar_status status = ashlar__device_try_synchronize(&device);
    (void)ASHLAR_DRIVER_CALL(driver, primary_ctx_release, (handle));
    return status;
}

ashlar_status ashlar__device_synchronize_all(ashlar_device *device) {
    ashlar_driver *driver = device->driver;
    int count = 0;
    ASHLAR_TRY(ashlar__driver_status(driver, "cuDeviceGetCount",
                                     ASHLAR_DRIVER_CALL(driver, device_get_count, (&count))));
    for (int ordinal = 0; ordinal < count; ordinal++) {
        cu_device handle = 0;
        ASHLAR_TRY(ashlar__driver_status(
            driver, "cuDeviceGet", ASHLAR_DRIVER_CALL(driver, device_get, (&handle, ordinal))));
        ASHLAR_TRY(synchronize_if_active(driver, handle));
    }
    return ASHLAR_OK;
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
    ASHLAR_TRY(ashlar__device_enter(device));
    const cu_result result = ASHLAR_DRIVER_CALL(device->driver, event_query, (event));
    ashlar__device_leave(device);
    if (result != CU_NOT_READY) {
        ASHLAR_TRY(ashlar__driver_status(device->driver, "cuEventQuery", result));
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
    ASHLAR_FAIL_IF(bytes == 0, ASHLAR_EINVAL,
                   "bytes: 0 bytes of page-locked memory; ask for at least 1");
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

ashlar_status ashlar_soft_configure(const char *spec) {
    return ashlar__soft_configure(spec);
}
