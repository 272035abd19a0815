/*
 * allocator_impl.h - what an allocator is inside the library (internal).
 */
#ifndef ASHLAR_ALLOCATOR_IMPL_H
#define ASHLAR_ALLOCATOR_IMPL_H

#include <pthread.h>

#include <ashlar/allocator.h>

#include "heap.h"
#include "trace_ring.h"

struct ashlar_allocator {
    ashlar_device *device; /* const */
    ashlar_trace *trace;   /* const; NULL: none is kept */
    pthread_mutex_t lock;  /* guards everything below */
    ashlar_caller caller;
    ashlar_heap heap;
    ashlar_order *orders;  /* one for each stream seen; never removed, new ones in front */
    ashlar_order *recent;  /* the one asked for last, as the next call mostly asks for it again */
    ashlar_stats stats;    /* but for what ashlar_stats_read fills in */
    uint64_t calls_at_seal;
    /*
     * True from reaching a new peak of live bytes until the next free. Only then are the tags'
     * live bytes copied to at_peak_bytes, once per peak and not once per allocation.
     */
    bool is_at_peak;
};

/* Which step of the ladder served a request: the counter to raise. */
typedef enum ashlar_step {
    ASHLAR_STEP_SAME_STREAM,
    ASHLAR_STEP_IDLE,
    ASHLAR_STEP_COMPLETED,
    ASHLAR_STEP_WAITED,
    ASHLAR_STEP_MAPPED,
    ASHLAR_STEP_AFTER_SYNC,
} ashlar_step;

/*
 * Find a free block of at least `bytes` that work queued on `order` from now on may use; it is
 * still free and in its tree. Lock: held.
 *
 * Errors: ASHLAR_ENOMEM (the driver's own words in the detail), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_ladder_find_locked(ashlar_allocator *allocator,
                                                          ashlar_order *order, size_t bytes,
                                                          ashlar_block **out, ashlar_step *step);

#endif /* ASHLAR_ALLOCATOR_IMPL_H */
