/*
 * soft_index.h - sorted tables: address ranges, and vector clocks (internal to the software
 * device).
 */
#ifndef ASHLAR_SOFT_INDEX_H
#define ASHLAR_SOFT_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Make room for one more item of `bytes` bytes. Returns the array; NULL: no host memory, and the
 * array and *capacity are unchanged. */
void *ashlar__soft_grow(void *items, size_t count, size_t *capacity, size_t bytes);

/* ---- address ranges ---- */

/* Each struct that is found by address has this as its first member. */
typedef struct soft_range {
    uintptr_t base;
    size_t bytes; /* > 0; base + bytes does not wrap */
} soft_range;

/* Ranges that do not overlap, in address order. */
typedef struct soft_ranges {
    soft_range **items;
    size_t count;
    size_t capacity;
} soft_ranges;

/* Index of the first range that ends after `address`; count if there is none. */
size_t ashlar__soft_ranges_after(const soft_ranges *ranges, uintptr_t address);
/* The range that starts at `address`, with its index; NULL if none does. */
void *ashlar__soft_ranges_at(const soft_ranges *ranges, uintptr_t address, size_t *idx);
/* The range that holds all of [address, address + bytes), bytes > 0; NULL if none does. */
void *ashlar__soft_ranges_over(const soft_ranges *ranges, uintptr_t address, size_t bytes);
/* Whether a range holds any byte of [address, address + bytes). */
bool ashlar__soft_ranges_touch(const soft_ranges *ranges, uintptr_t address, size_t bytes);
/* False: no host memory. */
bool ashlar__soft_ranges_insert(soft_ranges *ranges, soft_range *item);
void ashlar__soft_ranges_remove(soft_ranges *ranges, size_t idx, size_t count);
void ashlar__soft_ranges_clear(soft_ranges *ranges); /* frees the array, not the items */

/* ---- vector clocks ---- */

/*
 * A set of ops that come before its owner, an op or a node of a graph. It maps serial numbers of
 * streams to numbers of ops: the entry {s: n} says that every op of stream s with a number up to n
 * comes before the owner. Captures use clocks, and the tests' proof of order.
 *   times[i].serial < times[i + 1].serial; count <= capacity; every number > 0
 */
typedef struct soft_clock {
    struct soft_time {
        uint64_t serial;
        uint64_t number;
    } * times;
    size_t count;
    size_t capacity;
} soft_clock;

/* Whether the clock has an entry {serial: n} with n >= number. Always true for number 0. */
bool ashlar__soft_clock_covers(const soft_clock *clock, uint64_t serial, uint64_t number);
/* Whether `clock` covers every entry of `part`. */
bool ashlar__soft_clock_covers_all(const soft_clock *clock, const soft_clock *part);
/* _raise: raise the entry of stream `serial` to at least `number`. _join: raise each entry to at
 * least that of `other`. False: no host memory, and `clock` is unchanged. */
bool ashlar__soft_clock_raise(soft_clock *clock, uint64_t serial, uint64_t number);
bool ashlar__soft_clock_join(soft_clock *clock, const soft_clock *other);
void ashlar__soft_clock_clear(soft_clock *clock);

#endif /* ASHLAR_SOFT_INDEX_H */
