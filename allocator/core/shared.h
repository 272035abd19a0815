/*
 * shared.h - blocks that several streams use, from ashlar_record_stream() until all uses but one
 * are known to be over (internal).
 *
 * A freed shared block has a stamp for each of its streams, so no single stream's bins can hold it.
 * It waits in a list, and counts as used in the heap, until every stamp but one is past.
 *
 * Invariants (ashlar_allocator_check):
 *   shared_bytes: see deferred_free.h
 *   every block in `shared` has the mark ASHLAR_BLOCK_SHARED and is not live; it has a use for each
 *   of its streams whose work on it is not known to be over
 */
#ifndef ASHLAR_SHARED_H
#define ASHLAR_SHARED_H

#include "allocator/core/allocator_impl.h"

/* One stream's use of a shared block; the stream it was taken for has one, too. Lock: held. */
struct ashlar_use {
    ashlar_use *next;
    ashlar_stream_state *stream_state;
    uint64_t tick; /* ashlar__stream_state_stamp() at the free; unused before */
};

/* Mark a live block as used on a further stream. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__shared_add_use_locked(ashlar_block *block,
                                                              ashlar_stream_state *state);

/* Free a shared block on the stream of `state`, and stamp every use. */
void ashlar__shared_put_locked(ashlar_allocator *allocator, ashlar_block *block,
                               ashlar_stream_state *state);

/* Give the heap each shared block of which at most one use is not past. True: there were some. */
bool ashlar__shared_settle_locked(ashlar_allocator *allocator);

/* Ask the driver about the streams for which shared blocks of at least `bytes` wait. */
ashlar_status ashlar__shared_query_locked(ashlar_allocator *allocator, size_t bytes);

/*
 * Give each slot block back to its plan memory if, after asking the driver, all streams but the
 * plan memory's own are known to be done with it.
 */
ASHLAR_MUST_CHECK ashlar_status
ashlar__shared_return_slot_blocks_locked(ashlar_allocator *allocator);

/*
 * Have `state` wait in-stream for every use of the smallest shared block of at least `bytes`, and
 * give the block to the heap as last used by `state`. *found: whether there was such a block.
 */
ashlar_status ashlar__shared_wait_locked(ashlar_allocator *allocator, ashlar_stream_state *state,
                                         size_t bytes, bool *found);

/* Have an event recorded behind every use that a shared block waits for. */
ashlar_status ashlar__shared_cover_locked(ashlar_allocator *allocator);

/* Whether a shared block waits for work on this stream. */
bool ashlar__shared_waits_for_locked(const ashlar_allocator *allocator,
                                     const ashlar_stream_state *state);

/*
 * Before a free on `state`: have that stream wait in-stream for every other use of the block. The
 * block is then no longer shared. For guard modes, in which no block waits outside the heap.
 */
ashlar_status ashlar__shared_join_locked(ashlar_allocator *allocator, ashlar_block *block,
                                         ashlar_stream_state *state);

/* Turn every use by `from` into a use by `to` that lasts until now. */
void ashlar__shared_rehome_locked(ashlar_allocator *allocator, const ashlar_stream_state *from,
                                  ashlar_stream_state *to);

/* Forget all uses of a live block. Lock: held. */
void ashlar__shared_drop_uses_locked(ashlar_block *block);

/* Free the host memory of all uses. No other thread may use the allocator any more. */
void ashlar__shared_finish(ashlar_allocator *allocator);

#endif /* ASHLAR_SHARED_H */
