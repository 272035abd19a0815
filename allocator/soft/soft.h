/*
 * soft.h - the software device, as a program or a test sets it up (internal).
 *
 * The device itself is used through driver.h, like any other. It is described by a line of
 * `key=value` pairs, in the environment variable ASHLAR_SOFT or given by hand:
 *
 *   devices  1..16, default 1
 *   memory   bytes of each device with a unit B, KiB, MiB, GiB or TiB; 2MiB..64TiB, rounded down
 *            to a multiple of 2 MiB; default 4GiB. Host memory is taken only as it is written to.
 *   mode     eager (default)  work runs as soon as stream order allows, on the calling thread
 *            adversarial      work runs only when the host waits for it, and then in an order
 *                             drawn by `seed`: what is not ordered by the program goes wrong
 *   seed     unsigned 64-bit decimal, default 1; the same seed and the same calls of one thread
 *            give the same interleaving
 *   peers    on (default) or off: whether a device can be given access to another's memory
 *   vmm      on (default) or off: without virtual memory management the device says so, and the
 *            calls for it are refused; cuMemAlloc remains
 *   batch    on (default) or off: without it cuMemcpyBatchAsync is refused, as in a CUDA before 12.8
 *   latency  NAME:NS, more of them joined by +: this call of the driver table takes at least so
 *            many nanoseconds, 1 .. 1000000000, which it spends before it does anything; other
 *            threads go on. Holds for calls made through ASHLAR_DRIVER_CALL.
 *   clocks   on or off (default): watch in which order work is queued; see below
 *
 * for example "devices=2,memory=4GiB,mode=adversarial,latency=cuMemAlloc:200000+cuMemCreate:50000".
 */
#ifndef ASHLAR_SOFT_H
#define ASHLAR_SOFT_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/status.h>

#include "allocator/driver/cuda_abi.h"

/*
 * Start afresh with the devices that `spec` describes: work that has not run is dropped, every
 * stream, event, context, mapping and allocation is gone, and all old handles are dead. The
 * driver of ashlar__driver_open_soft() stays valid.
 *
 * spec    as above; NULL reads ASHLAR_SOFT anew (unset: the defaults), "" means the defaults
 *
 * Threads: no other thread may be in a call to the device.
 * Errors:  ASHLAR_EINVAL (spec, or called inside a host function), ASHLAR_EHOSTMEM; the old
 *          devices then stay as they were.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_configure(const char *spec);

/*
 * With clocks=on, a proof of order for tests. It follows from what the program has asked for and
 * from nothing else: not from what happened to run first, nor from what happens to be finished.
 * Work comes before other work
 *   - that is queued later on the same stream;
 *   - on a stream that has waited in-stream for an event recorded behind it;
 *   - on the legacy stream or on blocking streams of the device, as these are ordered;
 *   - that is queued on any stream once the host has seen it finished: by a successful
 *     cuEventQuery, by cuEventSynchronize, cuStreamSynchronize or cuCtxSynchronize, by a copy into
 *     pageable memory, or by a call that waits for the whole device (cuMemFree, the last release
 *     of a context). Whichever thread saw it, all have.
 * and transitively.
 *
 * ashlar__soft_clock_use: a use of the memory was queued on `stream` just now, behind all that has
 *     been queued on it.
 * ashlar__soft_clock_own: from now on the memory belongs to work that will be queued on `stream`.
 *     *is_ordered: each use of any of these bytes so far comes before all such work.
 *
 * ptr, bytes  any range of addresses, bytes > 0; neither need be mapped
 * stream      any live stream; the default ones are the calling thread's, on its current device
 *
 * Threads: any.  Stream: nothing is queued, but where it matters a use counts as work.
 * Errors:  ASHLAR_EINVAL (no clocks, an empty or wrapping range, no current context, no such
 *          stream, a stream that is capturing), ASHLAR_EHOSTMEM (also when the host's memory ran
 *          out before, so that the order is no longer known).
 * Cost:    linear in the number of uses that the host has not seen finished.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_clock_use(cu_ptr ptr, size_t bytes, cu_stream stream);
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_clock_own(cu_ptr ptr, size_t bytes, cu_stream stream,
                                                       bool *is_ordered);

#endif /* ASHLAR_SOFT_H */
