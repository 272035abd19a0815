/* rungs_others.c - serves a miss from other streams' zones: rungs 4 and 5 of the ladder, and its
 * last attempt. */
#include "allocator/core/rungs.h"

#include "allocator/heap/away.h"

/* ---- other streams' memory ---- */

/*
 * Among the gaps of streams other than the request's, the one used longest ago; NULL: there is
 * none. Unless the gap must be past, it must be possible to record an event after its last use.
 */
static ashlar_block *oldest_gap(const ashlar_allocator *a, const ashlar_request *r,
                                bool is_past_only) {
    ashlar_block *best = NULL;
    for (const ashlar_zone *zone = a->heap.zones; zone != NULL; zone = zone->next) {
        if (zone->owner == r->stream_state || zone->owner->is_pool ||
            (!is_past_only && ashlar__stream_state_is_closed(zone->owner, &a->client))) {
            continue;
        }
        ashlar_block *gap = ashlar__rung_mapped_gap(a, zone, r, is_past_only);
        if (gap != NULL &&
            (best == NULL || zone->owner->last_used < best->window->zone->owner->last_used)) {
            best = gap;
        }
    }
    return best;
}

/*
 * Find out how far the work on every stream has come. All events are recorded before any is
 * queried: recording on a stream that is captured without a pool is refused, but a query would
 * invalidate the capture.
 */
ashlar_status ashlar__rung_ask_all(ashlar_allocator *a) {
    ashlar_status status = ASHLAR_OK;
    for (int asks = 0; asks < 2; asks++) {
        for (const ashlar_zone *zone = a->heap.zones; zone != NULL && status == ASHLAR_OK;
             zone = zone->next) {
            ashlar_stream_state *owner = zone->owner;
            if (ashlar__stream_state_is_quiet(owner) ||
                ashlar__stream_state_is_closed(owner, &a->client)) {
                continue;
            }
            status = asks ? ashlar__stream_state_query(owner, &a->client)
                          : ashlar__stream_state_cover(owner, &a->client, owner->last_tick,
                                                       &a->stats.events_recorded);
        }
    }
    return status == ASHLAR_OK ? ashlar__away_ask(&a->heap, SIZE_MAX) : status;
}

/* Rung 4: the gap's last use is over. */
ashlar_status ashlar__rung_borrow_past(ashlar_allocator *a, const ashlar_request *r,
                                       ashlar_block **out) {
    ashlar_block *gap = oldest_gap(a, r, true);
    return gap != NULL ? ashlar__rung_take_at(
                             a, r, gap, ashlar__heap_lend_offset(&a->heap, gap, r->bytes), out)
                       : ASHLAR_OK;
}

/* Have the request's stream wait for the last use of the memory in another stream's gap. */
static ashlar_status wait_for_gap(ashlar_allocator *a, const ashlar_request *r,
                                  const ashlar_block *gap, size_t offset) {
    ashlar_stream_state *owner = gap->window->zone->owner;
    if (ashlar__heap_is_past_at(&a->heap, gap->window, offset, r->bytes)) {
        return ASHLAR_OK;
    }
    a->heap.waited_at = ashlar__heap_count_use(&a->heap);
    const uint64_t tick = ashlar__heap_tick_at(&a->heap, gap->window, offset, r->bytes);
    const ashlar_status status =
        ashlar__stream_state_cover(owner, &a->client, tick, &a->stats.events_recorded);
    return status == ASHLAR_OK
               ? ashlar__stream_state_wait_on(owner, &a->client, r->stream_state->stream, tick)
               : status;
}

/* Rung 5: the request's stream waits for the gap's last use. */
ashlar_status ashlar__rung_borrow_waited(ashlar_allocator *a, const ashlar_request *r,
                                         ashlar_block **out) {
    bool found = false;
    ashlar_status status = ashlar__away_wait(&a->heap, r->stream_state, r->bytes, &found);
    if (status != ASHLAR_OK || found) {
        return status == ASHLAR_OK ? ashlar__rung_take_own(a, r, ashlar__rung_own_gap(r), out)
                                   : status;
    }
    ashlar_block *gap = oldest_gap(a, r, false);
    if (gap == NULL) {
        return ASHLAR_OK;
    }
    const size_t offset = ashlar__heap_lend_offset(&a->heap, gap, r->bytes);
    status = wait_for_gap(a, r, gap, offset);
    return status == ASHLAR_OK ? ashlar__rung_take_at(a, r, gap, offset, out) : status;
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
