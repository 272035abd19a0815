/*
 * soft_probe.h - what tests ask the software device, and tell it: proof of order, virtual time. It
 * hangs into the device by soft_hooks (soft_state.h).
 */
#ifndef ASHLAR_SOFT_PROBE_H
#define ASHLAR_SOFT_PROBE_H

#include "allocator/soft/soft.h"
#include "allocator/soft/soft_state.h"

/*
 * Prove that uses of memory are ordered. The proof relies only on what the program has asked for,
 * and never on what happened to run first or to be finished. Work A comes before work B in these
 * cases, and if A comes before C and C before B:
 *   - B is queued later than A on the same stream;
 *   - B's stream has waited in-stream for an event that was recorded after A on A's stream;
 *   - one of their streams is the legacy stream, the other a blocking stream of the same device,
 *     and B is queued later;
 *   - B is queued, on any stream, after some thread of the host has seen A finished: by a
 *     successful cuEventQuery or cuStreamQuery, by cuEventSynchronize, cuStreamSynchronize or
 *     cuCtxSynchronize, with waits=on by a copy from or into pageable memory, or by a call that
 *     waits for the whole device (cuMemFree, the last release of a context).
 * With strict=on the process ends if memory is unmapped under a use that the host has not seen
 * finished.
 *
 * ashlar__soft_clock_use: record that a use of the memory was queued on `stream` just now, after
 *     all work queued there before. The first use since ashlar__soft_configure() has the order of
 *     work recorded from then on.
 * ashlar__soft_clock_own: ask whether work that will be queued on `stream` may take the memory
 *     over. *is_ordered: every recorded use of any of these bytes comes before all such work.
 *
 * ptr, bytes  any range of addresses, bytes > 0; it need not be mapped
 * stream      any live stream; a default stream is that of the calling thread's current device
 *
 * Threads: any.  Stream: nothing is queued, but a use takes its place in the stream's order.
 * Errors:  ASHLAR_EINVAL (an empty or wrapping range, no current context, no such stream, a stream
 *          that is capturing), ASHLAR_EHOSTMEM (also if host memory ran out in an earlier call, so
 *          that the order is no longer known).
 * Cost:    linear in the number of uses that the host has not seen finished.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_clock_use(cu_ptr ptr, size_t bytes, cu_stream stream);
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_clock_own(cu_ptr ptr, size_t bytes, cu_stream stream,
                                                       bool *is_ordered);

/* Let each copy and fill be a use of the memory that it reads and writes, page-locked memory too,
 * from here on. Returns how many of them, so far, did not come after all uses before them. */
size_t ashlar__soft_clock_watch_copies(void);

/*
 * Virtual time, with time=on, measures lost overlap, and does not depend on the machine. Every
 * thread has a clock. A stream has a tail, the time when all its work is over; an event has its
 * stream's tail at the time of the record (soft_time.c has the rules). All times are ns since
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

#endif /* ASHLAR_SOFT_PROBE_H */
