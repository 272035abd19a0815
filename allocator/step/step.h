/*
 * step.h - what the allocator does about steps outside a hit (internal).
 */
#ifndef ASHLAR_STEP_H
#define ASHLAR_STEP_H

#include "allocator/core/allocator_impl.h"

/* The key of steps on `state`, or NULL. Lock: held. */
ashlar_step_key *ashlar__step_key_find_locked(const ashlar_allocator *allocator, uint64_t number,
                                              const ashlar_stream_state *state);

/*
 * The key of a step on `state`, made if need be. Where there is none on that stream but one of a
 * stream that is gone, the plans there are this one's from now on. *out: unchanged where that
 * cannot be now, and the step is to be declined. Lock: held. May queue a wait.
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER, ASHLAR_EINVAL (the waiting stream is captured).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__step_key_of_locked(ashlar_allocator *allocator,
                                                           uint64_t number,
                                                           ashlar_stream_state *state,
                                                           ashlar_step_key **out);

/*
 * Plan one key from its recording. `own`: the calling thread's cache. Lock: held; dropped while it
 * packs. Requires that the key is not busy.
 *
 * Errors: those of ashlar_plan_build(); then the key has no plan.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__planner_build_locked(ashlar_allocator *allocator,
                                                             ashlar_cache *own,
                                                             ashlar_step_key *key);

/*
 * Make keys with plans, of which the allocator has none on the streams of these, part of it: all of
 * them, or on failure none; then they are the caller's still. `own`: the calling thread's cache.
 * Lock: held; may be dropped and taken again meanwhile. Requires that the planner is not busy.
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_ENOMEM, ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__planner_adopt_locked(ashlar_allocator *allocator,
                                                             ashlar_cache *own,
                                                             ashlar_step_key **keys, size_t count);

/*
 * What came of a step that was recorded elsewhere: into the key, which is planned if that is due.
 * `recording` is finished, failed or not. `own`: the calling thread's cache. Lock: held; dropped
 * while it packs.
 *
 * Errors: ASHLAR_EINVAL (the key is busy), ASHLAR_EHOSTMEM, ASHLAR_EDRIVER; and where it is planned
 *         at once also ASHLAR_ENOMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__step_keep_locked(ashlar_allocator *allocator,
                                                         ashlar_cache *own,
                                                         ashlar_stream_state *state, uint64_t key,
                                                         ashlar_recording *recording);

/*
 * Forget the plans and recordings of `count` keys from `first` on.
 * Lock: not held. Errors: ASHLAR_EINVAL (a step is under way).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__planner_forget_keys(ashlar_allocator *allocator,
                                                            uint64_t first, uint64_t count);

/*
 * As ashlar_step_begin(), and where the step is recorded, have it recorded without memory; and as
 * ashlar_step_end().
 *
 * Errors: also ASHLAR_EINVAL (end: not all that was taken was freed); the step has ended then.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__dry_run_begin(ashlar_allocator *allocator,
                                                      ashlar_stream stream, uint64_t key);
ASHLAR_MUST_CHECK ashlar_status ashlar__dry_run_end(ashlar_allocator *allocator);

#endif /* ASHLAR_STEP_H */
