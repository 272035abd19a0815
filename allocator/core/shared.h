/*
 * shared.h - blocks that several streams use, while they are live (internal).
 *
 * ashlar_record_stream() notes each further stream in the block. Where such a block goes when it is
 * freed, and how it comes home, is in allocator/heap/away.h.
 */
#ifndef ASHLAR_SHARED_H
#define ASHLAR_SHARED_H

#include "allocator/core/allocator_impl.h"

/*
 * Before a free on `state`: have that stream wait in-stream for every other use of the block. The
 * block is then no longer shared. For guard modes, in which no block is ever away.
 */
ashlar_status ashlar__shared_join_locked(ashlar_allocator *allocator, ashlar_block *block,
                                         ashlar_stream_state *state);

/* Turn every use by `from` into a use by `to` that lasts until now. */
void ashlar__shared_rehome_locked(ashlar_allocator *allocator, ashlar_stream_state *from,
                                  ashlar_stream_state *to);

/* Free the host memory of all uses. No other thread may use the allocator any more. */
void ashlar__shared_finish(ashlar_allocator *allocator);

#endif /* ASHLAR_SHARED_H */
