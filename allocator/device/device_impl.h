/* device_impl.h - the struct behind ashlar_device, and how code enters a device's context
 * (internal). */
#ifndef ASHLAR_DEVICE_IMPL_H
#define ASHLAR_DEVICE_IMPL_H

#include <ashlar/device.h>

#include <stdatomic.h>

#include "allocator/driver/driver.h"

typedef struct ashlar_staging ashlar_staging;

struct ashlar_device {
    ashlar_driver *driver;   /* const; not owned: the process has one */
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

/* Inside the device's context: whether the stream is captured. Errors: ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_asks_capture(ashlar_driver *driver,
                                                            ashlar_stream stream, bool *out);

/*
 * Copies from pageable host memory (device_staging.c).
 *
 * copy    queue a copy, inside the device's context; its bytes have been read on return. Errors: as
 *         ashlar_copy_to_device()
 * close   let the copies run that were queued so, and give back the memory that they went through
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__staging_copy(ashlar_device *device, void *dst,
                                                     const void *src, size_t bytes,
                                                     ashlar_stream stream);
void ashlar__staging_close(ashlar_device *device);

/* Wait on the host for everything queued on the device. Errors: ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_synchronize(ashlar_device *device);

/* The same, unless that would invalidate a capture. Call it without a lock that queued work could
 * need. Errors: ASHLAR_EINVAL (a stream of some device is being captured), ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_try_synchronize(ashlar_device *device);

/* Like ashlar__device_try_synchronize(), for this device and every other one whose primary context
 * is active. Errors: ASHLAR_EDRIVER; some work may then be unfinished. */
ASHLAR_MUST_CHECK ashlar_status ashlar__device_synchronize_all(ashlar_device *device);

/*
 * What the allocators want to know of a device. (Code of this room may not call them.)
 *
 * end_stream     ashlar_stream_destroy() is about to destroy a stream
 * begin_wait     ashlar_stream_synchronize() is about to wait for a stream; returns its number
 * end_wait       that wait has succeeded
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

/*
 * Whether a call that takes memory, and gave `result`, is worth another attempt, since allocators
 * of ours have given idle memory back; if possible without a wait. The caller holds no lock.
 */
bool ashlar__device_has_room(const ashlar_device *device, cu_result result);

/* Make a driver call that takes memory, once more each time that memory was given back. */
#define ASHLAR_CALL_WITH_ROOM(device, result, field, args)            \
    do {                                                              \
        (result) = ASHLAR_DRIVER_CALL((device)->driver, field, args); \
    } while (ashlar__device_has_room((device), (result)))

#endif /* ASHLAR_DEVICE_IMPL_H */
