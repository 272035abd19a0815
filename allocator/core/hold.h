/*
 * hold.h - which thread may touch a stream's zones without the allocator's lock, and how that
 * thread is shut out (internal).
 *
 * A cache can hold a stream: then its owner cuts blocks from the stream's zones and puts them back
 * between ashlar__cache_enter() and ashlar__cache_leave(), as it does with its magazines, and takes
 * no lock. The first thread that asks for memory of a stream holds it. If another thread asks, the
 * stream passes to that thread. After a few handovers nobody holds the stream any more, and all its
 * misses take the lock. Blocks in a thread's magazines stay in them.
 *
 * So a stream's zones, last_used, last_tick, has_freed and stamp_count may be touched
 *   by the owner of the cache that holds it   inside its cache, or with the lock
 *   by any thread, if no cache holds it       with the lock
 *   by any thread                             with the lock, while the others are shut out
 *
 * A thread that frees a block of a stream held by another thread sends the block to that thread: it
 * collects such blocks in its outbox, and appends them all at once to the stream's `returned` list.
 */
#ifndef ASHLAR_HOLD_H
#define ASHLAR_HOLD_H

#include "allocator/core/allocator_impl.h"

/* ---- shutting out ---- */

/*
 * Shut every other thread out of its cache until the release. Claims may be nested. `own`: the
 * calling thread's cache of this allocator or NULL. Cost: a system call if there are other caches.
 */
void ashlar__caches_claim_locked(ashlar_allocator *allocator, const ashlar_cache *own);
void ashlar__caches_release_locked(ashlar_allocator *allocator, const ashlar_cache *own);

/*
 * _shut_out_: shut the other threads out until ashlar__allocator_leave() releases the lock.
 * _let_in_: end that claim early, before the lock is dropped for a while.
 */
void ashlar__shut_out_locked(ashlar_allocator *allocator);
void ashlar__let_in_locked(ashlar_allocator *allocator);

/* _enter: take the lock and shut the other threads out of their caches. _leave: let them in again
 * and release the lock. */
void ashlar__allocator_enter(ashlar_allocator *allocator);
void ashlar__allocator_leave(ashlar_allocator *allocator);

/*
 * Tell every cache whether its hits must take the lock. Call it after any change of what
 * ashlar__cache_watched() returns.
 */
void ashlar__caches_update_bypass_locked(ashlar_allocator *allocator);

/*
 * The bits of `attention` that make every call take the lock: because a trace or a step's recording
 * must see the call, or because the driver is asked about the call's stream.
 */
static inline unsigned ashlar__cache_watched(const ashlar_allocator *a) {
    return a->bypasses_caches || a->are_hits_over || a->client.watches_streams ||
                   a->planner.recording_count > 0
               ? ASHLAR_CACHE_BYPASSED
               : 0;
}

/* ---- holding a stream ---- */

static inline ashlar_cache *ashlar__holder_of(const ashlar_stream_state *state) {
    return atomic_load_explicit(&state->holder, memory_order_relaxed);
}

/*
 * Let the calling thread's cache hold the stream, if it may. In any case no other cache holds the
 * stream afterwards, and the calling thread may touch its zones until it releases the lock. `own`:
 * NULL if the thread has no cache.
 */
void ashlar__hold_locked(ashlar_allocator *allocator, ashlar_cache *own,
                         ashlar_stream_state *state);

/* Let nobody hold the stream any more. Its holder must be the calling thread or be shut out. */
void ashlar__hold_drop_locked(ashlar_allocator *allocator, ashlar_stream_state *state);

/* ---- blocks of a stream that other threads have freed ---- */

/* Whether a freed block must go to the outbox, because another thread holds its stream. */
bool ashlar__outbox_wants(const ashlar_cache *own, const ashlar_block *block);

/* Put a freed block into the outbox. Call it inside the cache or with the lock. */
void ashlar__outbox_add(ashlar_cache *own, ashlar_block *block);

/* Send what the outbox holds. Call it inside the cache, or after claiming the cache. */
void ashlar__outbox_send(ashlar_cache *cache);

/* Send a list of freed blocks of a stream, linked by `older`. Any thread. */
void ashlar__returned_add(ashlar_stream_state *state, ashlar_block *newest, ashlar_block *oldest);

/* Take the blocks that were sent to a stream, linked by `older`. */
ashlar_block *ashlar__returned_take(ashlar_stream_state *state);

/*
 * Put the blocks that were sent to a stream into its zones. Lock: held; the stream's holder is shut
 * out.
 */
void ashlar__returned_put_locked(ashlar_allocator *allocator, ashlar_stream_state *state);

/*
 * The bytes of blocks that are on their way to holders. Lock: held, all caches claimed. O(blocks).
 */
size_t ashlar__returned_bytes_claimed(const ashlar_allocator *allocator);

#endif /* ASHLAR_HOLD_H */
