/* step.h - beginning, ending, planning and forgetting steps; requests that a plan serves are in
 * plan_replay.h (internal). */
#ifndef ASHLAR_STEP_H
#define ASHLAR_STEP_H

#include <ashlar/plan.h>

#include "allocator/core/core.h"

/* Find or make the key that stands for steps of `number` on `state`. If it is made, and a stream
 * that is gone has such a key, all keys of that stream are forgotten. Lock: held. Errors:
 * ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__step_key_of_locked(ashlar_allocator *allocator,
                                                           uint64_t number,
                                                           ashlar_stream_state *state,
                                                           ashlar_step_key **out);

/*
 * Merge two closed recordings, whose peaks are known, if one plan for both needs hardly more memory
 * on any stream than the largest recorded step does. Otherwise *is_merged is false, and *out is
 * empty. Lock: held.
 *
 * Errors: as for ashlar__recording_merge().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__step_merge_locked(const ashlar_allocator *allocator,
                                                          const ashlar_recording *base,
                                                          const ashlar_recording *more,
                                                          ashlar_recording *out, bool *is_merged);

/* Join the key of `number` and the key whose numbers begin directly above it, so that one plan
 * serves the steps of both; but not if the first has `last`, or if they cannot be merged. Neither
 * may have a plan. Lock: held. Errors: ASHLAR_EHOSTMEM; then both keys are as before. */
ASHLAR_MUST_CHECK ashlar_status ashlar__step_key_join_locked(ashlar_allocator *allocator,
                                                             uint64_t number, uint64_t last,
                                                             const ashlar_stream_state *state);

/*
 * Pack a key's recording into a plan, or those of all keys, and take memory for it. `own`: the
 * calling thread's cache. Lock: held; dropped while packing. A key is left out if it has no
 * recording, has a plan of its present recording, or is busy, or if its stream has ended.
 *
 * Errors: those of ashlar_plan_build(); then the keys for which there was no memory have no plan.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__planner_build_locked(ashlar_allocator *allocator,
                                                             ashlar_cache *own,
                                                             ashlar_step_key *key);

ASHLAR_MUST_CHECK ashlar_status ashlar__planner_build_all_locked(ashlar_allocator *allocator,
                                                                 ashlar_cache *own);

/* The bytes mapped in a stream's zones that no block uses. Lock: held. Cost: O(windows). */
size_t ashlar__plan_free_bytes(const ashlar_allocator *allocator, const ashlar_stream_state *state);

/*
 * Call these only while a plan is being installed. _leave_memory: give up the memories in which a
 * plan has slots. _take_lacking: take new memory for each stream of the plan that has none and has
 * not ended, large enough for all present plans. Lock: held; may be dropped and taken again
 * meanwhile. Errors: ASHLAR_EHOSTMEM, ASHLAR_ENOMEM, ASHLAR_EDRIVER.
 */
void ashlar__planner_leave_memory(ashlar_allocator *allocator, const ashlar_plan *plan);
ASHLAR_MUST_CHECK ashlar_status ashlar__planner_take_lacking(ashlar_allocator *allocator,
                                                             ashlar_cache *own,
                                                             const ashlar_plan *plan);

/* Call ashlar__plan_link() for all plans that have their slot blocks. Plans being replayed are left
 * out: they kept their slot blocks, and the replaying thread reads them without the lock. Lock:
 * held. */
void ashlar__planner_link_plans(const ashlar_allocator *allocator);

/* Take memory again for a key's plan that has lost some; the slots keep their offsets. No step may
 * use the key, and no plan may be being installed. Lock: held; may be dropped and taken again
 * meanwhile. Errors: as for _take_lacking; then the plan still lacks memory. */
ASHLAR_MUST_CHECK ashlar_status ashlar__planner_take_again_locked(ashlar_allocator *allocator,
                                                                  ashlar_cache *own,
                                                                  ashlar_step_key *key);

/* Whether a step uses any of the plan's memories; false if `plan` is NULL. Lock: held. */
bool ashlar__plan_is_busy_locked(const ashlar_allocator *allocator, const ashlar_plan *plan);

/* Forget the plans and recordings of all keys with a number from `first` to `first` + `count` - 1,
 * and of those that an earlier warm-up with this first key made.
 * Lock: not held. Errors: ASHLAR_EINVAL (a step is under way). */
ASHLAR_MUST_CHECK ashlar_status ashlar__planner_forget_keys(ashlar_allocator *allocator,
                                                            uint64_t first, uint64_t count);

/*
 * For calls that name no stream, as cudaMalloc() and cudaFree() do (frees.h). _stream: the stream
 * of the step that the calling thread is in; false: it is in none, or in nested ones on different
 * streams. _has: whether a live block was taken for `stream`. Lock: not held. Threads: any.
 */
bool ashlar__step_stream(ashlar_allocator *allocator, ashlar_stream *out);
bool ashlar__step_has(ashlar_allocator *allocator, const void *ptr, ashlar_stream stream);

/*
 * Like ashlar_step_begin() and ashlar_step_end(), but the requests of a recorded step get addresses
 * without memory (dry_run.c).
 *
 * Errors: also ASHLAR_EINVAL (end: a block was not freed); the step has ended all the same.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__dry_run_begin(ashlar_allocator *allocator,
                                                      ashlar_stream stream, uint64_t key);
ASHLAR_MUST_CHECK ashlar_status ashlar__dry_run_end(ashlar_allocator *allocator);

/* ---- the lengths of a warm-up ---- */

/*
 * Each length has a number of its own, and a key stands for the numbers of one or several lengths
 * in a row. Keys are joined as their steps are recorded, if one plan for both costs hardly any
 * memory, but never beyond a range of options->length_range_count. Where not every length is
 * recorded, each range has one key.
 */

/* A copy of the options (all zero if NULL), with the default min_length in place of 0. */
ashlar_warmup_options ashlar__warmup_chosen(const ashlar_warmup_options *options);

/* The number to add to options->key for steps of this length. */
uint64_t ashlar__warmup_number_of(const ashlar_warmup_options *options, size_t length);

/* The next shorter length that a pass visits; 0 if there is none. Dry runs visit every length,
 * other passes only the longest of each range. _visit_count: how many lengths a pass visits. */
size_t ashlar__warmup_length_below(const ashlar_warmup_options *options, size_t length);
size_t ashlar__warmup_visit_count(const ashlar_warmup_options *options);

/* Let one key stand for the lengths of each range, or of all if is_one. None of their numbers may
 * have a key yet. Lock: not held. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__warmup_share_keys(ashlar_allocator *allocator,
                                                          const ashlar_warmup_options *options,
                                                          bool is_one);

/* Let one plan serve the recorded length and the next longer lengths of its range, if that costs
 * hardly any memory. Lock: not held. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__warmup_join(ashlar_allocator *allocator,
                                                    const ashlar_warmup_options *options,
                                                    size_t length);

#endif /* ASHLAR_STEP_H */
