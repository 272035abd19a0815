/*
 * period.h - the distance at which a sequence of numbers repeats itself, nearly (internal).
 *
 * Numbers are compared as runs of four. A run at i repeats at period p where the same run begins at
 * i - p, or up to `drift` places beside that, drift = min(p / 16, 8): a few numbers may be missing
 * or inserted. The stretch in which more runs repeat than not (and without a gap longer than half
 * a period) is what repeats. It counts if
 *
 *     it has at least two periods, and two thirds of the sequence (a prefix apart), and
 *     score = (share of its runs that repeat - chance) / (1 - chance) >= 1/2,
 *
 * where chance is the share that would repeat if the same runs came in any order. Of the periods
 * that count, the smallest one is taken whose score is as good as the best one's (less by no more
 * than two standard deviations of that share), and of those within a drift the commonest. So layers
 * do not pass for steps: they repeat too, but not where a step ends.
 *
 * Candidates are the distances at which the most different runs of 4, 8, 16, ... numbers come
 * again: long runs reach over the end of a step, short ones survive changes.
 */
#ifndef ASHLAR_PERIOD_H
#define ASHLAR_PERIOD_H

#include <stddef.h>

#include <ashlar/status.h>

/*
 * Invariants, where period > 0: begin + 2 * period - drift <= end <= count;
 *   for begin + period <= i < count: i - period - drift <= links[i] <= i - period + drift
 */
typedef struct ashlar_period {
    size_t period; /* 0: the sequence does not repeat */
    size_t drift;
    size_t begin, end; /* the stretch that repeats, its first period included */
    double score;      /* 0 .. 1; 0 where there is no period */
    size_t *links;     /* [count], or NULL where there is no period: what i repeats, or would if it
                          were not changed; unset for i < period */
} ashlar_period;

/*
 * Find the period.
 *
 * numbers  [count], each below count; only equality matters
 * prefix   how many of the first ones need not repeat
 *
 * Ownership: the caller ends *out with ashlar__period_finish().
 * Errors:    ASHLAR_EHOSTMEM.
 * Cost:      O(count log count), some 200 bytes of host memory for each number.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__period_find(const size_t *numbers, size_t count,
                                                    size_t prefix, ashlar_period *out);

void ashlar__period_finish(ashlar_period *period);

#endif /* ASHLAR_PERIOD_H */
