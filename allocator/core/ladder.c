/*
 * ladder.c - the order of attempts to serve a request that the thread's own cache cannot serve.
 *
 *    1  a gap of the stream's own zone                  6  free memory of any zone, mapped here
 *    2  the same, after blocks came home, or with       7  what all caches hold, given up
 *       the zone of a stream that has ended; and in     8  what the device's other allocators leave
 *       a step, what its plan leaves idle                  idle; plans that no step is in
 *    3  memory newly mapped
 *    4  another stream's gap, its last use over         9  what the program's callback gives back
 *    5  such a gap, after an in-stream wait            10  a wait on the host, for whichever stream
 *                                                          is done first
 *
 * No stream is made to wait for another one while memory can still be mapped: rung 5 comes after
 * rung 3. It waits for no work that was queued after the memory was freed; before rung 10 it may.
 * Where memory cannot move, rung 4 comes before rung 3 for gaps of streams that have ended. A rung
 * that finds nothing leaves *out NULL. After a rung that frees memory the search begins anew with
 * rung 1. Every function here is called with the allocator's lock held.
 */
#include "allocator/core/rungs.h"

#include "allocator/base/check_level.h"
#include "allocator/base/clock.h"
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

/* Rung 5, if the request's stream can wait. */
static ashlar_status wait_in_stream(ashlar_allocator *a, const ashlar_request *r, bool prompt,
                                    ashlar_block **out) {
    return ashlar__stream_state_can_wait(r->stream_state, &a->client)
               ? ashlar__rung_borrow_waited(a, r, prompt, out)
               : ASHLAR_OK;
}

/*
 * Rungs 4 to 6. Rung 5 serves neither captured work, which may not wait for other work, nor
 * requests for all streams.
 */
static ashlar_status take_of_others(ashlar_allocator *a, const ashlar_request *r,
                                    ashlar_block **out, ashlar_rung *rung) {
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
    if (status == ASHLAR_OK && *out == NULL && !r->is_at_hand) {
        *rung = ASHLAR_RUNG_WAITED;
        status = wait_in_stream(a, r, true, out);
    }
    if (status == ASHLAR_OK && *out == NULL && may_move(a, r)) {
        *rung = ASHLAR_RUNG_GATHERED;
        status = ashlar__rung_map_free(a, r, out);
    }
    return status;
}

/* With less than 1/8 of the limit left, streams may soon want each other's memory. */
enum { NEAR_DIVISOR = 8 };

static bool has_several(const ashlar_allocator *a) {
    return a->stream_states != NULL && a->stream_states->next != NULL;
}

static void note_limit(ashlar_allocator *a) {
    const size_t limit = a->heap.range.limit_bytes;
    a->heap.is_near_limit =
        has_several(a) && a->heap.range.mapped_bytes > limit - limit / NEAR_DIVISOR;
}

/* Rungs 2 to 6. *out is NULL if nothing was found; then the error detail says why. */
static ashlar_status search_on(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                               ashlar_rung *rung) {
    ashlar__shut_out_locked(a); /* all later rungs may touch other streams' zones */
    a->client.is_wanting = true;
    *rung = ASHLAR_RUNG_IDLE;
    ashlar_status status = ashlar__rung_take_home(a, r, out);
    if (status == ASHLAR_OK && *out == NULL && a->heap.range.segments != NULL) {
        *rung = ASHLAR_RUNG_COMPLETED;
        status = ashlar__rung_borrow_ended(a, r, out);
    }
    const bool may_map = !r->is_at_hand || r->percent > 0;
    if (status == ASHLAR_OK && *out == NULL && may_map) {
        *rung = ASHLAR_RUNG_IDLE;
        status = ashlar__rung_leave_plan(a, r, out);
    }
    if (status == ASHLAR_OK && *out == NULL && may_map) {
        *rung = ASHLAR_RUNG_MAPPED;
        status = ashlar__rung_map_new(a, r, out);
        note_limit(a);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        status = take_of_others(a, r, out, rung);
    }
    a->client.is_wanting = false;
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

/* Rung 5 once more, also behind work that was queued after the memory was freed. */
static ashlar_status wait_behind_all(ashlar_allocator *a, const ashlar_request *r,
                                     ashlar_block **out) {
    a->client.is_wanting = true;
    const ashlar_status status = wait_in_stream(a, r, false, out);
    a->client.is_wanting = false;
    return status;
}

/* Rung 8, one plan memory at a time. */
static ashlar_status take_of_plans(ashlar_allocator *a, const ashlar_request *r,
                                   ashlar_block **out) {
    ashlar_rung unused;
    while (*out == NULL && ashlar__planner_give_up_locked(&a->planner, &a->heap)) {
        ASHLAR_TRY(search(a, r, out, &unused));
        if (*out == NULL) { /* the steps' work was queued before, so one plan may be enough */
            ASHLAR_TRY(wait_behind_all(a, r, out));
        }
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

/* Streams whose work keeps memory from being used. */
typedef struct awaited {
    ashlar_stream_state *states[ASHLAR_AWAITED_MAX];
    size_t count;
} awaited;

/* Record the events that are missing, and collect the streams that have pending ones. */
static ashlar_status collect_awaited(ashlar_allocator *a, awaited *out) {
    a->client.is_wanting = true;
    ashlar_status status = ashlar__away_cover(&a->heap);
    out->count = 0;
    for (ashlar_stream_state *state = a->stream_states; state != NULL && status == ASHLAR_OK;
         state = state->next) {
        if (ashlar__stream_state_is_quiet(state) && state->oldest_away == NULL) {
            continue;
        }
        bool is_covered;
        status = ashlar__stream_state_try_cover(state, &a->client, state->last_tick,
                                                &a->stats.events_recorded, &is_covered);
        ASHLAR_CHECK2(state->completed <= state->recorded);
        if (state->pending_count > 0 && out->count < ASHLAR_AWAITED_MAX) {
            out->states[out->count++] = state;
        }
    }
    a->client.is_wanting = false;
    return status;
}

/*
 * One wait of rung 10, which drops the lock: until one of the streams has got further, whichever it
 * is, since another may be waiting for what the program does next; or, if none has a pending event,
 * for the whole device on behalf of streams that may not be named. *waited: whether there was
 * anything to wait for.
 */
ashlar_status ashlar__wait_for_any_locked(ashlar_allocator *a, bool *waited) {
    awaited on;
    ashlar_status status = collect_awaited(a, &on);
    *waited = status == ASHLAR_OK && on.count > 0;
    if (*waited) {
        a->heap.waited_at = ashlar__heap_count_use(&a->heap);
        ashlar__let_in_locked(a); /* the wait drops the lock */
        status = ashlar__stream_states_wait(on.states, on.count, &a->client, &a->lock);
        ashlar__shut_out_locked(a);
    } else if (status == ASHLAR_OK) {
        *waited = ashlar__watch_wait_locked(a);
    }
    ASHLAR_OWNS(&a->lock); /* the wait has taken the lock again */
    ashlar__away_settle(&a->heap);
    return status;
}

/* The bytes that a request wants of other allocators. */
static size_t wanted_of_others(const ashlar_allocator *a, const ashlar_request *r) {
    const size_t handle_bytes = a->heap.range.handle_bytes;
    return r->bytes / handle_bytes * handle_bytes + 2 * handle_bytes;
}

/*
 * Ask the streams here and at other allocators of the device by turns, until one has got further:
 * a wait for those of one allocator might never end, though memory of another is about to be free.
 * *may_help: as for a wait.
 */
static ashlar_status ask_everywhere(ashlar_allocator *a, const ashlar_request *r, bool *may_help) {
    long pause_ns = ASHLAR_PAUSE_NS_MIN;
    bool has_any = false;
    while (!has_any) {
        awaited on;
        ASHLAR_TRY(collect_awaited(a, &on));
        if (on.count == 0) {
            return ashlar__wait_for_any_locked(a, may_help);
        }
        for (size_t i = 0; i < on.count; i++) {
            const uint64_t completed = on.states[i]->completed;
            ASHLAR_TRY(ashlar__stream_state_query(on.states[i], &a->client));
            has_any = has_any || on.states[i]->completed > completed;
        }
        if (!has_any) { /* another thread may be here, too, meanwhile */
            ashlar_others others;
            has_any = ashlar__others_give_back_locked(a, wanted_of_others(a, r), false, &others);
            a->others = others;
        }
        if (!has_any) {
            ashlar__allocator_leave(a);
            ashlar__clock_pause(&pause_ns);
            ashlar__allocator_enter(a);
        }
    }
    ashlar__shut_out_locked(a);
    ashlar__away_settle(&a->heap);
    return ASHLAR_OK;
}

/*
 * Rung 10: wait for one stream after another while that may help. If there are several, one may be
 * waiting for what the program does next: then anything else comes first.
 */
static ashlar_status wait_for_room(ashlar_allocator *a, const ashlar_request *r,
                                   ashlar_block **out) {
    ashlar_status status = ASHLAR_OK;
    /* Waiting helps only if free, shared and mappable bytes suffice together. They include plan
     * memories that are kept only by a shared block. */
    bool may_help = r->bytes <= ashlar__heap_free_bytes(&a->heap) + a->heap.away_bytes +
                                    a->deferred_bytes + ashlar__range_left(&a->heap.range) +
                                    ashlar__planner_quiet_bytes(&a->planner);
    while (status == ASHLAR_OK && *out == NULL && may_help) {
        status = has_several(a) ? ashlar__rung_take_anywhere(a, r, out) : ASHLAR_OK;
        if (status == ASHLAR_OK && *out == NULL) {
            status = a->others.idle_bytes > 0 ? ask_everywhere(a, r, &may_help)
                                              : ashlar__wait_for_any_locked(a, &may_help);
        }
        if (status == ASHLAR_OK && *out == NULL && may_help) {
            status = search_again(a, r, out);
        }
    }
    return status;
}

/* What other allocators of the device leave idle, if the device, and not the limit, is what lacks
 * memory: after that, mapping may succeed. */
static ashlar_status take_of_allocators(ashlar_allocator *a, const ashlar_request *r, bool may_wait,
                                        ashlar_block **out) {
    a->others = (ashlar_others){0};
    if (ashlar__rung_may_create(a) == 0 || ashlar__range_left(&a->heap.range) == 0 ||
        a->heap.range.kind == ASHLAR_RANGE_HOST) {
        return ASHLAR_OK;
    }
    ashlar_others others;
    const bool has_any =
        ashlar__others_give_back_locked(a, wanted_of_others(a, r), may_wait, &others);
    a->others = others;
    return has_any ? search_again(a, r, out) : ASHLAR_OK;
}

/* Rungs 7 to 10, for a request that rungs 1 to 6 could not serve. */
static ashlar_status make_room(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                               ashlar_rung *rung) {
    ashlar_rung unused;
    *rung = ASHLAR_RUNG_DRAINED;
    ashlar_status status = drain_caches(a, r) ? search(a, r, out, &unused) : ASHLAR_OK;
    if (status == ASHLAR_OK && *out == NULL) {
        status = take_of_allocators(a, r, false, out);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        status = take_of_plans(a, r, out);
    }
    if (status == ASHLAR_OK && *out == NULL && ashlar__reclaim_locked(a, r->bytes)) {
        *rung = ASHLAR_RUNG_RECLAIMED;
        status = search_again(a, r, out);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        *rung = ASHLAR_RUNG_WAITED;
        status = wait_behind_all(a, r, out);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        *rung = ASHLAR_RUNG_AFTER_SYNC;
        status = wait_for_room(a, r, out);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        status = take_of_allocators(a, r, true, out);
    }
    return status == ASHLAR_OK && *out == NULL ? ashlar__rung_take_anywhere(a, r, out) : status;
}

/* If memory waits for a stream that is captured without a pool, say so in the error detail. */
static void name_captured(ashlar_allocator *a) {
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        if (!ashlar__stream_state_is_quiet(state) &&
            !ashlar__stream_state_is_closed(state, &a->client) &&
            ashlar__stream_state_cover(state, &a->client, state->last_tick,
                                       &a->stats.events_recorded) == ASHLAR_EINVAL) {
            return;
        }
    }
}

/* Rungs 2 to 10, for a request that rung 1 does not serve. */
static ASHLAR_NOINLINE ashlar_status climb(ashlar_allocator *a, const ashlar_request *r,
                                           ashlar_block **out, ashlar_rung *rung) {
    ashlar_block *found = NULL;
    ashlar_status status = search_on(a, r, &found, rung);
    if (status == ASHLAR_OK && found == NULL && !r->is_at_hand) {
        status = make_room(a, r, &found, rung);
        if (status == ASHLAR_OK && found == NULL && ashlar__rung_leave_own_plan(a, r)) {
            status = make_room(a, r, &found, rung);
        }
    } else if (status == ASHLAR_OK && found == NULL && may_move(a, r)) {
        status = ashlar__rung_take_anywhere(a, r, &found);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    ASHLAR_CHECK2(found == NULL || (found->state == ASHLAR_BLOCK_USED && found->bytes >= r->bytes));
    if (found == NULL) {
        name_captured(a);
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
