/*
 * deferred_free.h - blocks that every stream may use at once, given out and taken back as
 * cudaMalloc() and cudaFree() do it (internal).
 *
 * Such a block is taken for no stream: nothing that is queued anywhere still uses it. Its free is
 * deferred for all streams: whoever defers it finds out when all work submitted before is over, on
 * whatever stream, and then releases it. Until then it waits outside the heap, as a shared block
 * without a use; see shared.h.
 *
 * Invariants (ashlar_allocator_check):
 *   shared_bytes == bytes of `shared`, of `deferred` and of the lists that were taken, not released
 */
#ifndef ASHLAR_DEFERRED_FREE_H
#define ASHLAR_DEFERRED_FREE_H

#include "allocator/core/allocator_impl.h"

/*
 * As ashlar_alloc(), for any streams. Not in a guard mode, which would queue work on the block.
 *
 * is_at_hand   only what is reserved and free by now: nothing is mapped or waited for
 *
 * Errors: as ashlar_alloc(); is_at_hand: ASHLAR_ENOMEM without a report.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__alloc_idle(ashlar_allocator *allocator, size_t bytes,
                                                   bool is_at_hand, void **out);
/* The same for one stream. */
ASHLAR_MUST_CHECK ashlar_status ashlar__alloc_at_hand(ashlar_allocator *allocator, size_t bytes,
                                                      ashlar_stream stream, void **out);

/*
 * Take a live block back, however it was taken. Not in a guard mode.
 * Threads: any.  Errors: ASHLAR_EPOINTER (as for ashlar_free); nothing changes then.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__free_deferred(ashlar_allocator *allocator, void *ptr);

/* Whether there is a block that was deferred and in no list taken since. Threads: any. */
bool ashlar__has_deferred(ashlar_allocator *allocator);

/* All blocks deferred so far, as a list for one of the two below; NULL: there are none. */
ashlar_block *ashlar__deferred_take(ashlar_allocator *allocator);

/* All work that was submitted before they were deferred is over: they are free. */
void ashlar__deferred_release(ashlar_allocator *allocator, ashlar_block *list);

/* They are still to be taken. */
void ashlar__deferred_put_back(ashlar_allocator *allocator, ashlar_block *list);

/* Whether the allocator is in a guard mode. */
static inline bool ashlar__allocator_is_guarded(const ashlar_allocator *allocator) {
    return allocator->guards.fill != NULL || allocator->guards.unmap != NULL;
}

#endif /* ASHLAR_DEFERRED_FREE_H */
