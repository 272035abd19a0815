/*
 * soft.h - setting up the software device, and asking about the order of its work (internal).
 *
 * The device itself is used through driver.h, like any other. Its description is a line of
 * `key=value` pairs, in the environment variable ASHLAR_SOFT or passed to ashlar__soft_configure():
 *
 *   devices  1..16, default 1
 *   memory   bytes of each device with a unit B, KiB, MiB, GiB or TiB; 2MiB..64TiB, rounded down
 *            to a multiple of 2 MiB; default 4GiB. It takes host memory only once it is written to.
 *   mode     eager (default)  work runs as soon as stream order allows, on the calling thread
 *            adversarial      work runs only when the host waits for it, and in an order drawn by
 *                             `seed`, so that a program that does not order its work goes wrong
 *            overlap          work runs on four threads of the device, as soon as its order allows:
 *                             beside the program, and work of several streams at the same time
 *   seed     unsigned 64-bit decimal, default 1; the same seed and the same calls of one thread
 *            give the same interleaving
 *   peers    on (default) or off: whether a device can be given access to another's memory
 *   vmm      on (default) or off: whether the device has virtual memory management. If off, its
 *            attribute says so and the calls for it are refused; cuMemAlloc still works
 *   batch    on (default) or off: without it cuMemcpyBatchAsync is refused, as before CUDA 12.8
 *   share    how memory of cuMemCreate can be shared with other processes
 *            none           not at all: the attributes say so, and a request is refused
 *            file (default) by file descriptors
 *            fabric         by file descriptors. The attributes promise fabric handles, too, but a
 *                           request for one is not permitted, as on most machines, which lack the
 *                           service for it. Network cards may be asked for (gpuDirectRDMACapable)
 *   latency  NAME:NS, or several of these joined by +. Each call of the function NAME takes NS more
 *            nanoseconds, 1 .. 1000000000, spent before the call does anything; other threads go on
 *            meanwhile. Only calls made through ASHLAR_DRIVER_CALL are slowed.
 *   clocks   on or off (default): record the order of queued work; see ashlar__soft_clock_use()
 *   strict   on or off (default): on undefined behaviour in CUDA's sense, write one line to
 *            standard error and abort(). With off such a call returns an error. See below.
 *   recycle  whether a new stream or event gets the handle that was freed last, as with real
 *            drivers, so that a stale handle names something else. off: no handle comes back, and
 *            every use of a stale one is known as such. Default: on, and off with strict=on
 *   waits    on or off (default): whether calls that CUDA documents as possibly synchronising do
 *            wait: cuMemUnmap and cuMemSetAccess for all work of the device, a copy between device
 *            and pageable memory until it has run. cuMemFree always waits. With waits=on a program
 *            deadlocks if it makes such a call while holding a lock that queued work needs. With
 *            waits=off a program that relies on the wait goes wrong: the device reads and writes
 *            pageable memory when the copy runs, as a GPU may that has HMM or ATS
 *   overhead bytes of device memory that each context takes while it lives, as with a real driver:
 *            with a unit, rounded up to a multiple of 2 MiB; default 0B
 *   time     on or off (default): date all calls and work on a virtual clock; see
 *            ashlar__soft_work(). A query of an event then goes by that clock.
 *   touch    on (default) or off: with off, copies and fills are queued and move no bytes, so that
 *            device memory of any size takes no host memory. For programs that look at sizes only
 *   costs    with time=on: the costs of calls and work on the virtual clock
 *            on (default)  each call by the estimates in soft_config.c, and copies, fills and host
 *                          functions by those in soft_time.c
 *            off           none of these but cuEventQuery and cuStreamQuery, so that polling ends
 *            NAME:NS       on, but the function NAME costs the host NS nanoseconds,
 *                          0 .. 1000000000; or several joined by +
 *
 * A line in ASHLAR_SOFT_DEFAULTS gives the values of keys that this line leaves out. Tests set
 * strict=on there.
 *
 * Example: "devices=2,memory=4GiB,mode=adversarial,latency=cuMemAlloc:200000+cuMemCreate:50000"
 *
 * With strict=on the following mistakes end the process, because a real driver need not report them
 * as errors. This mode is for tests, and the one exception to the rule that the library never
 * prints and never exits.
 *   - a handle of a destroyed stream, event, graph or memory, or one that never existed
 *   - an unmap of part of a mapping; addresses given back while memory is mapped there
 *   - an unmap of memory, or a free of pinned memory, that queued work uses: a copy or a fill that
 *     has not run (time=on: or is not over on the virtual clock), with clocks=on also a use that
 *     the host has not seen finished; and a copy or a fill that finds its memory gone when it runs
 *   - a call that invalidates a capture begun by another thread
 *   - the end of a stream that is being captured
 *   - a call of the device inside a host function
 *   - a launch that is given memory which is not the device's, or an array for the host that is
 *     (ashlar__check_operands(), ashlar__check_host_array())
 * A mistake for which CUDA documents an error stays an error: a free of a pointer that is no
 * allocation, a dead context.
 */
#ifndef ASHLAR_SOFT_H
#define ASHLAR_SOFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

#include "allocator/driver/cuda_abi.h"

/*
 * Start afresh with the devices that `spec` describes. Work that has not run is dropped; every
 * stream, event, context, mapping and allocation is destroyed; all old handles become invalid. The
 * driver from ashlar__driver_open_soft() stays valid.
 *
 * spec    a line as above; "": the defaults; NULL: read ASHLAR_SOFT anew (unset: the defaults)
 *
 * Threads: no other thread may be in a call to the device.
 * Errors:  ASHLAR_EINVAL (a bad `spec`, or called inside a host function), ASHLAR_EHOSTMEM. After
 *          an error the old devices are unchanged.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_configure(const char *spec);

/*
 * With mode=adversarial, have `by` decide what runs next instead of the seed; NULL: the seed again.
 * So a test can go through all orders that CUDA's rules allow. While the host waits, any work that
 * these rules let run may be next; when the host asks whether work is finished, both answers are
 * possible. Some orders cannot be told apart: those of work on several streams that shares no
 * memory and no event, and those of work that runs before anybody asks, or waits, for it. Of such
 * orders at least one is offered.
 *
 * by  chooses one of `count` > 1 ways, and returns its number, 0 .. count-1. The device's lock is
 *     held meanwhile, so it must not call the device. While the host waits, each way is a stream
 *     whose oldest work runs next; when the host asks, 0 is "not finished" and 1 is "finished".
 *
 * Threads: any.
 */
typedef size_t soft_chooser(size_t count);
void ashlar__soft_choose_by(soft_chooser *by);

/*
 * Prove for tests, with clocks=on, that uses of memory are ordered. The proof relies only on what
 * the program has asked for, and never on what happened to run first or to be finished. Work A
 * comes before work B in these cases, and if A comes before C and C before B:
 *   - B is queued later than A on the same stream;
 *   - B's stream has waited in-stream for an event that was recorded after A on A's stream;
 *   - one of their streams is the legacy stream, the other a blocking stream of the same device,
 *     and B is queued later;
 *   - B is queued, on any stream, after some thread of the host has seen A finished: by a
 *     successful cuEventQuery or cuStreamQuery, by cuEventSynchronize, cuStreamSynchronize or
 *     cuCtxSynchronize, with waits=on by a copy from or into pageable memory, or by a call that
 *     waits for the whole device (cuMemFree, the last release of a context).
 *
 * ashlar__soft_clock_use: record that a use of the memory was queued on `stream` just now, after
 *     all work queued there before.
 * ashlar__soft_clock_own: ask whether work that will be queued on `stream` may take the memory
 *     over. *is_ordered: every recorded use of any of these bytes comes before all such work.
 *
 * ptr, bytes  any range of addresses, bytes > 0; it need not be mapped
 * stream      any live stream; a default stream is that of the calling thread's current device
 *
 * Threads: any.  Stream: nothing is queued, but a use takes its place in the stream's order.
 * Errors:  ASHLAR_EINVAL (clocks=off, an empty or wrapping range, no current context, no such
 *          stream, a stream that is capturing), ASHLAR_EHOSTMEM (also if host memory ran out in an
 *          earlier call, so that the order is no longer known).
 * Cost:    linear in the number of uses that the host has not seen finished.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_clock_use(cu_ptr ptr, size_t bytes, cu_stream stream);
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_clock_own(cu_ptr ptr, size_t bytes, cu_stream stream,
                                                       bool *is_ordered);

/*
 * Virtual time, with time=on, measures lost overlap, and does not depend on the machine. Every
 * thread has a clock. A stream has a tail, the time when all its work is over; an event has its
 * stream's tail at the time of the record (soft_time.h has the rules). All times are ns since
 * ashlar__soft_configure(). With one thread they follow exactly from the calls.
 *
 * ashlar__soft_work: queue work that does nothing but take `ns` of the stream's time. It costs the
 *     host one launch, and can be captured.
 * ashlar__soft_host_work: the calling thread computes for `ns`.
 * ashlar__soft_host_until: the calling thread has waited until `ns`, say for another thread.
 * ashlar__soft_host_ns: the calling thread's clock, which begins at the latest thread's time.
 * ashlar__soft_stream_ns: the stream's tail.
 *
 * stream  any live stream; a default stream is that of the calling thread's current device
 *
 * Threads: any, but not in a host function.  Without time=on: no time passes.
 * Errors:  ASHLAR_EINVAL (no current context, no such stream), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_work(cu_stream stream, uint64_t ns);
void ashlar__soft_host_work(uint64_t ns);
void ashlar__soft_host_until(uint64_t ns);
uint64_t ashlar__soft_host_ns(void);
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_stream_ns(cu_stream stream, uint64_t *ns);

/*
 * Which memory work and the host may touch. With strict=on the process ends if the answer is no, by
 * a line that names the memory as `call: name`.
 *
 * ashlar__soft_is_for_work: all of it is mapped device memory that device `ordinal` has access to,
 *     or page-locked host memory, which CUDA devices can read and write, too.
 * ashlar__soft_is_for_host: none of it is in a range of device addresses.
 *
 * bytes   1 ..; more than can be addressed is never for work
 *
 * Threads: any.  Cost: a search among ranges; then a look at each mapping.
 */
bool ashlar__soft_is_for_work(int ordinal, const void *ptr, size_t bytes, const char *call,
                              const char *name);
bool ashlar__soft_is_for_host(const void *ptr, size_t bytes, const char *call, const char *name);

/* A device's counters since ashlar__soft_configure(). The first five need time=on. */
typedef struct soft_figures {
    uint64_t end_ns;          /* when all work queued so far is over */
    uint64_t wait_count;      /* calls of cuStreamWaitEvent that made a stream wait, ... */
    uint64_t wait_ns;         /* ... and how long: sums of event's time - max(tail, host) */
    uint64_t host_wait_count; /* waits of a thread, for any device, that took time, ... */
    uint64_t host_wait_ns;    /* ... and how long in all */
    size_t physical_bytes;    /* physical memory in use */
    size_t physical_peak_bytes;
} soft_figures;

/* Errors: ASHLAR_EINVAL (no such device). */
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_get_figures(int ordinal, soft_figures *out);

#endif /* ASHLAR_SOFT_H */
