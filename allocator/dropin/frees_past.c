/* frees_past.c - finding out whether the work submitted before frees is over; and the streams that
 * do such work. */
#include "allocator/dropin/frees_impl.h"

#include <time.h>

#include "allocator/base/clock.h"
#include "allocator/core/streams.h"

/* For so long the host asks again and again; then it sleeps for as long between two questions. */
enum { SPIN_NS = 50 * 1000 };

/* Events do not cover all streams: wait on the host. */
static bool wait_for_device(ashlar_frees *f) {
    const ashlar_device_wait wait = ashlar__deferred_begin_wait(f->allocator);
    const ashlar_status status = f->is_host ? ashlar__device_synchronize_all(f->device)
                                            : ashlar__device_try_synchronize(f->device);
    return status == ASHLAR_OK && ashlar__deferred_end_wait(f->allocator, wait);
}

/* Take a block from the driver, whichever it has; if it has none, from what is idle here. */
static cu_result take_block(const ashlar_frees *f, cu_ptr *out) {
    ashlar_driver *driver = f->device->driver;
    ashlar_stats stats;
    cu_result result = ASHLAR_DRIVER_CALL(driver, mem_alloc, (out, 1));
    if (result == CU_OUT_OF_MEMORY) {
        ashlar_allocator_get_stats(f->allocator, &stats);
        if (stats.reserved_bytes > 0 &&
            ashlar_allocator_trim(f->allocator, stats.reserved_bytes - 1) == ASHLAR_OK) {
            result = ASHLAR_DRIVER_CALL(driver, mem_alloc, (out, 1));
        }
    }
    return result;
}

/*
 * A stream that synchronizes with the legacy one is captured: then no event follows the work of all
 * streams, and the device may not be waited for. But the driver's own free waits ("Managing memory
 * allocations using cudaMalloc and cudaFree causes the GPU to synchronize across all executing CUDA
 * streams": CUDA Programming Guide, 4.3.1), as the program's free would have done without us.
 */
void ashlar__frees_wait_by_driver(ashlar_frees *f) {
    const ashlar_device_wait wait = ashlar__deferred_begin_wait(f->allocator);
    cu_ptr ptr = 0;
    if (ashlar__device_enter(f->device) != ASHLAR_OK) {
        return;
    }
    cu_result result = take_block(f, &ptr);
    if (result == CU_SUCCESS) {
        result = ASHLAR_DRIVER_CALL(f->device->driver, mem_free, (ptr));
    }
    ashlar__device_leave(f->device);
    if (result == CU_SUCCESS) {
        (void)ashlar__deferred_end_wait(f->allocator, wait);
    }
}

static ashlar_status poll(ashlar_frees *f, uint64_t ns, bool in_need, bool *has_any) {
    const struct timespec pause = {.tv_nsec = SPIN_NS};
    const uint64_t start = ashlar__clock_ns();
    ashlar_status status = ashlar__deferred_ask(f->allocator, in_need, has_any);
    for (uint64_t spent = 0; status == ASHLAR_OK && !*has_any && spent < ns;
         spent = ashlar__clock_ns() - start) {
        if (spent > SPIN_NS) {
            (void)nanosleep(&pause, NULL);
        }
        status = ashlar__deferred_ask(f->allocator, in_need, has_any);
    }
    return status;
}

bool ashlar__frees_reap(ashlar_frees *f, uint64_t ns, bool in_need) {
    bool has_any = false;
    if (!ashlar__has_deferred(f->allocator)) {
        return false;
    }
    if (atomic_load(&f->is_trusting)) {
        const ashlar_device_wait none = {.number = UINT64_MAX, .free_number = UINT64_MAX};
        return ashlar__deferred_end_wait(f->allocator, none);
    }
    ashlar__frees_settle_captures(); /* those that are over count no longer */
    if (!atomic_load(&f->is_distrusted)) {
        const ashlar_status status = poll(f, ns, in_need, &has_any);
        if (status == ASHLAR_OK || status == ASHLAR_EINVAL) {
            return has_any;
        }
        ashlar__frees_distrust_streams(f); /* the program may have destroyed a stream in a way that
                                            * we do not intercept */
    }
    return atomic_load(&f->device->driver->capture_count) == 0 && wait_for_device(f);
}

/* No lock is held during a wait. */
bool ashlar__frees_reclaim(void *user, size_t bytes) {
    ashlar_frees *f = user;
    (void)bytes;
    bool has_any = false;
    while (ashlar__has_deferred(f->allocator) &&
           (ashlar__frees_reap(f, 0, true) ||
            (!atomic_load(&f->is_distrusted) && ashlar__deferred_wait(f->allocator)))) {
        has_any = true;
    }
    return has_any;
}

/* ---- streams ---- */

void ashlar__frees_add_stream(ashlar_frees *f, ashlar_stream stream) {
    ASHLAR_CHECK2(stream != NULL);
    if (ashlar__deferred_add_stream(f->allocator, stream) != ASHLAR_OK) {
        ashlar__frees_distrust_streams(f);
    }
}

void ashlar__frees_end_stream(ashlar_frees *f, ashlar_stream stream) {
    ashlar__frees_drop_captures(f, &stream);
    ashlar__allocator_end_stream(f->allocator, stream);
}
