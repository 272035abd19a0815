/* streams.h - which state belongs to a stream's handle, from first use to end (internal). */
#ifndef ASHLAR_STREAMS_H
#define ASHLAR_STREAMS_H

#include "allocator/core/allocator_impl.h"

/*
 * The stream's own state, never that of its graph pool; made at the stream's first use. Lock: held.
 * Errors: ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_of_locked(ashlar_allocator *allocator,
                                                               ashlar_stream stream,
                                                               ashlar_stream_state **out);

/* Delete a state that nothing refers to. Lock: held. */
void ashlar__stream_state_delete_locked(ashlar_allocator *allocator, ashlar_stream_state *state);

/*
 * Like ashlar_allocator_forget_stream(), for a stream that ends whether or not this succeeds. On
 * failure no event comes after the stream's work, so free memory that it used last is never reused.
 */
void ashlar__allocator_end_stream(ashlar_allocator *allocator, ashlar_stream stream);

/* Add the allocator to the process's list, where ashlar_stream_destroy() finds it; remove it. */
void ashlar__allocator_enlist(ashlar_allocator *allocator);
void ashlar__allocator_delist(ashlar_allocator *allocator);

/* Make a stream state, and put it first in the list. Lock: held. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_new_locked(ashlar_allocator *allocator,
                                                                ashlar_stream stream,
                                                                ashlar_stream_state **out);

/* Give the blocks of one stream in all caches to the heap, and forget its magazines. Lock: held. */
void ashlar__caches_forget_stream_locked(ashlar_allocator *allocator, ashlar_stream_state *state);

/*
 * The state of no stream, to which the blocks of ashlar__alloc_idle() belong while they are live.
 * It has no free blocks. Lock: held. Errors: ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_idle_locked(ashlar_allocator *allocator,
                                                                 ashlar_stream_state **out);

#endif /* ASHLAR_STREAMS_H */
