/* pack_skyline.c - the unfinished plan of the exact search: creating it, placing items on it, and
 * undoing placements. */
#include "allocator/pack/pack_skyline.h"

#include <stdlib.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

/* ---- placing and taking back ---- */

static void record(ashlar_pack_skyline *b, ashlar_pack_change change) {
    if (b->change_count == b->change_capacity) {
        const size_t capacity = b->change_capacity == 0 ? 256 : 2 * b->change_capacity;
        ashlar_pack_change *grown = ashlar__host_realloc(b->changes, capacity, sizeof *grown);
        if (grown == NULL) {
            b->has_failed = true;
            return;
        }
        b->changes = grown;
        b->change_capacity = capacity;
    }
    b->changes[b->change_count++] = change;
}

static void record_section(ashlar_pack_skyline *b, uint32_t s) {
    record(b, (ashlar_pack_change){.floor = b->floors[s], .idx = s, .was_closed = b->is_closed[s]});
}

static uint64_t key_of(uint32_t item) {
    return ashlar__random_mix((uint64_t)item + 1);
}

void ashlar__pack_skyline_place(ashlar_pack_skyline *b, uint32_t item) {
    const ashlar_pack_item *x = &b->problem->items[item];
    const size_t offset = b->floors[x->first];
    ASHLAR_CHECK2(!b->is_placed[item]);
    ASHLAR_CHECK2(offset != ASHLAR_PACK_DONE && x->bytes <= b->capacity - offset);
    record(b, (ashlar_pack_change){.idx = item, .is_item = true});
    b->is_placed[item] = true;
    b->offsets[item] = offset;
    b->left_keys[x->first] ^= key_of(item);
    for (uint32_t s = x->first; s < x->end; s++) {
        ASHLAR_CHECK2(b->floors[s] == offset && !b->is_closed[s]); /* it rests in one valley */
        ASHLAR_CHECK2(b->rests[s] >= x->bytes);
        record_section(b, s);
        b->rests[s] -= x->bytes;
        b->floors[s] = b->rests[s] == 0 ? ASHLAR_PACK_DONE : offset + x->bytes;
        ASHLAR_CHECK2(b->rests[s] <= b->capacity - (offset + x->bytes));
    }
    for (uint32_t s = x->first + 1; s < x->end; s++) {
        ASHLAR_CHECK2(b->crossings[s] > 0);
        b->crossings[s]--;
    }
}

static void take_back(ashlar_pack_skyline *b, uint32_t item) {
    const ashlar_pack_item *x = &b->problem->items[item];
    ASHLAR_CHECK2(b->is_placed[item]);
    b->is_placed[item] = false;
    b->left_keys[x->first] ^= key_of(item);
    for (uint32_t s = x->first; s < x->end; s++) {
        b->rests[s] += x->bytes;
        ASHLAR_CHECK2(b->rests[s] <= b->problem->loads[s]);
    }
    for (uint32_t s = x->first + 1; s < x->end; s++) {
        b->crossings[s]++;
    }
}

void ashlar__pack_skyline_close(ashlar_pack_skyline *b, uint32_t section) {
    ASHLAR_CHECK2(!b->is_closed[section] && b->floors[section] != ASHLAR_PACK_DONE);
    record_section(b, section);
    b->is_closed[section] = true;
}

void ashlar__pack_skyline_level(ashlar_pack_skyline *b, uint32_t first, uint32_t end,
                                size_t floor) {
    for (uint32_t s = first; s < end; s++) {
        ASHLAR_CHECK2(b->floors[s] < floor && b->is_closed[s]);
        ASHLAR_CHECK2(b->rests[s] > 0 && b->rests[s] <= b->capacity - floor);
        record_section(b, s);
        b->floors[s] = floor;
        b->is_closed[s] = false;
    }
}

void ashlar__pack_skyline_undo(ashlar_pack_skyline *b, size_t change_count) {
    ASHLAR_CHECK2(change_count <= b->change_count && b->change_count <= b->change_capacity);
    while (b->change_count > change_count) {
        const ashlar_pack_change *change = &b->changes[--b->change_count];
        if (change->is_item) {
            take_back(b, change->idx);
        } else {
            b->floors[change->idx] = change->floor;
            b->is_closed[change->idx] = change->was_closed;
        }
    }
}

void ashlar__pack_skyline_connect(const ashlar_pack_skyline *b, uint32_t *first, uint32_t *end) {
    ASHLAR_CHECK2(*first < *end && *end <= b->problem->section_count);
    while (b->crossings[*first] > 0) {
        --*first;
    }
    while (b->crossings[*end] > 0) {
        ++*end;
    }
}

uint64_t ashlar__pack_skyline_key(const ashlar_pack_skyline *b, uint32_t first, uint32_t end) {
    uint64_t key = 0;
    ASHLAR_CHECK2(b->crossings[first] == 0 && b->crossings[end] == 0); /* no item crosses */
    for (uint32_t s = first; s < end; s++) {
        key += ashlar__random_mix(b->left_keys[s] + b->floors[s] * 0x9e3779b97f4a7c15U +
                                  s * 0xda942042e4dd58b5U + b->is_closed[s]);
    }
    return key | 1;
}

/* ---- making a skyline ---- */

typedef struct order_context {
    const ashlar_pack_item *items;
    bool is_by_end;
} order_context;

/* Order items by the section where they begin (or end); equal items become neighbours. */
static int compare(const void *a, const void *b, void *context) {
    const order_context *c = context;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const ashlar_pack_item *x = &c->items[i], *y = &c->items[j];
    const uint32_t x_1 = c->is_by_end ? x->end : x->first, y_1 = c->is_by_end ? y->end : y->first;
    const uint32_t x_2 = c->is_by_end ? x->first : x->end, y_2 = c->is_by_end ? y->first : y->end;
    if (x_1 != y_1) {
        return x_1 < y_1 ? -1 : 1;
    }
    if (x_2 != y_2) {
        return x_2 < y_2 ? -1 : 1;
    }
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return (i > j) - (i < j);
}

static void sort_items(const ashlar_pack_items *p, bool is_by_end, uint32_t *order,
                       uint32_t *starts) {
    order_context context = {p->items, is_by_end};
    for (uint32_t i = 0; i < p->count; i++) {
        order[i] = i;
        starts[(is_by_end ? p->items[i].end : p->items[i].first) + 1]++;
    }
    for (size_t s = 0; s < p->section_count + 1; s++) {
        starts[s + 1] += starts[s];
    }
    ASHLAR_CHECK2(starts[0] == 0 && starts[p->section_count + 1] == p->count);
    qsort_r(order, p->count, sizeof *order, compare, &context);
}

static void find_duplicates(ashlar_pack_skyline *b) {
    const ashlar_pack_item *items = b->problem->items;
    for (size_t k = 0; k < b->problem->count; k++) {
        const uint32_t i = b->by_first[k], j = k == 0 ? i : b->by_first[k - 1];
        const bool is_equal = k > 0 && items[i].first == items[j].first &&
                              items[i].end == items[j].end && items[i].bytes == items[j].bytes;
        b->duplicates[i] = is_equal ? j : ASHLAR_PACK_NONE;
    }
}

static void fill(ashlar_pack_skyline *b) {
    const ashlar_pack_items *p = b->problem;
    sort_items(p, false, b->by_first, b->first_at);
    sort_items(p, true, b->by_end, b->end_at);
    find_duplicates(b);
    for (uint32_t i = 0; i < p->count; i++) {
        b->left_keys[p->items[i].first] ^= key_of(i);
        for (uint32_t s = p->items[i].first + 1; s < p->items[i].end; s++) {
            b->crossings[s]++;
        }
    }
    for (size_t s = 0; s < p->section_count; s++) {
        b->rests[s] = p->loads[s];
    }
    /* Walls at both ends, where ashlar__pack_skyline_connect() stops. */
    ASHLAR_CHECK2(b->crossings[0] == 0 && b->crossings[p->section_count] == 0);
}

ashlar_status ashlar__pack_skyline_init(ashlar_pack_skyline *out,
                                        const ashlar_pack_items *problem) {
    const size_t count = problem->count, sections = problem->section_count;
    ashlar_pack_skyline b = {
        .problem = problem,
        .floors = ashlar__host_calloc(sections, sizeof *b.floors),
        .rests = ashlar__host_calloc(sections, sizeof *b.rests),
        .crossings = ashlar__host_calloc(sections + 1, sizeof *b.crossings),
        .is_closed = ashlar__host_calloc(sections, sizeof *b.is_closed),
        .left_keys = ashlar__host_calloc(sections, sizeof *b.left_keys),
        .is_placed = ashlar__host_calloc(count, sizeof *b.is_placed),
        .offsets = ashlar__host_calloc(count, sizeof *b.offsets),
        .by_first = ashlar__host_calloc(count, sizeof *b.by_first),
        .by_end = ashlar__host_calloc(count, sizeof *b.by_end),
        .first_at = ashlar__host_calloc(sections + 2, sizeof *b.first_at),
        .end_at = ashlar__host_calloc(sections + 2, sizeof *b.end_at),
        .duplicates = ashlar__host_calloc(count, sizeof *b.duplicates),
        .fills = ashlar__host_calloc(sections + 1, sizeof *b.fills),
    };
    if (b.floors == NULL || b.rests == NULL || b.crossings == NULL || b.is_closed == NULL ||
        b.left_keys == NULL || b.is_placed == NULL || b.offsets == NULL || b.by_first == NULL ||
        b.by_end == NULL || b.first_at == NULL || b.end_at == NULL || b.duplicates == NULL ||
        b.fills == NULL) {
        ashlar__pack_skyline_finish(&b);
        return ashlar__fail(ASHLAR_EHOSTMEM, "pack: no host memory to search with %zu buffers",
                            count);
    }
    fill(&b);
    *out = b;
    return ASHLAR_OK;
}

void ashlar__pack_skyline_finish(ashlar_pack_skyline *b) {
    void *const parts[] = {b->floors,    b->rests,      b->crossings, b->is_closed, b->left_keys,
                           b->is_placed, b->offsets,    b->by_first,  b->by_end,    b->first_at,
                           b->end_at,    b->duplicates, b->fills,     b->changes};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        ashlar__host_free(parts[i]);
    }
    *b = (ashlar_pack_skyline){0};
}
