/*
 * ladder.c - the order of attempts to serve a request that the thread's own cache cannot serve.
 *
 *    1  a gap of the stream's own zone                  6  free memory of any zone, mapped here
 *    2  the same, after blocks came home, or with       7  what all caches hold, given up
 *       the zone of a stream that has ended             8  memory of plans that no step is in
 *    3  memory newly mapped                             9  what the program's callback gives back
 *    4  another stream's gap, its last use over        10  a wait on the host, oldest event first
 *    5  the same, after an in-stream wait
 *
 * No stream is made to wait for another one while memory can be had: rung 5 comes behind rung 3. A
 * rung that finds nothing leaves *out NULL. After a rung that frees memory the search begins anew
 * with rung 1. Every function here is called with the allocator's lock held.
 */
#include "allocator/core/slow_path.h"

#include "allocator/base/check_level.h"
#include "allocator/core/cycle.h"
#include "allocator/core/hold.h"
#include "allocator/core/miss.h"
#include "allocator/core/streams.h"
#include "allocator/heap/away.h"
#include "allocator/plan/planner.h"

/* ---- one gap ---- */

/* How many gaps of a zone a request looks at if the best one has no memory. */
enum { GAPS_LOOKED_AT = 8 };

/* How many streams, or zones of ended streams, one request asks the driver about. */
enum { ASKED_MAX = 16 };

static ashlar_zone *zone_for(const ashlar_request *r) {
    return ashlar__zone_of(r->stream_state, r->bytes);
}

static bool is_freed(const ashlar_block *block) {
    return block != NULL && block->state == ASHLAR_BLOCK_USED && block->requested == 0;
}

/*
 * Whether a request for memory at hand leaves a gap alone, so that another attempt follows: memory
 * is short, cannot move, and the gap is about to grow, or would be better exchanged.
 */
static bool is_left_alone(const ashlar_allocator *a, const ashlar_request *r,
                          const ashlar_block *gap) {
    return r->is_at_hand && a->heap.range.segments != NULL && a->heap.is_short &&
           (is_freed(gap->prev) || is_freed(gap->next) ||
            ashlar__heap_is_misfit(&a->heap, gap, r->bytes));
}

/* A gap of a zone that has memory; NULL: none of the best few. */
static ashlar_block *mapped_gap(const ashlar_allocator *a, const ashlar_zone *zone,
                                const ashlar_request *r, bool is_past_only) {
    ashlar_block *gap = ashlar__free_bins_best_fit(&zone->gaps, r->bytes);
    for (size_t i = 0; gap != NULL && i < GAPS_LOOKED_AT; i++) {
        if (ashlar__heap_missing(&a->heap, gap, r->bytes) == 0 && !is_left_alone(a, r, gap) &&
            (!is_past_only || ashlar__heap_is_past(&a->heap, gap, r->bytes))) {
            return gap;
        }
        gap = ashlar__free_bins_next(&zone->gaps, gap->bytes, gap->offset);
    }
    return NULL;
}

/* Take the bytes of a gap at `offset`, behind which all memory is there. */
static ashlar_status take_at(ashlar_allocator *a, const ashlar_request *r, ashlar_block *gap,
                             size_t offset, ashlar_block **out) {
    ashlar_block *block = NULL;
    const ashlar_status status = ashlar__heap_take_run(&a->heap, gap, offset, r->bytes, &block);
    if (status == ASHLAR_OK) {
        if (block->window->zone->owner != r->stream_state) {
            block->marks |= ASHLAR_BLOCK_BORROWED;
        }
        *out = block;
    }
    return status;
}

static ashlar_status take(ashlar_allocator *a, const ashlar_request *r, ashlar_block *gap,
                          ashlar_block **out) {
    return take_at(a, r, gap, gap->offset, out);
}

/* Rung 1. */
static ashlar_status take_own(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    ashlar_block *gap = ashlar__gap_of_own(zone_for(r), r->own, r->bytes);
    const bool serves = gap != NULL && ashlar__heap_missing(&a->heap, gap, r->bytes) == 0 &&
                        !ashlar__heap_is_misfit(&a->heap, gap, r->bytes) &&
                        !is_left_alone(a, r, gap);
    return serves ? take(a, r, gap, out) : ASHLAR_OK;
}

/* Where the best fit has no memory, another gap of the stream's own may have. */
static ashlar_status take_own_mapped(ashlar_allocator *a, const ashlar_request *r,
                                     ashlar_block **out) {
    ashlar_block *gap = mapped_gap(a, zone_for(r), r, false);
    return gap != NULL ? take(a, r, gap, out) : ASHLAR_OK;
}

/* ---- memory of one's own that is elsewhere ---- */

/* Whether all of an ended stream's work is known to be over, after asking the driver. */
static ashlar_status is_over(ashlar_allocator *a, ashlar_stream_state *state, bool *out) {
    ashlar_status status = ASHLAR_OK;
    if (!ashlar__stream_state_is_quiet(state) &&
        !ashlar__stream_state_is_closed(state, &a->client)) {
        status = ashlar__stream_state_ask(state, &a->client, state->last_tick,
                                          &a->stats.events_recorded);
    }
    *out = status == ASHLAR_OK && ashlar__stream_state_is_quiet(state);
    return status;
}

/* Make the zone of an ended stream, if its work is over, part of the request's zone. */
static ashlar_status adopt(ashlar_allocator *a, const ashlar_request *r, bool *adopted) {
    ashlar_zone *to = zone_for(r);
    const size_t kind = (size_t)(to - r->stream_state->zones);
    size_t asked = 0;
    *adopted = false;
    for (ashlar_zone *zone = a->heap.zones; zone != NULL && asked < ASKED_MAX; zone = zone->next) {
        ashlar_stream_state *owner = zone->owner;
        if (owner->is_idle || !(owner->is_gone || owner->is_ended) || owner->is_pool ||
            zone != &owner->zones[kind]) {
            continue;
        }
        asked++;
        const ashlar_status status = is_over(a, owner, adopted);
        if (status != ASHLAR_OK) {
            return status;
        }
        if (*adopted) {
            ashlar__zone_move(&a->heap, zone, to, true);
            return ASHLAR_OK;
        }
    }
    return ASHLAR_OK;
}

/* Rung 2. */
static ashlar_status take_home(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    ashlar_stream_state *state = r->stream_state;
    ashlar_status status = ASHLAR_OK;
    bool adopted = true;
    if (state->oldest_away != NULL && !r->is_idle) {
        *out = ashlar__away_take_own(&a->heap, state, r->bytes);
        if (*out != NULL) {
            (*out)->marks |=
                ashlar__block_home(*out) == state ? 0 : (unsigned char)ASHLAR_BLOCK_BORROWED;
            return ASHLAR_OK;
        }
    }
    if (state->away_count > 0) {
        status = ashlar__away_ask(&a->heap, ASKED_MAX);
        if (status == ASHLAR_OK) {
            status = take_own(a, r, out);
        }
    }
    while (status == ASHLAR_OK && *out == NULL && adopted && !state->is_pool) {
        status = adopt(a, r, &adopted);
        if (status == ASHLAR_OK && adopted) {
            status = take_own_mapped(a, r, out);
        }
    }
    return status;
}

/* ---- more memory ---- */

/* Map what is missing behind the best gap of a zone, with a new window if there is none. */
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
    if (status == ASHLAR_OK) {
        status = ashlar__heap_back(&a->heap, gap, r->bytes, may);
    }
    if (status == ASHLAR_OK) {
        status = take(a, r, gap, out);
    }
    if (status == ASHLAR_ENOMEM && (may & ASHLAR_MAY_CREATE) == 0) {
        status = ashlar__may_map_locked(a); /* the same, and the detail says why */
    }
    return status == ASHLAR_ENOMEM ? ASHLAR_OK : status;
}

/* A sealed allocator may map what it has, but take nothing new. */
static unsigned may_create(ashlar_allocator *a) {
    return ashlar__may_map_locked(a) == ASHLAR_OK ? ASHLAR_MAY_CREATE : 0;
}

/* Rung 3. */
static ashlar_status map_new(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    const unsigned may = may_create(a);
    ashlar_block *gap = ashlar__free_bins_best_fit(&zone_for(r)->gaps, r->bytes);
    ashlar_status status = ASHLAR_OK;
    if (gap != NULL && may != 0 && ashlar__heap_is_misfit(&a->heap, gap, r->bytes)) {
        bool unused;
        status = is_over(a, r->stream_state, &unused);
        status = status == ASHLAR_OK ? ashlar__heap_exchange(&a->heap, gap, r->bytes) : status;
    }
    return status == ASHLAR_OK || status == ASHLAR_ENOMEM ? map_in(a, r, zone_for(r), may, out)
                                                          : status;
}

/*
 * Rung 6. Without virtual memory nothing can move: then free segments go back to the driver, which
 * may have a larger one to give. The zone for the other sizes comes last: its memory may be partly
 * used, and then needs less than the request's own zone does.
 */
static ashlar_status map_free(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    ashlar_zone *own = zone_for(r), *zones = r->stream_state->zones;
    const unsigned may = may_create(a) | ASHLAR_MAY_MOVE;
    ashlar_status status = ASHLAR_OK;
    if (a->heap.range.segments != NULL && (may & ASHLAR_MAY_CREATE) != 0) {
        status = ashlar__heap_trim(&a->heap, 0);
    }
    if (status == ASHLAR_OK) {
        status = map_in(a, r, own, may, out);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        status = map_in(a, r, own == zones ? &zones[1] : zones, may, out);
    }
    return status;
}

/* ---- other streams' memory ---- */

/*
 * A gap of the other stream that was used longest ago; NULL: none has one. If its last use need not
 * be over, an event must be able to come behind it.
 */
static ashlar_block *oldest_gap(const ashlar_allocator *a, const ashlar_request *r,
                                bool is_past_only) {
    ashlar_block *best = NULL;
    for (const ashlar_zone *zone = a->heap.zones; zone != NULL; zone = zone->next) {
        if (zone->owner == r->stream_state || zone->owner->is_pool ||
            (!is_past_only && ashlar__stream_state_is_closed(zone->owner, &a->client))) {
            continue;
        }
        ashlar_block *gap = mapped_gap(a, zone, r, is_past_only);
        if (gap != NULL &&
            (best == NULL || zone->owner->last_used < best->window->zone->owner->last_used)) {
            best = gap;
        }
    }
    return best;
}

/*
 * Find out about every stream how far its work has come. All events are recorded before one is
 * asked for: a stream that is captured without a pool is refused when an event is recorded, while a
 * query would spoil its capture.
 */
static ashlar_status ask_all(ashlar_allocator *a) {
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

/* Rung 4. */
static ashlar_status borrow_past(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    ashlar_block *gap = oldest_gap(a, r, true);
    return gap != NULL ? take_at(a, r, gap, ashlar__heap_lend_offset(&a->heap, gap, r->bytes), out)
                       : ASHLAR_OK;
}

/* Have the request's stream wait for the last use of memory in another stream's gap. */
static ashlar_status wait_for_gap(ashlar_allocator *a, const ashlar_request *r,
                                  const ashlar_block *gap, size_t offset) {
    ashlar_stream_state *owner = gap->window->zone->owner;
    if (ashlar__heap_is_past_at(&a->heap, gap->window, offset, r->bytes)) {
        return ASHLAR_OK;
    }
    a->heap.has_waited = true;
    const uint64_t tick = ashlar__heap_tick_at(&a->heap, gap->window, offset, r->bytes);
    const ashlar_status status =
        ashlar__stream_state_cover(owner, &a->client, tick, &a->stats.events_recorded);
    return status == ASHLAR_OK
               ? ashlar__stream_state_wait_on(owner, &a->client, r->stream_state->stream, tick)
               : status;
}

/* Rung 5, behind the memory's last use. */
static ashlar_status borrow_waited(ashlar_allocator *a, const ashlar_request *r,
                                   ashlar_block **out) {
    bool found = false;
    ashlar_status status = ashlar__away_wait(&a->heap, r->stream_state, r->bytes, &found);
    if (status != ASHLAR_OK || found) {
        return status == ASHLAR_OK ? take_own(a, r, out) : status;
    }
    ashlar_block *gap = oldest_gap(a, r, false);
    if (gap == NULL) {
        return ASHLAR_OK;
    }
    const size_t offset = ashlar__heap_lend_offset(&a->heap, gap, r->bytes);
    status = wait_for_gap(a, r, gap, offset);
    return status == ASHLAR_OK ? take_at(a, r, gap, offset, out) : status;
}

/* Put the blocks that are on their way to another thread where a search finds them. */
static void collect_returned(ashlar_allocator *a) {
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        ashlar__returned_put_locked(a, state);
    }
}

/* Rungs 4 to 6. Captured work may not wait for other work, nor may a block for all streams. */
static ashlar_status take_of_others(ashlar_allocator *a, const ashlar_request *r,
                                    ashlar_block **out, ashlar_rung *rung) {
    const bool is_closed = ashlar__stream_state_is_closed(r->stream_state, &a->client);
    a->heap.is_short = true;
    collect_returned(a);
    *rung = ASHLAR_RUNG_SAME_STREAM;
    ashlar_status status = take_own_mapped(a, r, out);
    if (status == ASHLAR_OK && *out == NULL) {
        *rung = ASHLAR_RUNG_COMPLETED;
        status = ask_all(a);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        status = take_own_mapped(a, r, out); /* what came home */
    }
    if (status == ASHLAR_OK && *out == NULL) {
        status = borrow_past(a, r, out);
    }
    if (status == ASHLAR_OK && *out == NULL && !is_closed && !r->is_idle && !r->is_at_hand &&
        !ashlar__stream_state_is_others(r->stream_state)) {
        *rung = ASHLAR_RUNG_WAITED;
        status = borrow_waited(a, r, out);
    }
    if (status == ASHLAR_OK && *out == NULL && !r->is_at_hand) {
        *rung = ASHLAR_RUNG_GATHERED;
        status = map_free(a, r, out);
    }
    return status;
}

/* Rungs 2 to 6. *out is NULL if nothing was found; the error detail says what stood in the way. */
static ashlar_status search_on(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                               ashlar_rung *rung) {
    ashlar__shut_out_locked(a); /* all that follows may touch other streams' zones */
    *rung = ASHLAR_RUNG_IDLE;
    ashlar_status status = take_home(a, r, out);
    if (status == ASHLAR_OK && *out == NULL && !r->is_at_hand) {
        *rung = ASHLAR_RUNG_MAPPED;
        status = map_new(a, r, out);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        status = take_of_others(a, r, out, rung);
    }
    return status;
}

/* Rungs 1 to 6, without a wait on the host, and without emptying other threads' caches. */
static ashlar_status search(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                            ashlar_rung *rung) {
    const ashlar_status status = take_own(a, r, out);
    return status == ASHLAR_OK && *out == NULL ? search_on(a, r, out, rung) : status;
}

/* ---- the rest ---- */

/* Rung 7. True if the caches gave any memory back. */
static bool drain_caches(ashlar_allocator *a, const ashlar_request *r) {
    const size_t used_bytes = ashlar__heap_used_bytes(&a->heap);
    ashlar__caches_flush_locked(a, r->own);
    ASHLAR_CHECK2(ashlar__heap_used_bytes(&a->heap) <= used_bytes);
    return ashlar__heap_used_bytes(&a->heap) != used_bytes;
}

/* Rung 8, one plan memory at a time. */
static ashlar_status take_of_plans(ashlar_allocator *a, const ashlar_request *r,
                                   ashlar_block **out) {
    ashlar_rung unused;
    ashlar_status status = ASHLAR_OK;
    while (status == ASHLAR_OK && *out == NULL &&
           ashlar__planner_give_up_locked(&a->planner, &a->heap)) {
        status = search(a, r, out, &unused);
    }
    return status;
}

/* Whether waiting for this stream on the host would make memory usable by other streams. */
static bool is_worth_waiting_for(const ashlar_allocator *a, const ashlar_stream_state *state) {
    if (ashlar__stream_state_is_closed(state, &a->client)) {
        return false;
    }
    return !ashlar__stream_state_is_quiet(state) || state->oldest_away != NULL;
}

/*
 * Record the events that are missing, and find the stream worth waiting for whose event is oldest;
 * *out is NULL if there is none.
 */
static ashlar_status find_oldest(ashlar_allocator *a, ashlar_stream_state **out) {
    ashlar_status status = ashlar__away_cover(&a->heap);
    *out = NULL;
    for (ashlar_stream_state *state = a->stream_states; state != NULL && status == ASHLAR_OK;
         state = state->next) {
        if (!is_worth_waiting_for(a, state)) {
            continue;
        }
        status = ashlar__stream_state_cover(state, &a->client, state->last_tick,
                                            &a->stats.events_recorded);
        ASHLAR_CHECK2(state->completed <= state->recorded);
        const bool is_done = state->completed == state->recorded; /* then the stream is gone */
        if (!is_done && (*out == NULL || state->recorded_at < (*out)->recorded_at)) {
            *out = state;
        }
    }
    return status;
}

/*
 * One wait of rung 10: for one stream, dropping the lock. *waited: whether there was such a stream.
 */
static ashlar_status wait_for_oldest(ashlar_allocator *a, bool *waited) {
    ashlar_stream_state *oldest = NULL;
    ashlar_status status = find_oldest(a, &oldest);
    *waited = status == ASHLAR_OK && oldest != NULL;
    a->heap.has_waited = a->heap.has_waited || *waited;
    if (*waited) {
        ashlar__let_in_locked(a); /* the wait drops the lock */
        status = ashlar__stream_state_synchronize(oldest, &a->client, oldest->completed, &a->lock);
        ashlar__shut_out_locked(a);
    }
    ASHLAR_OWNS(&a->lock); /* held again after the wait */
    ashlar__away_settle(&a->heap);
    return status;
}

/* Rung 10: wait for one stream after the other, as long as that may help. */
static ashlar_status wait_for_room(ashlar_allocator *a, const ashlar_request *r,
                                   ashlar_block **out) {
    ashlar_rung unused;
    ashlar_status status = ASHLAR_OK;
    /* Waiting helps only if free, shared and mappable bytes together are enough. A plan's memory
     * may be kept by one block that is shared. */
    bool may_help = r->bytes <= ashlar__heap_free_bytes(&a->heap) + a->heap.away_bytes +
                                    a->deferred_bytes + ashlar__range_left(&a->heap.range) +
                                    ashlar__planner_quiet_bytes(&a->planner);
    while (status == ASHLAR_OK && *out == NULL && may_help) {
        status = wait_for_oldest(a, &may_help);
        if (status == ASHLAR_OK && may_help) {
            (void)drain_caches(a, r); /* other threads may have filled their caches during the
                                       * wait */
            status = search(a, r, out, &unused);
        }
        if (status == ASHLAR_OK && *out == NULL && may_help) {
            status = take_of_plans(a, r, out);
        }
    }
    return status;
}

/*
 * The last attempt: wherever in any zone the request takes the fewest handles. What earlier rungs
 * take begins at the front of the best gap, and may leave half a handle on either side of it.
 */
static ashlar_status take_anywhere(ashlar_allocator *a, const ashlar_request *r,
                                   ashlar_block **out) {
    ashlar_heap_place place;
    if (!ashlar__heap_find_place(&a->heap, r->stream_state, r->bytes, &place)) {
        return ASHLAR_OK;
    }
    const ashlar_status status =
        ashlar__heap_back_at(&a->heap, &place, may_create(a) | ASHLAR_MAY_MOVE);
    return status == ASHLAR_OK       ? take_at(a, r, place.gap, place.offset, out)
           : status == ASHLAR_ENOMEM ? ASHLAR_OK
                                     : status;
}

/* Rungs 7 to 10, for a request for which rungs 1 to 6 found nothing. */
static ashlar_status make_room(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                               ashlar_rung *rung) {
    ashlar_rung unused;
    *rung = ASHLAR_RUNG_DRAINED;
    ashlar_status status = drain_caches(a, r) ? search(a, r, out, &unused) : ASHLAR_OK;
    if (status == ASHLAR_OK && *out == NULL) {
        status = take_of_plans(a, r, out);
    }
    if (status == ASHLAR_OK && *out == NULL && ashlar__reclaim_locked(a, r->bytes)) {
        *rung = ASHLAR_RUNG_RECLAIMED;
        drain_caches(a, r); /* the blocks given back may be in a cache */
        status = search(a, r, out, &unused);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        *rung = ASHLAR_RUNG_AFTER_SYNC;
        status = wait_for_room(a, r, out);
    }
    return status == ASHLAR_OK && *out == NULL ? take_anywhere(a, r, out) : status;
}

/* Rungs 2 to 10, for a request that rung 1 does not serve. */
static ASHLAR_NOINLINE ashlar_status climb(ashlar_allocator *a, const ashlar_request *r,
                                           ashlar_block **out, ashlar_rung *rung) {
    ashlar_block *found = NULL;
    ashlar_status status = search_on(a, r, &found, rung);
    if (status == ASHLAR_OK && found == NULL && !r->is_at_hand) {
        status = make_room(a, r, &found, rung);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    ASHLAR_CHECK2(found == NULL || (found->state == ASHLAR_BLOCK_USED && found->bytes >= r->bytes));
    if (found == NULL) {
        status = ashlar__may_map_locked(a); /* if it was the seal, the detail says so */
        return status == ASHLAR_OK ? ASHLAR_ENOMEM : status;
    }
    *out = found;
    return ASHLAR_OK;
}

ashlar_status ashlar__ladder_take_locked(ashlar_allocator *a, const ashlar_request *request,
                                         ashlar_block **out, ashlar_rung *rung) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(request->bytes > 0 && request->bytes % ASHLAR_BLOCK_ALIGN == 0);
    ASHLAR_CHECK2(request->stream_state != NULL);
    ashlar_block *found = NULL;
    request->stream_state->last_used = ++a->heap.use_clock;
    if (request->own != NULL) {
        ashlar__cycle_count_miss(request->own);
    }
    *rung = ASHLAR_RUNG_SAME_STREAM;
    const ashlar_status status = take_own(a, request, &found);
    if (!ASHLAR_LIKELY(status == ASHLAR_OK && found != NULL)) {
        return status == ASHLAR_OK ? climb(a, request, out, rung) : status;
    }
    *out = found;
    return ASHLAR_OK;
}
