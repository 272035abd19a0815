/*
 * shared.h - blocks that several streams use, while they are live (internal).
 *
 * ashlar_record_stream() notes each further stream in the block. allocator/heap/away.h says where
 * such a block goes when it is freed, and how it comes home.
 */
#ifndef ASHLAR_SHARED_H
#define ASHLAR_SHARED_H

#include "allocator/core/allocator_impl.h"

/*
 * Have the stream of `state` wait, in-stream, for all other uses of a block. Call it before a free
 * in a guard mode, which checks the block once all uses are over. Errors: ASHLAR_EINVAL (a stream
 * is being captured), ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__shared_join_locked(ashlar_allocator *allocator,
                                                           ashlar_use *uses,
                                                           ashlar_stream_state *state);

/* Have `waiter` wait, in-stream, for the work of one stream up to `tick`. */
ASHLAR_MUST_CHECK ashlar_status ashlar__shared_wait_locked(ashlar_allocator *allocator,
                                                           ashlar_stream_state *of, uint64_t tick,
                                                           ashlar_stream waiter);

/*
 * Whether one of the uses has no event after it and can never get one, because its stream was lost.
 */
bool ashlar__shared_has_lost(const ashlar_use *uses);

/* The uses of a live block by other streams than its own; NULL: there are none. */
static inline ashlar_use *ashlar__shared_uses(const ashlar_block *block) {
    return ashlar__block_is_shared(block) ? block->uses : NULL;
}

/* Turn every use by `from` into a use by `to` that lasts until now. */
void ashlar__shared_rehome_locked(ashlar_allocator *allocator, ashlar_stream_state *from,
                                  ashlar_stream_state *to);

/* Free the host memory of all uses. No other thread may use the allocator any more. */
void ashlar__shared_finish(ashlar_allocator *allocator);

#endif /* ASHLAR_SHARED_H */
