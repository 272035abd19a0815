/*
 * dry_run.h - steps that are recorded without memory (internal).
 *
 * A dry run allocates and frees the blocks that a step does, but uses none of them. So its requests
 * get addresses with no memory behind them: recording costs no memory, and leaves no block where
 * the plan's memory is to lie. The addresses are far above any that a process can have, so that
 * using one faults.
 */
#ifndef ASHLAR_DRY_RUN_H
#define ASHLAR_DRY_RUN_H

#include "allocator/core/allocator_impl.h"
#include "allocator/plan/plan_replay.h"

#define ASHLAR_DRY_RUN_BASE ((uintptr_t)1 << 62)

enum {
    ASHLAR_DRY_RUN_STRIDE_LOG2 = 40,            /* from one address to the next */
    ASHLAR_DRY_RUN_BLOCKS_MAX = 1 << (62 - 40), /* allocations of one step */
};
_Static_assert((uintptr_t)ASHLAR_DRY_RUN_BLOCKS_MAX << ASHLAR_DRY_RUN_STRIDE_LOG2 <=
                   UINTPTR_MAX - ASHLAR_DRY_RUN_BASE,
               "the last address does not wrap");

/* Whether this thread's requests get no memory. own: the thread's cache, or NULL. */
static inline bool ashlar__dry_run_is_on(const ashlar_cache *own) {
    return own != NULL && own->own_replay != NULL && own->own_replay->is_dry_run &&
           own->own_replay->is_recorded;
}

/* Whether an address is a dry run's. */
static inline bool ashlar__dry_run_has(const ashlar_cache *own, const void *ptr) {
    return ashlar__dry_run_is_on(own) && (uintptr_t)ptr >= ASHLAR_DRY_RUN_BASE;
}

/*
 * Record an allocation. *out stays NULL if the recording leaves it out: then the request needs
 * memory.
 * Lock: held. Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER, ASHLAR_EOVERFLOW (too many).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__dry_run_alloc_locked(ashlar_allocator *allocator,
                                                             ashlar_cache *own, size_t bytes,
                                                             ashlar_tag tag, ashlar_stream stream,
                                                             void **out);

/*
 * _free_: record that a block is freed. _mark_: record that another stream uses it from now on.
 *
 * stream   the stream of the last use (NULL: the block's own), or the stream that uses it now
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
