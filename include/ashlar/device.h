/* device.h - open a device and queue work on it: a CUDA device, or the software device that
 * behaves like one on the CPU. */
#ifndef ASHLAR_DEVICE_H
#define ASHLAR_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

ASHLAR_BEGIN_DECLS

typedef struct ashlar_device ashlar_device;

/*
 * CUDA's own stream type: pass a cudaStream_t or CUstream as it is. NULL is the legacy default
 * stream of the device's primary context, which is the CUDA runtime's context; do not pass streams
 * of other contexts. In code compiled with --default-stream per-thread, NULL means a different
 * stream to CUDA: pass cudaStreamPerThread here instead, which stands for the calling thread's own
 * stream.
 */
typedef struct CUstream_st *ashlar_stream;

/* CUDA's own event type: pass a cudaEvent_t or CUevent of this device as it is. */
typedef struct CUevent_st *ashlar_event;

typedef enum ashlar_device_kind { ASHLAR_DEVICE_CUDA, ASHLAR_DEVICE_SOFT } ashlar_device_kind;

enum { ASHLAR_DEVICE_NAME_BYTES = 128 };

/* Driver calls by purpose. */
typedef struct ashlar_driver_counts {
    uint64_t query;   /* reads of attributes */
    uint64_t memory;  /* taking, mapping, returning memory */
    uint64_t context; /* picking the device of a thread */
    uint64_t order;   /* streams and events */
    uint64_t work;    /* copies, fills, launches */
    uint64_t wait;    /* the host waits for the device */
} ashlar_driver_counts;

/* The properties of an open device. */
typedef struct ashlar_device_info {
    ashlar_device_kind kind;
    int ordinal;
    char name[ASHLAR_DEVICE_NAME_BYTES]; /* the driver's name for it */
    size_t total_bytes;                  /* physical memory */
    ashlar_driver_counts calls;          /* of the whole process so far */
} ashlar_device_info;

/*
 * Open a device.
 *
 * name   "cuda" or "cuda:N", "soft" or "soft:N" (N from 0), or "auto": the first CUDA device
 *        if there is a driver and a device, else the software device.
 *        NULL: the environment's ASHLAR_DEVICE, or "auto" if that is not set.
 *        The software device is shaped by ASHLAR_SOFT, e.g. "devices=2,memory=4GiB".
 *
 * Ownership: the caller owns *out, and closes it after destroying everything made on it.
 * Threads:   any.
 * Errors:    ASHLAR_EINVAL (name, or a bad environment value), ASHLAR_ENODEVICE, ASHLAR_EDRIVER
 *            (also for "auto", if there is a CUDA driver and it fails), ASHLAR_ENOMEM (no room for
 *            CUDA's context), ASHLAR_EHOSTMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_device_open(const char *name,
                                                              ashlar_device **out);
ASHLAR_API void ashlar_device_close(ashlar_device *device); /* NULL is allowed */

ASHLAR_API ashlar_device_info ashlar_device_get_info(const ashlar_device *device);

/*
 * Create or destroy a stream: an order in which queued work runs. Like CUDA's blocking streams it
 * is ordered with the default stream. ashlar_stream_destroy() lets the queued work finish, and
 * calls ashlar_allocator_forget_stream() for every allocator of the device; NULL is allowed. If the
 * driver refuses the event that this takes, memory last used on the stream is not reused before its
 * allocator ends.
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
 * Create or destroy an event: a point in the order of a stream, set by the newest
 * ashlar_event_record(). It keeps no time. An event that was never recorded counts as completed.
 *
 * An event may be destroyed before its point is reached: waits that have begun go on. NULL is
 * allowed.
 *
 * Threads: any; if two threads record one event at once, either record may become the newest.
 * Errors:  ASHLAR_EDRIVER, ASHLAR_ENOMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_event_create(ashlar_device *device,
                                                               ashlar_event *out);
ASHLAR_API void ashlar_event_destroy(ashlar_device *device, ashlar_event event);

/* Set the event's point after everything queued on `stream`. No host wait. Errors: as above. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_event_record(ashlar_device *device,
                                                               ashlar_event event,
                                                               ashlar_stream stream);

/*
 * Ask, without waiting, whether everything before the event's point has run; or wait on the host
 * until it has.
 *
 * is_done   unchanged on failure
 *
 * Threads: any.  Errors: ASHLAR_EDRIVER, also if work queued earlier has failed; whether the
 * event's point was reached is then unknown.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_event_query(ashlar_device *device,
                                                              ashlar_event event, bool *is_done);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_event_synchronize(ashlar_device *device,
                                                                    ashlar_event event);

/*
 * Make work queued on `stream` from now on wait for the event's present point, even if the event is
 * recorded again later. No host wait.
 *
 * Threads: any.  Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_stream_wait(ashlar_device *device,
                                                              ashlar_stream stream,
                                                              ashlar_event event);

/*
 * Queue a copy between host and device, or a fill with one byte value. `bytes` may be 0.
 *
 * Stream:  the copy runs in stream order. Page-locked host memory, however obtained, and managed
 *          memory must stay unchanged until the copy has run; other host memory has been read when
 *          ashlar_copy_to_device() returns. For that the host waits for `stream` if there are more
 *          than 64 KiB, or if eight smaller copies have been queued and the oldest has not run.
 *          ashlar_copy_to_host() has certainly written its result only after
 *          ashlar_stream_synchronize().
 * Threads: any.
 * Errors:  ASHLAR_EDRIVER, ASHLAR_ENOMEM (the driver could not queue it); ASHLAR_EINVAL (src is
 *          NULL, or neither page-locked nor managed, and a captured copy would read it later).
 * Cost:    a driver call; ashlar_copy_to_device() also asks what `src` is and makes, for pageable
 *          memory, three calls more. The first small copy from such memory takes 512 KiB of
 *          page-locked memory, which stays until ashlar_device_close().
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
 * Queue a copy inside the device's memory. The two ranges must not overlap; `bytes` may be 0.
 *
 * Stream:  runs in stream order.  Threads: any.  Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM (the driver
 * could not queue the copy).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_copy(ashlar_device *device, void *dst,
                                                       const void *src, size_t bytes,
                                                       ashlar_stream stream);

/*
 * Queue a copy from one device's memory to another's; both may be the same device. Without peer
 * access the driver goes through host memory. `bytes` may be 0.
 *
 * stream   a stream of `dst_device`. It does not wait for work queued on the source device: to
 *          order it after that work, call ashlar_stream_wait() for an event recorded there
 *
 * Threads: any.  Errors: ASHLAR_EINVAL (one device is CUDA's, the other a software device),
 * ASHLAR_EDRIVER, ASHLAR_ENOMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_copy_peer(ashlar_device *dst_device, void *dst,
                                                            ashlar_device *src_device,
                                                            const void *src, size_t bytes,
                                                            ashlar_stream stream);

/*
 * Queue a call of fn(args) on `stream`, on the host. On a software device this is how work is
 * launched: fn may touch device memory. It must not call ashlar or the driver.
 *
 * args   `args_bytes` bytes, copied before the call returns; fn gets the copy, aligned as by
 *        malloc. After an error of the device fn is not called, and the copy is not freed.
 *
 * Threads: any.  Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM, ASHLAR_EHOSTMEM.  Cost: one host
 * allocation.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_launch(ashlar_device *device,
                                                         ashlar_stream stream, void (*fn)(void *),
                                                         const void *args, size_t args_bytes);

/*
 * Take page-locked host memory, for copies that run beside other work, or give it back.
 *
 * Ownership: the caller owns *out until ashlar_device_host_free().  Threads: any.
 * Errors:    ASHLAR_EINVAL (bytes is 0), ASHLAR_ENOMEM, ASHLAR_EDRIVER.
 * Cost:      a driver call, which may wait for the device; ashlar_allocator_create_host() avoids
 * it.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_device_host_alloc(ashlar_device *device,
                                                                    size_t bytes, void **out);
ASHLAR_API void ashlar_device_host_free(ashlar_device *device, void *ptr); /* NULL is allowed */

/*
 * ---- a captured piece of a stream's work, to be launched again and again ----
 *
 *     ashlar_graph_begin(device, stream, &graph);
 *     ...                              work queued on `stream`, and on streams that wait for it
 *     ashlar_graph_end(graph);
 *     ashlar_graph_launch(graph);      as often as wanted, on the same stream
 *     ashlar_graph_destroy(graph);     once its launches have run
 *
 * Between begin and end the work does not run. A launch repeats the calls with the arguments that
 * they had, so what differs from launch to launch has to lie in memory: the fields `..._at` of an
 * ashlar_model_batch, rate_at of an ashlar_optimizer_call. Memory that was taken and given back
 * during the capture must be the graph's own while it is launched: that of a planned step, taken
 * anew before each launch (ashlar_model_dry_run()), or of a pool (ashlar_graph_pool_begin()). The
 * thread that begins a graph queues all of its work: the arguments of its ashlar_launch() calls
 * live as long as the graph. Other threads go on undisturbed.
 */
typedef struct ashlar_graph ashlar_graph;

/*
 * Begin a graph. A thread may have only one graph between begin and end.
 *
 * Ownership: the caller owns *out, in which the capture is under way, until it is destroyed; the
 *            device and the stream must outlive it.
 * Errors:    ASHLAR_EHOSTMEM, ASHLAR_EDRIVER (the stream cannot be captured).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_graph_begin(ashlar_device *device,
                                                              ashlar_stream stream,
                                                              ashlar_graph **out);

/*
 * End the capture and make the graph ready. After an error it can only be destroyed.
 *
 * Threads: the one that began it.
 * Errors:  ASHLAR_EDRIVER (a call in between was one that no graph can hold), ASHLAR_ENOMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_graph_end(ashlar_graph *graph);

/*
 * Queue the graph's work on its stream.
 *
 * Threads: any, one at a time.  Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM.  Cost: one driver call.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_graph_launch(const ashlar_graph *graph);

/* End the capture, if it is under way, and forget the graph. No launch may be unfinished. NULL is
 * allowed. */
ASHLAR_API void ashlar_graph_destroy(ashlar_graph *graph);

/*
 * Start afresh with the software devices that `spec` describes, as the environment's ASHLAR_SOFT
 * would: a program then has devices of its own choice, such as one of 1 TiB for ashlar_fit(). Work
 * that has not run is dropped; every device that is open, and what was made on it, becomes invalid.
 *
 * spec   a line of key=value pairs, such as "memory=1TiB,touch=off"; "": the defaults; NULL: what
 *        ASHLAR_SOFT says
 *
 * Threads: no other thread may be in a call to a software device.
 * Errors:  ASHLAR_EINVAL (spec, or called inside a host function), ASHLAR_EHOSTMEM. After an error
 *          the old devices are unchanged.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_soft_configure(const char *spec);

/* Call fn(data) on up to `threads` threads at once, the caller's among them, and return when all
 * calls have returned; fn may also be called by fewer. `flags` is 0. GOMP_parallel() is such a
 * function: it runs fn on the threads of GCC's OpenMP. */
typedef void (*ashlar_parallel_fn)(void (*fn)(void *data), void *data, unsigned threads,
                                   unsigned flags);

/*
 * Which threads share the work that the CPU computes, from now on. Results do not depend on it.
 *
 * count      how many, the caller's included, 1..256; 0: the number of the environment's
 *            ASHLAR_THREADS, or of the processors
 * parallel   lends threads that the program has already, so that two pools do not wait for
 *            processors on which the other one's threads spin; NULL: ashlar has threads of its own
 *
 * Threads: any; work that runs keeps its own.  Errors: ASHLAR_EINVAL (count).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_set_threads(size_t count,
                                                              ashlar_parallel_fn parallel);

ASHLAR_END_DECLS

#endif /* ASHLAR_DEVICE_H */
