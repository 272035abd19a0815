/* device_impl.h - the struct behind ashlar_device, and how code enters a device's context
 * (internal). */
#ifndef ASHLAR_DEVICE_IMPL_H
#define ASHLAR_DEVICE_IMPL_H

#include <ashlar/device.h>

#include "allocator/driver/driver.h"

struct ashlar_device {
    ashlar_driver *driver;   /* const; not owned: the process has one */
    ashlar_device_info info; /* const */
    cu_context context;      /* const; the primary context, or one that the program made */
    bool is_retained;        /* const; the primary context was retained, and must be released */
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

/* The same for libraries that call the driver themselves: meanwhile the thread may make calls that
 * another thread's capture forbids. */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_enter_relaxed(ashlar_device *device);
void ashlar__device_leave_relaxed(ashlar_device *device);

/* The whole body of a function that makes one driver call in the device's context and returns its
 * result as a status. */
#define ASHLAR_IN_CONTEXT(device, what, field, args)                                          \
    do {                                                                                      \
        const ashlar_status entered_ = ashlar__device_enter(device);                          \
        if (entered_ != ASHLAR_OK) {                                                          \
            return entered_;                                                                  \
        }                                                                                     \
        const cu_result result_ = ASHLAR_DRIVER_CALL((device)->driver, field, args);          \
        ashlar__device_leave(device);                                                         \
        return result_ == CU_SUCCESS ? ASHLAR_OK                                              \
                                     : ashlar__driver_error((device)->driver, what, result_); \
    } while (0)

/* Wait on the host for everything queued on the device. Errors: ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_synchronize(ashlar_device *device);

/* The same, unless that would invalidate a capture. Call it without a lock that queued work could
 * need. Errors: ASHLAR_EINVAL (a stream of some device is being captured), ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_try_synchronize(ashlar_device *device);

/* Like ashlar__device_try_synchronize(), for this device and every other one whose primary context
 * is active. Errors: ASHLAR_EDRIVER; some work may then be unfinished. */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_synchronize_all(ashlar_device *device);

/*
 * Have ashlar_stream_destroy() call `fn` before it destroys a stream. The process has one such
 * function, which the allocators set. (Code of this room may not call the allocators.) Threads:
 * any.
 */
typedef void (*ashlar_stream_end_fn)(const ashlar_device *device, ashlar_stream stream);
void ashlar__device_on_stream_end(ashlar_stream_end_fn fn);

#endif /* ASHLAR_DEVICE_IMPL_H */
