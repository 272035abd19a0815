/* device_impl.h - the struct behind ashlar_device, how code enters a device's context, checks of
 * the memory that launches read and write (internal). */
#ifndef ASHLAR_DEVICE_IMPL_H
#define ASHLAR_DEVICE_IMPL_H

#include <ashlar/device.h>

#include <stdatomic.h>

#include "allocator/base/checked.h"
#include "allocator/driver/driver.h"

typedef struct ashlar_staging ashlar_staging;

struct ashlar_device {
    ashlar_driver *driver;   /* const; not owned: it lives as long as the process */
    ashlar_device_info info; /* const */
    cu_context context;      /* const; the primary context, or one that the program made */
    bool is_retained;        /* const; the primary context was retained, and must be released */
    _Atomic(ashlar_staging *) staging; /* owned; NULL before the first small pageable copy */
};

static inline cu_ptr ashlar__ptr_in(const void *ptr) {
    return (cu_ptr)(uintptr_t)ptr;
}

static inline void *ashlar__ptr_out(cu_ptr ptr) {
    return (void *)(uintptr_t)ptr;
}

/* Like ashlar_device_open() for a CUDA device, but in a context that the program has made.
 * Ownership: the context stays the program's, and must outlive the device. */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_open_within(int ordinal, cu_context context,
                                                           ashlar_device **out);

/* Enter: make the device's context current in the calling thread. Leave: make the previous context
 * current again. Every driver call that needs a context is made in between. The calls for virtual
 * memory need none. */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_enter(ashlar_device *device);
void ashlar__device_leave(ashlar_device *device);

/* Enter and leave around calls into libraries that call the driver themselves. In between, the
 * thread's calls do not invalidate captures of other threads. */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_enter_relaxed(ashlar_device *device);
void ashlar__device_leave_relaxed(ashlar_device *device);

/* The whole body of a function that makes one driver call in the device's context and returns its
 * result as a status. */
#define ASHLAR_IN_CONTEXT(device, what, field, args)                                 \
    do {                                                                             \
        const ashlar_status entered_ = ashlar__device_enter(device);                 \
        if (entered_ != ASHLAR_OK) {                                                 \
            return entered_;                                                         \
        }                                                                            \
        const cu_result result_ = ASHLAR_DRIVER_CALL((device)->driver, field, args); \
        ashlar__device_leave(device);                                                \
        return ashlar__driver_status((device)->driver, what, result_);               \
    } while (0)

/* Wait for the copies that ashlar_copy_to_device() has queued from pageable memory, and free the
 * page-locked buffers that they went through. */
void ashlar__staging_close(ashlar_device *device);

/* Queue many copies inside the device's memory. They may run in any order, so no copy may read or
 * write a byte that another one writes. The batch as a whole runs in stream order; copies queued
 * before a failure stay queued. Errors: those of ashlar_copy(). */
typedef struct ashlar_copy_span {
    void *dst;
    const void *src;
    size_t bytes; /* 0 .. */
} ashlar_copy_span;
ASHLAR_MUST_CHECK ashlar_status ashlar__copy_batch(ashlar_device *device,
                                                   const ashlar_copy_span *spans, size_t count,
                                                   ashlar_stream stream);

/* Wait on the host for everything queued on the device. Errors: ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_synchronize(ashlar_device *device);

/* Like ashlar__device_synchronize(), but fails where that would invalidate a capture. The caller
 * holds no lock that queued work could need.
 * Errors: ASHLAR_EINVAL (a stream of some device is being captured), ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_try_synchronize(ashlar_device *device);

/* Like ashlar__device_try_synchronize(), for this device and every other one whose primary context
 * is active. Errors: ASHLAR_EDRIVER; some work may then be unfinished. */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_synchronize_all(ashlar_device *device);

/*
 * What a device tells the allocators. It calls them through pointers, since a lower room may not
 * name functions of a higher one.
 *
 * end_stream     ashlar_stream_destroy() is about to destroy a stream
 * begin_wait     ashlar_stream_synchronize() is about to wait for a stream; returns a number, which
 * end_wait       gets as `wait` once that wait has succeeded
 * make_room      the driver lacks memory: give idle memory back to it; may_wait: also after a wait
 *                on the host for work. Returns whether there was any
 */
typedef struct ashlar_device_listener {
    void (*end_stream)(const ashlar_device *device, ashlar_stream stream);
    uint64_t (*begin_wait)(const ashlar_device *device, ashlar_stream stream);
    void (*end_wait)(const ashlar_device *device, ashlar_stream stream, uint64_t wait);
    bool (*make_room)(const ashlar_device *device, bool may_wait);
} ashlar_device_listener;

/* Set the process's listener, which must live as long as the process. Threads: any. */
void ashlar__device_listen(const ashlar_device_listener *listener);

/* After a driver call that takes memory has returned `result`: if that is CU_OUT_OF_MEMORY, have
 * allocators give idle memory back, if need be after a wait on the host. True: they did, so the
 * call is worth another attempt. The caller holds no lock. */
bool ashlar__device_has_room(const ashlar_device *device, cu_result result);

/* Make a driver call that takes memory, again and again while allocators give some back for it. */
#define ASHLAR_CALL_WITH_ROOM(device, result, field, args)            \
    do {                                                              \
        (result) = ASHLAR_DRIVER_CALL((device)->driver, field, args); \
    } while (ashlar__device_has_room((device), (result)))

/* Whether `stream` is being captured. Errors: ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_is_capturing(ashlar_device *device,
                                                            ashlar_stream stream, bool *out);

/* ---- launches ---- */

/* Memory that a launch reads or writes, and its name for the program. */
typedef struct ashlar_operand {
    const char *name; /* NULL: the end of a list */
    const void *ptr;  /* NULL: not given */
    size_t bytes;     /* 0: not used; SIZE_MAX: more than can be addressed */
    bool is_needed;   /* NULL is refused, on every device */
} ashlar_operand;

/* The bytes of `rows` rows of `width` items; SIZE_MAX: they do not fit in a size_t. */
static inline size_t ashlar__operand_bytes(size_t rows, size_t width, size_t item) {
    size_t bytes;
    return ashlar__mul(rows, width, &bytes) && ashlar__mul(bytes, item, &bytes) ? bytes : SIZE_MAX;
}

/* Check what a software device's CPU would not notice, and a GPU would: that operands are memory of
 * the device (page-locked host memory is, too) and aligned, and that what the host reads is host
 * memory. A CUDA device reports it itself. A function that passes a program's pointers to
 * ashlar_launch() checks them by this first.
 *
 * device   NULL: none, and any memory; only what is needed and NULL is refused
 * call     the name of the program's call, for the detail
 * Errors: ASHLAR_EINVAL; with strict=on the process ends. */
ASHLAR_MUST_CHECK ashlar_status ashlar__check_operands(const ashlar_device *device,
                                                       const char *call,
                                                       const ashlar_operand *operands);
ASHLAR_MUST_CHECK ashlar_status ashlar__check_host_array(const char *call, const char *name,
                                                         const void *ptr, size_t bytes);

#endif /* ASHLAR_DEVICE_IMPL_H */
