/*
 * rounds.h - rounds in which all subjects take turns, and the median over them, which is what every
 * benchmark reports (internal).
 */
#ifndef ASHLAR_ROUNDS_H
#define ASHLAR_ROUNDS_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/status.h>

typedef struct ashlar_rounds {
    size_t most, least; /* rounds: as many as fit in `while_s`, within these limits */
    double while_s;
    double round_s; /* an operation is repeated until a round takes about so long */
    bool is_smoke;  /* one round without repeats */
    /* Repeat a subject's operation, note the round's figures; *seconds is of one operation. */
    ashlar_status (*run)(void *context, size_t subject, size_t repeats, size_t round,
                         double *seconds);
    void *context; /* of `run` */
} ashlar_rounds;

/*
 * Run `count` subjects in rounds, each round beginning with another subject, so that a noisy
 * machine disturbs all alike. Each subject first runs twice as round 0, cold and warm.
 *
 * repeats   [count], set from the warm run
 * done      rounds that were run
 *
 * Errors: those of `run`.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__rounds_run(const ashlar_rounds *rounds, size_t count,
                                                   size_t *repeats, size_t *done);

/* The middle one of `count` > 0 numbers, the mean of the two in the middle; sorts them. */
double ashlar__median(double *numbers, size_t count);

#endif /* ASHLAR_ROUNDS_H */
