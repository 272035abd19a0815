/*
 * streams.h - which record belongs to a stream handle, from its first use to its end (internal).
 */
#ifndef ASHLAR_STREAMS_H
#define ASHLAR_STREAMS_H

#include "allocator/core/allocator_impl.h"

/* The record of a stream, not of its pool, made at its first use. Lock: held. Errors:
 * ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_of_locked(ashlar_allocator *allocator,
                                                               ashlar_stream stream,
                                                               ashlar_stream_state **out);

/* Delete a record that nothing refers to. Lock: held. */
void ashlar__stream_state_delete_locked(ashlar_allocator *allocator, ashlar_stream_state *state);

/* Enter the allocator into the process's list, for ashlar_stream_destroy(), and take it out. */
void ashlar__allocator_enlist(ashlar_allocator *allocator);
void ashlar__allocator_delist(ashlar_allocator *allocator);

/* A new record, first of the list. Lock: held. Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_new_locked(ashlar_allocator *allocator,
                                                                ashlar_stream stream,
                                                                ashlar_stream_state **out);

/* Give the blocks of one stream in all caches to the heap, and forget its magazines. Lock: held. */
void ashlar__caches_forget_stream_locked(ashlar_allocator *allocator,
                                         const ashlar_stream_state *state);

/* The record that idle blocks are taken for: no stream's, and without free blocks of its own. Lock:
 * held. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_idle_locked(ashlar_allocator *allocator,
                                                                 ashlar_stream_state **out);

#endif /* ASHLAR_STREAMS_H */
