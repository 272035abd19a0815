/*
 * steps.h - where the steps of a program begin in a log of its allocations (internal).
 *
 * By the rows of action "step" where the log has any: each one begins a step. Else by the period
 * of the allocations, told apart by size and stream (period.h), in a log that may begin with an
 * initialisation and end with something else. Of the places in a period a step begins where least
 * is live on average, at an allocation; the frees before it belong to the step before.
 *
 * Within the smallest period nothing in the log tells a step from, say, a layer that is all the
 * program does.
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
