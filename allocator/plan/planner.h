/* planner.h - the keys, plans and plan memories of one allocator (internal). */
#ifndef ASHLAR_PLANNER_H
#define ASHLAR_PLANNER_H

#include "allocator/plan/plan_memory.h"

/*
 * The steps of one key on one stream. Lock: the allocator's.
 *
 * Invariant: replay_count > 0  =>  plan != NULL
 */
typedef struct ashlar_step_key ashlar_step_key;
struct ashlar_step_key {
    ashlar_step_key *next;
    uint64_t key;                      /* const */
    ashlar_stream_state *stream_state; /* the steps' own stream */
    ashlar_recording recording; /* of the steps recorded so far, merged; empty without any */
    uint32_t step_count;        /* of those steps */
    ashlar_plan *plan;          /* NULL: none; every planned slot of it has a slot block */
    size_t replay_count;        /* steps that replay the plan now */
    bool is_current;            /* the recording, as it is now, was planned; without a plan, there
                                 * was no memory for one */
    bool is_busy;               /* a step is recorded or planned, partly without the lock */
    bool is_wanted;             /* record the next step though there is a plan */
    bool is_stale;              /* the same, and drop the recording there is */
    uint32_t diverged;          /* steps in a row that had a miss */
};

/* Lock: the allocator's. */
typedef struct ashlar_planner {
    ashlar_plan_options options;
    ashlar_step_key *keys;
    ashlar_plan_memory *memories;
    ashlar_plan_stats stats;  /* its counts; the rest is computed when asked for */
    size_t active_step_count; /* steps under way */
    size_t recording_count;   /* those of them that are recorded: <= active_step_count */
    bool is_installing;       /* a plan's memory is being taken, perhaps without the lock */
} ashlar_planner;

extern const ashlar_plan_options ashlar__plan_defaults;

/* Whether a step uses the key, its recording or its plan. */
static inline bool ashlar__step_key_is_in_use(const ashlar_step_key *key) {
    return key->is_busy || key->replay_count > 0;
}

/* The plan memory of a stream that plans use, or NULL. Lock: the allocator's, as for all below. */
ashlar_plan_memory *ashlar__planner_memory(const ashlar_planner *planner,
                                           const ashlar_stream_state *state);

/* Return to the heap the plan memories that no plan uses and nothing is live in. */
void ashlar__planner_tidy_locked(ashlar_planner *planner, ashlar_heap *heap);

/* Mark the plan memories that no plan uses as unused, and tidy. */
void ashlar__planner_drop_unused_locked(ashlar_planner *planner, ashlar_heap *heap);

/*
 * Forget the keys of a stream, or with NULL those of all streams whose threads have ended. A key
 * that a step uses stays.
 */
void ashlar__planner_forget_stream_locked(ashlar_planner *planner, ashlar_heap *heap,
                                          const ashlar_stream_state *state);

/* Mark the stream states that recordings and plans refer to as referenced. Steps under way may
 * refer to others. */
void ashlar__planner_mark_referenced(const ashlar_planner *planner);

/* Errors: ASHLAR_EINVAL: a step is under way, or a plan is being made. */
ASHLAR_MUST_CHECK ashlar_status ashlar__planner_refuse_busy_locked(const ashlar_planner *planner);

/* Free a key's plan. */
void ashlar__step_key_drop_plan(ashlar_step_key *key);

/* Free a key that is in no list. NULL is allowed. */
void ashlar__planner_free_key(ashlar_step_key *key);

/* Free every key. */
void ashlar__planner_free_keys(ashlar_planner *planner);

/* Free everything at the allocator's end. The heap ends as well, so nothing is returned to it. */
void ashlar__planner_finish(ashlar_planner *planner);

#endif /* ASHLAR_PLANNER_H */
