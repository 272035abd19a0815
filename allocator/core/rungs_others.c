/* rungs_others.c - serves a miss from other streams' zones: rungs 4 and 5 of the ladder, and its
 * last attempt. */
#include "allocator/core/rungs.h"

#include "allocator/heap/away.h"

/* ---- other streams' memory ---- */

typedef enum gap_kind { PAST, PROMPT, ANY } gap_kind;

/* Whether the wait for a gap's last use is for nothing that was queued after it was freed. */
static bool is_prompt(const ashlar_allocator *a, const ashlar_request *r, const ashlar_block *gap) {
    const size_t offset = ashlar__heap_lend_offset(&a->heap, gap, r->bytes);
    return ashlar__heap_is_past_at(&a->heap, gap->window, offset, r->bytes) ||
           ashlar__stream_state_is_prompt(
               gap->window->zone->owner,
               ashlar__heap_tick_at(&a->heap, gap->window, offset, r->bytes));
}

/*
 * Among the gaps of streams other than the request's, the one used longest ago; NULL: there is
 * none. Unless the gap must be past, it must be possible to record an event after its last use.
 */
static ashlar_block *oldest_gap(const ashlar_allocator *a, const ashlar_request *r, gap_kind kind) {
    const bool is_past_only = kind == PAST;
    ashlar_block *best = NULL;
    for (const ashlar_zone *zone = a->heap.zones; zone != NULL; zone = zone->next) {
        if (zone->owner == r->stream_state || zone->owner->is_pool ||
            (!is_past_only && ashlar__stream_state_is_closed(zone->owner, &a->client))) {
            continue;
        }
        ashlar_block *gap = ashlar__rung_mapped_gap(a, zone, r, is_past_only);
        if (gap != NULL && (kind != PROMPT || is_prompt(a, r, gap)) &&
            (best == NULL || zone->owner->last_used < best->window->zone->owner->last_used)) {
            best = gap;
        }
    }
    return best;
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

/* Rung 4: the gap's last use is over. */
ashlar_status ashlar__rung_borrow_past(ashlar_allocator *a, const ashlar_request *r,
                                       ashlar_block **out) {
    ashlar_block *gap = oldest_gap(a, r, PAST);
    return gap != NULL ? ashlar__rung_take_at(
                             a, r, gap, ashlar__heap_lend_offset(&a->heap, gap, r->bytes), out)
                       : ASHLAR_OK;
}

/* Have the request's stream wait for the last use of the memory in another stream's gap. *may_take
 * false: no event can be recorded behind that use now. */
static ashlar_status wait_for_gap(ashlar_allocator *a, const ashlar_request *r,
                                  const ashlar_block *gap, size_t offset, bool *may_take) {
    ashlar_stream_state *owner = gap->window->zone->owner;
    *may_take = ashlar__heap_is_past_at(&a->heap, gap->window, offset, r->bytes);
    if (*may_take) {
        return ASHLAR_OK;
    }
    a->heap.waited_at = ashlar__heap_count_use(&a->heap);
    const uint64_t tick = ashlar__heap_tick_at(&a->heap, gap->window, offset, r->bytes);
    const ashlar_status status = ashlar__stream_state_try_cover(
        owner, &a->client, tick, &a->stats.events_recorded, may_take);
    return status == ASHLAR_OK && *may_take
               ? ashlar__stream_state_wait_on(owner, &a->client, r->stream_state->stream, tick)
               : status;
}

/* Rung 5: the request's stream waits for the gap's last use. */
ashlar_status ashlar__rung_borrow_waited(ashlar_allocator *a, const ashlar_request *r, bool prompt,
                                         ashlar_block **out) {
    bool found = false;
    ashlar_status status = ashlar__away_wait(&a->heap, r->stream_state, r->bytes, prompt, &found);
    if (status != ASHLAR_OK || found) {
        return status == ASHLAR_OK ? ashlar__rung_take_own(a, r, ashlar__rung_own_gap(r), out)
                                   : status;
    }
    ashlar_block *gap = oldest_gap(a, r, prompt ? PROMPT : ANY);
    if (gap == NULL) {
        return ASHLAR_OK;
    }
    const size_t offset = ashlar__heap_lend_offset(&a->heap, gap, r->bytes);
    bool may_take = false;
    status = wait_for_gap(a, r, gap, offset, &may_take);
    return status == ASHLAR_OK && may_take ? ashlar__rung_take_at(a, r, gap, offset, out) : status;
}

/* ---- the last attempt ---- */

/*
 * The last attempt: take the place, in any zone, where the request needs the fewest handles.
 * Earlier rungs use the front of the best gap, where a block may fill only a part of its first and
 * last handle.
 */
ashlar_status ashlar__rung_take_anywhere(ashlar_allocator *a, const ashlar_request *r,
                                         ashlar_block **out) {
    ashlar_heap_place place;
    if (!ashlar__heap_find_place(&a->heap, r->stream_state, r->bytes, &place)) {
        return ASHLAR_OK;
    }
    const ashlar_status status =
        ashlar__heap_back_at(&a->heap, &place, ashlar__rung_may_create(a) | ASHLAR_MAY_MOVE);
    return status == ASHLAR_OK       ? ashlar__rung_take_at(a, r, place.gap, place.offset, out)
           : status == ASHLAR_ENOMEM ? ASHLAR_OK
                                     : status;
}
