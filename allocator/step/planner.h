/*
 * planner.h - the keys, plans and regions of one allocator (internal).
 */
#ifndef ASHLAR_PLANNER_H
#define ASHLAR_PLANNER_H

#include "allocator/plan/plan.h"

typedef struct ashlar_plan_region ashlar_plan_region;

/* The steps of one key on one stream. Lock: the allocator's. */
typedef struct ashlar_step_key ashlar_step_key;
struct ashlar_step_key {
    ashlar_step_key *next;
    uint64_t key;               /* const */
    ashlar_order *order;        /* the steps' own stream */
    ashlar_recording recording; /* of the steps recorded so far, merged; without any, empty */
    uint32_t step_count;        /* how many these are */
    ashlar_plan *plan;          /* NULL: none; every planned slot of it has a seat */
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
    ashlar_plan_region *regions;
    ashlar_plan_stats stats; /* the counts of it */
    size_t run_count;        /* steps under way */
    size_t recording_count;  /* those of them that are recorded */
    bool is_installing;      /* a region is being taken, perhaps without the lock */
} ashlar_planner;

extern const ashlar_plan_options ashlar_plan_defaults;

/* Whether a step uses the key, its recording or its plan. */
static inline bool ashlar_step_key_is_in_use(const ashlar_step_key *key) {
    return key->is_busy || key->replay_count > 0;
}

#endif /* ASHLAR_PLANNER_H */
