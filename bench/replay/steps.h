/*
 * steps.h - where the steps of a program begin in a log of its allocations (internal).
 *
 * Rows of action "step" each begin one, where the log has any. Else steps are found by the period
 * of the allocations, told apart by size and stream (period.h); the log may begin with an
 * initialisation and end with something else. Within the period a step begins at the allocation
 * before which least is live on average; the frees before it belong to the step before.
 *
 * If a program does nothing but repeat one layer, the log cannot tell that layer from a step.
 */
#ifndef ASHLAR_STEPS_H
#define ASHLAR_STEPS_H

#include <stddef.h>

#include "bench/replay/rmm_csv.h"

/*
 * Step k has the events boundaries[k] .. boundaries[k + 1] - 1.
 * Invariant: boundaries ascend strictly, boundaries[count] <= log->event_count.
 */
typedef struct ashlar_steps {
    size_t *boundaries; /* [count + 1]; NULL where count is 0 */
    size_t count;       /* 0: no steps found */
    size_t period;      /* allocations in a step, but for small differences; 0: marked, or none */
    double score;       /* 0 .. 1: how well steps repeat (period.h); 1: marked; 0: none */
} ashlar_steps;

/*
 * Find the steps. No steps are no error: count is 0 then.
 *
 * Ownership: the caller ends *out with ashlar__steps_finish().
 * Errors:    ASHLAR_EHOSTMEM; *out is then as it was.
 * Cost:      O(n log n) in the log's events.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__steps_find(const ashlar_rmm_log *log, ashlar_steps *out);

void ashlar__steps_finish(ashlar_steps *steps);

#endif /* ASHLAR_STEPS_H */
