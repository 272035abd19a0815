/* device_copy.c - queued copies and fills, also from pageable memory. */
#include "allocator/device/device_impl.h"

#include <stdatomic.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* ---- copies from pageable host memory ---- */

/* When ashlar_copy_to_device() returns, it has read its source. A driver need not see to that: with
 * HMM or ATS a device reads pageable memory itself, when the copy runs. So small copies go through
 * page-locked buffers of the device's, each with an event behind its newest copy; for larger ones,
 * or if no buffer is free, the host waits for the stream. */
enum { BUFFERS = 8, BUFFER_BYTES = 64 << 10 };

typedef struct staging_buffer {
    unsigned char *bytes;  /* const; [BUFFER_BYTES], page-locked */
    cu_event event;        /* const; recorded after the newest copy from `bytes` */
    _Atomic bool is_taken; /* a thread is about to queue a copy from `bytes` */
} staging_buffer;

struct ashlar_staging {
    staging_buffer buffers[BUFFERS]; /* used in turn, so that the next one's copy is the oldest */
    _Atomic unsigned int next;
};

/* Wait for the copies queued from the buffers, and free all, inside the device's context. */
static void destroy(ashlar_driver *driver, ashlar_staging *staging) {
    for (size_t i = 0; i < BUFFERS && staging->buffers[i].event != NULL; i++) {
        (void)ASHLAR_DRIVER_CALL(driver, event_synchronize, (staging->buffers[i].event));
        (void)ASHLAR_DRIVER_CALL(driver, event_destroy, (staging->buffers[i].event));
    }
    if (staging->buffers[0].bytes != NULL) {
        (void)ASHLAR_DRIVER_CALL(driver, mem_free_host, (staging->buffers[0].bytes));
    }
    ashlar__host_free(staging);
}

/* NULL: no host memory, or the driver has failed. */
static ashlar_staging *create(ashlar_driver *driver) {
    ashlar_staging *staging = ashlar__host_calloc(1, sizeof *staging);
    void *bytes = NULL;
    if (staging == NULL) {
        return NULL;
    }
    cu_result result =
        ASHLAR_DRIVER_CALL(driver, mem_host_alloc, (&bytes, (size_t)BUFFERS * BUFFER_BYTES, 0));
    for (size_t i = 0; i < BUFFERS && result == CU_SUCCESS; i++) {
        staging->buffers[i].bytes = (unsigned char *)bytes + i * BUFFER_BYTES;
        result = ASHLAR_DRIVER_CALL(driver, event_create,
                                    (&staging->buffers[i].event, CU_EVENT_NO_TIMING));
    }
    if (result != CU_SUCCESS) {
        destroy(driver, staging);
        return NULL;
    }
    return staging;
}

/* The device's buffers, which the first small pageable copy makes. No lock is held meanwhile, since
 * taking page-locked memory may wait for work. If two threads make them at once, one frees its own
 * again. */
static ashlar_staging *need(ashlar_device *device) {
    ashlar_staging *found = atomic_load(&device->staging);
    if (found == NULL) {
        ashlar_staging *made = create(device->driver);
        if (made != NULL && atomic_compare_exchange_strong(&device->staging, &found, made)) {
            return made;
        }
        if (made != NULL) {
            destroy(device->driver, made);
        }
    }
    return found;
}

void ashlar__staging_close(ashlar_device *device) {
    ashlar_staging *staging = atomic_load(&device->staging);
    if (staging == NULL) {
        return;
    }
    if (ashlar__device_enter(device) == ASHLAR_OK) {
        destroy(device->driver, staging);
        ashlar__device_leave(device);
    } else { /* the context is gone, and all of its memory with it */
        ashlar__host_free(staging);
    }
}

/* The functions below, up to the next heading, run inside the device's context. */

static ashlar_status queue_direct(ashlar_driver *driver, void *dst, const void *src, size_t bytes,
                                  ashlar_stream stream) {
    return ashlar__driver_status(
        driver, "cuMemcpyHtoDAsync",
        ASHLAR_DRIVER_CALL(driver, memcpy_htod_async, (ashlar__ptr_in(dst), src, bytes, stream)));
}

/* Take the oldest buffer, if the copy from it has run; else return NULL. A wait for it might be one
 * for work of another stream. */
static staging_buffer *take(ashlar_device *device, size_t bytes) {
    ashlar_staging *staging = bytes <= BUFFER_BYTES ? need(device) : NULL;
    if (staging == NULL) {
        return NULL;
    }
    staging_buffer *oldest = &staging->buffers[atomic_fetch_add(&staging->next, 1) % BUFFERS];
    if (atomic_exchange(&oldest->is_taken, true)) {
        return NULL;
    }
    if (ASHLAR_DRIVER_CALL(device->driver, event_query, (oldest->event)) != CU_SUCCESS) {
        atomic_store(&oldest->is_taken, false);
        return NULL;
    }
    return oldest;
}

/* Copy by way of the buffer. It stays taken for ever if neither an event nor a wait on the host
 * could tell when the copy from it has run. */
static ashlar_status queue_staged(ashlar_driver *driver, staging_buffer *buffer, void *dst,
                                  const void *src, size_t bytes, ashlar_stream stream) {
    ASHLAR_CHECK2(bytes <= BUFFER_BYTES && atomic_load(&buffer->is_taken));
    memcpy(buffer->bytes, src, bytes);
    const cu_result result = ASHLAR_DRIVER_CALL(
        driver, memcpy_htod_async, (ashlar__ptr_in(dst), buffer->bytes, bytes, stream));
    if (result != CU_SUCCESS ||
        ASHLAR_DRIVER_CALL(driver, event_record, (buffer->event, stream)) == CU_SUCCESS ||
        ASHLAR_DRIVER_CALL(driver, stream_synchronize, (stream)) == CU_SUCCESS) {
        atomic_store(&buffer->is_taken, false);
    }
    return ashlar__driver_status(driver, "cuMemcpyHtoDAsync", result);
}

static ashlar_status queue_and_wait(ashlar_driver *driver, void *dst, const void *src, size_t bytes,
                                    ashlar_stream stream) {
    ASHLAR_TRY(queue_direct(driver, dst, src, bytes, stream));
    return ashlar__driver_status(driver, "cuStreamSynchronize",
                                 ASHLAR_DRIVER_CALL(driver, stream_synchronize, (stream)));
}

static ashlar_status is_capturing(ashlar_driver *driver, ashlar_stream stream, bool *out) {
    unsigned int capture = CU_CAPTURE_NONE;
    const cu_result result = ASHLAR_DRIVER_CALL(driver, stream_is_capturing, (stream, &capture));
    *out = capture != CU_CAPTURE_NONE;
    return ashlar__driver_status(driver, "cuStreamIsCapturing", result);
}

ashlar_status ashlar__device_is_capturing(ashlar_device *device, ashlar_stream stream, bool *out) {
    ASHLAR_TRY(ashlar__device_enter(device));
    const ashlar_status status = is_capturing(device->driver, stream, out);
    ashlar__device_leave(device);
    return status;
}

/* A captured copy reads its source at each launch, when a variable on the stack is long gone. */
static ashlar_status refuse_capture(ashlar_driver *driver, ashlar_stream stream) {
    bool is_captured;
    ASHLAR_TRY(is_capturing(driver, stream, &is_captured));
    ASHLAR_FAIL_IF(
        is_captured, ASHLAR_EINVAL,
        "src: a captured copy reads it at each launch of the graph, and this memory is "
        "pageable; copy from page-locked memory, such as ashlar_device_host_alloc() gives");
    return ASHLAR_OK;
}

static ashlar_status queue_pageable(ashlar_device *device, void *dst, const void *src, size_t bytes,
                                    ashlar_stream stream) {
    ASHLAR_FAIL_IF(src == NULL, ASHLAR_EINVAL, "src: NULL; give the %zu bytes to copy", bytes);
    ASHLAR_TRY(refuse_capture(device->driver, stream));
    staging_buffer *buffer = take(device, bytes);
    return buffer == NULL ? queue_and_wait(device->driver, dst, src, bytes, stream)
                          : queue_staged(device->driver, buffer, dst, src, bytes, stream);
}

/* True for memory that the driver does not know as page-locked, managed or a device's. */
static bool is_pageable(const ashlar_device *device, const void *ptr) {
    unsigned int type = 0;
    const cu_result result =
        ASHLAR_DRIVER_CALL(device->driver, pointer_get_attribute,
                           (&type, CU_POINTER_MEMORY_TYPE, ashlar__ptr_in(ptr)));
    return result != CU_SUCCESS || (type != CU_MEMORY_HOST && type != CU_MEMORY_DEVICE);
}

/* ---- copies and fills ---- */

ashlar_status ashlar_copy_to_device(ashlar_device *device, void *dst, const void *src, size_t bytes,
                                    ashlar_stream stream) {
    if (bytes == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__device_enter(device));
    const ashlar_status status = is_pageable(device, src)
                                     ? queue_pageable(device, dst, src, bytes, stream)
                                     : queue_direct(device->driver, dst, src, bytes, stream);
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
    ASHLAR_FAIL_IF(dst_device->driver != src_device->driver, ASHLAR_EINVAL,
                   "src_device: a %s device cannot copy from a %s device; copy by "
                   "ashlar_copy_to_host() and ashlar_copy_to_device()",
                   dst_device->driver->name, src_device->driver->name);
    if (bytes == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_CHECK2(dst_device->context != NULL && src_device->context != NULL);
    ASHLAR_IN_CONTEXT(dst_device, "cuMemcpyPeerAsync", memcpy_peer_async,
                      (ashlar__ptr_in(dst), dst_device->context, ashlar__ptr_in(src),
                       src_device->context, bytes, stream));
}

ashlar_status ashlar__copy_batch(ashlar_device *device, const ashlar_copy_span *spans, size_t count,
                                 ashlar_stream stream) {
    cu_result result = CU_SUCCESS;
    ASHLAR_TRY(ashlar__device_enter(device));
    for (size_t i = 0; i < count && result == CU_SUCCESS; i++) {
        if (spans[i].bytes > 0) {
            result = ASHLAR_DRIVER_CALL(device->driver, memcpy_dtod_async,
                                        (ashlar__ptr_in(spans[i].dst), ashlar__ptr_in(spans[i].src),
                                         spans[i].bytes, stream));
        }
    }
    ashlar__device_leave(device);
    return ashlar__driver_status(device->driver, "cuMemcpyDtoDAsync", result);
}
