/*
 * pack_occupancy.c - the addresses taken in each section, and the lowest gap common to a run of
 * sections.
 *
 * A binary tree over the sections. Each node covers a run of sections and holds two sets of
 * addresses. The run of an item is the union of O(log sections) nodes, the fewest that there are:
 *     over     taken by items of which this is such a node
 *     within   taken by items whose first or last section is below this node
 * An address is taken in a run if it is in `over` of a node from the root to the run's first or
 * last section, or in `within` of one of the run's own nodes. So finding a gap or adding an item
 * takes O(log sections) sets, however many items there are. Items without a gap between them are
 * one interval of a set.
 */
#include "allocator/pack/pack_internal.h"

#include <string.h>

#include "allocator/base/check_level.h"

typedef struct interval {
    size_t begin, end;
} interval;

/* Invariants: begin < end < begin of the next interval. So adjacent intervals are merged. */
typedef struct interval_set {
    interval *intervals; /* [count], ascending */
    size_t count, capacity;
} interval_set;

typedef struct node {
    interval_set over, within;
} node;

/* Node 1 is the root, nodes 2 i and 2 i + 1 are the halves of node i. */
struct ashlar_pack_occupancy {
    ashlar_pack_memory *memory;
    node *nodes;         /* [2 * leaf_count] */
    uint32_t leaf_count; /* a power of two */
};

/* One search needs, on each level, at most two nodes' `over` and two nodes' `within`. */
enum { LEVELS = 32, SETS_MAX = 4 * LEVELS };
_Static_assert(LEVELS >= 8 * sizeof(uint32_t), "the tree of most leaves has no more levels");

/* ---- sets ---- */

/* The index of the first interval that ends above `at`; if there is none, the set's count. */
static size_t find_interval(const interval_set *set, size_t at) {
    size_t low = 0, high = set->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (set->intervals[middle].end > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* A search upwards through a set. Intervals before `next` end at or below the offset searched. */
typedef struct cursor {
    const interval *next, *end;
} cursor;

/* Move to the first interval that ends above `at`, by steps that double and then halve. */
static void skip(cursor *c, size_t at) {
    size_t step = 1;
    while ((size_t)(c->end - c->next) > step && c->next[step].end <= at) {
        c->next += step;
        step *= 2;
    }
    for (; step > 0; step /= 2) {
        if ((size_t)(c->end - c->next) >= step && c->next[step - 1].end <= at) {
            c->next += step;
        }
    }
    ASHLAR_CHECK2(c->next <= c->end && (c->next == c->end || c->next->end > at));
}

/* The lowest gap of `bytes` bytes at or above `at`. Later calls must not pass a lower `at`. */
static size_t find_gap(cursor *c, size_t at, size_t bytes) {
    skip(c, at);
    for (; c->next < c->end; c->next++) {
        if (c->next->begin >= at && c->next->begin - at >= bytes) {
            break;
        }
        at = c->next->end;
    }
    return at;
}

/* Add an interval to the set. False: no host memory. */
static bool add_interval(ashlar_pack_memory *memory, interval_set *set, interval merged) {
    ASHLAR_CHECK2(merged.begin < merged.end);
    interval *const all = ashlar__pack_grow(memory, set->intervals, &set->capacity, set->count + 1,
                                            sizeof *set->intervals);
    if (all == NULL) {
        return false;
    }
    set->intervals = all;
    const size_t low = merged.begin == 0 ? 0 : find_interval(set, merged.begin - 1);
    size_t high = low; /* intervals [low, high) overlap or touch the new one */
    for (; high < set->count && all[high].begin <= merged.end; high++) {
        merged.begin = all[high].begin < merged.begin ? all[high].begin : merged.begin;
        merged.end = all[high].end > merged.end ? all[high].end : merged.end;
    }
    memmove(&all[low + 1], &all[high], (set->count - high) * sizeof *all);
    all[low] = merged;
    set->count = set->count + 1 - (high - low);
    ASHLAR_CHECK2(low == 0 || all[low - 1].end < merged.begin);
    ASHLAR_CHECK2(low + 1 == set->count || merged.end < all[low + 1].begin);
    ASHLAR_CHECK2(set->count <= set->capacity);
    return true;
}

/* ---- the tree ---- */

ashlar_pack_occupancy *ashlar__pack_occupancy_create(ashlar_pack_memory *memory,
                                                     size_t section_count) {
    ashlar_pack_occupancy *occupancy = ashlar__pack_alloc(memory, 1, sizeof *occupancy);
    ASHLAR_CHECK2(section_count > 0 && section_count <= INT32_MAX / 2);
    if (occupancy == NULL) {
        return NULL;
    }
    occupancy->memory = memory;
    occupancy->leaf_count = 1;
    while (occupancy->leaf_count < section_count) {
        occupancy->leaf_count *= 2;
    }
    occupancy->nodes =
        ashlar__pack_alloc(memory, (size_t)2 * occupancy->leaf_count, sizeof *occupancy->nodes);
    return occupancy->nodes == NULL ? NULL : occupancy;
}

void ashlar__pack_occupancy_clear(ashlar_pack_occupancy *occupancy) {
    for (size_t i = 0; i < (size_t)2 * occupancy->leaf_count; i++) {
        occupancy->nodes[i].over.count = 0;
        occupancy->nodes[i].within.count = 0;
    }
}

static void append(cursor *sets, uint32_t *count, const interval_set *set) {
    if (set->count > 0) {
        ASHLAR_CHECK2(*count < SETS_MAX);
        sets[(*count)++] = (cursor){set->intervals, set->intervals + set->count};
    }
}

/* List the sets that hold all addresses taken in the item's sections. Returns their number. */
static uint32_t collect(const ashlar_pack_occupancy *occupancy, const ashlar_pack_item *item,
                        cursor *sets) {
    const node *nodes = occupancy->nodes;
    const uint32_t first = item->first + occupancy->leaf_count;
    const uint32_t last = item->end - 1 + occupancy->leaf_count;
    uint32_t count = 0;
    for (uint32_t low = first, high = last; low > 0; low /= 2, high /= 2) {
        append(sets, &count, &nodes[low].over);
        if (low != high) {
            append(sets, &count, &nodes[high].over);
        }
    }
    for (uint32_t low = first, high = last + 1; low < high; low /= 2, high /= 2) {
        if (low % 2 == 1) {
            append(sets, &count, &nodes[low++].within);
        }
        if (high % 2 == 1) {
            append(sets, &count, &nodes[--high].within);
        }
    }
    return count;
}

/* Move set `i` to the front. */
static void bring_forward(cursor *sets, uint32_t i) {
    const cursor moved = sets[i];
    memmove(&sets[1], &sets[0], i * sizeof *sets);
    sets[0] = moved;
}

/* Each set raises the offset to its next gap, until one offset is a gap in all sets. A set that
 * raises it is asked first from then on, since it is likely to raise it again. */
size_t ashlar__pack_occupancy_gap(const ashlar_pack_occupancy *occupancy,
                                  const ashlar_pack_item *item, size_t from, size_t *gap_end) {
    const size_t bytes = item->bytes;
    cursor sets[SETS_MAX];
    ASHLAR_CHECK2(item->first < item->end && item->end <= occupancy->leaf_count);
    ASHLAR_CHECK2(bytes > 0); /* with 0, find_gap() would stop inside an interval */
    const uint32_t count = collect(occupancy, item, sets);
    size_t offset = from;
    for (uint32_t i = 0; i < count; i++) {
        const size_t gap = find_gap(&sets[i], offset, bytes);
        if (gap != offset) {
            offset = gap;
            bring_forward(sets, i);
            i = 0; /* set 0 has just been asked */
        }
    }
    ASHLAR_CHECK2(offset <= SIZE_MAX - bytes); /* the sum of all sizes fits in size_t */
    *gap_end = SIZE_MAX;
    for (uint32_t i = 0; i < count; i++) {
        if (sets[i].next < sets[i].end && sets[i].next->begin < *gap_end) {
            *gap_end = sets[i].next->begin;
        }
    }
    return offset;
}

bool ashlar__pack_occupancy_add(ashlar_pack_occupancy *occupancy, const ashlar_pack_item *item,
                                size_t offset) {
    ashlar_pack_memory *memory = occupancy->memory;
    node *nodes = occupancy->nodes;
    const uint32_t first = item->first + occupancy->leaf_count;
    const uint32_t last = item->end - 1 + occupancy->leaf_count;
    const interval taken = {offset, offset + item->bytes};
    size_t gap_end;
    ASHLAR_CHECK2(item->bytes > 0 && offset <= SIZE_MAX - item->bytes);
    ASHLAR_CHECK3(ashlar__pack_occupancy_gap(occupancy, item, offset, &gap_end) == offset);
    (void)gap_end;
    for (uint32_t low = first, high = last; low > 0; low /= 2, high /= 2) {
        if (!add_interval(memory, &nodes[low].within, taken) ||
            (low != high && !add_interval(memory, &nodes[high].within, taken))) {
            return false;
        }
    }
    for (uint32_t low = first, high = last + 1; low < high; low /= 2, high /= 2) {
        if ((low % 2 == 1 && !add_interval(memory, &nodes[low++].over, taken)) ||
            (high % 2 == 1 && !add_interval(memory, &nodes[--high].over, taken))) {
            return false;
        }
    }
    return true;
}
