/*
 * heap_place.c - finding the place in all gaps where a block takes the fewest handles that could
 * serve elsewhere.
 */
#include "allocator/heap/heap_impl.h"

/*
 * The cost of a handle that a block touches. A handle costs nothing if other blocks use a part of
 * it, since it can serve only the gaps beside them, or if only the stream itself may use it now.
 * Among all other handles, a mapped one costs a little less, since it saves a driver call.
 */
#define COST_MAPPED ((uint64_t)1 << 20)
#define COST_MISSING (COST_MAPPED + 1)
#define COST_BLOCKED ((uint64_t)1 << 52) /* another stream may still use it */

typedef struct search {
    const ashlar_heap *heap;
    const ashlar_stream_state *state;
    uint64_t least; /* the cost of *best */
    ashlar_heap_place *best;
} search;

static uint64_t cost_of(const search *s, const ashlar_window *w, ashlar_handle_span inside,
                        size_t idx) {
    const ashlar_backing *backing = &w->backing[idx];
    const bool is_past = ashlar__backing_is_past(w, backing);
    if (!is_past) {
        return w->zone->owner == s->state ? 0 : COST_BLOCKED;
    }
    return idx < inside.first || idx >= inside.end ? 0
           : backing->is_mapped                    ? COST_MAPPED
                                                   : COST_MISSING;
}

/*
 * Tries only the first byte of each handle in the gap: a block that begins later in the same handle
 * touches no fewer handles. `cost` is the cost of the handles [at, end).
 */
static void search_gap(search *s, ashlar_block *gap, size_t bytes) {
    const ashlar_window *w = gap->window;
    const ashlar_handle_span inside = ashlar__handles_inside(s->heap, gap);
    const size_t last = gap->offset + gap->bytes - bytes, size = s->heap->range.handle_bytes;
    uint64_t cost = 0;
    size_t at = ashlar__handles_touched(s->heap, w, gap->offset, gap->bytes).first, end = at;
    for (size_t offset = gap->offset; offset <= last; offset = w->offset + at * size) {
        for (const size_t to = ashlar__handles_touched(s->heap, w, offset, bytes).end; end < to;) {
            cost += cost_of(s, w, inside, end++);
        }
        if (cost < s->least) {
            s->least = cost;
            *s->best = (ashlar_heap_place){gap, offset, bytes};
        }
        cost -= cost_of(s, w, inside, at++);
    }
}

static void search_zone(search *s, const ashlar_zone *zone, size_t bytes) {
    ashlar_block *gap = ashlar__free_bins_best_fit(&zone->gaps, bytes);
    for (; gap != NULL && s->least > 0;
         gap = ashlar__free_bins_next(&zone->gaps, gap->bytes, gap->offset)) {
        search_gap(s, gap, bytes);
    }
}

bool ashlar__heap_find_place(const ashlar_heap *heap, ashlar_stream_state *state, size_t bytes,
                             ashlar_heap_place *out) {
    search s = {.heap = heap, .state = state, .least = COST_BLOCKED, .best = out};
    const ashlar_zone *own = ashlar__zone_of(state, bytes);
    search_zone(&s, own, bytes);
    search_zone(&s, own == state->zones ? &state->zones[1] : state->zones, bytes);
    for (const ashlar_zone *zone = heap->zones; zone != NULL; zone = zone->next) {
        if (zone->owner != state && !zone->owner->is_pool) {
            search_zone(&s, zone, bytes);
        }
    }
    return s.least < COST_BLOCKED;
}
