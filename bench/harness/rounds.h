/*
 * rounds.h - rounds in which all subjects take turns, and the median, which every benchmark reports
 * (internal).
 */
#ifndef ASHLAR_ROUNDS_H
#define ASHLAR_ROUNDS_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/status.h>

enum { ASHLAR_ROUNDS_MAX = 101, ASHLAR_ROUNDS_FIGURES = 5, ASHLAR_ROUNDS_SUBJECTS = 32 };

typedef struct ashlar_rounds {
    size_t most, least; /* limits of the number of rounds, 1 .. ASHLAR_ROUNDS_MAX */
    double while_s;     /* seconds to go on for, within these limits */
    double round_s;     /* about how long one subject's turn takes, in seconds, by repeating */
    bool is_smoke;      /* one round, cold and without repeats */
    size_t slow_rounds; /* how many rounds a very slow subject takes part in; 0: all */
    /* Run a subject's operation `repeats` times. figures: what is to be kept of the turn; the first
     * is seconds per operation. */
    ashlar_status (*run)(void *context, size_t subject, size_t repeats,
                         double figures[static ASHLAR_ROUNDS_FIGURES]);
    void *context; /* the first argument of `run` */
} ashlar_rounds;

/* The results of one subject's turns. */
typedef struct ashlar_turns {
    size_t repeats;                                           /* of its operation in each turn */
    size_t rounds;                                            /* that it took part in */
    double figures[ASHLAR_ROUNDS_FIGURES][ASHLAR_ROUNDS_MAX]; /* by round */
} ashlar_turns;

/*
 * Run `count` subjects, at most ASHLAR_ROUNDS_SUBJECTS, in rounds. Each round has an order of its
 * own: a subject finds the processor's caches as the one before it left them, perhaps full of that
 * one's writes, so no subject may always follow the same one. Before the rounds each subject runs
 * twice, cold and warm, unless it is a smoke run. The figures of these runs are not kept, but the
 * warm one tells how many repeats fill a turn.
 *
 * turns   [count], out
 *
 * Errors: those of `run`.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__rounds_run(const ashlar_rounds *rounds, size_t count,
                                                   ashlar_turns *turns);

/* The shortest time between two readings of the clock. */
double ashlar__clock_cost_ns(void);

/* The median of `count` > 0 numbers: the middle one, or the mean of the middle two. Sorts them. */
double ashlar__median(double *numbers, size_t count);

/* The median of a figure over a subject's rounds. Sorts them. */
double ashlar__turns_median(ashlar_turns *turns, size_t figure);

/* A figure's spread: the middle half of its rounds lies between *low and *high. Sorts them. */
void ashlar__turns_spread(ashlar_turns *turns, size_t figure, double *low, double *high);

#endif /* ASHLAR_ROUNDS_H */
