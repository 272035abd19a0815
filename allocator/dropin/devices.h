/*
 * devices.h - one allocator for each device of the process, for programs that name devices by
 * ordinals (internal to the drop-in libraries).
 *
 * The devices are CUDA's, with the ordinals of the CUDA runtime. They are software devices only if
 * the environment has ASHLAR_DEVICE=soft (or soft:N, for any N), since the program does not expect
 * those. The allocators have the options of ASHLAR_CONF. They are never destroyed: a program may
 * free memory until its last moment, and the driver may be gone by then.
 *
 * As with CUDA, a child that was forked after the first device was opened has no devices: every
 * call fails with a detail that says so, no call waits for a lock, and nothing is reported at exit.
 * A child that was forked earlier starts afresh.
 *
 * What leaks=on and guard=fill in ASHLAR_CONF find is written to stderr, one line each. With
 * ASHLAR_REPORT=on so are failures and refusals of the drop-in libraries, with ASHLAR_REPORT=off
 * nothing is.
 */
#ifndef ASHLAR_DROPIN_DEVICES_H
#define ASHLAR_DROPIN_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/allocator.h>

#include "allocator/driver/cuda_abi.h"

enum {
    /* Places in a list of allocators: first the devices, by ordinal, then page-locked host memory,
     * then the contexts that the program has made. */
    ASHLAR_DROPIN_DEVICES_MAX = 64,
    ASHLAR_DROPIN_HOST = ASHLAR_DROPIN_DEVICES_MAX,
    ASHLAR_DROPIN_CONTEXTS,
    ASHLAR_DROPIN_CONTEXTS_MAX = 64,
    ASHLAR_DROPIN_ALLOCATORS_MAX = ASHLAR_DROPIN_CONTEXTS + ASHLAR_DROPIN_CONTEXTS_MAX
};

/*
 * The allocator of a place, made at the first call. Unless ASHLAR_PEERS=off, all possible peers get
 * access to its memory, since cudaDeviceEnablePeerAccess() does not reach memory mapped by the
 * virtual memory functions. Page-locked host memory, which all devices may use, has default
 * options, since those of ASHLAR_CONF are for device memory.
 *
 * ordinal   0 .. ASHLAR_DROPIN_DEVICES_MAX - 1: the device; for host memory, at the first call, the
 *           device that takes it from the driver; not used for contexts
 *
 * Threads: any.
 * Errors:  ASHLAR_EINVAL (ordinal, ASHLAR_REPORT, ASHLAR_PEERS), ASHLAR_EDRIVER (a forked child),
 *          those of ashlar_device_open() and ashlar_allocator_create(). The next call tries again.
 * Cost:    two loads after the first call.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__dropin_at(int place, int ordinal, ashlar_allocator **out);

/* The place of a device; -1: no device has this ordinal. */
static inline int ashlar__dropin_place(int ordinal) {
    return (unsigned)ordinal < (unsigned)ASHLAR_DROPIN_DEVICES_MAX ? ordinal : -1;
}

static inline ashlar_status ashlar__dropin_allocator(int ordinal, ashlar_allocator **out) {
    return ashlar__dropin_at(ashlar__dropin_place(ordinal), ordinal, out);
}

/* The allocator of a device. NULL if there is none yet, if the ordinal is invalid, or in a forked
 * child. */
ashlar_allocator *ashlar__dropin_peek(int ordinal);

/*
 * Add a context, other than the primary one, that the program has made on a CUDA device. Returns
 * its place; the first use of the place makes an allocator with the options of ASHLAR_CONF. Returns
 * -1 if the context is not served, or if all places are taken. Drop the context before it ends.
 *
 * context   not NULL
 *
 * _find_context: the place of a context that was added, or -1.
 *
 * Threads: any, but no other call for the place while it is dropped.
 */
int ashlar__dropin_add_context(int ordinal, cu_context context);
int ashlar__dropin_find_context(cu_context context);
void ashlar__dropin_drop_context(int place);

/* The allocator with a live block at `ptr`; NULL: no allocator has one, so the pointer may be the
 * driver's. Threads: any. Cost: O(devices), takes a lock for each. */
ashlar_allocator *ashlar__dropin_owner(const void *ptr);

/* From now on call `made` for each allocator that is made, before anybody takes memory from
 * it; NULL: nothing. It runs under a lock, and must call nothing of this header. Threads: any. */
void ashlar__dropin_on_made(void (*made)(ashlar_allocator *allocator));

/* Whether this process was forked from one that had devices. Threads: any. */
bool ashlar__dropin_is_forked(void);

/* Print "ashlar: <what>: <ashlar_error_detail()>" on stderr if ASHLAR_REPORT=on. Threads: any. */
void ashlar__dropin_report(const char *what);

/* For tests: forget every allocator, without destroying it. No other call may be under way. */
void ashlar__dropin_forget(void);

#endif /* ASHLAR_DROPIN_DEVICES_H */
