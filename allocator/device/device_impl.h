/*
 * device_impl.h - what a device is inside the library (internal).
 */
#ifndef ASHLAR_DEVICE_IMPL_H
#define ASHLAR_DEVICE_IMPL_H

#include <ashlar/device.h>

#include "allocator/driver/driver.h"

struct ashlar_device {
    ashlar_driver *driver;   /* const; the process's */
    ashlar_device_info info; /* const */
    cu_context context;      /* const; the primary context, retained, or a program's */
    bool is_retained;        /* const */
};

static inline cu_ptr ashlar__ptr_in(const void *ptr) {
    return (cu_ptr)(uintptr_t)ptr;
}

static inline void *ashlar__ptr_out(cu_ptr ptr) {
    return (void *)(uintptr_t)ptr;
}

/*
 * As ashlar_device_open() for a device of CUDA's, in a context that the program has made. Ownership:
 * the context must outlive the device.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_open_within(int ordinal, cu_context context,
                                                           ashlar_device **out);

/*
 * Make the device's context the calling thread's, and give back the one before. Every driver call
 * that needs a context stands between the two; the virtual memory calls need none.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_enter(ashlar_device *device);
void ashlar__device_leave(ashlar_device *device);

/* All of a function's body: one driver call inside the device's context, its result as a status. */
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

/*
 * Wait on the host for everything queued on this device and on any other whose primary context is
 * in use, by whoever it is. Errors: ASHLAR_EDRIVER; not all was waited for then.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_synchronize_all(ashlar_device *device);

/*
 * Have `fn` called for each stream that ashlar_stream_destroy() is about to destroy. One function
 * for the process: the allocators', which are in a room above. Threads: any.
 */
typedef void (*ashlar_stream_end_fn)(const ashlar_device *device, ashlar_stream stream);
void ashlar__device_on_stream_end(ashlar_stream_end_fn fn);

#endif /* ASHLAR_DEVICE_IMPL_H */
