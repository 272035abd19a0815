/*
 * deferred_free.h - blocks that any stream may use at once, as after cudaMalloc(), and frees that
 * wait for all streams, as cudaFree() does (internal).
 *
 * Such a block belongs to no stream: when it is handed out, no queued work uses its memory. Its
 * free is deferred until all work submitted before the free is over, on any stream. Until then it
 * stays a used block, marked as shared (block.h), but without a note of who uses it.
 *
 * Deferred frees are numbered and wait in one list, oldest first. Some streams order them: the
 * legacy default stream, whose events come behind the work of all blocking streams, and each
 * non-blocking stream that the caller tells of. A block is free once `free_past` of all of them
 * (stream_state.h) has reached its number. So the events that prove it are those that the
 * allocator records for other reasons as well; and what a query or a wait finds out about a stream
 * is found out for these frees, too. An event on the legacy stream is a barrier between blocking
 * streams, so none is recorded before memory is wanted.
 *
 * Invariants (ashlar_allocator_check):
 *   shared_bytes == heap.away_bytes + deferred_bytes
 *   deferred_bytes == sum of the blocks in `deferred`, whose numbers grow up to client.free_count
 */
#ifndef ASHLAR_DEFERRED_FREE_H
#define ASHLAR_DEFERRED_FREE_H

#include <limits.h>

#include "allocator/core/allocator_impl.h"

/* For ashlar__alloc_idle(): climb the whole ladder, and wait if that helps. */
#define ASHLAR_BY_ALL_MEANS UINT_MAX

/*
 * Like ashlar_alloc(), but all streams may use the block at once. Must not be called in a guard
 * mode, which would queue work on the block.
 *
 * percent   0: use only memory that is reserved and free now. Above: or move free memory to where
 *           the request fits, and take more from the device until so much of what was ever live is
 *           reserved, or a few handles. Neither waits for anything.
 *
 * Errors: as for ashlar_alloc(); below ASHLAR_BY_ALL_MEANS, ASHLAR_ENOMEM comes without a report.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__alloc_idle(ashlar_allocator *allocator, size_t bytes,
                                                   unsigned percent, void **out);
/*
 * Like ashlar_alloc(), but uses only memory that is reserved and free now.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__alloc_at_hand(ashlar_allocator *allocator, size_t bytes,
                                                      ashlar_stream stream, void **out);

/* Whether the device may have so much more memory to give. */
bool ashlar__may_grow(ashlar_allocator *allocator, size_t bytes);

/*
 * Free a live block, whichever function allocated it. Must not be called in a guard mode.
 *
 * is_planned   whether the block is the slot of a plan, whose steps reuse it in their own order.
 *              Then nothing has changed: the caller must wait for all work, and call ashlar_free()
 *
 * Threads: any. Errors: ASHLAR_EPOINTER (as for ashlar_free); then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__free_deferred(ashlar_allocator *allocator, void *ptr,
                                                      bool *is_planned);

/* Whether there are deferred blocks. Threads: any. */
bool ashlar__has_deferred(ashlar_allocator *allocator);

/* Whether the deferred blocks are as large as a handle: to map one takes no longer than to record
 * events and query them. Threads: any. */
bool ashlar__deferred_fills_handle(ashlar_allocator *allocator);

/*
 * Whether to call ashlar__deferred_ask() before a request is placed, although free memory may serve
 * it: no events are recorded behind the oldest free, and what was freed fills a handle and is more
 * than twice what is free, so some of it will be wanted soon. Events that are recorded later follow
 * the request's own work, too; and its block would lie between gaps that would have merged.
 * Threads: any. Cost: O(zones + streams).
 */
bool ashlar__deferred_is_due(ashlar_allocator *allocator);

/* Whether a request that found no memory may succeed now, because deferred blocks became free since
 * `release_count` was read from the allocator, or there are some. */
bool ashlar__deferred_has_more(ashlar_allocator *allocator, uint64_t release_count);

/*
 * Let a stream order the frees from now on: NULL, or a non-blocking one, until its end
 * (ashlar__allocator_end_stream()). Errors: ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__deferred_add_stream(ashlar_allocator *allocator,
                                                            ashlar_stream stream);

/* Call this before a capture begins and is counted: behind all work submitted before the frees
 * events are recorded, which can be queried during the capture. */
void ashlar__deferred_cover(ashlar_allocator *allocator);

/*
 * Free the blocks that are past; does not wait. Records events behind all work, if none follow the
 * work before the oldest free.
 *
 * *has_any   whether blocks became free
 *
 * Errors: ASHLAR_EINVAL (not during a capture), ASHLAR_EDRIVER (a stream ended untold).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__deferred_ask(ashlar_allocator *allocator, bool *has_any);

/* Like ashlar__deferred_ask(), but wait on the host for the oldest. False: it cannot. */
bool ashlar__deferred_wait(ashlar_allocator *allocator);

/*
 * Around a wait for the whole device, which the program or the caller makes. _end_wait frees the
 * blocks that were deferred before _begin_wait, whichever streams there are. Call it only if the
 * wait succeeded. Returns whether any block was freed.
 */
typedef struct ashlar_device_wait {
    uint64_t number; /* 0: there is nothing to learn */
    uint64_t free_number;
} ashlar_device_wait;

ashlar_device_wait ashlar__deferred_begin_wait(ashlar_allocator *allocator);
bool ashlar__deferred_end_wait(ashlar_allocator *allocator, ashlar_device_wait wait);

/* Whether the allocator is in a guard mode. */
static inline bool ashlar__allocator_is_guarded(const ashlar_allocator *a) {
    return a->guard_fill != NULL;
}

#endif /* ASHLAR_DEFERRED_FREE_H */
