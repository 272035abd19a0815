/*
 * soft.h - setting up the software device (internal).
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
 *   strict   on or off (default): on undefined behaviour in CUDA's sense, write one line to
 *            standard error and abort(). With off such a call returns an error. See below.
 *   recycle  whether a new stream or event gets the handle that was freed last, as with real
 *            drivers, so that a stale handle names something else. off: no handle is used twice, so
 *            every use of a stale one is found. Default: on, and off with strict=on
 *   waits    on or off (default): whether calls that CUDA documents as possibly synchronising do
 *            wait: cuMemUnmap and cuMemSetAccess for all work of the device, a copy between device
 *            and pageable memory until it has run. cuMemFree always waits. With waits=on a program
 *            deadlocks if it makes such a call while holding a lock that queued work needs. With
 *            waits=off a program that relies on the wait goes wrong: the device reads and writes
 *            pageable memory when the copy runs, as a GPU may that has HMM or ATS
 *   overhead bytes of device memory that each context takes while it lives, as with a real driver:
 *            with a unit, rounded up to a multiple of 2 MiB; default 0B
 *   time     on or off (default): date all calls and work on virtual clocks (soft_time.c), by which
 *            an event is then complete or not
 *   costs    on (default) or off: whether, with time=on, calls and work take the time that
 *            soft_time.c estimates. off: only cuEventQuery and cuStreamQuery, so that polling ends,
 *            and copies with a copy_rate
 *   copy_rate
 *            bytes that a copy between host and device moves in a microsecond (MB/s), with time=on:
 *            1..1000000. Default: 25000 with costs=on, and with costs=off such a copy takes no time
 *   launch   with time=on, the ns that a call which queues work costs the host; default 4000
 *   kernel   with time=on, the ns that a host function takes, in a kernel's place; default 10000
 *   trace    a file that is written with time=on: an event in Chrome's trace format for each piece
 *            of work, each wait of a stream, and each call for work, memory or a wait. The file of
 *            one process; ranks that are processes need one each. Default: none
 *   touch    on (default) or off: with off, copies and fills are queued and move no bytes, so that
 *            device memory of any size takes no host memory. For programs that look at sizes only
 *
 * A line in ASHLAR_SOFT_DEFAULTS gives the values of keys that this line leaves out. Tests set
 * strict=on there.
 *
 * Example: "devices=2,memory=4GiB,mode=adversarial,seed=7"
 *
 * With strict=on the following mistakes end the process, because a real driver need not report them
 * as errors. This is the one exception to the rule that the library never prints and never exits.
 *   - to use a handle that was destroyed, or never existed
 *   - to unmap part of a mapping; to free reserved addresses while memory is mapped there
 *   - to unmap memory, or to free pinned memory, that queued work uses
 *   - to invalidate another thread's capture; to destroy a stream that is being captured
 *   - to call the device inside a host function
 *   - to launch work with memory that is not the device's, or with an array in device memory that
 *     the host is to read (ashlar__check_operands(), ashlar__check_host_array())
 * A mistake for which CUDA documents an error stays an error: a free of a pointer that is no
 * allocation, a dead context.
 */
#ifndef ASHLAR_SOFT_H
#define ASHLAR_SOFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/device.h>

/* ashlar_soft_configure(), which is apart: libraries with a device of their own do not share it.
 * The driver from ashlar__driver_open_soft() stays valid. */
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_configure(const char *spec);

/*
 * Whether queued work, or the host, may touch this memory. With strict=on, if it may not, end the
 * process with a line that names the memory as `call: name`.
 *
 * ashlar__soft_is_for_work: all of it is mapped device memory that device `ordinal` has access to,
 *     or page-locked host memory, which CUDA devices can read and write, too.
 * ashlar__soft_is_for_host: none of it is in a range of device addresses.
 *
 * bytes   > 0
 *
 * Threads: any.  Cost: a binary search among ranges; then a look at each mapping.
 */
bool ashlar__soft_is_for_work(int ordinal, const void *ptr, size_t bytes, const char *call,
                              const char *name);
bool ashlar__soft_is_for_host(const void *ptr, size_t bytes, const char *call, const char *name);

/* The calling thread's virtual clock. False: there is none, without time=on. */
bool ashlar__soft_virtual_ns(uint64_t *ns);

/* Name the next host function that this thread queues, in a trace. `name` is of static storage, and
 * needs no escape in JSON. */
void ashlar__soft_name(const char *name);

/* Whether there is a trace, which what follows is for. */
bool ashlar__soft_is_traced(void);

/* Tell a trace that `bytes` more, or less, are in `tier` (a name like those above), once the work
 * is over that is queued on `stream` now. A stream of another device or one that is captured:
 * nothing. */
void ashlar__soft_trace_bytes(ashlar_stream stream, const char *tier, size_t bytes, bool is_less);

/*
 * In a host function that found a mistake of the program: once it returns, its device is lost, as
 * after an assertion in a kernel. Later calls for it fail with CU_LAUNCH_FAILED, whose description
 * is `text`, of static storage.
 */
void ashlar__soft_lose_device(const char *text);

#endif /* ASHLAR_SOFT_H */
