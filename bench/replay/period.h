/* period.h - finds the period at which a sequence of numbers nearly repeats itself (internal).
 *
 * Numbers are compared in runs of four. A run at position i repeats at period p if the same run
 * begins at i - p or up to `drift` places away from there, where drift = min(p / 16, 8): a few
 * numbers may be missing or inserted. For each candidate p the stretch is chosen that has the
 * largest surplus of runs that repeat over runs that do not, without a gap much longer than half a
 * period. The candidate counts if
 *
 *     the stretch covers at least about two periods, and two thirds of the sequence without its
 *     prefix, and
 *     score = (share of its runs that repeat - chance) / (1 - chance) >= 1/2,
 *
 * where chance is the share that would repeat if the same runs came in random order. The result is
 * the smallest candidate that counts and scores at most two standard deviations below the best;
 * among candidates within a drift of each other, it is the one that recurs most often. So a layer
 * is not mistaken for a step: layers repeat, too, but not across the end of a step.
 *
 * Candidates are the distances at which most different runs of 4, 8, 16, ... numbers recur: long
 * runs reach across the end of a step, short ones survive small changes. */
#ifndef ASHLAR_PERIOD_H
#define ASHLAR_PERIOD_H

#include <stddef.h>

#include <ashlar/status.h>

/* Invariants if period > 0: begin + 2 * period - drift <= end <= count;
 *   for begin + period <= i < count: i - period - drift <= links[i] <= i - period + drift */
typedef struct ashlar_period {
    size_t period; /* 0: the sequence does not repeat */
    size_t drift;
    size_t begin, end; /* the stretch that repeats, including its first period */
    double score;      /* 0 .. 1; 0 if there is no period */
    size_t *links;     /* [count]; NULL if there is no period. links[i] is the position that i
                        * repeats, or would repeat without a change in its run; unset for i < period
                        */
} ashlar_period;

/* Find the period.
 *
 * numbers  [count], each below count; they are only compared for equality
 * prefix   how many numbers at the beginning need not repeat
 *
 * Ownership: the caller ends *out with ashlar__period_finish().
 * Errors:    ASHLAR_EHOSTMEM.
 * Cost:      O(count log count), some 200 bytes of host memory for each number. */
ASHLAR_MUST_CHECK ashlar_status ashlar__period_find(const size_t *numbers, size_t count,
                                                    size_t prefix, ashlar_period *out);

void ashlar__period_finish(ashlar_period *period);

#endif /* ASHLAR_PERIOD_H */
