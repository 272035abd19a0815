/*
 * rungs.c - the ways in which a miss looks for memory: in the stream's own zones, in what its plan
 * leaves idle, in new memory, and in other streams' zones. miss.c has their order. Every function
 * here is called with the allocator's lock held; one that finds nothing leaves *out NULL.
 */
#include "allocator/core/core.h"

#include "allocator/base/error.h"

/* ---- one gap ---- */

/* How many gaps of a zone a request tries if the best one has no memory. */
enum { GAPS_LOOKED_AT = 8 };

static ashlar_zone *zone_for(const ashlar_request *r) {
    return ashlar__zone_of(r->stream_state, r->bytes);
}

/* The stream's zone for blocks of the other sizes. */
static ashlar_zone *other_zone_for(const ashlar_request *r) {
    ashlar_zone *zones = r->stream_state->zones;
    return zone_for(r) == zones ? &zones[1] : zones;
}

static bool is_freed(const ashlar_block *block) {
    return block != NULL && block->state == ASHLAR_BLOCK_USED && block->requested == 0;
}

/* Whether a request for memory at hand passes over this gap, so that its caller tries a slower way:
 * memory is short and cannot be moved, and the gap is too large, or will grow by a freed block. */
static bool is_left_alone(const ashlar_allocator *a, const ashlar_request *r,
                          const ashlar_block *gap) {
    return r->is_at_hand && a->heap.range.segments != NULL && ashlar__heap_is_short(&a->heap) &&
           (is_freed(gap->prev) || is_freed(gap->next) ||
            ashlar__heap_is_misfit(&a->heap, gap, r->bytes));
}

/* The stream's own gaps are filled from the front only, so that its addresses depend on its
 * requests alone. */
bool ashlar__rung_find_place(const ashlar_allocator *a, const ashlar_zone *zone,
                             const ashlar_request *r, bool is_past_only, ashlar_heap_place *out) {
    ashlar_block *gap = ashlar__free_bins_best_fit(&zone->gaps, r->bytes);
    for (size_t i = 0; gap != NULL && i < GAPS_LOOKED_AT; i++) {
        size_t offset = gap->offset;
        const bool has_front = ashlar__heap_missing(&a->heap, gap, r->bytes) == 0;
        const bool has_memory = zone->owner == r->stream_state
                                    ? has_front
                                    : ashlar__heap_find_run(&a->heap, gap, r->bytes, &offset);
        /* Ask about the front's memory, if any: a block behind it would split the gap. */
        const size_t from = has_front ? gap->offset : offset;
        if (has_memory && !is_left_alone(a, r, gap) &&
            (!is_past_only || ashlar__heap_is_past_at(&a->heap, gap->window, from, r->bytes))) {
            *out = (ashlar_heap_place){gap, offset, r->bytes};
            return true;
        }
        gap = ashlar__free_bins_next(&zone->gaps, gap->bytes, gap->offset);
    }
    return false;
}

ashlar_status ashlar__rung_take_place(ashlar_allocator *a, const ashlar_request *r,
                                      const ashlar_heap_place *place, ashlar_block **out) {
    ashlar_block *block = NULL;
    ASHLAR_TRY(ashlar__heap_take_run(&a->heap, place->gap, place->offset, place->bytes, &block));
    if (block->window->zone->owner != r->stream_state) {
        block->marks |= ASHLAR_BLOCK_BORROWED;
    }
    *out = block;
    return ASHLAR_OK;
}

static ashlar_status take(ashlar_allocator *a, const ashlar_request *r, ashlar_block *gap,
                          ashlar_block **out) {
    return ashlar__rung_take_place(a, r, &(ashlar_heap_place){gap, gap->offset, r->bytes}, out);
}

/* Take from a gap of the stream's own zone, if it has the memory. `gap` NULL: none fits. */
static ashlar_status take_gap(ashlar_allocator *a, const ashlar_request *r, ashlar_block *gap,
                              ashlar_block **out) {
    const bool serves = gap != NULL && ashlar__heap_missing(&a->heap, gap, r->bytes) == 0 &&
                        !ashlar__heap_is_misfit(&a->heap, gap, r->bytes) &&
                        !is_left_alone(a, r, gap);
    return serves ? take(a, r, gap, out) : ASHLAR_OK;
}

ashlar_block *ashlar__gap_of_own(const ashlar_zone *zone, ashlar_cache *own, size_t bytes) {
    ashlar_block *gap = ashlar__free_bins_best_fit(&zone->gaps, bytes);
    const bool is_at_end = gap == NULL || gap->next == NULL;
    if (is_at_end && own != NULL && own->weight[bytes > ASHLAR_SC_MAX_BYTES] != 0) {
        ashlar__cache_flush_stream(own, zone->owner, bytes);
        gap = ashlar__free_bins_best_fit(&zone->gaps, bytes);
    }
    return gap;
}

/* If the best gap is at a window's end, the caller's own cache is emptied first. */
ashlar_status ashlar__rung_take_own(ashlar_allocator *a, const ashlar_request *r,
                                    ashlar_block **out) {
    return take_gap(a, r, ashlar__gap_of_own(zone_for(r), r->own, r->bytes), out);
}

static ashlar_block *own_gap(const ashlar_request *r) {
    return ashlar__free_bins_best_fit(&zone_for(r)->gaps, r->bytes);
}

static ashlar_status take_in_zone(ashlar_allocator *a, const ashlar_request *r,
                                  const ashlar_zone *zone, ashlar_block **out) {
    ashlar_heap_place place;
    return ashlar__rung_find_place(a, zone, r, false, &place)
               ? ashlar__rung_take_place(a, r, &place, out)
               : ASHLAR_OK;
}

/* If the best fit has no memory, another of the stream's own gaps may have some. */
ashlar_status ashlar__rung_take_mapped(ashlar_allocator *a, const ashlar_request *r,
                                       ashlar_block **out) {
    return take_in_zone(a, r, zone_for(r), out);
}

/* ---- the stream's own memory that is elsewhere ---- */

/* The number of streams, or of zones of ended streams, about which one request asks the driver. */
enum { ASKED_MAX = 16 };

/* Ask the driver whether all of an ended stream's work is over. */
static ashlar_status is_over(ashlar_allocator *a, ashlar_stream_state *state, bool *out) {
    if (!ashlar__stream_state_is_quiet(state)) {
        ASHLAR_TRY(ashlar__stream_state_ask(state, &a->client, state->last_tick,
                                            &a->stats.events_recorded));
    }
    *out = ashlar__stream_state_is_quiet(state);
    return ASHLAR_OK;
}

/* Whether the request's stream may take over the zones of `owner`. A graph's pool, which keeps them
 * as long as the graph lives, takes only those of a pool that was released. */
static bool may_adopt(const ashlar_request *r, const ashlar_stream_state *owner) {
    return !owner->is_idle && !owner->is_pool && ashlar__stream_state_has_ended(owner) &&
           (!r->stream_state->is_pool || owner->released_on != NULL);
}

/* Merge the zone of an ended stream into the request's zone, if the stream's work is over. */
static ashlar_status adopt(ashlar_allocator *a, const ashlar_request *r, bool *adopted) {
    ashlar_zone *to = zone_for(r);
    const size_t kind = (size_t)(to - r->stream_state->zones);
    size_t asked = 0;
    *adopted = false;
    for (ashlar_zone *zone = a->heap.zones; zone != NULL && asked < ASKED_MAX; zone = zone->next) {
        ashlar_stream_state *owner = zone->owner;
        if (zone != &owner->zones[kind] || !may_adopt(r, owner)) {
            continue;
        }
        const bool is_behind = owner->released_on == r->stream_state; /* owner's work comes first */
        asked++;
        ASHLAR_TRY(is_over(a, owner, adopted));
        if (*adopted || is_behind) {
            ashlar__zone_move(&a->heap, zone, to, *adopted);
            *adopted = true;
            return ASHLAR_OK;
        }
    }
    return ASHLAR_OK;
}

/* Whether the request belongs to a step during which no cross-stream block may come back. */
static bool is_held(const ashlar_request *r) {
    return r->own != NULL && r->own->own_replay != NULL && r->own->own_replay->is_held;
}

/* Ask whether cross-stream blocks may come back, and search once more. */
static ashlar_status take_cross_back(ashlar_allocator *a, const ashlar_request *r,
                                     ashlar_block **out) {
    if (r->stream_state->cross_count == 0 || is_held(r)) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__cross_ask(&a->heap, ASKED_MAX));
    return take_gap(a, r, own_gap(r), out);
}

/* Take cross-stream blocks back, or adopt an ended stream's zone. */
ashlar_status ashlar__rung_take_cross(ashlar_allocator *a, const ashlar_request *r,
                                      ashlar_block **out) {
    ashlar_stream_state *state = r->stream_state;
    ashlar_status status = ASHLAR_OK;
    bool adopted = true;
    if (state->oldest_cross != NULL && !r->is_idle) {
        *out = ashlar__cross_take_own(&a->heap, state, r->bytes);
        if (*out != NULL) {
            (*out)->marks |=
                ashlar__block_owner(*out) == state ? 0 : (unsigned char)ASHLAR_BLOCK_BORROWED;
            return ASHLAR_OK;
        }
    }
    status = take_cross_back(a, r, out);
    while (status == ASHLAR_OK && *out == NULL && adopted) {
        const size_t cross_count = state->cross_count;
        ASHLAR_TRY(adopt(a, r, &adopted));
        if (adopted) {
            status = ashlar__rung_take_mapped(a, r, out);
        }
        /* The zone came with cross-stream blocks, and nobody else will ask for them. */
        if (status == ASHLAR_OK && *out == NULL && state->cross_count > cross_count) {
            status = take_cross_back(a, r, out);
        }
    }
    return status;
}

ashlar_status ashlar__rung_move_to(ashlar_allocator *a, const ashlar_heap_place *place,
                                   bool *is_there) {
    const size_t missing = ashlar__heap_missing_at(&a->heap, place);
    *is_there = false;
    if (missing > ashlar__heap_free_bytes(&a->heap)) {
        return ASHLAR_OK;
    }
    const ashlar_status status = ashlar__heap_back_at(&a->heap, place, ASHLAR_MAY_MOVE);
    *is_there = status == ASHLAR_OK;
    return status == ASHLAR_ENOMEM ? ASHLAR_OK : status;
}

/* ---- what a step's plan leaves idle ---- */

/* The bytes that the request would have mapped in its zone. */
static size_t missing_bytes(const ashlar_allocator *a, const ashlar_request *r) {
    const ashlar_block *gap = own_gap(r);
    return gap != NULL ? ashlar__heap_missing(&a->heap, gap, r->bytes) : r->bytes;
}

/* Whether plan memory lies idle while more is mapped beside it, each more than 1/100 of its bytes.
 * If not, count what the request maps. */
static bool is_in_vain(const ashlar_allocator *a, const ashlar_request *r,
                       const ashlar_plan_memory *memory) {
    const size_t bytes = memory->block->bytes;
    const size_t idle = bytes - ashlar__plan_memory_live_bytes(memory);
    const size_t beside = memory->stream_state->beside_bytes + missing_bytes(a, r);
    if (idle <= bytes / 100) {
        return false;
    }
    if (beside > bytes / 100) {
        return true;
    }
    memory->stream_state->beside_bytes = beside;
    return false;
}

/* Whether a plan memory is that of the step that the calling thread replays. */
static bool is_own(const ashlar_request *r, const ashlar_plan_memory *memory) {
    const ashlar_replay *replay = r->own->active_replay;
    const uint32_t count = ashlar__cache_is_replaying(r->own) ? replay->plan->stream_count : 0;
    uint32_t stream_idx = 0;
    while (stream_idx < count && replay->memories[stream_idx] != memory) {
        stream_idx++;
    }
    return stream_idx < count;
}

/* The ordinary path serves the rest of the thread's step, and later steps of its key. */
static void leave_plan(ashlar_allocator *a, const ashlar_request *r) {
    ashlar_step_key *key = r->own->own_replay->key;
    ashlar__cache_end_replay(r->own);
    key->is_ordinary = true;
    key->left_count++;
    key->is_stale |= a->planner.options.rerecord_after > 0;
    a->planner.stats.plans_left++;
    ashlar__planner_retire_plan_locked(&a->planner, &a->heap, key);
}

/* End the stream's plan memory, if it lies idle while more is mapped beside it. */
static void end_memory(ashlar_allocator *a, const ashlar_request *r) {
    ashlar_plan_memory *memory = ashlar__planner_memory(&a->planner, r->stream_state);
    if (memory == NULL || !is_in_vain(a, r, memory)) {
        return;
    }
    if (is_own(r, memory)) {
        if (!r->own->active_replay->is_at_miss) {
            return; /* the recorded step made this request, too, and its plan left it out */
        }
        leave_plan(a, r);
        memory = ashlar__planner_memory(&a->planner, r->stream_state);
    }
    if (memory != NULL) {
        (void)ashlar__planner_end_memory_locked(&a->planner, &a->heap, memory);
    }
}

/* Serve the request from its own zone by moving free memory there. */
static ashlar_status move_in(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    ashlar_stream_state *state = r->stream_state;
    bool is_there = false;
    if (state->pending_count > 0) {
        ASHLAR_TRY(ashlar__stream_state_query(state, &a->client));
    }
    if (state->pending_count > 0) {
        return ASHLAR_OK; /* work is still queued: asking now would record an event per request */
    }
    ASHLAR_TRY(ashlar__rung_ask_all(a));
    ashlar_block *gap = own_gap(r);
    if (gap != NULL) {
        const ashlar_heap_place place = {gap, gap->offset, r->bytes};
        ASHLAR_TRY(ashlar__rung_move_to(a, &place, &is_there));
    }
    return is_there ? take_gap(a, r, gap, out) : ASHLAR_OK;
}

ashlar_status ashlar__rung_leave_plan(ashlar_allocator *a, const ashlar_request *r,
                                      ashlar_block **out) {
    const ashlar_replay *replay = r->own != NULL ? r->own->own_replay : NULL;
    if (replay == NULL || replay->depth == 0 || replay->is_held || !r->stream_state->was_planned) {
        return ASHLAR_OK;
    }
    end_memory(a, r);
    ASHLAR_TRY(ashlar__rung_take_mapped(a, r, out));
    if (*out == NULL && a->heap.range.segments == NULL) {
        ASHLAR_TRY(move_in(a, r, out));
    }
    return *out == NULL ? take_in_zone(a, r, other_zone_for(r), out) : ASHLAR_OK;
}

bool ashlar__rung_leave_own_plan(ashlar_allocator *a, const ashlar_request *r) {
    const bool is_replaying = r->own != NULL && ashlar__cache_is_replaying(r->own);
    if (is_replaying) {
        leave_plan(a, r);
        (void)ashlar__planner_give_up_locked(&a->planner, &a->heap);
    }
    return is_replaying;
}

/* ---- mapping more memory ---- */

/* Map memory in the zone's best gap, or in a new window, and take it. `may`: ASHLAR_MAY_ bits. */
static ashlar_status map_in(ashlar_allocator *a, const ashlar_request *r, ashlar_zone *zone,
                            unsigned may, ashlar_block **out) {
    ashlar_block *gap = ashlar__free_bins_best_fit(&zone->gaps, r->bytes);
    ashlar_status status = ASHLAR_OK;
    if (gap == NULL && a->heap.range.segments != NULL && (may & ASHLAR_MAY_CREATE) == 0) {
        return ASHLAR_OK;
    }
    if (gap == NULL) {
        status = ashlar__heap_add_window(&a->heap, zone, r->bytes);
        gap = ashlar__free_bins_best_fit(&zone->gaps, r->bytes);
    }
    ASHLAR_THEN(status, ashlar__heap_back(&a->heap, gap, r->bytes, may));
    ASHLAR_THEN(status, take(a, r, gap, out));
    if (status == ASHLAR_ENOMEM && (may & ASHLAR_MAY_CREATE) == 0) {
        status = ashlar__may_map_locked(a); /* fails again, and sets the error detail */
    }
    return status == ASHLAR_ENOMEM ? ASHLAR_OK : status;
}

/* A sealed allocator may map what it has, but take nothing new. */
unsigned ashlar__rung_may_create(ashlar_allocator *a) {
    return ashlar__may_map_locked(a) == ASHLAR_OK ? ASHLAR_MAY_CREATE : 0;
}

/* Map new memory in the stream's own zone. */
ashlar_status ashlar__rung_map_new(ashlar_allocator *a, const ashlar_request *r,
                                   ashlar_block **out) {
    const unsigned may = ashlar__rung_may_create(a);
    ashlar_block *gap = ashlar__free_bins_best_fit(&zone_for(r)->gaps, r->bytes);
    ashlar_status status = ASHLAR_OK;
    if (gap != NULL && may != 0 && ashlar__heap_is_misfit(&a->heap, gap, r->bytes)) {
        bool unused;
        status = is_over(a, r->stream_state, &unused);
        status = status == ASHLAR_OK ? ashlar__heap_exchange(&a->heap, gap, r->bytes) : status;
    }
    if (status == ASHLAR_OK || status == ASHLAR_ENOMEM) {
        status = map_in(a, r, zone_for(r), may, out);
    }
    const ashlar_range *range = &a->heap.range;
    a->heap.was_short |= range->spare_count == 0 && ashlar__range_left(range) < range->handle_bytes;
    return status;
}

/*
 * Without virtual memory nothing can move: then give free segments back to the driver,
 * which may have a larger one to offer. Try the zone for the other sizes last: if it has part of
 * the memory mapped already, it needs less than the request's own zone.
 */
ashlar_status ashlar__rung_map_free(ashlar_allocator *a, const ashlar_request *r,
                                    ashlar_block **out) {
    const unsigned may = ashlar__rung_may_create(a) | ASHLAR_MAY_MOVE;
    ashlar_status status = ASHLAR_OK;
    if (a->heap.range.segments != NULL && (may & ASHLAR_MAY_CREATE) != 0) {
        status = ashlar__heap_trim(&a->heap, 0);
    }
    ASHLAR_THEN(status, map_in(a, r, zone_for(r), may, out));
    if (status == ASHLAR_OK && *out == NULL) {
        status = map_in(a, r, other_zone_for(r), may, out);
    }
    return status;
}

/* ---- other streams' memory ---- */

typedef enum gap_kind { PAST, PROMPT, ANY } gap_kind;

/* Whether a wait for a place's last use is for no work that was queued after its free. */
static bool is_prompt(const ashlar_allocator *a, const ashlar_heap_place *at) {
    const ashlar_window *w = at->gap->window;
    return ashlar__heap_is_past_at(&a->heap, w, at->offset, at->bytes) ||
           ashlar__stream_state_is_prompt(w->zone->owner,
                                          ashlar__heap_tick_at(&a->heap, w, at->offset, at->bytes));
}

/* Find a place in the zone of the stream used longest ago. Unless the place's last use must be
 * over, it must be possible to record an event behind it. */
static bool find_oldest(const ashlar_allocator *a, const ashlar_request *r, gap_kind kind,
                        ashlar_heap_place *best) {
    const bool is_past_only = kind == PAST;
    uint64_t oldest = UINT64_MAX;
    for (const ashlar_zone *zone = a->heap.zones; zone != NULL; zone = zone->next) {
        ashlar_heap_place place;
        const ashlar_stream_state *owner = zone->owner;
        if (owner == r->stream_state || owner->is_pool || owner->last_used >= oldest ||
            (!is_past_only && ashlar__stream_state_is_closed(owner, &a->client))) {
            continue;
        }
        if (ashlar__rung_find_place(a, zone, r, is_past_only, &place) &&
            (kind != PROMPT || is_prompt(a, &place))) {
            oldest = owner->last_used;
            *best = place;
        }
    }
    return oldest < UINT64_MAX;
}

/* All events are recorded before any is queried, so that the first have more time to complete. */
ashlar_status ashlar__rung_ask_all(ashlar_allocator *a) {
    for (ashlar_zone *zone = a->heap.zones; zone != NULL; zone = zone->next) {
        if (!ashlar__stream_state_is_quiet(zone->owner)) {
            bool unused;
            ASHLAR_TRY(ashlar__stream_state_try_cover(zone->owner, &a->client,
                                                      zone->owner->last_tick,
                                                      &a->stats.events_recorded, &unused));
        }
    }
    for (ashlar_zone *zone = a->heap.zones; zone != NULL; zone = zone->next) {
        if (!ashlar__stream_state_is_quiet(zone->owner)) {
            ASHLAR_TRY(ashlar__stream_state_query(zone->owner, &a->client));
        }
    }
    return ashlar__cross_ask(&a->heap, SIZE_MAX);
}

ashlar_status ashlar__rung_borrow_past(ashlar_allocator *a, const ashlar_request *r,
                                       ashlar_block **out) {
    ashlar_heap_place place;
    return find_oldest(a, r, PAST, &place) ? ashlar__rung_take_place(a, r, &place, out) : ASHLAR_OK;
}

ashlar_status ashlar__rung_borrow_ended(ashlar_allocator *a, const ashlar_request *r,
                                        ashlar_block **out) {
    for (ashlar_zone *zone = a->heap.zones; zone != NULL && !r->stream_state->is_pool;
         zone = zone->next) {
        const ashlar_stream_state *owner = zone->owner;
        ashlar_heap_place place;
        if (owner != r->stream_state && !owner->is_pool && !owner->is_idle &&
            ashlar__stream_state_has_ended(owner) &&
            ashlar__rung_find_place(a, zone, r, true, &place)) {
            return ashlar__rung_take_place(a, r, &place, out);
        }
    }
    return ASHLAR_OK;
}

/* Have the request's stream wait for the last use of another stream's memory. *may_take false: no
 * event can be recorded behind that use now. */
static ashlar_status wait_for_place(ashlar_allocator *a, const ashlar_request *r,
                                    const ashlar_heap_place *at, bool *may_take) {
    const ashlar_window *w = at->gap->window;
    ashlar_stream_state *owner = w->zone->owner;
    *may_take = ashlar__heap_is_past_at(&a->heap, w, at->offset, at->bytes);
    if (*may_take) {
        return ASHLAR_OK;
    }
    a->heap.waited_at = ashlar__heap_count_use(&a->heap);
    const uint64_t tick = ashlar__heap_tick_at(&a->heap, w, at->offset, at->bytes);
    ASHLAR_TRY(ashlar__stream_state_try_cover(owner, &a->client, tick, &a->stats.events_recorded,
                                              may_take));
    return *may_take
               ? ashlar__stream_state_wait_on(owner, &a->client, r->stream_state->stream, tick)
               : ASHLAR_OK;
}

ashlar_status ashlar__rung_borrow_waited(ashlar_allocator *a, const ashlar_request *r, bool prompt,
                                         ashlar_block **out) {
    bool found = false, may_take = false;
    ashlar_heap_place place;
    ASHLAR_TRY(ashlar__cross_wait(&a->heap, r->stream_state, r->bytes, prompt, &found));
    if (found) {
        return take_gap(a, r, own_gap(r), out);
    }
    if (!find_oldest(a, r, prompt ? PROMPT : ANY, &place)) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(wait_for_place(a, r, &place, &may_take));
    return may_take ? ashlar__rung_take_place(a, r, &place, out) : ASHLAR_OK;
}

/* ---- anywhere ---- */

/* Look in all gaps for where the fewest handles are missing. Earlier rungs look at few gaps, and
 * map at the front of the best, where a block may fill only a part of its first and last handle. */
ashlar_status ashlar__rung_take_anywhere(ashlar_allocator *a, const ashlar_request *r,
                                         ashlar_block **out) {
    ashlar_heap_place place;
    if (!ashlar__heap_find_place(&a->heap, r->stream_state, r->bytes, &place)) {
        return ASHLAR_OK;
    }
    const ashlar_status status =
        ashlar__heap_back_at(&a->heap, &place, ashlar__rung_may_create(a) | ASHLAR_MAY_MOVE);
    return status == ASHLAR_OK       ? ashlar__rung_take_place(a, r, &place, out)
           : status == ASHLAR_ENOMEM ? ASHLAR_OK
                                     : status;
}
