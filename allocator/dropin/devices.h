/*
 * devices.h - one allocator for each device of the process, for programs that know devices by
 * their ordinals and cannot be asked to keep anything (internal to the drop-in libraries).
 *
 * The devices are CUDA's, numbered as the CUDA runtime does; or software devices where the
 * environment's ASHLAR_DEVICE says "soft" (or "soft:N", whatever N is): never by themselves, since
 * the program around would not know. The allocators have the options of ASHLAR_CONF. They are
 * never destroyed: what a program frees in its last moments is freed, and the driver may be gone.
 *
 * A process that forks after its first device leaves the child without one, as CUDA does. There
 * every call fails with a detail that says so, none waits for a lock, and nothing is reported at
 * the end. A child of a process that had no device yet starts afresh.
 *
 * ASHLAR_REPORT=on has written to stderr, a line each: what a drop-in library refuses or fails at
 * and, where ASHLAR_CONF asks for them, leaks and damage. Without it nothing is ever written.
 */
#ifndef ASHLAR_DROPIN_DEVICES_H
#define ASHLAR_DROPIN_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/allocator.h>

#include "allocator/driver/cuda_abi.h"

enum {
    ASHLAR_DROPIN_DEVICES_MAX = 64,
    /* In a list of what there is for each device: what there is for page-locked host memory. */
    ASHLAR_DROPIN_HOST = ASHLAR_DROPIN_DEVICES_MAX,
    /* And for contexts that the program has made, a place each. */
    ASHLAR_DROPIN_CONTEXTS,
    ASHLAR_DROPIN_CONTEXTS_MAX = 64,
    ASHLAR_DROPIN_ALLOCATORS_MAX = ASHLAR_DROPIN_CONTEXTS + ASHLAR_DROPIN_CONTEXTS_MAX
};

/*
 * The allocator of a device, made at the first call. Its memory can be used by every other device
 * that is able to, unless ASHLAR_PEERS=off: such programs switch on access device by device, by a
 * call that does not reach memory which the virtual memory functions have mapped.
 *
 * ordinal   0 .. ASHLAR_DROPIN_DEVICES_MAX - 1
 *
 * Threads: any.
 * Errors:  ASHLAR_EINVAL (ordinal, ASHLAR_REPORT, ASHLAR_PEERS), ASHLAR_EDRIVER (a forked child),
 *          those of ashlar_device_open() and ashlar_allocator_create(). The next call tries again.
 * Cost:    after the first call two loads.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__dropin_allocator(int ordinal, ashlar_allocator **out);

/* The same, but NULL where none has been made; also for no ordinal, and in a forked child. */
ashlar_allocator *ashlar__dropin_peek(int ordinal);

/*
 * The allocator of page-locked host memory, one for the process, which every device may use. It has
 * every option at its default: those of ASHLAR_CONF are for device memory.
 *
 * ordinal   the device that the memory is taken through, if this is the first call
 *
 * Threads, errors, cost: as above.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__dropin_host_allocator(int ordinal, ashlar_allocator **out);

/*
 * A context that the program has made on a device of CUDA's, beside the primary one: an allocator of
 * its own, made at the first call for its place, with the options of ASHLAR_CONF. It must be
 * dropped before the context ends. Returns the context's place; -1: it has none, or there are too
 * many.
 *
 * Threads: any, but no other call for the place that is dropped.
 */
int ashlar__dropin_add_context(int ordinal, cu_context context);
int ashlar__dropin_find_context(cu_context context);
void ashlar__dropin_drop_context(int place);
ASHLAR_MUST_CHECK ashlar_status ashlar__dropin_context_allocator(int place, ashlar_allocator **out);

/*
 * Whose live block begins at `ptr`; NULL: nobody's, so that it may be the driver's.
 * Threads: any.  Cost: O(devices), a lock each.
 */
ashlar_allocator *ashlar__dropin_owner(const void *ptr);

/* Whether this process came out of a fork of one that had devices. Threads: any. */
bool ashlar__dropin_is_forked(void);

/* "ashlar: <what>: <ashlar_error_detail()>" on stderr, if reports are asked for. Threads: any. */
void ashlar__dropin_report(const char *what);

/* Tests: forget every allocator, without destroying it. No other call is under way. */
void ashlar__dropin_forget(void);

#endif /* ASHLAR_DROPIN_DEVICES_H */
