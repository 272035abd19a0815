/* pack_skyline_edges.c - finds the valleys of a skyline, and the edge of a valley where the fewest
 * items could be placed next. */
#include "allocator/pack/pack_skyline.h"

#include "allocator/base/check_level.h"

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

/* The floor to the left of section s, or DONE if no unplaced item is live in both sections. */
static size_t wall_left(const ashlar_pack_skyline *b, uint32_t s) {
    return b->crossings[s] > 0 ? b->floors[s - 1] : ASHLAR_PACK_DONE;
}

static size_t wall_right(const ashlar_pack_skyline *b, uint32_t end) {
    return b->crossings[end] > 0 ? b->floors[end] : ASHLAR_PACK_DONE;
}

/* Bytes below the capacity that section s may leave empty. */
static size_t slack(const ashlar_pack_skyline *b, uint32_t s) {
    ASHLAR_CHECK2(b->floors[s] <= b->capacity && b->rests[s] <= b->capacity - b->floors[s]);
    return b->capacity - b->floors[s] - b->rests[s];
}

/* Whether `item` may rest in the valley [first, end). Equal items are placed in one order only. */
static bool may_rest(const ashlar_pack_skyline *b, uint32_t item, uint32_t first, uint32_t end) {
    const ashlar_pack_item *x = &b->problem->items[item];
    return !b->is_placed[item] && x->first >= first && x->end <= end &&
           (b->duplicates[item] == ASHLAR_PACK_NONE || b->is_placed[b->duplicates[item]]);
}

uint32_t ashlar__pack_skyline_candidates(const ashlar_pack_skyline *b, const ashlar_pack_edge *edge,
                                         uint32_t *out) {
    const uint32_t *items = edge->is_right ? b->by_end : b->by_first;
    const uint32_t *starts = edge->is_right ? &b->end_at[edge->end] : &b->first_at[edge->first];
    uint32_t count = 0;
    ASHLAR_CHECK2(edge->first < edge->end && edge->end <= b->problem->section_count);
    for (uint32_t k = starts[0]; k < starts[1]; k++) {
        if (may_rest(b, items[k], edge->first, edge->end)) {
            if (out != NULL) {
                out[count] = items[k];
            }
            count++;
        }
    }
    return count;
}

/* ---- one valley ---- */

/* By how much the floor at an edge rises at least, if nothing rests there: the next item then rests
 * on a wall, or on an item at least so high. */
typedef struct steps {
    size_t left, right; /* by the smallest item of the valley that is not live at that edge */
} steps;

/* Whether the items that fit into the run [first, end) can fill it, except for the slack of its
 * sections. Also sets *least. */
static bool can_fill(edge_search *l, const valley *h, uint32_t first, uint32_t end, steps *least) {
    const ashlar_pack_skyline *b = l->skyline;
    size_t fill = 0;
    *least = (steps){h->depth, h->depth};
    for (uint32_t s = first; s <= end; s++) {
        b->fills[s] = 0;
    }
    for (uint32_t k = b->first_at[first]; k < b->first_at[end]; k++) {
        const ashlar_pack_item *x = &b->problem->items[b->by_first[k]];
        if (b->is_placed[b->by_first[k]] || x->end > end) {
            continue;
        }
        b->fills[x->first] += x->bytes; /* differences, summed up below */
        b->fills[x->end] -= x->bytes;
        least->left = x->first > first && x->bytes < least->left ? x->bytes : least->left;
        least->right = x->end < end && x->bytes < least->right ? x->bytes : least->right;
    }
    for (uint32_t s = first; h->depth != SIZE_MAX && s < end; s++) {
        fill += b->fills[s];
        if (fill < h->depth && h->depth - fill > slack(b, s)) {
            *l->stuck = s;
            return false;
        }
    }
    return true;
}

/* Keep the edge if it is better than the best one so far. False: it has no candidate at all. */
static bool consider(edge_search *l, ashlar_pack_edge edge, size_t step) {
    const uint32_t s = ashlar__pack_edge_section(&edge);
    const uint32_t item_count = ashlar__pack_skyline_candidates(l->skyline, &edge, NULL);
    edge.may_stay_empty = step <= slack(l->skyline, s);
    edge.candidate_count = item_count + edge.may_stay_empty;
    ASHLAR_CHECK2(l->weights[s] > 0);
    if (edge.candidate_count == 0) {
        *l->stuck = s;
        return false;
    }
    if (!l->has_edge) {
        *l->edge = edge;
        l->has_edge = true;
        return true;
    }
    const ashlar_pack_edge *best = l->edge;
    const uint32_t best_weight = l->weights[ashlar__pack_edge_section(best)];
    const bool is_forced = edge.candidate_count == 1 && best->candidate_count > 1;
    if (is_forced ||
        (best->candidate_count > 1 && (uint64_t)edge.candidate_count * best_weight <
                                          (uint64_t)best->candidate_count * l->weights[s])) {
        *l->edge = edge;
    }
    return true;
}

/* Consider both edges of each run of open sections. False: stuck. */
static bool search_valley(edge_search *l, const valley *h, bool *is_open) {
    const ashlar_pack_skyline *b = l->skyline;
    for (uint32_t first = h->first, end; first < h->end; first = end) {
        steps least;
        end = first + 1;
        if (b->is_closed[first]) {
            continue;
        }
        while (end < h->end && !b->is_closed[end]) {
            end++;
        }
        *is_open = true;
        if (!can_fill(l, h, first, end, &least) ||
            !consider(l, (ashlar_pack_edge){.first = first, .end = end}, least.left) ||
            !consider(l, (ashlar_pack_edge){.first = first, .end = end, .is_right = true},
                      least.right)) {
            return false;
        }
    }
    return true;
}

/* Nothing more can rest in the valley: raise it to its lower wall. False: stuck. */
static bool fill_up(edge_search *l, const valley *h) {
    ashlar_pack_skyline *b = l->skyline;
    for (uint32_t s = h->first; s < h->end; s++) {
        ASHLAR_CHECK2(b->is_closed[s]);
        if (h->depth == SIZE_MAX || h->depth > slack(b, s)) {
            *l->stuck = s;
            return false;
        }
    }
    ashlar__pack_skyline_level(b, h->first, h->end, b->floors[h->first] + h->depth);
    return true;
}

/* ---- all of them ---- */

/* The run of sections with one floor that begins at *at; moves *at behind it. False: no valley. */
static bool next_run(const ashlar_pack_skyline *b, uint32_t *at, uint32_t end, valley *out) {
    const uint32_t first = *at;
    const size_t floor = b->floors[first];
    uint32_t stop = first + 1;
    while (stop < end && b->floors[stop] == floor && b->crossings[stop] > 0) {
        stop++;
    }
    *at = stop;
    const size_t left = wall_left(b, first), right = wall_right(b, stop);
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
    ASHLAR_CHECK2(skyline->crossings[first] == 0 && skyline->crossings[end] == 0);
    for (uint32_t at = first; at < end;) {
        valley h;
        bool is_open = false;
        if (!next_run(skyline, &at, end, &h)) {
            continue;
        }
        if (!search_valley(&l, &h, &is_open)) {
            return ASHLAR_PACK_STUCK;
        }
        if (!is_open) {
            if (!fill_up(&l, &h)) {
                return ASHLAR_PACK_STUCK;
            }
            at = first; /* the skyline has changed: look again */
            l.has_edge = false;
        }
    }
    ASHLAR_CHECK2(!l.has_edge || edge->candidate_count > 0);
    ASHLAR_CHECK2(!l.has_edge || (first <= edge->first && edge->end <= end));
    return l.has_edge ? ASHLAR_PACK_EDGE : ASHLAR_PACK_FILLED;
}
