/* steps.h - finds where a program's steps begin in a log of its allocations (internal).
 *
 * Each row of action "step" begins a step. In a log without such rows, steps are found by the
 * period of the allocations, which are distinguished by size and stream (period.h); an
 * initialisation may come before the steps, and anything after them. A step begins at the
 * allocation of a period that on average finds the fewest live bytes; the frees before it belong to
 * the previous step.
 *
 * If a program does nothing but repeat one layer, the log cannot tell that layer from a step. */
#ifndef ASHLAR_STEPS_H
#define ASHLAR_STEPS_H

#include <stddef.h>

#include "bench/replay/rmm_csv.h"

/* Step k has the events boundaries[k] .. boundaries[k + 1] - 1.
 * Invariant: boundaries ascend strictly, boundaries[count] <= log->event_count. */
typedef struct ashlar_steps {
    size_t *boundaries; /* [count + 1]; NULL if count is 0 */
    size_t count;       /* 0: no steps found */
    size_t period;      /* about how many allocations a step has; 0: marked, or no steps */
    double score;       /* 0 .. 1: how well steps repeat (period.h); 1: marked; 0: no steps */
} ashlar_steps;

/* Find the steps. A log without steps is no error: count is 0 then. Ownership: the caller ends *out
 * with ashlar__steps_finish(). Errors: ASHLAR_EHOSTMEM; *out is then unchanged. Cost: O(n log n) in
 * the log's events. */
ASHLAR_MUST_CHECK ashlar_status ashlar__steps_find(const ashlar_rmm_log *log, ashlar_steps *out);

void ashlar__steps_finish(ashlar_steps *steps);

#endif /* ASHLAR_STEPS_H */
