/*
 * dry_run.h - steps that are recorded without memory (internal).
 *
 * A dry run takes and frees what a step does, and uses none of it. So its requests get addresses
 * with nothing behind them: recording costs no memory, and none is left lying where the plan is to
 * be. The addresses are far above those that a process can have, so that any use of one fails.
 */
#ifndef ASHLAR_DRY_RUN_H
#define ASHLAR_DRY_RUN_H

#include "allocator/core/allocator_impl.h"
#include "allocator/plan/plan_replay.h"

#define ASHLAR_DRY_RUN_BASE ((uintptr_t)1 << 62)

enum {
    ASHLAR_DRY_RUN_STRIDE_LOG2 = 40,            /* from one address to the next */
    ASHLAR_DRY_RUN_BLOCKS_MAX = 1 << (62 - 40), /* of one step */
};
_Static_assert((uintptr_t)ASHLAR_DRY_RUN_BLOCKS_MAX << ASHLAR_DRY_RUN_STRIDE_LOG2 <=
                   UINTPTR_MAX - ASHLAR_DRY_RUN_BASE,
               "the last address does not wrap");

/* Whether this thread's requests get no memory. own: its cache, or NULL. */
static inline bool ashlar__dry_run_is_on(const ashlar_cache *own) {
    return own != NULL && own->own_replay != NULL && own->own_replay->is_dry_run &&
           own->own_replay->is_recorded;
}

/* Whether an address is a dry run's. */
static inline bool ashlar__dry_run_has(const ashlar_cache *own, const void *ptr) {
    return ashlar__dry_run_is_on(own) && (uintptr_t)ptr >= ASHLAR_DRY_RUN_BASE;
}

/*
 * Record an allocation. *out stays NULL where it is not recorded: then it needs memory.
 * Lock: held. Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER, ASHLAR_EOVERFLOW (too many).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__dry_run_alloc_locked(ashlar_allocator *allocator,
                                                             ashlar_cache *own, size_t bytes,
                                                             ashlar_tag tag, ashlar_stream stream,
                                                             void **out);

/*
 * Record that a block is freed, or from now on used on further streams.
 *
 * stream   where it was used last; NULL: on its own
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
