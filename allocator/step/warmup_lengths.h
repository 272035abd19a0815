/*
 * warmup_lengths.h - the lengths of a warm-up, its buckets of lengths that share a key, and what
 * the buckets need (internal).
 *
 * Each length has a number of its own, and a key stands for the numbers of one or several lengths
 * in a row: keys are joined as their steps are recorded, if one plan for both costs hardly any
 * memory, and as far as the ranges go that the program asks for. Where not every length is
 * recorded, each range has one key.
 */
#ifndef ASHLAR_WARMUP_LENGTHS_H
#define ASHLAR_WARMUP_LENGTHS_H

#include <ashlar/warmup.h>

#include "allocator/heap/stream_state.h"

/* Replace fields that are 0 by their defaults. */
void ashlar__warmup_fill_in(ashlar_warmup_options *options);

/* The number to add to options->key for steps of this length. */
uint64_t ashlar__warmup_number_of(const ashlar_warmup_options *options, size_t length);

/* The next shorter length that a pass visits; 0 if there is none. Dry runs visit every length,
 * other passes only the longest length of each bucket. */
size_t ashlar__warmup_length_below(const ashlar_warmup_options *options, size_t length);

/* How many lengths a pass visits. */
size_t ashlar__warmup_visit_count(const ashlar_warmup_options *options);

/* Let one key stand for the lengths of each range, or of all if is_one. None of their numbers may
 * have a key yet. Lock: held. Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status
ashlar__warmup_share_keys_locked(ashlar_allocator *allocator, const ashlar_warmup_options *options,
                                 bool is_one, ashlar_stream_state *state);

/* Let one plan serve the recorded length and the next longer lengths of its range, if that costs
 * hardly any memory. Lock: not held. Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__warmup_join(ashlar_allocator *allocator,
                                                    const ashlar_warmup_options *options,
                                                    size_t length);

/* Forget the costs that were counted so far, for all lengths. Lock: not held. */
void ashlar__warmup_clear_costs(ashlar_allocator *allocator, const ashlar_warmup_options *options);

#endif /* ASHLAR_WARMUP_LENGTHS_H */
