/*
 * step.h - what the allocator does about steps outside a hit (internal).
 */
#ifndef ASHLAR_STEP_H
#define ASHLAR_STEP_H

#include "run.h"

/* Note an allocation, or a free, of a step that is being recorded. Lock: held. */
void ashlar_step_note_alloc_locked(ashlar_cache *own, size_t requested, ashlar_block *block);
void ashlar_step_note_free_locked(ashlar_allocator *allocator, const ashlar_block *block,
                                  bool is_planned);

/* A thread ends, perhaps within a step: that is over. Frees the run. Lock: held. */
void ashlar_step_abandon_locked(ashlar_allocator *allocator, ashlar_cache *cache);

/* No step under way serves `order`'s stream any more. Lock: held, caches claimed. */
void ashlar_step_forget_order(ashlar_cache *cache, const ashlar_order *order);

/* Mark the records that recordings and plans know as referenced. Lock: held. */
void ashlar_planner_mark_referenced(const ashlar_allocator *allocator);

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
 * Forget the plans and recordings of `count` keys from `first` on.
 * Lock: not held. Errors: ASHLAR_EINVAL (a step is under way).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_planner_forget(ashlar_allocator *allocator, uint64_t first,
                                                      uint64_t count);

/* Give back the regions that no plan uses and nothing is live in. Lock: held. */
void ashlar_planner_tidy_locked(ashlar_allocator *allocator);

/* The region of the plans of a stream, or NULL. Lock: held. */
ashlar_region *ashlar_planner_region(const ashlar_allocator *allocator, const ashlar_order *order);

#endif /* ASHLAR_STEP_H */
