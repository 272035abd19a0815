/*
 * shared.h - blocks that several streams use, from ashlar_record_stream() until at most one of the
 * uses may not be over (internal).
 *
 * A freed shared block has a stamp for each of its streams, so it fits no stream's bins. It waits
 * outside the heap, where it counts as used, until every stamp but one is past.
 *
 * Invariants (ashlar_allocator_check):
 *   shared_bytes: see deferred_free.h
 *   every block in `shared` is SHARED and not live, and has a use for each of its streams
 */
#ifndef ASHLAR_SHARED_H
#define ASHLAR_SHARED_H

#include "allocator/core/allocator_impl.h"

/* One stream's use of a shared block; the stream it was taken for has one, too. Lock: held. */
struct ashlar_use {
    ashlar_use *next;
    ashlar_stream_state *stream_state;
    uint64_t tick; /* of a freed block: stream_state->recorded at the free */
};

/* Mark a live block as used on a further stream. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__shared_add_use_locked(ashlar_block *block,
                                                              ashlar_stream_state *state);

/* Free a shared block: stamp every use, with `state`'s as the one it was freed on. */
void ashlar__shared_put_locked(ashlar_allocator *allocator, ashlar_block *block,
                               ashlar_stream_state *state);

/* Give the heap the blocks whose uses are past, but for one at most. True: there were some. */
bool ashlar__shared_settle_locked(ashlar_allocator *allocator);

/* Ask whether the streams that shared blocks of at least `bytes` wait for are done. */
ashlar_status ashlar__shared_query_locked(ashlar_allocator *allocator, size_t bytes);

/*
 * Give slot blocks back to their plan memories, where asking shows that all streams but the plan
 * memory's are done with them.
 */
ASHLAR_MUST_CHECK ashlar_status
ashlar__shared_return_slot_blocks_locked(ashlar_allocator *allocator);

/*
 * Have `state` wait in-stream for every use of the smallest shared block of at least `bytes`, and
 * give it to the heap as that stream's. *found: there was one.
 */
ashlar_status ashlar__shared_wait_locked(ashlar_allocator *allocator, ashlar_stream_state *state,
                                         size_t bytes, bool *found);

/* Have an event recorded behind every use that a shared block waits for. */
ashlar_status ashlar__shared_cover_locked(ashlar_allocator *allocator);

/* Whether a shared block waits for work on this stream. */
bool ashlar__shared_waits_for_locked(const ashlar_allocator *allocator,
                                     const ashlar_stream_state *state);

/*
 * Before a free on `state`: have it wait in-stream for every other use of the block, which is an
 * ordinary one then. For guard modes, in which no block waits outside the heap.
 */
ashlar_status ashlar__shared_join_locked(ashlar_allocator *allocator, ashlar_block *block,
                                         ashlar_stream_state *state);

/* Every use by `from` becomes one by `to` until now. */
void ashlar__shared_rehome_locked(ashlar_allocator *allocator, const ashlar_stream_state *from,
                                  ashlar_stream_state *to);

/* Forget all uses of a live block. Lock: held. */
void ashlar__shared_drop_uses_locked(ashlar_block *block);

/* Return the host memory of all uses. Nobody else uses the allocator any more. */
void ashlar__shared_finish(ashlar_allocator *allocator);

#endif /* ASHLAR_SHARED_H */
