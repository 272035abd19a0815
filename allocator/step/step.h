/*
 * step.h - what the allocator does about steps outside a hit (internal).
 */
#ifndef ASHLAR_STEP_H
#define ASHLAR_STEP_H

#include "allocator/plan/run.h"

/* Note an allocation, or a free, of a step that is being recorded. Lock: held. */
void ashlar_step_note_alloc_locked(ashlar_cache *own, size_t requested, ashlar_block *block);
void ashlar_step_note_free_locked(ashlar_allocator *allocator, const ashlar_block *block,
                                  bool is_planned);

/* The key of steps on `order`, or NULL. Lock: held. */
ashlar_step_key *ashlar_step_key_find_locked(const ashlar_allocator *allocator, uint64_t number,
                                             const ashlar_order *order);

/*
 * The key of a step on `order`, made if need be. Where there is none on that stream but one of a
 * stream that is gone, the plans there are this one's from now on. *out: unchanged where that
 * cannot be now, and the step is to be declined. Lock: held. May queue a wait.
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER, ASHLAR_EINVAL (the waiting stream is captured).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_step_key_of_locked(ashlar_allocator *allocator,
                                                          uint64_t number, ashlar_order *order,
                                                          ashlar_step_key **out);

/* A thread ends, perhaps within a step: that is over. Frees the run. Lock: held. */
void ashlar_step_abandon_locked(ashlar_allocator *allocator, ashlar_cache *cache);

/* No step under way serves `order`'s stream any more. Lock: held, caches claimed. */
void ashlar_step_forget_order(ashlar_cache *cache, const ashlar_order *order);

/* Mark the records that recordings and plans know as referenced. Lock: held. */
void ashlar_planner_mark_referenced(const ashlar_allocator *allocator);

/*
 * Forget the steps of a stream, or with NULL, of all threads' own streams that have ended: those
 * that are not busy. No step is replayed on a plan of theirs. Lock: held.
 */
void ashlar_planner_forget_stream_locked(ashlar_allocator *allocator, const ashlar_order *order);

/* The allocator ends. */
void ashlar_planner_finish(ashlar_allocator *allocator);

/*
 * Plan one key from its recording. `own`: the calling thread's cache. Lock: held; dropped while it
 * packs. Requires that the key is not busy.
 *
 * Errors: those of ashlar_plan_build(); then the key has no plan.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_planner_build_locked(ashlar_allocator *allocator,
                                                            ashlar_cache *own,
                                                            ashlar_step_key *key);

/*
 * Make keys with plans, of which the allocator has none on the streams of these, part of it: all of
 * them, or on failure none; then they are the caller's still. `own`: the calling thread's cache.
 * Lock: held; may be dropped and taken again meanwhile. Requires that the planner is not busy.
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_ENOMEM, ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_planner_adopt_locked(ashlar_allocator *allocator,
                                                            ashlar_cache *own,
                                                            ashlar_step_key **keys, size_t count);

/* Free every key. Lock: held, or the allocator ends. */
void ashlar_planner_free_keys(ashlar_allocator *allocator);

/* Retire the regions that no plan uses. Lock: held. */
void ashlar_planner_retire_unused_locked(ashlar_allocator *allocator);

/* Free a key that is in no list. NULL is allowed. */
void ashlar_planner_free_key(ashlar_step_key *key);

/* Errors: ASHLAR_EINVAL: a step is under way, or a plan is being made. Lock: held. */
ASHLAR_MUST_CHECK ashlar_status
ashlar_planner_refuse_busy_locked(const ashlar_allocator *allocator);

/*
 * What came of a step that was recorded elsewhere: into the key, which is planned if that is due.
 * `recording` is finished, failed or not. `own`: the calling thread's cache. Lock: held; dropped
 * while it packs.
 *
 * Errors: ASHLAR_EINVAL (the key is busy), ASHLAR_EHOSTMEM, ASHLAR_EDRIVER; and where it is planned
 *         at once also ASHLAR_ENOMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_step_keep_locked(ashlar_allocator *allocator,
                                                        ashlar_cache *own, ashlar_order *order,
                                                        uint64_t key, ashlar_recording *recording);

/*
 * Forget the plans and recordings of `count` keys from `first` on.
 * Lock: not held. Errors: ASHLAR_EINVAL (a step is under way).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_planner_forget_keys(ashlar_allocator *allocator,
                                                           uint64_t first, uint64_t count);

/* Give back the regions that no plan uses and nothing is live in. Lock: held. */
void ashlar_planner_tidy_locked(ashlar_allocator *allocator);

/* The region of the plans of a stream, or NULL. Lock: held. */
ashlar_plan_region *ashlar_planner_region(const ashlar_allocator *allocator,
                                          const ashlar_order *order);

#endif /* ASHLAR_STEP_H */
