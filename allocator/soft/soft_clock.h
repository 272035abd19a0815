/*
 * soft_clock.h - vector clocks: sets of ops that come before a given op (internal).
 *
 * A clock belongs to an op or a node, and maps serial numbers of streams to numbers of ops. The
 * entry {s: n} says that every op of stream s with a number up to n comes before the clock's owner.
 * Two parts of the software device use clocks: soft_capture.c for the nodes that a node comes
 * after, soft_oracle.c, with clocks=on, for the work that an op comes after.
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

/* Whether op `number` of stream `serial` comes before the clock's owner: the clock has an entry
 * {serial: n} with n >= number. Always true for number 0. */
bool ashlar__soft_clock_covers(const soft_clock *clock, uint64_t serial, uint64_t number);
/* Whether `clock` covers every entry of `part`. */
bool ashlar__soft_clock_covers_all(const soft_clock *clock, const soft_clock *part);

/* _raise: raise the entry of stream `serial` to at least `number`. _join: raise each entry to at
 * least that of `other`. False: no host memory, and `clock` is unchanged. */
bool ashlar__soft_clock_raise(soft_clock *clock, uint64_t serial, uint64_t number);
bool ashlar__soft_clock_join(soft_clock *clock, const soft_clock *other);

void ashlar__soft_clock_clear(soft_clock *clock);

#endif /* ASHLAR_SOFT_CLOCK_H */
