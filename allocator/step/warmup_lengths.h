/*
 * warmup_lengths.h - the lengths of a warm-up, its buckets of lengths that share a key, and what
 * the buckets need (internal).
 *
 * If the warm-up finds the buckets itself, each length has a number of its own, and a key may stand
 * for the numbers of several lengths in a row: keys are joined as their steps are recorded.
 */
#ifndef ASHLAR_WARMUP_LENGTHS_H
#define ASHLAR_WARMUP_LENGTHS_H

#include <ashlar/warmup.h>

#include "allocator/heap/stream_state.h"

/* Replace fields that are 0 by their defaults. */
void ashlar__warmup_fill_in(ashlar_warmup_options *options);

/* The number to add to options->key for steps of this length. */
size_t ashlar__warmup_bucket_of(const ashlar_warmup_options *options, size_t length);

/* The next shorter length that a pass visits; 0 if there is none. Dry runs visit every length,
 * other passes only the longest length of each bucket. */
size_t ashlar__warmup_length_below(const ashlar_warmup_options *options, size_t length);

/* How many lengths a pass visits. */
size_t ashlar__warmup_visit_count(const ashlar_warmup_options *options);

/* Let one key stand for all lengths. None of their numbers may have a key yet. Lock: held. Errors:
 * ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__warmup_share_key_locked(
    ashlar_allocator *allocator, const ashlar_warmup_options *options, ashlar_stream_state *state);

/* If the warm-up finds the buckets itself: let one plan serve the recorded length and the next
 * longer lengths, if that costs no memory. Lock: not held. Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__warmup_join(ashlar_allocator *allocator,
                                                    const ashlar_warmup_options *options,
                                                    size_t length);

/* Forget the costs that were counted so far, for all lengths. Lock: not held. */
void ashlar__warmup_clear_costs(ashlar_allocator *allocator, const ashlar_warmup_options *options);

#endif /* ASHLAR_WARMUP_LENGTHS_H */
