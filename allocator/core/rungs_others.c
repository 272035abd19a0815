/* rungs_others.c - serves a miss from other streams' zones: rungs 4 and 5 of the ladder, and its
 * last attempt. */
#include "allocator/core/rungs.h"

#include "allocator/heap/away.h"

/* ---- other streams' memory ---- */

typedef enum gap_kind { PAST, PROMPT, ANY } gap_kind;

/* Whether the wait for a place's last use is for nothing that was queued after it was freed. */
static bool is_prompt(const ashlar_allocator *a, const ashlar_heap_place *at) {
    const ashlar_window *w = at->gap->window;
    return ashlar__heap_is_past_at(&a->heap, w, at->offset, at->bytes) ||
           ashlar__stream_state_is_prompt(w->zone->owner,
                                          ashlar__heap_tick_at(&a->heap, w, at->offset, at->bytes));
}

/*
 * A place in a zone of a stream other than the request's, the stream used longest ago; false: there
 * is none. Unless the place must be past, it must be possible to record an event after its last
 * use.
 */
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

/*
 * Find out how far the work on every stream has come. All events are recorded before any is
 * queried, so that the first ones have more time to complete.
 */
ashlar_status ashlar__rung_ask_all(ashlar_allocator *a) {
    ashlar_status status = ASHLAR_OK;
    for (ashlar_zone *zone = a->heap.zones; zone != NULL && status == ASHLAR_OK;
         zone = zone->next) {
        if (!ashlar__stream_state_is_quiet(zone->owner)) {
            bool unused;
            status = ashlar__stream_state_try_cover(zone->owner, &a->client, zone->owner->last_tick,
                                                    &a->stats.events_recorded, &unused);
        }
    }
    for (ashlar_zone *zone = a->heap.zones; zone != NULL && status == ASHLAR_OK;
         zone = zone->next) {
        status = ashlar__stream_state_is_quiet(zone->owner)
                     ? ASHLAR_OK
                     : ashlar__stream_state_query(zone->owner, &a->client);
    }
    return status == ASHLAR_OK ? ashlar__away_ask(&a->heap, SIZE_MAX) : status;
}

/* Rung 4: the last use is over. */
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
    const ashlar_status status = ashlar__stream_state_try_cover(
        owner, &a->client, tick, &a->stats.events_recorded, may_take);
    return status == ASHLAR_OK && *may_take
               ? ashlar__stream_state_wait_on(owner, &a->client, r->stream_state->stream, tick)
               : status;
}

/* Rung 5: the request's stream waits for the last use. */
ashlar_status ashlar__rung_borrow_waited(ashlar_allocator *a, const ashlar_request *r, bool prompt,
                                         ashlar_block **out) {
    bool found = false, may_take = false;
    ashlar_heap_place place;
    ashlar_status status = ashlar__away_wait(&a->heap, r->stream_state, r->bytes, prompt, &found);
    if (status != ASHLAR_OK || found) {
        return status == ASHLAR_OK ? ashlar__rung_take_own(a, r, ashlar__rung_own_gap(r), out)
                                   : status;
    }
    if (!find_oldest(a, r, prompt ? PROMPT : ANY, &place)) {
        return ASHLAR_OK;
    }
    status = wait_for_place(a, r, &place, &may_take);
    return status == ASHLAR_OK && may_take ? ashlar__rung_take_place(a, r, &place, out) : status;
}

/* ---- anywhere ---- */

/*
 * Earlier rungs look at few gaps, and map at the front of the best, where a block may fill only a
 * part of its first and last handle.
 */
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
