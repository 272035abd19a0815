/* step.h - beginning, ending, planning and forgetting steps; requests that a plan serves are in
 * plan_replay.h (internal). */
#ifndef ASHLAR_STEP_H
#define ASHLAR_STEP_H

#include "allocator/core/slow_path.h"

/* The key `number` of steps on `state`, or NULL. Lock: held. */
ashlar_step_key *ashlar__step_key_find_locked(const ashlar_allocator *allocator, uint64_t number,
                                              const ashlar_stream_state *state);

/*
 * Find or make the key `number` of steps on `state`. If a key of that number has a stream that is
 * gone, the key moves to `state`, with all other keys of that stream. *out is unchanged if the key
 * cannot move now; the caller then declines the step. Lock: held. May queue a wait on the stream of
 * `state`.
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER, ASHLAR_EINVAL (the stream that has to wait is being
 *         captured).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__step_key_of_locked(ashlar_allocator *allocator,
                                                           uint64_t number,
                                                           ashlar_stream_state *state,
                                                           ashlar_step_key **out);

/*
 * Merge two closed recordings, whose peaks are known, if one plan for both needs hardly more memory
 * on any stream than the largest recorded step does. Otherwise *is_merged is false, and *out has
 * nothing. Lock: held.
 *
 * Errors: as for ashlar__recording_merge().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__step_merge_locked(const ashlar_allocator *allocator,
                                                          const ashlar_recording *base,
                                                          const ashlar_recording *more,
                                                          ashlar_recording *out, bool *is_merged);

/*
 * Let one plan serve the steps of key `number` and of the key whose numbers begin directly above
 * it. This happens only if the plan needs hardly more memory on any stream than the largest step
 * does, and if no number of the second key is above `last`. Neither key may have a plan. Lock:
 * held.
 *
 * Errors: ASHLAR_EHOSTMEM; then both keys are as before.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__step_key_join_locked(ashlar_allocator *allocator,
                                                             uint64_t number, uint64_t last,
                                                             const ashlar_stream_state *state);

/*
 * Pack a key's recording into a plan, and take memory for the plan. `own`: the calling thread's
 * cache. Lock: held; dropped while packing. Nothing happens if the key has no recording, has a plan
 * of its present recording, or is busy, or if its stream has ended.
 *
 * Errors: those of ashlar_plan_build(); then the key has no plan.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__planner_build_locked(ashlar_allocator *allocator,
                                                             ashlar_cache *own,
                                                             ashlar_step_key *key);

/*
 * Like ashlar__planner_build_locked(), for all keys at once. After ASHLAR_ENOMEM or ASHLAR_EDRIVER,
 * only some keys have plans.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__planner_build_all_locked(ashlar_allocator *allocator,
                                                                 ashlar_cache *own);

/*
 * Take a block for the memory of a plan: what is mapped and free, then what can be moved, and only
 * then more of the device's memory, as far as the allocator then reserves hardly more than
 * `may_reserve` bytes, or leaves hardly any idle. If it would, *out stays NULL. For a new plan, a
 * wait for work that uses free memory comes before more is mapped; a step that begins does not
 * wait.
 *
 * Lock, errors: as for ashlar__ladder_take_locked(); other threads are shut out.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_place_locked(ashlar_allocator *allocator,
                                                          const ashlar_request *request,
                                                          size_t may_reserve, ashlar_block **out);

/* The memory in a stream's zones that no block uses. Lock: held. Cost: O(windows). */
size_t ashlar__plan_free_bytes(const ashlar_allocator *allocator, const ashlar_stream_state *state);

/* Replace the plan memory of a stream by one that fits all its present plans. Does nothing for a
 * stream that has ended, since no step replays its slots. Lock: held; may be dropped and taken
 * again meanwhile. Call it only while a plan is being installed. Errors: ASHLAR_EHOSTMEM,
 * ASHLAR_ENOMEM, ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__planner_renew_memory(ashlar_allocator *allocator,
                                                             ashlar_cache *own,
                                                             ashlar_stream_state *state);

/* Call ashlar__plan_link() for all plans that have their slot blocks. Plans being replayed are left
 * out: they kept their slot blocks, and the replaying thread reads them without the lock. Lock:
 * held. */
void ashlar__planner_link_plans(const ashlar_allocator *allocator);

/*
 * Take memory again for a key's plan that has lost some; the slots keep their offsets. `own`: the
 * calling thread's cache. Lock: held; may be dropped and taken again meanwhile. No step may use the
 * key, and no plan may be being installed.
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_ENOMEM, ASHLAR_EDRIVER; then the plan still lacks memory.
 */
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
 * streams. _has: whether a live block was taken for that stream. Lock: not held. Threads: any.
 */
bool ashlar__step_stream(ashlar_allocator *allocator, ashlar_stream *out);
bool ashlar__step_has(ashlar_allocator *allocator, const void *ptr, ashlar_stream stream);

/*
 * Like ashlar_step_begin() and ashlar_step_end(), but the requests of a recorded step get addresses
 * without memory (dry_run.h).
 *
 * Errors: also ASHLAR_EINVAL (end: a block was not freed); the step has ended all the same.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__dry_run_begin(ashlar_allocator *allocator,
                                                      ashlar_stream stream, uint64_t key);
ASHLAR_MUST_CHECK ashlar_status ashlar__dry_run_end(ashlar_allocator *allocator);

#endif /* ASHLAR_STEP_H */
