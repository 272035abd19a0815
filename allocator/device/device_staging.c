/*
 * device_staging.c - copies from pageable host memory, which has been read when they are queued.
 *
 * A driver need not see to that: with HMM or ATS a device reads pageable memory itself, when the
 * copy runs. So small copies go through page-locked buffers of the device's, each with an event
 * behind its newest copy; after any other copy the host waits for the stream.
 */
#include "allocator/device/device_impl.h"

#include <stdatomic.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

enum { BUFFERS = 8, BUFFER_BYTES = 64 << 10 };

typedef struct staging_buffer {
    unsigned char *bytes;  /* const; [BUFFER_BYTES], page-locked */
    cu_event event;        /* const; behind the newest copy from here */
    _Atomic bool is_taken; /* by a thread that queues a copy from here */
} staging_buffer;

struct ashlar_staging {
    staging_buffer buffers[BUFFERS]; /* taken in turn, so that the next one is the oldest */
    _Atomic unsigned int next;
};

/* Give all back, inside the device's context. Copies that are still queued run first. */
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

/* NULL: there is no memory for it. */
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

/* The device's buffers, which its first small pageable copy makes. No lock is held meanwhile, since
 * taking page-locked memory may wait for work; of two threads that make them, one gives its own
 * back. */
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

/* ---- copies; the functions below run inside the device's context ---- */

/* The oldest buffer, if its copy has run; NULL: none is to be had without a wait, which might be
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

/* A buffer stays taken if nobody knows when the copy from it will have run. */
static ashlar_status queue_staged(ashlar_driver *driver, staging_buffer *buffer, cu_ptr dst,
                                  const void *src, size_t bytes, ashlar_stream stream) {
    ASHLAR_CHECK2(bytes <= BUFFER_BYTES && atomic_load(&buffer->is_taken));
    memcpy(buffer->bytes, src, bytes);
    const cu_result result =
        ASHLAR_DRIVER_CALL(driver, memcpy_htod_async, (dst, buffer->bytes, bytes, stream));
    if (result != CU_SUCCESS ||
        ASHLAR_DRIVER_CALL(driver, event_record, (buffer->event, stream)) == CU_SUCCESS ||
        ASHLAR_DRIVER_CALL(driver, stream_synchronize, (stream)) == CU_SUCCESS) {
        atomic_store(&buffer->is_taken, false);
    }
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(driver, "cuMemcpyHtoDAsync", result);
}

static ashlar_status queue_and_wait(ashlar_driver *driver, cu_ptr dst, const void *src,
                                    size_t bytes, ashlar_stream stream) {
    cu_result result = ASHLAR_DRIVER_CALL(driver, memcpy_htod_async, (dst, src, bytes, stream));
    if (result != CU_SUCCESS) {
        return ashlar__driver_error(driver, "cuMemcpyHtoDAsync", result);
    }
    result = ASHLAR_DRIVER_CALL(driver, stream_synchronize, (stream));
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(driver, "cuStreamSynchronize", result);
}

/* A captured copy reads its source at each launch, when a variable on the stack is long gone. */
static ashlar_status refuse_capture(ashlar_driver *driver, ashlar_stream stream) {
    bool is_captured;
    ASHLAR_TRY(ashlar__device_asks_capture(driver, stream, &is_captured));
    ASHLAR_FAIL_IF(
        is_captured, ASHLAR_EINVAL,
        "src: a captured copy reads it at each launch of the graph, and this memory is "
        "pageable; copy from page-locked memory, such as ashlar_device_host_alloc() gives");
    return ASHLAR_OK;
}

ashlar_status ashlar__staging_copy(ashlar_device *device, void *dst, const void *src, size_t bytes,
                                   ashlar_stream stream) {
    ASHLAR_FAIL_IF(src == NULL, ASHLAR_EINVAL, "src: NULL; give the %zu bytes to copy", bytes);
    ASHLAR_TRY(refuse_capture(device->driver, stream));
    staging_buffer *buffer = take(device, bytes);
    return buffer == NULL
               ? queue_and_wait(device->driver, ashlar__ptr_in(dst), src, bytes, stream)
               : queue_staged(device->driver, buffer, ashlar__ptr_in(dst), src, bytes, stream);
}
