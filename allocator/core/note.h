/*
 * note.h - entering allocations and frees into the counters, the trace and the recordings
 * (internal). Lock: held, for every function here.
 */
#ifndef ASHLAR_NOTE_H
#define ASHLAR_NOTE_H

#include "allocator/core/allocator_impl.h"

/* Count and trace the free of a block, on the stream that it was allocated for. */
void ashlar__account_free_locked(ashlar_allocator *allocator, ashlar_cache *own,
                                 const ashlar_block *block);

/* Count the free of a block whose request was for `requested` bytes. */
void ashlar__count_free_locked(ashlar_allocator *allocator, ashlar_cache *own, size_t requested,
                               unsigned tag);

/* _counters_of: the counters that the calling thread raises. _publish_locked: publish them if they
 * are due (ashlar__counters_are_due()), or at once for a thread without a cache. */
ashlar_counters *ashlar__counters_of(ashlar_allocator *allocator, ashlar_cache *own);
void ashlar__publish_locked(ashlar_allocator *allocator, ashlar_cache *own);

/* Add an event about a block to the trace, if there is one. */
void ashlar__trace_block_locked(ashlar_allocator *allocator, ashlar_trace_action action,
                                const ashlar_block *block, const ashlar_stream_state *state);

/* Sum every thread's counters at one moment. _claimed: the caller has claimed the caches. _locked:
 * the function claims them itself. */
void ashlar__stats_sum_claimed(ashlar_allocator *allocator, ashlar_stats *stats);
void ashlar__stats_sum_locked(ashlar_allocator *allocator, ashlar_stats *stats);

/* As ashlar_allocator_reset_peaks(), but only those of live bytes, or of reserved bytes. */
void ashlar__allocator_reset_peaks(ashlar_allocator *allocator, bool of_live, bool of_reserved);

/*
 * _alloc_locked: add an allocation to the step that the calling thread is recording.
 * _refusal_locked: add a request that was refused; state: NULL if that is unknown. _free_locked,
 * _share_locked: note the free of a block, or its use on another stream, in the recording that has
 * the block, whichever thread makes it. Each does nothing if there is no such recording.
 */
void ashlar__step_record_alloc_locked(ashlar_cache *own, size_t requested, ashlar_block *block);
void ashlar__step_record_refusal_locked(ashlar_cache *own, size_t requested, ashlar_tag tag,
                                        ashlar_stream_state *state);
void ashlar__step_record_free_locked(ashlar_allocator *allocator, const ashlar_block *block);
void ashlar__step_record_share_locked(ashlar_allocator *allocator, const ashlar_block *block);

#endif /* ASHLAR_NOTE_H */
