/* device_copy.c - queued copies and fills, one by one or as a batch. */
#include "allocator/device/device_impl.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* Inside the device's context. The driver knows of memory that is page-locked, managed or a
 * device's. */
static bool is_pageable(const ashlar_device *device, const void *ptr) {
    unsigned int type = 0;
    const cu_result result =
        ASHLAR_DRIVER_CALL(device->driver, pointer_get_attribute,
                           (&type, CU_POINTER_MEMORY_TYPE, ashlar__ptr_in(ptr)));
    return result != CU_SUCCESS || (type != CU_MEMORY_HOST && type != CU_MEMORY_DEVICE);
}

static ashlar_status copy_known(ashlar_driver *driver, void *dst, const void *src, size_t bytes,
                                ashlar_stream stream) {
    const cu_result result =
        ASHLAR_DRIVER_CALL(driver, memcpy_htod_async, (ashlar__ptr_in(dst), src, bytes, stream));
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(driver, "cuMemcpyHtoDAsync", result);
}

ashlar_status ashlar_copy_to_device(ashlar_device *device, void *dst, const void *src, size_t bytes,
                                    ashlar_stream stream) {
    if (bytes == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__device_enter(device));
    const ashlar_status status = is_pageable(device, src)
                                     ? ashlar__staging_copy(device, dst, src, bytes, stream)
                                     : copy_known(device->driver, dst, src, bytes, stream);
    ashlar__device_leave(device);
    return status;
}

ashlar_status ashlar_copy_to_host(ashlar_device *device, void *dst, const void *src, size_t bytes,
                                  ashlar_stream stream) {
    if (bytes == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_IN_CONTEXT(device, "cuMemcpyDtoHAsync", memcpy_dtoh_async,
                      (dst, ashlar__ptr_in(src), bytes, stream));
}

ashlar_status ashlar_fill(ashlar_device *device, void *dst, unsigned char value, size_t bytes,
                          ashlar_stream stream) {
    if (bytes == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_IN_CONTEXT(device, "cuMemsetD8Async", memset_d8_async,
                      (ashlar__ptr_in(dst), value, bytes, stream));
}

ashlar_status ashlar_copy(ashlar_device *device, void *dst, const void *src, size_t bytes,
                          ashlar_stream stream) {
    if (bytes == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_IN_CONTEXT(device, "cuMemcpyDtoDAsync", memcpy_dtod_async,
                      (ashlar__ptr_in(dst), ashlar__ptr_in(src), bytes, stream));
}

ashlar_status ashlar_copy_peer(ashlar_device *dst_device, void *dst, ashlar_device *src_device,
                               const void *src, size_t bytes, ashlar_stream stream) {
    if (dst_device->driver != src_device->driver) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "src_device: a %s device cannot copy from a %s device; copy by "
                            "ashlar_copy_to_host() and ashlar_copy_to_device()",
                            dst_device->driver->name, src_device->driver->name);
    }
    if (bytes == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_CHECK2(dst_device->context != NULL && src_device->context != NULL);
    ASHLAR_IN_CONTEXT(dst_device, "cuMemcpyPeerAsync", memcpy_peer_async,
                      (ashlar__ptr_in(dst), dst_device->context, ashlar__ptr_in(src),
                       src_device->context, bytes, stream));
}

/* ---- batches; the functions below run inside the device's context ---- */

static size_t count_copies(const ashlar_copy_span *spans, size_t count) {
    size_t copies = 0;
    for (size_t i = 0; i < count; i++) {
        copies += spans[i].bytes > 0;
    }
    return copies;
}

static ashlar_status copy_each(ashlar_driver *driver, const ashlar_copy_span *spans, size_t count,
                               ashlar_stream stream) {
    cu_result result = CU_SUCCESS;
    for (size_t i = 0; i < count && result == CU_SUCCESS; i++) {
        if (spans[i].bytes > 0) {
            result = ASHLAR_DRIVER_CALL(driver, memcpy_dtod_async,
                                        (ashlar__ptr_in(spans[i].dst), ashlar__ptr_in(spans[i].src),
                                         spans[i].bytes, stream));
        }
    }
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(driver, "cuMemcpyDtoDAsync", result);
}

ashlar_status ashlar__device_asks_capture(ashlar_driver *driver, ashlar_stream stream, bool *out) {
    unsigned int capture = CU_CAPTURE_NONE;
    const cu_result result = ASHLAR_DRIVER_CALL(driver, stream_is_capturing, (stream, &capture));
    if (result != CU_SUCCESS) {
        return ashlar__driver_error(driver, "cuStreamIsCapturing", result);
    }
    *out = capture != CU_CAPTURE_NONE;
    return ASHLAR_OK;
}

/* *out: whether a batch may be queued on `stream`. CUDA allows no batch on the legacy stream, and
 * none in a capture before CUDA 13.1. The caller then queues the copies one by one. */
static ashlar_status allows_batch(ashlar_driver *driver, ashlar_stream stream, bool *out) {
    if (stream == NULL || (uintptr_t)stream == CU_STREAM_LEGACY) {
        *out = false;
        return ASHLAR_OK;
    }
    bool is_captured = false;
    ASHLAR_TRY(ashlar__device_asks_capture(driver, stream, &is_captured));
    *out = !is_captured;
    return ASHLAR_OK;
}

/* Queue all copies with one call. CU_NOT_SUPPORTED: the driver lacks it, and nothing was queued. */
static cu_result queue_batch(ashlar_driver *driver, const ashlar_copy_span *spans, size_t count,
                             cu_ptr *dsts, size_t copies, ashlar_stream stream) {
    cu_ptr *srcs = dsts + copies;
    size_t *sizes = (size_t *)(srcs + copies);
    _Static_assert(_Alignof(size_t) <= _Alignof(cu_ptr), "sizes follow the addresses");
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (spans[i].bytes > 0) {
            dsts[at] = ashlar__ptr_in(spans[i].dst);
            srcs[at] = ashlar__ptr_in(spans[i].src);
            sizes[at++] = spans[i].bytes;
        }
    }
    ASHLAR_CHECK2(at == copies);
    cu_copy_attributes attributes = {.order = CU_COPY_STREAM_ORDER};
    size_t start = 0, failed = 0;
    return ASHLAR_DRIVER_CALL(driver, memcpy_batch_async,
                              (dsts, srcs, sizes, copies, &attributes, &start, 1, &failed, stream));
}

static ashlar_status copy_together(ashlar_driver *driver, const ashlar_copy_span *spans,
                                   size_t count, size_t copies, ashlar_stream stream) {
    ASHLAR_CHECK2(copies > 1 && copies <= count);
    cu_ptr *lists = ashlar__host_realloc(NULL, copies, 2 * sizeof(cu_ptr) + sizeof(size_t));
    if (lists == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a batch of %zu copies", copies);
    }
    const cu_result result = queue_batch(driver, spans, count, lists, copies, stream);
    ashlar__host_free(lists);
    if (result == CU_NOT_SUPPORTED) {
        return copy_each(driver, spans, count, stream);
    }
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(driver, "cuMemcpyBatchAsync", result);
}

ashlar_status ashlar_copy_batch(ashlar_device *device, const ashlar_copy_span *spans, size_t count,
                                ashlar_stream stream) {
    const size_t copies = count_copies(spans, count);
    if (copies == 0) {
        return ASHLAR_OK;
    }
    ashlar_status status = ashlar__device_enter(device);
    if (status != ASHLAR_OK) {
        return status;
    }
    bool is_batch = false;
    if (copies > 1) {
        status = allows_batch(device->driver, stream, &is_batch);
    }
    if (status == ASHLAR_OK) {
        status = is_batch ? copy_together(device->driver, spans, count, copies, stream)
                          : copy_each(device->driver, spans, count, stream);
    }
    ashlar__device_leave(device);
    return status;
}
