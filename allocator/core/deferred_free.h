/*
 * deferred_free.h - blocks that any stream may use at once, as after cudaMalloc(), and frees that
 * wait for all streams, as cudaFree() does (internal).
 *
 * Such a block belongs to no stream: when it is handed out, no queued work uses its memory. Its
 * free is deferred: the caller of ashlar__deferred_take() waits for all work, on any stream, that
 * was submitted before the free, and then releases the block. Until then it stays a used block,
 * marked as shared (block.h), but without a note of who uses it.
 *
 * Invariants (ashlar_allocator_check):
 *   shared_bytes == heap.away_bytes + deferred_bytes
 *   deferred_bytes == bytes of the blocks in `deferred`, and in lists that ashlar__deferred_take()
 *   returned and that are not released yet
 */
#ifndef ASHLAR_DEFERRED_FREE_H
#define ASHLAR_DEFERRED_FREE_H

#include "allocator/core/allocator_impl.h"

/*
 * Like ashlar_alloc(), but all streams may use the block at once. Must not be called in a guard
 * mode, which would queue work on the block.
 *
 * is_at_hand   use only memory that is reserved and free now: map nothing, and wait for nothing
 *
 * Errors: as for ashlar_alloc(); with is_at_hand, ASHLAR_ENOMEM comes without a report.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__alloc_idle(ashlar_allocator *allocator, size_t bytes,
                                                   bool is_at_hand, void **out);
/*
 * Like ashlar_alloc(), but uses only memory that is reserved and free now, as is_at_hand does
 * above.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__alloc_at_hand(ashlar_allocator *allocator, size_t bytes,
                                                      ashlar_stream stream, void **out);

/*
 * Free a live block, whichever function allocated it. Must not be called in a guard mode. Threads:
 * any. Errors: ASHLAR_EPOINTER (as for ashlar_free); then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__free_deferred(ashlar_allocator *allocator, void *ptr);

/* Whether there are deferred blocks for ashlar__deferred_take(). Threads: any. */
bool ashlar__has_deferred(ashlar_allocator *allocator);

/*
 * Take all blocks deferred so far, as a list for one of the two functions below; NULL: no blocks.
 */
ashlar_block *ashlar__deferred_take(ashlar_allocator *allocator);

/* Free the blocks. Call it after waiting for all work submitted before they were deferred. */
void ashlar__deferred_release(ashlar_allocator *allocator, ashlar_block *list);

/* Undo ashlar__deferred_take(): its next call returns these blocks again. */
void ashlar__deferred_put_back(ashlar_allocator *allocator, ashlar_block *list);

/* Whether the allocator is in a guard mode. */
static inline bool ashlar__allocator_is_guarded(const ashlar_allocator *allocator) {
    return allocator->guards.fill != NULL || allocator->guards.unmap != NULL;
}

#endif /* ASHLAR_DEFERRED_FREE_H */
