/* pack_skyline.c - the unfinished plan of the exact search: placing items on it, undoing that, and
 * finding the edge of a valley where the fewest items could be placed next. */
#include "allocator/pack/pack_internal.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/random.h"

/* ---- changes ---- */

/* Without host memory the skyline is useless: the search looks at memory->has_failed. */
static void record(ashlar_pack_skyline *b, ashlar_pack_change change) {
    ashlar_pack_change *changes = ashlar__pack_grow(b->memory, b->changes, &b->change_capacity,
                                                    b->change_count + 1, sizeof *changes);
    if (changes != NULL) {
        b->changes = changes;
        b->changes[b->change_count++] = change;
    }
}

void ashlar__pack_skyline_place(ashlar_pack_skyline *b, uint32_t item) {
    const ashlar_pack_item *x = &b->problem->items[item];
    const size_t offset = b->floors[x->first];
    ASHLAR_CHECK2(!b->is_placed[item]);
    ASHLAR_CHECK2(offset != ASHLAR_PACK_DONE && x->bytes <= b->capacity - offset);
    record(b, (ashlar_pack_change){.floor = offset, .item = item});
    b->is_placed[item] = true;
    b->offsets[item] = offset;
    for (uint32_t s = x->first; s < x->end; s++) {
        ASHLAR_CHECK2(b->floors[s] == offset && !b->is_closed[s]); /* it rests in one valley */
        ASHLAR_CHECK2(b->rests[s] >= x->bytes);
        b->rests[s] -= x->bytes;
        b->floors[s] = b->rests[s] == 0 ? ASHLAR_PACK_DONE : offset + x->bytes;
        b->crossings[s] -= s > x->first;
    }
}

void ashlar__pack_skyline_close(ashlar_pack_skyline *b, uint32_t section) {
    ASHLAR_CHECK2(!b->is_closed[section] && b->floors[section] != ASHLAR_PACK_DONE);
    record(b, (ashlar_pack_change){.floor = b->floors[section],
                                   .item = ASHLAR_PACK_NONE,
                                   .first = section,
                                   .end = section + 1});
    b->is_closed[section] = true;
}

/* Raise a closed valley, whose sections are then open again. */
static void raise_floor(ashlar_pack_skyline *b, uint32_t first, uint32_t end, size_t floor) {
    record(b, (ashlar_pack_change){.floor = b->floors[first],
                                   .item = ASHLAR_PACK_NONE,
                                   .first = first,
                                   .end = end,
                                   .was_closed = true});
    for (uint32_t s = first; s < end; s++) {
        ASHLAR_CHECK2(b->is_closed[s] && b->rests[s] > 0 && b->rests[s] <= b->capacity - floor);
        b->floors[s] = floor;
        b->is_closed[s] = false;
    }
}

void ashlar__pack_skyline_undo(ashlar_pack_skyline *b, size_t change_count) {
    ASHLAR_CHECK2(change_count <= b->change_count && b->change_count <= b->change_capacity);
    while (b->change_count > change_count) {
        const ashlar_pack_change *change = &b->changes[--b->change_count];
        const bool is_item = change->item != ASHLAR_PACK_NONE;
        const ashlar_pack_item *x = is_item ? &b->problem->items[change->item] : NULL;
        const uint32_t first = is_item ? x->first : change->first;
        const uint32_t end = is_item ? x->end : change->end;
        for (uint32_t s = first; s < end; s++) {
            b->floors[s] = change->floor;
            b->is_closed[s] = change->was_closed;
            b->rests[s] += is_item ? x->bytes : 0;
            b->crossings[s] += is_item && s > first;
            ASHLAR_CHECK2(b->rests[s] <= b->problem->loads[s]);
        }
        if (is_item) {
            b->is_placed[change->item] = false;
        }
    }
}

/* ---- parts ---- */

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
        key += ashlar__random_mix(b->floors[s] * 0x9e3779b97f4a7c15U + s * 0xda942042e4dd58b5U +
                                  b->is_closed[s]);
    }
    for (uint32_t k = b->first_at[first]; k < b->first_at[end]; k++) {
        key += b->is_placed[b->by_first[k]] ? 0 : ashlar__random_mix(~(uint64_t)b->by_first[k]);
    }
    return key | 1;
}

/* ---- the edges of valleys ---- */

/* Sections [first, end) of one floor, lower than the walls on both sides. */
typedef struct valley {
    uint32_t first, end;
    size_t depth; /* to the lower wall; SIZE_MAX if both walls are DONE */
} valley;

typedef struct edge_search {
    ashlar_pack_skyline *skyline;
    const uint32_t *weights;
    ashlar_pack_edge *edge; /* the best edge so far */
    bool has_edge;
    uint32_t *stuck;
} edge_search;

/* Bytes below the capacity that section s may leave empty. */
static size_t slack(const ashlar_pack_skyline *b, uint32_t s) {
    ASHLAR_CHECK2(b->floors[s] <= b->capacity && b->rests[s] <= b->capacity - b->floors[s]);
    return b->capacity - b->floors[s] - b->rests[s];
}

/* Count the candidates of an edge. If nothing rests there, its floor rises at least to a wall, or
 * by the smallest item of the valley that is not live there. */
static void count_candidates(const ashlar_pack_skyline *b, const valley *h,
                             ashlar_pack_edge *edge) {
    size_t least = h->depth;
    for (uint32_t k = b->first_at[edge->first]; k < b->first_at[edge->end]; k++) {
        const ashlar_pack_item *x = &b->problem->items[b->by_first[k]];
        if (ashlar__pack_skyline_may_rest(b, edge, b->by_first[k])) {
            edge->candidate_count++;
        } else if (!b->is_placed[b->by_first[k]] && x->end <= edge->end) {
            least = x->bytes < least ? x->bytes : least;
        }
    }
    edge->may_stay_empty = least <= slack(b, ashlar__pack_edge_section(edge));
    edge->candidate_count += edge->may_stay_empty;
}

/* Keep the edge if it is better than the best one so far. False: it has no candidate at all. */
static bool consider(edge_search *l, const valley *h, ashlar_pack_edge edge) {
    const uint32_t s = ashlar__pack_edge_section(&edge);
    count_candidates(l->skyline, h, &edge);
    if (edge.candidate_count == 0) {
        *l->stuck = s;
        return false;
    }
    const ashlar_pack_edge *best = l->edge;
    if (!l->has_edge ||
        (best->candidate_count > 1 &&
         (edge.candidate_count == 1 ||
          (uint64_t)edge.candidate_count * l->weights[ashlar__pack_edge_section(best)] <
              (uint64_t)best->candidate_count * l->weights[s]))) {
        *l->edge = edge;
        l->has_edge = true;
    }
    return true;
}

/* Consider both edges of each run of open sections. False: stuck. */
static bool search_valley(edge_search *l, const valley *h, bool *is_open) {
    const ashlar_pack_skyline *b = l->skyline;
    for (uint32_t first = h->first, end; first < h->end; first = end) {
        end = first + 1;
        if (b->is_closed[first]) {
            continue;
        }
        while (end < h->end && !b->is_closed[end]) {
            end++;
        }
        *is_open = true;
        if (!consider(l, h, (ashlar_pack_edge){.first = first, .end = end}) ||
            !consider(l, h, (ashlar_pack_edge){.first = first, .end = end, .is_right = true})) {
            return false;
        }
    }
    return true;
}

/* Nothing more can rest in the valley: raise it to its lower wall. False: stuck. */
static bool fill_up(edge_search *l, const valley *h) {
    for (uint32_t s = h->first; s < h->end; s++) {
        if (h->depth == SIZE_MAX || h->depth > slack(l->skyline, s)) {
            *l->stuck = s;
            return false;
        }
    }
    raise_floor(l->skyline, h->first, h->end, l->skyline->floors[h->first] + h->depth);
    return true;
}

/* The run of sections with one floor that begins at *at; moves *at behind it. False: no valley. */
static bool next_run(const ashlar_pack_skyline *b, uint32_t *at, uint32_t end, valley *out) {
    const uint32_t first = *at;
    const size_t floor = b->floors[first];
    uint32_t stop = first + 1;
    while (stop < end && b->floors[stop] == floor && b->crossings[stop] > 0) {
        stop++;
    }
    *at = stop;
    const size_t left = ashlar__pack_wall_left(b, first), right = ashlar__pack_wall_right(b, stop);
    const size_t wall = left < right ? left : right;
    if (floor == ASHLAR_PACK_DONE || wall < floor) {
        return false;
    }
    ASHLAR_CHECK2(wall > floor); /* a floor of this height would be part of the run */
    *out = (valley){first, stop, wall == ASHLAR_PACK_DONE ? SIZE_MAX : wall - floor};
    return true;
}

ashlar_pack_edge_result ashlar__pack_skyline_find_edge(ashlar_pack_skyline *skyline, uint32_t first,
                                                       uint32_t end, const uint32_t *weights,
                                                       ashlar_pack_edge *edge, uint32_t *stuck) {
    edge_search l = {.skyline = skyline, .weights = weights, .edge = edge, .stuck = stuck};
    ASHLAR_CHECK2(first < end && end <= skyline->problem->section_count);
    for (uint32_t at = first; at < end;) {
        valley h;
        bool is_open = false;
        if (!next_run(skyline, &at, end, &h)) {
            continue;
        }
        if (!search_valley(&l, &h, &is_open) || (!is_open && !fill_up(&l, &h))) {
            return ASHLAR_PACK_STUCK;
        }
        if (!is_open) {
            at = first; /* the skyline has changed: look again */
            l.has_edge = false;
        }
    }
    return l.has_edge ? ASHLAR_PACK_EDGE : ASHLAR_PACK_FILLED;
}

/* ---- making ---- */

ashlar_status ashlar__pack_skyline_init(ashlar_pack_skyline *out, ashlar_pack_memory *memory,
                                        const ashlar_pack_items *p) {
    const size_t count = p->count, sections = p->section_count;
    ashlar_pack_skyline b = {
        .problem = p,
        .memory = memory,
        .floors = ashlar__pack_alloc(memory, sections, sizeof *b.floors),
        .rests = ashlar__pack_alloc(memory, sections, sizeof *b.rests),
        .crossings = ashlar__pack_alloc(memory, sections + 1, sizeof *b.crossings),
        .is_closed = ashlar__pack_alloc(memory, sections, sizeof *b.is_closed),
        .is_placed = ashlar__pack_alloc(memory, count, sizeof *b.is_placed),
        .offsets = ashlar__pack_alloc(memory, count, sizeof *b.offsets),
        .by_first = ashlar__pack_alloc(memory, count, sizeof *b.by_first),
        .first_at = ashlar__pack_alloc(memory, sections + 2, sizeof *b.first_at),
    };
    ASHLAR_TRY(ashlar__pack_memory_check(memory));
    memcpy(b.rests, p->loads, sections * sizeof *b.rests);
    /* first_at[s + 1] is the next index of `by_first` to write to, which ends up where s + 1
     * starts. */
    for (size_t i = 0; i < count; i++) {
        b.first_at[p->items[i].first + 2]++;
        for (uint32_t s = p->items[i].first + 1; s < p->items[i].end; s++) {
            b.crossings[s]++;
        }
    }
    for (size_t s = 1; s < sections + 1; s++) {
        b.first_at[s + 1] += b.first_at[s];
    }
    for (uint32_t i = 0; i < count; i++) {
        b.by_first[b.first_at[p->items[i].first + 1]++] = i;
    }
    ASHLAR_CHECK2(b.first_at[0] == 0 && b.first_at[sections] == count);
    *out = b;
    return ASHLAR_OK;
}
