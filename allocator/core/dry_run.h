/*
 * dry_run.h - steps that are recorded without memory (internal).
 *
 * A dry run allocates and frees the same blocks as its step, but uses none of them. So its requests
 * get addresses with no memory behind them: recording costs no memory, and leaves no block in the
 * way of the plan's memory. The addresses are far above any that a process can have, so that using
 * one faults. What would exceed the limit beside the blocks that are live is refused, as in the
 * step.
 */
#ifndef ASHLAR_DRY_RUN_H
#define ASHLAR_DRY_RUN_H

#include "allocator/core/allocator_impl.h"
#include "allocator/plan/plan_replay.h"

#define ASHLAR_DRY_RUN_BASE ((uintptr_t)1 << 62)

enum {
    ASHLAR_DRY_RUN_STRIDE_LOG2 = 40,            /* log2 of the distance between two addresses */
    ASHLAR_DRY_RUN_BLOCKS_MAX = 1 << (62 - 40), /* the most allocations of one step */
};
_Static_assert((uintptr_t)ASHLAR_DRY_RUN_BLOCKS_MAX << ASHLAR_DRY_RUN_STRIDE_LOG2 <=
                   UINTPTR_MAX - ASHLAR_DRY_RUN_BASE,
               "the last address does not wrap");

/* Whether this thread's requests get addresses without memory. own: the thread's cache, or NULL. */
static inline bool ashlar__dry_run_is_on(const ashlar_cache *own) {
    return own != NULL && own->own_replay != NULL && own->own_replay->is_dry_run &&
           own->own_replay->is_recorded;
}

/* Whether an address comes from a dry run. */
static inline bool ashlar__dry_run_has(const ashlar_cache *own, const void *ptr) {
    return ashlar__dry_run_is_on(own) && (uintptr_t)ptr >= ASHLAR_DRY_RUN_BASE;
}

/*
 * Record an allocation. *out stays NULL if the recording leaves the allocation out: then the
 * request needs memory. Lock: held. Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER, ASHLAR_EOVERFLOW (too
 * many allocations), ASHLAR_ENOMEM (beyond the limit).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__dry_run_alloc_locked(ashlar_allocator *allocator,
                                                             ashlar_cache *own, size_t bytes,
                                                             ashlar_tag tag, ashlar_stream stream,
                                                             void **out);

/* The size of a live block: that of the request. Lock: held. Errors: ASHLAR_EPOINTER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__dry_run_bytes_locked(ashlar_allocator *allocator,
                                                             const ashlar_cache *own,
                                                             const void *ptr, size_t *out);

/*
 * _free_: record the free of a block. _mark_: record that another stream uses a block from now on.
 *
 * stream   _free_: the stream of the last use (NULL: the block's own). _mark_: the other stream
 *
 * Lock: held. Errors: ASHLAR_EPOINTER, ASHLAR_EHOSTMEM, ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__dry_run_free_locked(ashlar_allocator *allocator,
                                                            ashlar_cache *own, const void *ptr,
                                                            const ashlar_stream *stream);
ASHLAR_MUST_CHECK ashlar_status ashlar__dry_run_mark_locked(ashlar_allocator *allocator,
                                                            ashlar_cache *own, const void *ptr,
                                                            ashlar_stream stream);

#endif /* ASHLAR_DRY_RUN_H */
