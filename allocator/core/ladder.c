/*
 * ladder.c - the order of attempts to serve a request that the thread's own cache cannot serve.
 *
 *    1  a gap of the stream's own zone                  6  free memory of any zone, mapped here
 *    2  the same, after blocks came home, or with       7  what all caches hold, given up
 *       the zone of a stream that has ended             8  memory of plans that no step is in
 *    3  memory newly mapped                             9  what the program's callback gives back
 *    4  another stream's gap, its last use over        10  a wait on the host, oldest event first
 *    5  such a gap, after an in-stream wait
 *
 * No stream is made to wait for another one while memory can still be mapped: rung 5 comes after
 * rung 3. A rung that finds nothing leaves *out NULL. After a rung that frees memory the search
 * begins anew with rung 1. Every function here is called with the allocator's lock held.
 */
#include "allocator/core/rungs.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/core/cycle.h"
#include "allocator/core/hold.h"
#include "allocator/core/miss.h"
#include "allocator/core/streams.h"
#include "allocator/core/watch.h"
#include "allocator/heap/away.h"
#include "allocator/plan/planner.h"

/* Rung 1. If the best gap is at a window's end, first empty the caller's own cache. */
static ashlar_status take_own(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    const ashlar_zone *zone = ashlar__zone_of(r->stream_state, r->bytes);
    return ashlar__rung_take_own(a, r, ashlar__gap_of_own(zone, r->own, r->bytes), out);
}

/* Put blocks that are on their way to another thread where a search finds them. */
static void collect_returned(ashlar_allocator *a) {
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        ashlar__returned_put_locked(a, state);
    }
}

/* Whether rung 6 is tried: a segment does not move, and is not given back for a larger one while
 * the device has room. */
static bool may_move(const ashlar_allocator *a, const ashlar_request *r) {
    return !r->is_at_hand || (r->percent > 0 && a->heap.range.segments == NULL);
}

/*
 * Rungs 4 to 6. Rung 5 serves neither captured work, which may not wait for other work, nor
 * requests for all streams.
 */
static ashlar_status take_of_others(ashlar_allocator *a, const ashlar_request *r,
                                    ashlar_block **out, ashlar_rung *rung) {
    const bool is_closed = ashlar__stream_state_is_closed(r->stream_state, &a->client);
    a->heap.short_at = ashlar__heap_count_use(&a->heap);
    a->heap.short_count++;
    a->heap.was_short = true;
    collect_returned(a);
    *rung = ASHLAR_RUNG_SAME_STREAM;
    ASHLAR_TRY(ashlar__rung_take_mapped(a, r, out));
    ashlar_status status = ASHLAR_OK;
    if (*out == NULL) {
        *rung = ASHLAR_RUNG_COMPLETED;
        status = ashlar__rung_ask_all(a);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        status = ashlar__rung_take_mapped(a, r, out); /* memory that rung 2 or 4 brought home */
    }
    if (status == ASHLAR_OK && *out == NULL) {
        status = ashlar__rung_borrow_past(a, r, out);
    }
    if (status == ASHLAR_OK && *out == NULL && !is_closed && !r->is_idle && !r->is_at_hand &&
        !ashlar__stream_state_is_others(r->stream_state)) {
        *rung = ASHLAR_RUNG_WAITED;
        status = ashlar__rung_borrow_waited(a, r, out);
    }
    if (status == ASHLAR_OK && *out == NULL && may_move(a, r)) {
        *rung = ASHLAR_RUNG_GATHERED;
        status = ashlar__rung_map_free(a, r, out);
    }
    return status;
}

/* Rungs 2 to 6. *out is NULL if nothing was found; then the error detail says why. */
static ashlar_status search_on(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                               ashlar_rung *rung) {
    ashlar__shut_out_locked(a); /* all later rungs may touch other streams' zones */
    *rung = ASHLAR_RUNG_IDLE;
    ashlar_status status = ashlar__rung_take_home(a, r, out);
    if (status == ASHLAR_OK && *out == NULL && (!r->is_at_hand || r->percent > 0)) {
        *rung = ASHLAR_RUNG_MAPPED;
        status = ashlar__rung_map_new(a, r, out);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        status = take_of_others(a, r, out, rung);
    }
    return status;
}

/* Rungs 1 to 6, which neither wait on the host nor empty other threads' caches. */
static ashlar_status search(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                            ashlar_rung *rung) {
    ASHLAR_TRY(take_own(a, r, out));
    return *out == NULL ? search_on(a, r, out, rung) : ASHLAR_OK;
}

/* ---- the rungs that make room ---- */

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
    while (*out == NULL && ashlar__planner_give_up_locked(&a->planner, &a->heap)) {
        ASHLAR_TRY(search(a, r, out, &unused));
    }
    return ASHLAR_OK;
}

/* Rungs 1 to 8, after the lock was dropped: meanwhile other threads or the program's callback may
 * have filled caches, or freed the last block that kept a plan's memory. */
static ashlar_status search_again(ashlar_allocator *a, const ashlar_request *r,
                                  ashlar_block **out) {
    ashlar_rung unused;
    (void)drain_caches(a, r);
    ASHLAR_TRY(search(a, r, out, &unused));
    return *out == NULL ? take_of_plans(a, r, out) : ASHLAR_OK;
}

/* Whether waiting for this stream on the host would make memory usable by other streams. */
static bool is_worth_waiting_for(const ashlar_allocator *a, const ashlar_stream_state *state) {
    if (ashlar__stream_state_is_closed(state, &a->client)) {
        return false;
    }
    return !ashlar__stream_state_is_quiet(state) || state->oldest_away != NULL;
}

/*
 * Record the events that are missing. Then find, among the streams worth waiting for, the one with
 * the oldest event; *out is NULL if there is none.
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
        const bool is_done = state->completed == state->recorded; /* the stream is gone */
        if (!is_done && (*out == NULL || state->recorded_at < (*out)->recorded_at)) {
            *out = state;
        }
    }
    return status;
}

/*
 * One wait of rung 10, which drops the lock: for the stream with the oldest event or, if there is
 * none, for the whole device on behalf of streams that may not be named. *waited: whether there was
 * anything to wait for.
 */
static ashlar_status wait_for_oldest(ashlar_allocator *a, bool *waited) {
    ashlar_stream_state *oldest = NULL;
    ashlar_status status = find_oldest(a, &oldest);
    *waited = status == ASHLAR_OK && oldest != NULL;
    if (*waited) {
        a->heap.waited_at = ashlar__heap_count_use(&a->heap);
        ashlar__let_in_locked(a); /* the wait drops the lock */
        status = ashlar__stream_state_synchronize(oldest, &a->client, oldest->completed, &a->lock);
        ashlar__shut_out_locked(a);
    } else if (status == ASHLAR_OK) {
        *waited = ashlar__watch_wait_locked(a);
    }
    ASHLAR_OWNS(&a->lock); /* the wait has taken the lock again */
    ashlar__away_settle(&a->heap);
    return status;
}

/* Rung 10: wait for one stream after another while that may help. */
static ashlar_status wait_for_room(ashlar_allocator *a, const ashlar_request *r,
                                   ashlar_block **out) {
    ashlar_status status = ASHLAR_OK;
    /* Waiting helps only if free, shared and mappable bytes suffice together. They include plan
     * memories that are kept only by a shared block. */
    bool may_help = r->bytes <= ashlar__heap_free_bytes(&a->heap) + a->heap.away_bytes +
                                    a->deferred_bytes + ashlar__range_left(&a->heap.range) +
                                    ashlar__planner_quiet_bytes(&a->planner);
    while (status == ASHLAR_OK && *out == NULL && may_help) {
        status = wait_for_oldest(a, &may_help);
        if (status == ASHLAR_OK && may_help) {
            status = search_again(a, r, out);
        }
    }
    return status;
}

/* Rungs 7 to 10, for a request that rungs 1 to 6 could not serve. */
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
        status = search_again(a, r, out);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        *rung = ASHLAR_RUNG_AFTER_SYNC;
        status = wait_for_room(a, r, out);
    }
    return status == ASHLAR_OK && *out == NULL ? ashlar__rung_take_anywhere(a, r, out) : status;
}

/* Rungs 2 to 10, for a request that rung 1 does not serve. */
static ASHLAR_NOINLINE ashlar_status climb(ashlar_allocator *a, const ashlar_request *r,
                                           ashlar_block **out, ashlar_rung *rung) {
    ashlar_block *found = NULL;
    ashlar_status status = search_on(a, r, &found, rung);
    if (status == ASHLAR_OK && found == NULL && !r->is_at_hand) {
        status = make_room(a, r, &found, rung);
    } else if (status == ASHLAR_OK && found == NULL && may_move(a, r)) {
        status = ashlar__rung_take_anywhere(a, r, &found);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    ASHLAR_CHECK2(found == NULL || (found->state == ASHLAR_BLOCK_USED && found->bytes >= r->bytes));
    if (found == NULL) {
        status = ashlar__may_map_locked(a); /* if the seal was the reason, this sets a detail
                                               that says so */
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
    if (request->own != NULL) {
        ashlar__heap_catch_up(&a->heap, request->own->use_clock);
        ashlar__cycle_count_miss(request->own);
    }
    request->stream_state->last_used = ashlar__heap_count_use(&a->heap);
    *rung = ASHLAR_RUNG_SAME_STREAM;
    const ashlar_status status = take_own(a, request, &found);
    if (!ASHLAR_LIKELY(status == ASHLAR_OK && found != NULL)) {
        return status == ASHLAR_OK ? climb(a, request, out, rung) : status;
    }
    *out = found;
    return ASHLAR_OK;
}
