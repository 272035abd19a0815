/*
 * planner.h - the keys, plans and plan memories of one allocator (internal).
 */
#ifndef ASHLAR_PLANNER_H
#define ASHLAR_PLANNER_H

#include "allocator/plan/plan_memory.h"

/* The steps of one key on one stream. Lock: the allocator's. */
typedef struct ashlar_step_key ashlar_step_key;
struct ashlar_step_key {
    ashlar_step_key *next;
    uint64_t key;                      /* const */
    ashlar_stream_state *stream_state; /* the steps' own stream */
    ashlar_recording recording; /* of the steps recorded so far, merged; without any, empty */
    uint32_t step_count;        /* how many these are */
    ashlar_plan *plan;          /* NULL: none; every planned slot of it has a slot block */
    size_t replay_count;        /* steps on the plan now */
    bool is_current;            /* the recording as it is now has been planned, or there was no
                                 * memory for it: then `plan` is NULL */
    bool is_busy;               /* a step is recorded, or planned, partly without the lock */
    bool is_wanted;             /* the next step is to be recorded though there is a plan */
    bool is_stale;              /* the same, in place of the recording there is */
    uint32_t diverged;          /* steps with a miss, in a row */
};

/* Lock: the allocator's. */
typedef struct ashlar_planner {
    ashlar_plan_options options;
    ashlar_step_key *keys;
    ashlar_plan_memory *memories;
    ashlar_plan_stats stats;  /* the counts of it */
    size_t active_step_count; /* steps under way */
    size_t recording_count;   /* those of them that are recorded */
    bool is_installing;       /* a plan's memory is being taken, perhaps without the lock */
} ashlar_planner;

extern const ashlar_plan_options ashlar__plan_defaults;

/* Whether a step uses the key, its recording or its plan. */
static inline bool ashlar__step_key_is_in_use(const ashlar_step_key *key) {
    return key->is_busy || key->replay_count > 0;
}

/* The memory of the plans of a stream, or NULL. Lock: the allocator's, as for all that follow. */
ashlar_plan_memory *ashlar__planner_memory(const ashlar_planner *planner,
                                           const ashlar_stream_state *state);

/* Give back the plan memories that no plan uses and nothing is live in. */
void ashlar__planner_tidy_locked(ashlar_planner *planner, ashlar_heap *heap);

/* Retire the plan memories that no plan uses. */
void ashlar__planner_drop_unused_locked(ashlar_planner *planner, ashlar_heap *heap);

/*
 * Forget the steps of a stream, or with NULL, of all threads' own streams that have ended: those
 * that are not busy. No step is replayed on a plan of theirs.
 */
void ashlar__planner_forget_stream_locked(ashlar_planner *planner, ashlar_heap *heap,
                                          const ashlar_stream_state *state);

/* Mark the records that recordings and plans know as referenced; steps under way know more. */
void ashlar__planner_mark_referenced(const ashlar_planner *planner);

/* Errors: ASHLAR_EINVAL: a step is under way, or a plan is being made. */
ASHLAR_MUST_CHECK ashlar_status ashlar__planner_refuse_busy_locked(const ashlar_planner *planner);

/* A key without a plan from now on. */
void ashlar__step_key_drop_plan(ashlar_step_key *key);

/* Free a key that is in no list. NULL is allowed. */
void ashlar__planner_free_key(ashlar_step_key *key);

/* Free every key. */
void ashlar__planner_free_keys(ashlar_planner *planner);

/* The allocator ends, and with it the heap: nothing is given back. */
void ashlar__planner_finish(ashlar_planner *planner);

#endif /* ASHLAR_PLANNER_H */
