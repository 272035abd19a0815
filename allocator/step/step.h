/*
 * step.h - beginning, ending, planning and forgetting steps: all about them but the hits
 * (internal).
 */
#ifndef ASHLAR_STEP_H
#define ASHLAR_STEP_H

#include "allocator/core/allocator_impl.h"

/* The key `number` of steps on `state`, or NULL. Lock: held. */
ashlar_step_key *ashlar__step_key_find_locked(const ashlar_allocator *allocator, uint64_t number,
                                              const ashlar_stream_state *state);

/*
 * The key `number` of a step on `state`, made if need be. A key whose stream is gone moves to
 * `state`, with all plans of its stream. *out stays as it is if that is not possible now: decline
 * the step then. Lock: held. May queue a wait.
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER, ASHLAR_EINVAL (the waiting stream is captured).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__step_key_of_locked(ashlar_allocator *allocator,
                                                           uint64_t number,
                                                           ashlar_stream_state *state,
                                                           ashlar_step_key **out);

/*
 * Pack a key's recording, and give its plan memory. `own`: the calling thread's cache. Lock: held;
 * dropped while it packs. The key must have a recording, and not be busy.
 *
 * Errors: those of ashlar_plan_build(); then the key has no plan.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__planner_build_locked(ashlar_allocator *allocator,
                                                             ashlar_cache *own,
                                                             ashlar_step_key *key);

/*
 * Add keys with plans to an allocator that has no steps on any of their streams: all of them, or
 * none on failure, when they stay the caller's. `own`: the calling thread's cache. Lock: held; may
 * be dropped and taken again meanwhile. The planner must not be busy.
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_ENOMEM, ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__planner_adopt_locked(ashlar_allocator *allocator,
                                                             ashlar_cache *own,
                                                             ashlar_step_key **keys, size_t count);

/*
 * Add a finished recording to its key, as a step that ends does, and plan the key if that is due.
 * Finishes `recording`, also on failure. `own`: the calling thread's cache. Lock: held; dropped
 * while it packs.
 *
 * Errors: ASHLAR_EINVAL (the key is busy), ASHLAR_EHOSTMEM, ASHLAR_EDRIVER; ASHLAR_ENOMEM (of the
 *         plan's memory).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__step_keep_locked(ashlar_allocator *allocator,
                                                         ashlar_cache *own,
                                                         ashlar_stream_state *state, uint64_t key,
                                                         ashlar_recording *recording);

/* Whether a step is in any of the plan's memories. NULL: no plan, and none is. Lock: held. */
bool ashlar__plan_is_busy_locked(const ashlar_allocator *allocator, const ashlar_plan *plan);

/*
 * Forget the plans and recordings of `count` keys from `first` on.
 * Lock: not held. Errors: ASHLAR_EINVAL (a step is under way).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__planner_forget_keys(ashlar_allocator *allocator,
                                                            uint64_t first, uint64_t count);

/*
 * As ashlar_step_begin() and ashlar_step_end(), but if the step is recorded, its requests get no
 * memory (dry_run.h).
 *
 * Errors: also ASHLAR_EINVAL (end: a block was not freed); the step has ended then.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__dry_run_begin(ashlar_allocator *allocator,
                                                      ashlar_stream stream, uint64_t key);
ASHLAR_MUST_CHECK ashlar_status ashlar__dry_run_end(ashlar_allocator *allocator);

#endif /* ASHLAR_STEP_H */
