/* number_map.c - a hash table from pairs of numbers to a number. */
#include "bench/replay/number_map.h"

#include <stdbool.h>

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"

struct ashlar_number_entry {
    uint64_t high, low;
    size_t value;
    bool is_used;
};

enum { CAPACITY_MIN = 64 };

/* The odd number nearest 2^64 / golden ratio. hash() multiplies by it twice, because addresses
 * differ only in their middle bits. */
#define HASH_FACTOR UINT64_C(0x9E3779B97F4A7C15)

static size_t hash(uint64_t high, uint64_t low) {
    uint64_t h = (low ^ (high * HASH_FACTOR)) * HASH_FACTOR;
    h = (h ^ (h >> 32)) * HASH_FACTOR;
    return (size_t)(h >> 32);
}

/* The key's entry or, if it has none, the free entry to use; count < capacity, so one is free. */
static ashlar_number_entry *probe(const ashlar_number_map *map, uint64_t high, uint64_t low) {
    ASHLAR_CHECK2(map->count < map->capacity);
    size_t i = hash(high, low) & (map->capacity - 1);
    while (map->entries[i].is_used &&
           (map->entries[i].high != high || map->entries[i].low != low)) {
        i = (i + 1) & (map->capacity - 1);
    }
    return &map->entries[i];
}

static ashlar_status grow(ashlar_number_map *map) {
    ashlar_number_map grown = {.count = map->count};
    grown.capacity = map->capacity == 0 ? CAPACITY_MIN : 2 * map->capacity;
    ASHLAR_HOST_NEW(grown.entries, grown.capacity, "no host memory for a map of %zu numbers",
                    grown.capacity);
    for (size_t i = 0; i < map->capacity; i++) {
        const ashlar_number_entry *entry = &map->entries[i];
        if (entry->is_used) {
            *probe(&grown, entry->high, entry->low) = *entry;
        }
    }
    ashlar__number_map_finish(map);
    *map = grown;
    return ASHLAR_OK;
}

void ashlar__number_map_finish(ashlar_number_map *map) {
    ashlar__host_free(map->entries);
    *map = (ashlar_number_map){0};
}

ashlar_status ashlar__number_map_find(ashlar_number_map *map, uint64_t high, uint64_t low,
                                      size_t **value) {
    if (map->count >= map->capacity / 2) { /* at most half full, so that probe() is short */
        ASHLAR_TRY(grow(map));
    }
    ashlar_number_entry *entry = probe(map, high, low);
    if (!entry->is_used) {
        *entry = (ashlar_number_entry){high, low, ASHLAR_NUMBER_NONE, true};
        map->count++;
    }
    *value = &entry->value;
    return ASHLAR_OK;
}
