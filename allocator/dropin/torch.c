#include "allocator/dropin/torch.h"

#include <stdio.h>

#include "allocator/device/device_impl.h"
#include "allocator/dropin/devices.h"
#include "allocator/base/error.h"
#include "allocator/dropin/frees.h"
#include "allocator/dropin/throw.h"

enum { WHAT_BYTES = 96 };

/* An allocation has failed: tell who asked to be told. */
static void report_alloc(size_t bytes, int device) {
    char what[WHAT_BYTES];
    (void)snprintf(what, sizeof what, "device %d, %zu bytes", device, bytes);
    ashlar__dropin_report(what);
}

/* An address has come that cannot be served. A child has them from its parent. */
static void report_pointer(const char *call, const void *ptr) {
    char what[WHAT_BYTES];
    if (!ashlar__dropin_is_forked()) {
        (void)snprintf(what, sizeof what, "%s of %p", call, ptr);
        ashlar__dropin_report(what);
    }
}

/* ---- blocks ---- */

static ashlar_status take(size_t bytes, int device, ashlar_stream stream, void **out) {
    ashlar_allocator *a;
    const ashlar_status status = ashlar__dropin_allocator(device, &a);
    return status == ASHLAR_OK ? ashlar_alloc(a, bytes, stream, out) : status;
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
    if (status != ASHLAR_OK) {
        report_alloc(bytes, device);
        ashlar__dropin_throw(status, bytes, device);
    }
    return block;
}

void ashlar_torch_free(void *ptr, size_t bytes, int device, ashlar_stream stream) {
    (void)bytes;
    (void)stream;
    ashlar_allocator *a = ashlar__dropin_peek(device);
    if (ptr == NULL) {
        return;
    }
    const ashlar_status status =
        a != NULL ? ashlar_free(a, ptr)
                  : ashlar__fail(ASHLAR_EPOINTER, "device %d: nothing was allocated there", device);
    if (status != ASHLAR_OK) {
        report_pointer("free", ptr);
    }
}

/* Which device it is on is not told. */
void ashlar_torch_record_stream(void *ptr, ashlar_stream stream) {
    ashlar_allocator *a = ashlar__dropin_owner(ptr);
    /* Without an owner the detail says what the last device asked has to say. */
    if (a == NULL || ashlar_record_stream(a, ptr, stream) != ASHLAR_OK) {
        report_pointer("record_stream", ptr);
    }
}

void *ashlar_torch_base_alloc(void *ptr, size_t *bytes) {
    ashlar_allocator *a = ashlar__dropin_owner(ptr);
    if (a == NULL || ashlar_allocator_usable_bytes(a, ptr, bytes) != ASHLAR_OK) {
        *bytes = 0;
    }
    return ptr;
}

/* ---- devices ---- */

/* What is freed becomes idle when its streams are seen to be past it, which the first trim asks. */
static ashlar_status empty(ashlar_allocator *a) {
    ashlar_status status = ashlar_allocator_trim(a, 0);
    if (status == ASHLAR_OK) {
        status = ashlar__device_synchronize(ashlar_allocator_device(a));
    }
    return status == ASHLAR_OK ? ashlar_allocator_trim(a, 0) : status;
}

void ashlar_torch_reset(void) {
    for (int i = 0; i < ASHLAR_DROPIN_DEVICES_MAX; i++) {
        ashlar_allocator *a = ashlar__dropin_peek(i);
        ashlar_frees *frees = ashlar__frees_peek(i);
        if (frees != NULL) {
            (void)ashlar__frees_give_back(frees); /* what CuPy has freed, which waits elsewhere */
        }
        if (a != NULL && empty(a) != ASHLAR_OK) {
            ashlar__dropin_report("empty_cache");
        }
    }
}

/* As a limit 0 stands for the whole device. */
static size_t limit_of(const ashlar_allocator *a, double fraction) {
    ashlar_device_info info;
    ashlar_device_get_info(ashlar_allocator_device(a), &info);
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

void ashlar_torch_refuse_graph(void) {
    const ashlar_status unused = ashlar__fail(
        ASHLAR_ENOTSUP, "a graph cannot be captured under this allocator, which is not "
                        "told what memory the graph keeps; use it for a "
                        "torch.cuda.MemPool instead");
    (void)unused; /* there is nobody to take it */
    ashlar__dropin_report("capture");
    ashlar__dropin_throw_text(ashlar_error_detail());
}

int ashlar_torch_memory(int device, ashlar_torch_bytes *out) {
    ashlar_allocator *a = ashlar__dropin_peek(device);
    ashlar_stats stats = {0};
    if (a != NULL) {
        ashlar_allocator_get_stats(a, &stats);
    }
    *out = (ashlar_torch_bytes){
        .live = stats.live_bytes,
        .live_peak = stats.live_peak_bytes,
        .reserved = stats.reserved_bytes,
        .reserved_peak = stats.reserved_peak_bytes,
    };
    return a == NULL;
}

const char *ashlar_torch_error(void) {
    return ashlar_error_detail();
}
