/* number_map.h - a map from pairs of numbers to a number, such as from a log's pointers, threads
 * and streams to their indexes (internal). Threads: one at a time. */
#ifndef ASHLAR_NUMBER_MAP_H
#define ASHLAR_NUMBER_MAP_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

#define ASHLAR_NUMBER_NONE SIZE_MAX /* the value of a new key */

typedef struct ashlar_number_entry ashlar_number_entry;

/* Zeroes are an empty map. Invariant: count < capacity, a power of two, or both are 0. */
typedef struct ashlar_number_map {
    ashlar_number_entry *entries;
    size_t capacity;
    size_t count;
} ashlar_number_map;

void ashlar__number_map_finish(ashlar_number_map *map);

/* *value: where the value of the key (high, low) is stored, until the next call. A key that was not
 * in the map is added with the value ASHLAR_NUMBER_NONE. Errors: ASHLAR_EHOSTMEM; the map is
 * unchanged then. */
ASHLAR_MUST_CHECK ashlar_status ashlar__number_map_find(ashlar_number_map *map, uint64_t high,
                                                        uint64_t low, size_t **value);

#endif /* ASHLAR_NUMBER_MAP_H */
