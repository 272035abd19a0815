/* device_impl.h - the struct behind ashlar_device, how code enters a device's context, what
 * launches read and write, graphs (internal). */
#ifndef ASHLAR_DEVICE_IMPL_H
#define ASHLAR_DEVICE_IMPL_H

#include <ashlar/device.h>

#include <stdatomic.h>

#include "allocator/base/checked.h"
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

/* Let the copies run that were queued from pageable memory, and give back the memory that they went
 * through. */
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

/* Whether a call that takes memory, and gave `result`, is worth another attempt, since allocators
 * of ours have given idle memory back; if possible without a wait. The caller holds no lock. */
bool ashlar__device_has_room(const ashlar_device *device, cu_result result);

/* Make a driver call that takes memory, once more each time that memory was given back. */
#define ASHLAR_CALL_WITH_ROOM(device, result, field, args)            \
    do {                                                              \
        (result) = ASHLAR_DRIVER_CALL((device)->driver, field, args); \
    } while (ashlar__device_has_room((device), (result)))

/* ---- launches ---- */

/* Memory that a launch reads or writes, by its name for the program. */
typedef struct ashlar_operand {
    const char *name; /* NULL: the end of a list */
    const void *ptr;  /* NULL: not given */
    size_t bytes;     /* 0: not used; SIZE_MAX: more than can be addressed */
    bool is_needed;   /* NULL is refused, on every device */
} ashlar_operand;

/* The bytes of `rows` rows of `width` items, for an operand. */
static inline size_t ashlar__operand_bytes(size_t rows, size_t width, size_t item) {
    size_t bytes;
    return ashlar__mul(rows, width, &bytes) && ashlar__mul(bytes, item, &bytes) ? bytes : SIZE_MAX;
}

/* Check what a software device's CPU would not notice, and a GPU would: that operands are memory of
 * the device (page-locked host memory is, too), and that what the host reads is host memory. A CUDA
 * device reports it itself. Whoever calls ashlar_launch() with pointers of others passes them here.
 *
 * call   the program's, for the detail
 * Errors: ASHLAR_EINVAL; with strict=on the process ends. */
ASHLAR_MUST_CHECK ashlar_status ashlar__check_operands(const ashlar_device *device,
                                                       const char *call,
                                                       const ashlar_operand *operands);
ASHLAR_MUST_CHECK ashlar_status ashlar__check_host_array(const char *call, const char *name,
                                                         const void *ptr, size_t bytes);

/*
 * ---- a captured piece of a stream's work, to be launched again and again ----
 *
 *     ashlar__graph_begin(device, stream, &graph);
 *     ...                              work queued on `stream`, and on streams that wait for it
 *     ashlar__graph_end(graph);
 *     ashlar__graph_launch(graph);     as often as wanted, on the same stream
 *     ashlar__graph_destroy(graph);    once its launches have run
 *
 * Between begin and end the work does not run. A launch repeats the calls with the arguments that
 * they had, so what differs from launch to launch has to lie in memory. The thread that begins a
 * graph queues all of its work: the arguments of its ashlar_launch() calls live as long as the
 * graph. Other threads go on undisturbed.
 */
typedef struct ashlar_graph ashlar_graph;

/* Begin a graph. One at a time in a thread.
 *
 * Ownership: the caller owns *out, in which the capture is under way, until it is destroyed; the
 *            device and the stream must outlive it.
 * Errors:    ASHLAR_EHOSTMEM, ASHLAR_EDRIVER (the stream cannot be captured). */
ASHLAR_MUST_CHECK ashlar_status ashlar__graph_begin(ashlar_device *device, ashlar_stream stream,
                                                    ashlar_graph **out);

/* End the capture and make the graph ready. After an error it can only be destroyed.
 * Errors: ASHLAR_EDRIVER (a call in between was one that no graph can hold), ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__graph_end(ashlar_graph *graph);

/* Queue the graph's work on its stream, with one call. Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__graph_launch(const ashlar_graph *graph);

/* End the capture, if it is under way, and forget the graph. No launch may be unfinished. NULL is
 * allowed. */
void ashlar__graph_destroy(ashlar_graph *graph);

#endif /* ASHLAR_DEVICE_IMPL_H */
