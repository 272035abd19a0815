/*
 * number_map.h - a map from pairs of numbers to a number: from a log's pointers, threads and
 * streams to their indexes (internal).
 *
 * Threads: one at a time.
 */
#ifndef ASHLAR_NUMBER_MAP_H
#define ASHLAR_NUMBER_MAP_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

#define ASHLAR_NUMBER_NONE SIZE_MAX /* the value of a key that has none yet */

typedef struct ashlar_number_entry ashlar_number_entry;

/* Zeroes are an empty map. Invariant: count < capacity, a power of two, or both are 0. */
typedef struct ashlar_number_map {
    ashlar_number_entry *entries;
    size_t capacity;
    size_t count;
} ashlar_number_map;

void ashlar__number_map_finish(ashlar_number_map *map);

/*
 * Where the value of (high, low) is stored, ASHLAR_NUMBER_NONE at first. Valid until the next call.
 * Errors: ASHLAR_EHOSTMEM; the map is then unchanged.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__number_map_find(ashlar_number_map *map, uint64_t high,
                                                        uint64_t low, size_t **value);

#endif /* ASHLAR_NUMBER_MAP_H */
