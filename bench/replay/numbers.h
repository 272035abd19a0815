/* numbers.h - what readers of logs share: a map from pairs of numbers, and hexadecimal numbers
 * (internal). */
#ifndef ASHLAR_REPLAY_NUMBERS_H
#define ASHLAR_REPLAY_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

#include "allocator/base/parse.h"

/* A hash map from a pair of numbers to an index. Zeroes are an empty map. Invariant: at most half
 * of the entries, a power of two in number, are used, so that a search is short. */
typedef struct ashlar_number_entry {
    uint64_t high, low;
    size_t value;
    bool is_used;
} ashlar_number_entry;

typedef struct ashlar_number_map {
    ashlar_number_entry *entries;
    size_t capacity, count;
} ashlar_number_map;

#define ASHLAR_NUMBER_UNSET SIZE_MAX

/* Find a key, or add it with the value ASHLAR_NUMBER_UNSET. *value points to its value until the
 * next call. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__number_map_find(ashlar_number_map *map, uint64_t high,
                                                        uint64_t low, size_t **value);

/* The index of a key; a new key gets the index *count, which then grows. Errors: ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__number_map_index(ashlar_number_map *map, uint64_t high,
                                                         uint64_t low, size_t *count, size_t *out);

void ashlar__number_map_finish(ashlar_number_map *map);

/* As ashlar__parse_count(), but hexadecimal, with 0x or without. */
bool ashlar__number_parse_hex(ashlar_piece piece, uint64_t *out);

#endif /* ASHLAR_REPLAY_NUMBERS_H */
