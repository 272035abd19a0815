/*
 * ladder.h - the order in which a request is served that the thread's own cache does not have
 * (internal).
 */
#ifndef ASHLAR_LADDER_H
#define ASHLAR_LADDER_H

#include "allocator/core/allocator_impl.h"

/* Which step of the ladder served a request: the counter to raise. */
typedef enum ashlar_rung {
    ASHLAR_RUNG_PLANNED,
    ASHLAR_RUNG_CACHED,
    ASHLAR_RUNG_SAME_STREAM,
    ASHLAR_RUNG_IDLE,
    ASHLAR_RUNG_COMPLETED,
    ASHLAR_RUNG_WAITED,
    ASHLAR_RUNG_MAPPED,
    ASHLAR_RUNG_DRAINED,
    ASHLAR_RUNG_RECLAIMED,
    ASHLAR_RUNG_AFTER_SYNC,
    ASHLAR_RUNG_GATHERED,
} ashlar_rung;

/* A request on its way down the ladder. */
typedef struct ashlar_request {
    ashlar_stream_state *stream_state; /* work queued there from now on is to use the block */
    size_t bytes;                      /* of the block */
    ashlar_cache *own;                 /* the calling thread's cache, or NULL */
    bool is_unplanned;                 /* the step under way was asked already */
    bool is_idle;    /* for any streams: of memory that no work uses; see deferred_free.h */
    bool is_at_hand; /* of what is reserved and free by now */
} ashlar_request;

/*
 * Find a free block that serves the request; it is still free and in its index. Lock: held; may be
 * dropped and taken again meanwhile.
 *
 * Errors: ASHLAR_ENOMEM (the driver's own words in the detail), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__ladder_find_locked(ashlar_allocator *allocator,
                                                           const ashlar_request *request,
                                                           ashlar_block **out, ashlar_rung *step);

#endif /* ASHLAR_LADDER_H */
