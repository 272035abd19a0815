/*
 * shared.h - blocks that several streams used, from ashlar_record_stream() to the time when their
 * uses are over, or all but one are (internal).
 *
 * A shared block is freed with a stamp for each of its streams, so it fits no stream's bins. It
 * waits outside the heap, which takes it for used, until every stamp but one is past.
 *
 * Invariants (ashlar_allocator_check):
 *   shared_bytes == bytes of the blocks in `shared`;  each is SHARED, with requested == 0
 */
#ifndef ASHLAR_SHARED_H
#define ASHLAR_SHARED_H

#include "allocator/core/allocator_impl.h"

/* One stream's use of a shared block; the stream it was taken for has one too. Lock: held. */
struct ashlar_use {
    ashlar_use *next;
    ashlar_stream_state *stream_state;
    uint64_t tick; /* freed: state->recorded then */
};

/* Mark a live block as used on a further stream. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__shared_add_use_locked(ashlar_block *block,
                                                              ashlar_stream_state *state);

/* Free a shared block: stamp every use, with `state`'s as the one it was freed on. */
void ashlar__shared_put_locked(ashlar_allocator *allocator, ashlar_block *block,
                               ashlar_stream_state *state);

/* Give the heap the blocks with no more than one use that is not past. True: there were some. */
bool ashlar__shared_settle_locked(ashlar_allocator *allocator);

/* Ask the events of every stream that shared blocks of `bytes` or more still wait for. */
ashlar_status ashlar__shared_query_locked(ashlar_allocator *allocator, size_t bytes);

/*
 * Give plan memories back their slot blocks' blocks where asking shows that all streams but the
 * plan memory's are done with them.
 */
ASHLAR_MUST_CHECK ashlar_status
ashlar__shared_return_slot_blocks_locked(ashlar_allocator *allocator);

/*
 * Have `state` wait in-stream for every use of the smallest shared block of at least `bytes`, and
 * give it to the heap as that stream's. *found: there was one.
 */
ashlar_status ashlar__shared_wait_locked(ashlar_allocator *allocator, ashlar_stream_state *state,
                                         size_t bytes, bool *found);

/* Make sure that every stream which a shared block waits for has an event that covers it. */
ashlar_status ashlar__shared_cover_locked(ashlar_allocator *allocator);

/* Whether a shared block waits for work of this stream that is not known to be over. */
bool ashlar__shared_waits_for_locked(const ashlar_allocator *allocator,
                                     const ashlar_stream_state *state);

/*
 * Have `state` wait in-stream for every other use of a block that is about to be freed on it, so
 * that it is an ordinary block again. For modes in which blocks do not wait outside the heap.
 */
ashlar_status ashlar__shared_join_locked(ashlar_allocator *allocator, ashlar_block *block,
                                         ashlar_stream_state *state);

/* Every use by `from` is one by `to` until now. */
void ashlar__shared_rehome_locked(ashlar_allocator *allocator, const ashlar_stream_state *from,
                                  ashlar_stream_state *to);

/* Forget all uses of a live block. Lock: held. */
void ashlar__shared_drop_uses_locked(ashlar_block *block);

/* Return the host memory of all uses. Nobody else uses the allocator any more. */
void ashlar__shared_finish(ashlar_allocator *allocator);

#endif /* ASHLAR_SHARED_H */
