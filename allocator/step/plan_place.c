/* plan_place.c - taking a block of the heap for plan memory, so that a plan costs no more than it
 * saves. */
#include "allocator/step/step.h"

#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "allocator/core/hold.h"
#include "allocator/core/rungs.h"

/* A plan is searched for as long as the options say, but its memory not longer than this. */
enum { WAIT_MS_MAX = 1000 };

/* Whether a step begins on a plan that lost its memory; else the plan is new. */
static bool is_in_step(const ashlar_request *r) {
    return r->own != NULL && r->own->own_replay != NULL && r->own->own_replay->depth > 0;
}

static uint64_t wait_ns(const ashlar_allocator *a, const ashlar_request *r) {
    const uint64_t ms = a->planner.options.search_ms;
    const bool may_wait = !is_in_step(r) && ms != ASHLAR_PLAN_SEARCH_NONE;
    return !may_wait ? 0 : 1000000 * (ms < WAIT_MS_MAX ? ms : WAIT_MS_MAX);
}

/* In the zones of the request's stream, where all memory is mapped. */
static ashlar_status take_mapped(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    ashlar_heap_place place;
    for (size_t kind = ASHLAR_ZONE_COUNT; kind-- > 0;) {
        if (ashlar__rung_find_place(a, &r->stream_state->zones[kind], r, false, &place)) {
            return ashlar__rung_take_place(a, r, &place, out);
        }
    }
    return ASHLAR_OK;
}

/* Move free memory to where the least of it is missing. Segments cannot move: give them back, so
 * that the plan can have one instead. */
static ashlar_status take_moved(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    ashlar_heap_place place;
    bool is_there = false;
    if (a->heap.range.segments != NULL) {
        return is_in_step(r) ? ASHLAR_OK : ashlar__heap_trim(&a->heap, 0);
    }
    if (ashlar__heap_find_place(&a->heap, r->stream_state, r->bytes, &place)) {
        ASHLAR_TRY(ashlar__rung_move_to(a, &place, &is_there));
    }
    return is_there ? ashlar__rung_take_place(a, r, &place, out) : ASHLAR_OK;
}

/* Whether queued work still uses free memory, of which there is enough. */
static bool may_wait(const ashlar_allocator *a, const ashlar_request *r) {
    if (ashlar__heap_free_bytes(&a->heap) < r->bytes) {
        return false;
    }
    const ashlar_stream_state *state = a->stream_states;
    while (state != NULL && (state->pending_count == 0 || ashlar__stream_state_is_quiet(state))) {
        state = state->next;
    }
    return state != NULL;
}

/* Look for memory, and wait for work that uses some. The wait has an end, since the work may depend
 * on what the program does next. */
static ashlar_status gather(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    const uint64_t began = ashlar__clock_ns(), most = wait_ns(a, r);
    long pause_ns = ASHLAR_PAUSE_NS_MIN;
    for (bool is_first = true, goes_on = true; goes_on && *out == NULL; is_first = false) {
        if (!is_first) {
            ashlar__allocator_leave(a);
            ashlar__clock_pause(&pause_ns);
            ashlar__allocator_enter(a);
        }
        a->client.is_wanting = true;
        ashlar_status status = ashlar__rung_ask_all(a);
        a->client.is_wanting = false;
        ASHLAR_THEN(status, take_mapped(a, r, out));
        if (status == ASHLAR_OK && *out == NULL) {
            status = take_moved(a, r, out);
        }
        ASHLAR_TRY(status);
        goes_on = may_wait(a, r) && ashlar__clock_ns() - began < most;
    }
    return ASHLAR_OK;
}

size_t ashlar__plan_free_bytes(const ashlar_allocator *a, const ashlar_stream_state *state) {
    size_t bytes = 0;
    for (size_t kind = 0; kind < ASHLAR_ZONE_COUNT; kind++) {
        const ashlar_zone *zone = &state->zones[kind];
        for (const ashlar_window *w = zone->windows; w != NULL; w = w->next) {
            bytes += w->mapped_count * a->heap.range.handle_bytes;
        }
        bytes -= zone->used_bytes;
    }
    return bytes;
}

/* Whether the plan's memory, if it were mapped now, would make the allocator reserve more than it
 * may, while more of the stream's own memory lies idle than a plan may cost. (What other streams
 * may still use, the cache does not take either before it maps more.) Where so much cannot be
 * mapped at all, it will come from what is reserved. */
static bool is_too_dear(const ashlar_allocator *a, const ashlar_request *r, size_t may_reserve) {
    const ashlar_range *range = &a->heap.range;
    ashlar_heap_place place = {0};
    size_t lacking = r->bytes;
    if (ashlar__heap_find_place(&a->heap, r->stream_state, r->bytes, &place)) {
        lacking = ashlar__heap_missing_at(&a->heap, &place);
    }
    const size_t spare = range->spare_count * range->handle_bytes;
    const size_t after = range->mapped_bytes + (lacking > spare ? lacking - spare : 0);
    return after - range->mapped_bytes <= ashlar__range_left(range) && after > may_reserve &&
           after - may_reserve > ashlar__planner_spare_bytes(&a->heap, may_reserve) &&
           ashlar__plan_free_bytes(a, r->stream_state) >
               ashlar__planner_spare_bytes(&a->heap, r->bytes);
}

ashlar_status ashlar__plan_place_locked(ashlar_allocator *a, const ashlar_request *r,
                                        size_t may_reserve, ashlar_block **out) {
    ashlar_rung unused;
    ASHLAR_OWNS(&a->lock);
    ashlar__caches_flush_locked(a, r->own);
    ASHLAR_TRY(take_mapped(a, r, out));
    if (*out == NULL) {
        ASHLAR_TRY(gather(a, r, out));
    }
    if (*out != NULL || is_too_dear(a, r, may_reserve)) {
        return ASHLAR_OK;
    }
    const size_t before = a->heap.range.mapped_bytes;
    if (a->heap.range.segments == NULL && ashlar__rung_may_create(a) != 0) {
        ASHLAR_TRY(ashlar__rung_take_anywhere(a, r, out));
    }
    if (*out == NULL) {
        ASHLAR_TRY(ashlar__ladder_take_locked(a, r, out, &unused));
    }
    const size_t after = a->heap.range.mapped_bytes;
    if (may_reserve < SIZE_MAX && after > before) {
        r->stream_state->beside_bytes += after - before;
    }
    return ASHLAR_OK;
}
