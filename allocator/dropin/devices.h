/*
 * devices.h - one allocator for each device of the process, for programs that name devices by
 * ordinals and keep no handle of ours (internal to the drop-in libraries).
 *
 * The devices are CUDA's, numbered as by the CUDA runtime. They are software devices only if the
 * environment says ASHLAR_DEVICE=soft (or soft:N, for any N): never by default, since the program
 * around us would not know. The allocators have the options of ASHLAR_CONF. They are never
 * destroyed: a program may free memory until its last moment, and the driver may be gone by then.
 *
 * A child that was forked after the first device has none, as with CUDA. Every call there fails
 * with a detail that says so, none waits for a lock, and nothing is reported at the end. A child
 * that was forked before starts afresh.
 *
 * With ASHLAR_REPORT=on each failure and refusal of a drop-in library is a line on stderr, and so
 * are leaks and damage if ASHLAR_CONF asks for them. Without it nothing is ever written.
 */
#ifndef ASHLAR_DROPIN_DEVICES_H
#define ASHLAR_DROPIN_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/allocator.h>

#include "allocator/driver/cuda_abi.h"

enum {
    /* Places in a list of allocators: a device's ordinal, then page-locked host memory, then the
     * contexts that the program has made. */
    ASHLAR_DROPIN_DEVICES_MAX = 64,
    ASHLAR_DROPIN_HOST = ASHLAR_DROPIN_DEVICES_MAX,
    ASHLAR_DROPIN_CONTEXTS,
    ASHLAR_DROPIN_CONTEXTS_MAX = 64,
    ASHLAR_DROPIN_ALLOCATORS_MAX = ASHLAR_DROPIN_CONTEXTS + ASHLAR_DROPIN_CONTEXTS_MAX
};

/*
 * The allocator of a device, made at the first call. Every other device that can may use its
 * memory, unless ASHLAR_PEERS=off: programs switch on peer access by a call that does not reach
 * memory mapped by the virtual memory functions, as ours is.
 *
 * ordinal   0 .. ASHLAR_DROPIN_DEVICES_MAX - 1
 *
 * Threads: any.
 * Errors:  ASHLAR_EINVAL (ordinal, ASHLAR_REPORT, ASHLAR_PEERS), ASHLAR_EDRIVER (a forked child),
 *          those of ashlar_device_open() and ashlar_allocator_create(). The next call tries again.
 * Cost:    two loads after the first call.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__dropin_allocator(int ordinal, ashlar_allocator **out);

/* The same; NULL: none has been made, or no such ordinal, or this is a forked child. */
ashlar_allocator *ashlar__dropin_peek(int ordinal);

/*
 * The process's one allocator of page-locked host memory, which every device may use. Its options
 * are the defaults: ASHLAR_CONF is for device memory.
 *
 * ordinal   at the first call: the device through which the memory is taken
 *
 * Threads, errors, cost: as above.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__dropin_host_allocator(int ordinal, ashlar_allocator **out);

/*
 * A context that the program has made on a CUDA device, beside the primary one. It gets a place,
 * and at the first call for that place an allocator with the options of ASHLAR_CONF. Drop it before
 * the context ends. -1: the context has no place, or all are taken.
 *
 * context   not NULL
 *
 * Threads: any, but no other call for the place while it is dropped.
 */
int ashlar__dropin_add_context(int ordinal, cu_context context);
int ashlar__dropin_find_context(cu_context context);
void ashlar__dropin_drop_context(int place);
ASHLAR_MUST_CHECK ashlar_status ashlar__dropin_context_allocator(int place, ashlar_allocator **out);

/*
 * The allocator of a device with a live block at `ptr`; NULL: none has, it may be the driver's.
 * Threads: any.  Cost: O(devices), a lock each.
 */
ashlar_allocator *ashlar__dropin_owner(const void *ptr);

/* Whether this process was forked from one that had devices. Threads: any. */
bool ashlar__dropin_is_forked(void);

/* Print "ashlar: <what>: <ashlar_error_detail()>" on stderr if ASHLAR_REPORT=on. Threads: any. */
void ashlar__dropin_report(const char *what);

/* Tests: forget every allocator, without destroying it. No other call is under way. */
void ashlar__dropin_forget(void);

#endif /* ASHLAR_DROPIN_DEVICES_H */
