/*
 * ladder.h - the order in which a request is served that the thread's own cache does not have
 * (internal).
 */
#ifndef ASHLAR_LADDER_H
#define ASHLAR_LADDER_H

#include "allocator/core/allocator_impl.h"

/* Which step of the ladder served a request: the counter to raise. */
typedef enum ashlar_step {
    ASHLAR_STEP_PLANNED,
    ASHLAR_STEP_CACHED,
    ASHLAR_STEP_SAME_STREAM,
    ASHLAR_STEP_IDLE,
    ASHLAR_STEP_COMPLETED,
    ASHLAR_STEP_WAITED,
    ASHLAR_STEP_MAPPED,
    ASHLAR_STEP_DRAINED,
    ASHLAR_STEP_RECLAIMED,
    ASHLAR_STEP_AFTER_SYNC,
    ASHLAR_STEP_GATHERED,
} ashlar_step;

/* A request on its way down the ladder. */
typedef struct ashlar_request {
    ashlar_order *order; /* work queued there from now on is to use the block */
    size_t bytes;        /* of the block */
    ashlar_cache *own;   /* the calling thread's cache, or NULL */
    bool is_unplanned;   /* the step under way was asked already */
    bool is_idle;        /* for any streams: of memory that no work uses; see retired.h */
    bool is_at_hand;     /* of what is reserved and free by now */
} ashlar_request;

/*
 * Find a free block that serves the request; it is still free and in its index. Lock: held; may be
 * dropped and taken again meanwhile.
 *
 * Errors: ASHLAR_ENOMEM (the driver's own words in the detail), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_ladder_find_locked(ashlar_allocator *allocator,
                                                          const ashlar_request *request,
                                                          ashlar_block **out, ashlar_step *step);

#endif /* ASHLAR_LADDER_H */
