/* cupy.c - CuPy's CFunctionAllocator, which tells no stream: torch.h says what that means. */
#include "torch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "allocator_impl.h"
#include "devices.h"
#include "error.h"

/*
 * Of each device one stream on which no work is ever queued but the allocator's waits. A block
 * taken for it is idle once the stream is: whatever it may wait for is over then, and any stream
 * may use the block.
 */
static _Atomic(ashlar_stream) vacant[ASHLAR_DROPIN_DEVICES_MAX];

static pthread_mutex_t vacant_lock = PTHREAD_MUTEX_INITIALIZER;

static ashlar_status make_stream(ashlar_device *device, ashlar_stream *out) {
    /* Not ordered with the default stream, so that nobody waits for what it waits for. */
    ASHLAR_IN_CONTEXT(device, "cuStreamCreate", stream_create, (out, CU_STREAM_UNORDERED));
}

static ashlar_status vacant_of(ashlar_device *device, ashlar_stream *out) {
    _Atomic(ashlar_stream) *place = &vacant[device->info.ordinal];
    ashlar_stream stream = atomic_load_explicit(place, memory_order_acquire);
    ashlar_status status = ASHLAR_OK;
    if (!ASHLAR_LIKELY(stream != NULL)) {
        pthread_mutex_lock(&vacant_lock);
        stream = atomic_load(place);
        if (stream == NULL) {
            status = make_stream(device, &stream);
        }
        if (status == ASHLAR_OK) {
            atomic_store_explicit(place, stream, memory_order_release);
        }
        pthread_mutex_unlock(&vacant_lock);
    }
    if (status == ASHLAR_OK) {
        *out = stream;
    }
    return status;
}

/* A block that every stream may use at once. */
static ashlar_status take_idle(ashlar_allocator *a, size_t bytes, void **out) {
    ashlar_device *device = ashlar_allocator_device(a);
    ashlar_stream stream = NULL;
    void *block = NULL;
    ashlar_status status = vacant_of(device, &stream);
    if (status == ASHLAR_OK) {
        status = ashlar_alloc(a, bytes, stream, &block);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    status = ashlar_stream_synchronize(device, stream);
    if (status != ASHLAR_OK) {
        const ashlar_status unused = ashlar_free(a, block);
        (void)unused; /* the first failure counts */
        return status;
    }
    *out = block;
    return ASHLAR_OK;
}

static ashlar_status take(void *stream, size_t bytes, int device, void **out) {
    ashlar_allocator *a;
    const ashlar_status status = ashlar_dropin_allocator(device, &a);
    if (status != ASHLAR_OK) {
        return status;
    }
    return stream == NULL ? take_idle(a, bytes, out) : ashlar_alloc(a, bytes, stream, out);
}

void *ashlar_cupy_malloc(void *stream, size_t bytes, int device) {
    void *block = NULL;
    if (bytes != 0 && take(stream, bytes, device, &block) != ASHLAR_OK) {
        char what[96];
        (void)snprintf(what, sizeof what, "cupy: device %d, %zu bytes", device, bytes);
        ashlar_dropin_report(what);
    }
    return block;
}

void ashlar_cupy_free(void *stream, void *ptr, int device) {
    ashlar_allocator *a = ashlar_dropin_peek(device);
    if (ptr == NULL || ashlar_dropin_is_forked()) {
        return;
    }
    ashlar_status status =
        a != NULL ? ASHLAR_OK
                  : ashlar_fail(ASHLAR_EPOINTER, "device %d: nothing was allocated there", device);
    if (status == ASHLAR_OK && stream == NULL) {
        /* Where it fails the device is lost, and the block is better kept. */
        status = ashlar_device_synchronize(ashlar_allocator_device(a));
    }
    if (status == ASHLAR_OK) {
        status = ashlar_free(a, ptr);
    }
    if (status != ASHLAR_OK) {
        ashlar_dropin_report("cupy: free");
    }
}
