/* streams.h - a stream's state: making it at the stream's first use, finding it by the stream's
 * handle, and deleting it after the stream's end (internal). */
#ifndef ASHLAR_STREAMS_H
#define ASHLAR_STREAMS_H

#include "allocator/core/allocator_impl.h"

/*
 * Find the stream's own state, never that of its graph pool; the stream's first use makes it. Lock:
 * held. Errors: ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_of_locked(ashlar_allocator *allocator,
                                                               ashlar_stream stream,
                                                               ashlar_stream_state **out);

/* Delete a state that nothing refers to. Lock: held. */
void ashlar__stream_state_delete_locked(ashlar_allocator *allocator, ashlar_stream_state *state);

/*
 * Like ashlar_allocator_forget_stream(), but the stream ends even if this fails. After a failure no
 * event follows the stream's work, so free memory that the stream used last is never reused.
 */
void ashlar__allocator_end_stream(ashlar_allocator *allocator, ashlar_stream stream);

/*
 * _enlist: add the allocator to the process's list, where ashlar_stream_destroy() finds it.
 * _delist: remove it.
 */
void ashlar__allocator_enlist(ashlar_allocator *allocator);
void ashlar__allocator_delist(ashlar_allocator *allocator);

/*
 * Make a stream state, and insert it at the head of the list. Lock: held. Errors: ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_new_locked(ashlar_allocator *allocator,
                                                                ashlar_stream stream,
                                                                ashlar_stream_state **out);

/* Let a graph pool's state stand for another stream from now on. Lock: held. */
void ashlar__stream_state_rename_locked(ashlar_allocator *allocator, ashlar_stream_state *state,
                                        ashlar_stream stream);

/* Give the blocks of one stream in all caches to the heap, and forget its magazines. Lock: held. */
void ashlar__caches_forget_stream_locked(ashlar_allocator *allocator, ashlar_stream_state *state);

/*
 * The state that belongs to no stream: blocks of ashlar__alloc_idle() have it while they are live.
 * It has no free blocks. Lock: held. Errors: ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_idle_locked(ashlar_allocator *allocator,
                                                                 ashlar_stream_state **out);

#endif /* ASHLAR_STREAMS_H */
