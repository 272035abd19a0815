/*
 * soft_clock.h - vector clocks: how far each stream's work is known to come before (internal).
 *
 * A clock is a map from streams, by serial number, to numbers of ops: {s: n} says that every op
 * of stream s with a number up to n comes before whatever the clock belongs to. Two parts of the
 * software device use it: capture (soft_capture.c), where it says which nodes a node comes after,
 * and clocks=on (soft_oracle.c), where it says which work an op comes after.
 */
#ifndef ASHLAR_SOFT_CLOCK_H
#define ASHLAR_SOFT_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* times[i].serial < times[i + 1].serial; count <= capacity; every number > 0. */
typedef struct soft_clock {
    struct soft_time {
        uint64_t serial;
        uint64_t number;
    } * times;
    size_t count;
    size_t capacity;
} soft_clock;

/* {s: n} is in it, or {s: more than n}; n = 0 always is. */
bool ashlar__soft_clock_covers(const soft_clock *clock, uint64_t serial, uint64_t number);
/* Each entry of `part` is covered. */
bool ashlar__soft_clock_covers_all(const soft_clock *clock, const soft_clock *part);

/* Raise to the larger of both. False, and `clock` as it was: no host memory. */
bool ashlar__soft_clock_raise(soft_clock *clock, uint64_t serial, uint64_t number);
bool ashlar__soft_clock_join(soft_clock *clock, const soft_clock *other);

void ashlar__soft_clock_clear(soft_clock *clock);

#endif /* ASHLAR_SOFT_CLOCK_H */
