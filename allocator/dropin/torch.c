/* torch.c - the functions that PyTorch and CuPy call (torch.h): blocks, device settings, and
 * failures in a form that they understand. */
#include "allocator/dropin/torch.h"

#include <stdio.h>

#include "allocator/base/error.h"
#include "allocator/core/core.h"
#include "allocator/device/device_impl.h"
#include "allocator/dropin/devices.h"
#include "allocator/dropin/frees.h"

enum { WHAT_BYTES = 96 };

/* ---- failures as C++ exceptions, for callers that check nothing else ---- */

/* Throw a C++ exception that says why a request failed; for ASHLAR_ENOMEM in PyTorch's words. */
static void throw_failure(ashlar_status status, size_t bytes, int device) {
    char text[ASHLAR_DETAIL_BYTES + 128];
    int length;
    ASHLAR_CHECK2(status != ASHLAR_OK);
    if (status == ASHLAR_ENOMEM) {
        length =
            snprintf(text, sizeof text,
                     "CUDA out of memory. Tried to allocate %.2f MiB (%zu bytes) on GPU %d: %s",
                     (double)bytes / (1 << 20), bytes, device, ashlar_error_detail());
    } else {
        length = snprintf(text, sizeof text, "ashlar: %zu bytes on GPU %d: %s", bytes, device,
                          ashlar_error_detail());
    }
    ASHLAR_CHECK2(length > 0 && length < (int)sizeof text);
    if (status == ASHLAR_ENOMEM) {
        ashlar__throw_out_of_memory(text);
    } else {
        ashlar__throw(text);
    }
}

/* ---- reports ---- */

/* Report that an allocation failed. */
static void report_alloc(size_t bytes, int device) {
    char what[WHAT_BYTES];
    const int length = snprintf(what, sizeof what, "device %d, %zu bytes", device, bytes);
    ASHLAR_CHECK2(length > 0 && length < WHAT_BYTES);
    ashlar__dropin_report(what);
}

/* Report a pointer that is no block; not in a forked child, where it may be the parent's. */
static void report_pointer(const char *call, const void *ptr) {
    char what[WHAT_BYTES];
    if (!ashlar__dropin_is_forked()) {
        (void)snprintf(what, sizeof what, "%s of %p", call, ptr);
        ashlar__dropin_report(what);
    }
}

/* ---- PyTorch: blocks ---- */

/* Requests that failed for want of memory. */
static _Atomic uint64_t failed_counts[ASHLAR_DROPIN_DEVICES_MAX];

static ashlar_status take(size_t bytes, int device, ashlar_stream stream, void **out) {
    ashlar_allocator *a;
    ASHLAR_TRY(ashlar__dropin_allocator(device, &a));
    ASHLAR_TRY(ashlar__torch_capture_enter(device, stream));
    ashlar_status status = ashlar_alloc(a, bytes, stream, out);
    if (status == ASHLAR_ENOMEM && ashlar__torch_graphs_give_back(a, device)) {
        status = ashlar_alloc(a, bytes, stream, out);
    }
    if (status == ASHLAR_ENOMEM) {
        atomic_fetch_add(&failed_counts[device], 1);
    }
    return status;
}

void *ashlar_torch_alloc(size_t bytes, int device, ashlar_stream stream) {
    void *block = NULL;
    if (bytes != 0 && take(bytes, device, stream, &block) != ASHLAR_OK) {
        report_alloc(bytes, device);
    }
    return block;
}

void *ashlar_torch_alloc_or_throw(size_t bytes, int device, ashlar_stream stream) {
    void *block = NULL;
    const ashlar_status status = bytes != 0 ? take(bytes, device, stream, &block) : ASHLAR_OK;
    ASHLAR_CHECK2((block != NULL) == (bytes != 0 && status == ASHLAR_OK));
    if (status != ASHLAR_OK) {
        report_alloc(bytes, device);
        throw_failure(status, bytes, device);
    }
    return block;
}

/* Free the block at `ptr`. False: there is none, which has been reported. */
static bool give(ashlar_allocator *a, void *ptr, int device) {
    const ashlar_status status =
        a != NULL ? ashlar_free(a, ptr)
                  : ashlar__fail(ASHLAR_EPOINTER, "device %d: nothing was allocated there", device);
    if (status != ASHLAR_OK) {
        report_pointer("free", ptr);
    }
    return status == ASHLAR_OK;
}

void ashlar_torch_free(void *ptr, size_t bytes, int device, ashlar_stream stream) {
    (void)bytes;
    (void)stream;
    if (ptr != NULL) {
        (void)give(ashlar__dropin_peek(device), ptr, device);
    }
}

/* Give all free memory back to the driver. The first trim empties the caches, so that after the
 * wait the second one finds their blocks unused. */
static ashlar_status empty(ashlar_allocator *a) {
    ashlar_status status = ashlar_allocator_trim(a, 0);
    if (status == ASHLAR_OK) {
        status = ashlar__watch_settle(a);
    }
    return status == ASHLAR_OK ? ashlar_allocator_trim(a, 0) : status;
}

void ashlar_torch_free_to_driver(void *ptr, size_t bytes, int device, ashlar_stream stream) {
    (void)bytes;
    (void)stream;
    ashlar_allocator *a = ashlar__dropin_peek(device);
    if (ptr != NULL && give(a, ptr, device)) {
        (void)empty(a); /* what a capture keeps here is given back with a later block */
    }
}

/* PyTorch does not say which device the block is on. */
void ashlar_torch_record_stream(void *ptr, ashlar_stream stream) {
    ashlar_allocator *a = ashlar__dropin_owner(ptr);
    /* If no device has the block, the error detail is that of the last device asked. */
    if (a == NULL || ashlar_record_stream(a, ptr, stream) != ASHLAR_OK) {
        report_pointer("record_stream", ptr);
    }
}

/* The stream's device is unknown, too: end it on all, of which only that one knows it. */
void ashlar_torch_forget_stream(ashlar_stream stream) {
    for (int i = 0; i < ASHLAR_DROPIN_DEVICES_MAX; i++) {
        ashlar_allocator *a = ashlar__dropin_peek(i);
        if (a != NULL) {
            ashlar__allocator_end_stream(a, stream);
        }
    }
}

void *ashlar_torch_base_alloc(void *ptr, size_t *bytes) {
    ashlar_allocator *a = ashlar__dropin_owner(ptr);
    if (a == NULL || ashlar_usable_bytes(a, ptr, bytes) != ASHLAR_OK) {
        *bytes = 0;
    }
    return ptr;
}

/* ---- PyTorch: devices ---- */

void ashlar_torch_reset(void) {
    for (int i = 0; i < ASHLAR_DROPIN_DEVICES_MAX; i++) {
        ashlar_allocator *a = ashlar__dropin_peek(i);
        ashlar_frees *frees = ashlar__frees_peek(i);
        if (frees != NULL) {
            (void)ashlar__frees_give_back(frees, 0); /* for blocks that CuPy has freed */
        }
        if (a == NULL) {
            continue;
        }
        (void)ashlar__torch_graphs_give_back(a, i); /* during a capture it does nothing */
        if (empty(a) != ASHLAR_OK) {
            ashlar__dropin_report("empty_cache");
        }
    }
}

/* `fraction` of the device's memory, but at least 1, since a limit of 0 would mean no limit. */
static size_t limit_of(const ashlar_allocator *a, double fraction) {
    ashlar_device_info info;
    ASHLAR_CHECK2(fraction >= 0 && fraction <= 1);
    info = ashlar_device_get_info(ashlar_allocator_device(a));
    const size_t bytes = (size_t)(fraction * (double)info.total_bytes);
    return bytes > 0 ? bytes : 1;
}

static ashlar_status set_fraction(double fraction, int device) {
    ashlar_allocator *a;
    if (!(fraction >= 0 && fraction <= 1)) {
        return ashlar__fail(ASHLAR_EINVAL, "fraction: %g is not in 0 .. 1", fraction);
    }
    const ashlar_status status = ashlar__dropin_allocator(device, &a);
    return status == ASHLAR_OK ? ashlar_allocator_set_limit(a, limit_of(a, fraction)) : status;
}

void ashlar_torch_memory_fraction(double fraction, int device) {
    if (set_fraction(fraction, device) != ASHLAR_OK) {
        ashlar__dropin_report("set_per_process_memory_fraction");
    }
}

/* ---- PyTorch: statistics ---- */

int ashlar_torch_get_stats(int device, ashlar_torch_stats *out) {
    ashlar_allocator *a = ashlar__dropin_peek(device);
    ashlar_stats stats = {0};
    *out = (ashlar_torch_stats){0};
    if (a == NULL) {
        return 1;
    }
    ashlar_allocator_get_stats(a, &stats);
    *out = (ashlar_torch_stats){
        .live = stats.live_bytes,
        .live_peak = stats.live_peak_bytes,
        .reserved = stats.reserved_bytes,
        .reserved_peak = stats.reserved_peak_bytes,
        .live_blocks = stats.live_blocks,
        .alloc_count = stats.alloc_count,
        .free_count = stats.free_count,
        .mapped_count = stats.served_mapped,
        .retry_count = stats.served_drained + stats.served_after_sync,
        .wait_count = stats.served_after_sync,
        .failed_count = atomic_load(&failed_counts[device]),
    };
    return 0;
}

void ashlar_torch_reset_peaks(int device) {
    ashlar_allocator *a = ashlar__dropin_peek(device);
    if (a != NULL) {
        ashlar_allocator_reset_peaks(a);
    }
}

const char *ashlar_torch_error(void) {
    return ashlar_error_detail();
}

/* ---- CuPy, which names no stream ---- */

static ashlar_status cupy_take(void *stream, size_t bytes, int device, void **out) {
    ashlar_frees *frees;
    const ashlar_status status = ashlar__frees_of(device, &frees);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar__frees_distrust_streams(frees); /* CuPy reports no streams */
    return stream == NULL ? ashlar__frees_alloc(frees, bytes, out)
                          : ashlar__frees_alloc_on(frees, bytes, stream, out);
}

static ashlar_status cupy_give(void *stream, void *ptr, int device) {
    ashlar_frees *frees = ashlar__frees_peek(ashlar__dropin_place(device));
    ASHLAR_CHECK2(ptr != NULL);
    if (frees == NULL) {
        return ashlar__fail(ASHLAR_EPOINTER, "device %d: nothing was allocated there", device);
    }
    return stream == NULL ? ashlar__frees_free(frees, ptr) : ashlar_free(frees->allocator, ptr);
}

void *ashlar_cupy_malloc(void *stream, size_t bytes, int device) {
    void *block = NULL;
    if (bytes != 0 && cupy_take(stream, bytes, device, &block) != ASHLAR_OK) {
        char what[WHAT_BYTES];
        const int length = snprintf(what, sizeof what, "cupy: device %d, %zu bytes", device, bytes);
        ASHLAR_CHECK2(length > 0 && length < WHAT_BYTES);
        ashlar__dropin_report(what);
    }
    return block;
}

void ashlar_cupy_free(void *stream, void *ptr, int device) {
    if (ptr == NULL || ashlar__dropin_is_forked()) {
        return;
    }
    if (cupy_give(stream, ptr, device) != ASHLAR_OK) {
        ashlar__dropin_report("cupy: free");
    }
}
