/*
 * device.h - open a device and queue work on it: a CUDA device, or the software device that
 * behaves like one on the CPU.
 */
#ifndef ASHLAR_DEVICE_H
#define ASHLAR_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

typedef struct ashlar_device ashlar_device;

/*
 * CUDA's own stream type: a cudaStream_t or CUstream passes as it is. NULL is the legacy default
 * stream of the device's primary context, which is the one the CUDA runtime uses. Streams of other
 * contexts are not this device's, and the per-thread default stream (what NULL means in code
 * compiled with --default-stream per-thread) is none that this library takes.
 */
typedef struct CUstream_st *ashlar_stream;

/* CUDA's own event type: a cudaEvent_t or CUevent of this device passes as it is. */
typedef struct CUevent_st *ashlar_event;

typedef enum ashlar_device_kind { ASHLAR_DEVICE_CUDA, ASHLAR_DEVICE_SOFT } ashlar_device_kind;

enum { ASHLAR_DEVICE_NAME_BYTES = 128 };

typedef struct ashlar_device_info {
    ashlar_device_kind kind;
    int ordinal;
    char name[ASHLAR_DEVICE_NAME_BYTES]; /* what the driver calls it */
    size_t total_bytes;                  /* physical memory */
} ashlar_device_info;

/* Driver calls of the whole process so far, by purpose. Work and waits are the program's own. */
typedef struct ashlar_driver_counts {
    uint64_t query;   /* reads of attributes */
    uint64_t memory;  /* taking, mapping, returning memory */
    uint64_t context; /* picking the device of a thread */
    uint64_t order;   /* streams and events */
    uint64_t work;    /* copies, fills, launches */
    uint64_t wait;    /* the host waits for the device */
} ashlar_driver_counts;

/*
 * Open a device.
 *
 * name   "cuda" or "cuda:N", "soft" or "soft:N" (N from 0), or "auto": the first CUDA device
 *        where there is a driver and a device, else the software device.
 *        NULL: the environment's ASHLAR_DEVICE, and "auto" where that is not set.
 *        The software device is shaped by ASHLAR_SOFT, e.g. "devices=2,memory=4GiB".
 *
 * Ownership: *out is the caller's, to be closed after everything made on it.
 * Threads:   any.
 * Errors:    ASHLAR_EINVAL (name, or a bad environment value), ASHLAR_ENODEVICE, ASHLAR_EDRIVER
 *            (also for "auto" with a CUDA driver that is there and fails), ASHLAR_ENOMEM (no room
 *            for CUDA's context), ASHLAR_EHOSTMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_device_open(const char *name,
                                                              ashlar_device **out);
ASHLAR_API void ashlar_device_close(ashlar_device *device); /* NULL is allowed */

ASHLAR_API void ashlar_device_get_info(const ashlar_device *device, ashlar_device_info *info);
ASHLAR_API void ashlar_device_get_counts(const ashlar_device *device, ashlar_driver_counts *counts);

/*
 * A stream: an order in which queued work runs. It is ordered with the default stream too.
 * Destroying one lets its queued work finish, and tells the device's allocators
 * (ashlar_allocator_forget_stream()); NULL is allowed there.
 *
 * Threads: any.  Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_stream_create(ashlar_device *device,
                                                                ashlar_stream *out);
ASHLAR_API void ashlar_stream_destroy(ashlar_device *device, ashlar_stream stream);

/* Wait on the host for everything queued on `stream`. Errors: ASHLAR_EDRIVER. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_stream_synchronize(ashlar_device *device,
                                                                     ashlar_stream stream);

/*
 * An event: a point in the order of a stream, set by the newest ashlar_event_record(). It keeps no
 * time. One that was never recorded counts as completed.
 *
 * ashlar_event_destroy lets go of it at once, also where its point has not come, which changes
 * nothing for those who wait for it already; NULL is allowed there.
 *
 * Threads: any; the newest of several records that race is not determined.
 * Errors:  ASHLAR_EDRIVER, ASHLAR_ENOMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_event_create(ashlar_device *device,
                                                               ashlar_event *out);
ASHLAR_API void ashlar_event_destroy(ashlar_device *device, ashlar_event event);

/* Move `event` behind everything queued on `stream`. No host wait. Errors: as above. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_event_record(ashlar_device *device,
                                                               ashlar_event event,
                                                               ashlar_stream stream);

/*
 * ashlar_event_query says whether everything before the event's point has run, without a wait;
 * ashlar_event_synchronize waits on the host until it has.
 *
 * is_done   unchanged on failure
 *
 * Threads: any.  Errors: ASHLAR_EDRIVER, also for work queued earlier that failed; the event's
 * point is then unknown.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_event_query(ashlar_device *device,
                                                              ashlar_event event, bool *is_done);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_event_synchronize(ashlar_device *device,
                                                                    ashlar_event event);

/*
 * Hold back what is queued on `stream` from now on until the event's point of now has come; a
 * later record does not move it. No host wait.
 *
 * Threads: any.  Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_stream_wait(ashlar_device *device,
                                                              ashlar_stream stream,
                                                              ashlar_event event);

/*
 * Queue a copy between host and device, or a fill with one byte value. `bytes` may be 0.
 *
 * Stream:  with page-locked host memory, however it was obtained, the copy runs in stream order,
 *          and the host memory must stay as it is until then. Other host memory has been read when
 *          ashlar_copy_to_device returns; what ashlar_copy_to_host writes is there for certain only
 *          after ashlar_stream_synchronize.
 * Threads: any.  Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM (the driver could not queue it).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_copy_to_device(ashlar_device *device, void *dst,
                                                                 const void *src, size_t bytes,
                                                                 ashlar_stream stream);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_copy_to_host(ashlar_device *device, void *dst,
                                                               const void *src, size_t bytes,
                                                               ashlar_stream stream);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_fill(ashlar_device *device, void *dst,
                                                       unsigned char value, size_t bytes,
                                                       ashlar_stream stream);

/*
 * Queue a copy inside the device's memory. The two ranges do not overlap; `bytes` may be 0.
 *
 * Stream:  in its order.  Threads: any.  Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM (the driver could
 * not queue it).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_copy(ashlar_device *device, void *dst,
                                                       const void *src, size_t bytes,
                                                       ashlar_stream stream);

/*
 * Queue a copy from one device's memory to another's, which may be the same device. It works
 * without peer access too (the driver then goes through host memory). `bytes` may be 0.
 *
 * stream   of `dst_device`; what has been queued on the source device is waited for only where an
 *          event says so (ashlar_stream_wait(), with an event of the source device)
 *
 * Threads: any.  Errors: ASHLAR_EINVAL (a CUDA and a software device), ASHLAR_EDRIVER,
 * ASHLAR_ENOMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_copy_peer(ashlar_device *dst_device, void *dst,
                                                            ashlar_device *src_device,
                                                            const void *src, size_t bytes,
                                                            ashlar_stream stream);

typedef struct ashlar_copy_span {
    void *dst;
    const void *src;
    size_t bytes; /* 0 .. */
} ashlar_copy_span;

/*
 * Queue many copies inside the device's memory. They have no order among themselves: no byte that
 * one of them writes is read or written by another.
 *
 * spans    `count` of them, of which the call keeps nothing
 *
 * Stream:  the batch as a whole is in its order. What was queued before a failure stays queued.
 * Threads: any.
 * Errors:  ASHLAR_EDRIVER, ASHLAR_ENOMEM, ASHLAR_EHOSTMEM.
 * Cost:    one driver call for all of them from CUDA 12.8 on, where `stream` is neither the
 *          default stream nor captured (and a query of that, and one host allocation); else one
 *          each.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_copy_batch(ashlar_device *device,
                                                             const ashlar_copy_span *spans,
                                                             size_t count, ashlar_stream stream);

/*
 * Queue fn(args) on `stream`, on the host. On a software device this is how compute is launched:
 * fn may touch device memory. It must not call ashlar or the driver.
 *
 * args   copied at the call, args_bytes of them; fn gets the copy, aligned as by malloc. After an
 *        error of the device fn is never called, and the copy is not returned.
 *
 * Threads: any.  Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM, ASHLAR_EHOSTMEM.  Cost: one host
 * allocation.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_launch(ashlar_device *device,
                                                         ashlar_stream stream, void (*fn)(void *),
                                                         const void *args, size_t args_bytes);

/*
 * Page-locked host memory, for copies that run beside other work. A driver call each.
 * Errors: ASHLAR_EINVAL (bytes is 0), ASHLAR_ENOMEM, ASHLAR_EDRIVER.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_device_host_alloc(ashlar_device *device,
                                                                    size_t bytes, void **out);
ASHLAR_API void ashlar_device_host_free(ashlar_device *device, void *ptr); /* NULL is allowed */

ASHLAR_END_DECLS

#endif /* ASHLAR_DEVICE_H */
