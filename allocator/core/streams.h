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

/*
 * Whether the state can be deleted, as far as it tells by itself: its stream has ended, so that no
 * request can name it, and no pool, waiting thread, deferred free or block that is away needs it. A
 * state with windows is not over: another stream has yet to take them over. Lock: held.
 */
bool ashlar__stream_state_is_over(const ashlar_stream_state *state);

/* Delete a state that nothing refers to. Lock: held. */
void ashlar__stream_state_delete_locked(ashlar_allocator *allocator, ashlar_stream_state *state);

/*
 * Like ashlar_allocator_forget_stream(), but the stream ends even if this fails. After a failure no
 * event follows the stream's work, so free memory that the stream used last is never reused.
 */
void ashlar__allocator_end_stream(ashlar_allocator *allocator, ashlar_stream stream);

/*
 * _begin_wait: call it before a wait on the host for a stream, with the number of the wait; all
 * that was freed on the stream by then is past after _end_wait. Nothing happens for a stream that
 * is watched: its handle may mean another one.
 */
void ashlar__allocator_begin_wait(ashlar_allocator *allocator, ashlar_stream stream, uint64_t wait);
void ashlar__allocator_end_wait(ashlar_allocator *allocator, ashlar_stream stream, uint64_t wait);

/*
 * Make a stream state, and insert it at the head of the list. Lock: held. Errors: ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_new_locked(ashlar_allocator *allocator,
                                                                ashlar_stream stream,
                                                                ashlar_stream_state **out);

/* Let a graph pool's state, or that of a released one, stand for another stream from now on. Lock:
 * held. */
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
