/*
 * rounds.h - rounds in which all subjects take turns, and the median, which every benchmark reports
 * (internal).
 */
#ifndef ASHLAR_ROUNDS_H
#define ASHLAR_ROUNDS_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/status.h>

typedef struct ashlar_rounds {
    size_t most, least; /* limits of the number of rounds */
    double while_s;     /* seconds to go on for, within these limits */
    double round_s;     /* about how long one subject's turn takes, in seconds, by repeating */
    bool is_smoke;      /* one round without repeats */
    /* Run a subject's operation `repeats` times and record the round. *seconds: per operation. */
    ashlar_status (*run)(void *context, size_t subject, size_t repeats, size_t round,
                         double *seconds);
    void *context; /* the first argument of `run` */
} ashlar_rounds;

/*
 * Run `count` subjects in rounds. Each round begins with a different subject, so that a noisy
 * machine disturbs all alike. Before that each subject runs twice, cold and warm, with round = 0:
 * the first round overwrites what `run` recorded.
 *
 * repeats   [count], out: how often each subject's operation is repeated, from its warm run
 * done      out: rounds that were run
 *
 * Errors: those of `run`.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__rounds_run(const ashlar_rounds *rounds, size_t count,
                                                   size_t *repeats, size_t *done);

/* The median of `count` > 0 numbers: the middle one, or the mean of the middle two. Sorts them. */
double ashlar__median(double *numbers, size_t count);

#endif /* ASHLAR_ROUNDS_H */
