/* numbers.c - a map from pairs of numbers to an index; reads hexadecimal numbers. */
#include "bench/replay/numbers.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* The key's entry or, if it has none, the free one to use. Addresses differ only in their middle
 * bits, so hashes are multiplied twice. */
static ashlar_number_entry *probe(const ashlar_number_map *m, uint64_t high, uint64_t low) {
    const uint64_t golden = UINT64_C(0x9E3779B97F4A7C15);
    uint64_t hash = (low ^ (high * golden)) * golden;
    hash = (hash ^ (hash >> 32)) * golden;
    size_t i = (size_t)(hash >> 32) & (m->capacity - 1);
    while (m->entries[i].is_used && (m->entries[i].high != high || m->entries[i].low != low)) {
        i = (i + 1) & (m->capacity - 1);
    }
    return &m->entries[i];
}

static ashlar_status grow(ashlar_number_map *m) {
    ashlar_number_map grown = {.count = m->count,
                               .capacity = m->capacity == 0 ? 64 : 2 * m->capacity};
    ASHLAR_HOST_NEW(grown.entries, grown.capacity, "no host memory for a map of %zu numbers",
                    grown.capacity);
    for (size_t i = 0; i < m->capacity; i++) {
        if (m->entries[i].is_used) {
            *probe(&grown, m->entries[i].high, m->entries[i].low) = m->entries[i];
        }
    }
    ashlar__host_free(m->entries);
    *m = grown;
    return ASHLAR_OK;
}

ashlar_status ashlar__number_map_find(ashlar_number_map *map, uint64_t high, uint64_t low,
                                      size_t **value) {
    if (map->count >= map->capacity / 2) {
        ASHLAR_TRY(grow(map));
    }
    ashlar_number_entry *e = probe(map, high, low);
    if (!e->is_used) {
        *e = (ashlar_number_entry){high, low, ASHLAR_NUMBER_UNSET, true};
        map->count++;
    }
    *value = &e->value;
    return ASHLAR_OK;
}

ashlar_status ashlar__number_map_index(ashlar_number_map *map, uint64_t high, uint64_t low,
                                       size_t *count, size_t *out) {
    size_t *value = NULL;
    ASHLAR_TRY(ashlar__number_map_find(map, high, low, &value));
    if (*value == ASHLAR_NUMBER_UNSET) {
        *value = (*count)++;
    }
    *out = *value;
    return ASHLAR_OK;
}

void ashlar__number_map_finish(ashlar_number_map *map) {
    ashlar__host_free(map->entries);
    *map = (ashlar_number_map){0};
}

bool ashlar__number_parse_hex(ashlar_piece p, uint64_t *out) {
    uint64_t sum = 0;
    if (p.bytes > 2 && p.text[0] == '0' && (p.text[1] | 0x20) == 'x') {
        p = (ashlar_piece){p.text + 2, p.bytes - 2};
    }
    for (size_t i = 0; i < p.bytes; i++) {
        const char c = p.text[i], lower = (char)(c | 0x20);
        const bool is_decimal = c >= '0' && c <= '9';
        if (sum >> 60 != 0 || !(is_decimal || (lower >= 'a' && lower <= 'f'))) {
            return false;
        }
        sum = sum << 4 | (uint64_t)(is_decimal ? c - '0' : lower - 'a' + 10);
    }
    *out = sum;
    return p.bytes > 0;
}
