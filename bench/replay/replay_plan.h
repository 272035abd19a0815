/* replay_plan.h - finds the steps of a log, so that a replay can serve them from a plan, and
 * reports how well that went (internal).
 *
 * Each row of action "step" begins a step; what follows the last one is a step if it allocates. The
 * first step is recorded, and all others, those of further passes included, are replayed on its
 * plan. A log without two steps counts as one, and has at least two passes.
 *
 * Steps belong to the thread that allocates most in them. They begin and end at that thread's first
 * event after a boundary; other threads allocate by the ordinary path. */
#ifndef ASHLAR_REPLAY_PLAN_H
#define ASHLAR_REPLAY_PLAN_H

#include <stdbool.h>
#include <stdio.h>

#include <ashlar/plan.h>

#include "allocator/base/json.h"
#include "bench/replay/rmm_csv.h"

/* Step k has the events boundaries[k] .. boundaries[k + 1] - 1. Boundaries ascend strictly. */
typedef struct ashlar_steps {
    size_t *boundaries; /* [count + 1] */
    size_t count;
} ashlar_steps;

typedef struct ashlar_replay_plan {
    ashlar_steps steps;      /* of one pass over the log */
    size_t passes;           /* at least 1 */
    bool is_whole_log;       /* the log has no two steps of its own: each pass is one */
    size_t thread;           /* the thread whose steps these are */
    size_t stream;           /* of this thread's first allocation in the steps */
    size_t step_allocations; /* in the first step, by any thread */
} ashlar_replay_plan;

/* Find the steps of a log that is to be replayed `passes` times. Ownership: the caller ends *out
 * with ashlar__replay_plan_finish(). Errors: ASHLAR_EHOSTMEM; *out is then as it was. */
ASHLAR_MUST_CHECK ashlar_status ashlar__replay_plan_init(const ashlar_rmm_log *log, size_t passes,
                                                         ashlar_replay_plan *out);
void ashlar__replay_plan_finish(ashlar_replay_plan *plan);

/* Print a replay's outcome, or add it to an open JSON object. */
void ashlar__replay_plan_print(FILE *out, const ashlar_replay_plan *plan,
                               const ashlar_plan_stats *stats);
void ashlar__replay_plan_put(ashlar_json_writer *w, const ashlar_replay_plan *plan,
                             const ashlar_plan_stats *stats);

#endif /* ASHLAR_REPLAY_PLAN_H */
