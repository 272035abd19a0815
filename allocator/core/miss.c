/*
 * miss.c - a request that the thread's own cache cannot serve, from the search for memory to the
 * report that there is none.
 *
 * A search goes through the rungs of two tables, from top to bottom, until one finds a block.
 * Those of `search_rungs` neither wait on the host nor empty other threads' caches. If they fail,
 * each of `room_rungs` makes room and, where that frees memory, searches again.
 *
 * No stream is made to wait for another one while memory can still be mapped; and then first only
 * for work that was queued before the memory was freed. Where memory cannot be moved, gaps of
 * streams that have ended come before new memory. Every function here is called with the
 * allocator's lock held.
 */
#include "allocator/core/core.h"

#include <inttypes.h>
#include <stdio.h>

#include "allocator/base/host.h"
#include "allocator/base/error.h"
#include "allocator/plan/planner.h"

/* ---- the order of a search ---- */

/* What a rung may need. It is tried if abilities() has all of that. */
enum { MAY_MAP = 1, MAY_WAIT = 2, MAY_MOVE = 4, HAS_SEGMENTS = 8 };

typedef struct rung {
    ashlar_rung_fn *take;
    ashlar_rung counter; /* the counter to raise if it serves the request */
    unsigned needs;
} rung;

/* What the request may do. One for memory at hand does not wait; if it may map memory, it may also
 * move handles, but cannot move segments. */
static unsigned abilities(const ashlar_allocator *a, const ashlar_request *r) {
    const bool may_map = !r->is_at_hand || r->percent > 0;
    const bool has_segments = a->heap.range.segments != NULL;
    return (may_map ? MAY_MAP : 0) | (r->is_at_hand ? 0 : MAY_WAIT) |
           (!r->is_at_hand || (may_map && !has_segments) ? MAY_MOVE : 0) |
           (has_segments ? HAS_SEGMENTS : 0);
}

static ashlar_status climb(ashlar_allocator *a, const ashlar_request *r, const rung *rungs,
                           size_t count, ashlar_block **out, ashlar_rung *counter) {
    const unsigned has = abilities(a, r);
    for (size_t i = 0; i < count && *out == NULL; i++) {
        if ((rungs[i].needs & ~has) == 0) {
            *counter = rungs[i].counter;
            ASHLAR_TRY(rungs[i].take(a, r, out));
        }
    }
    return ASHLAR_OK;
}

/* With less than 1/8 of the limit left, streams may soon want each other's memory. */
enum { NEAR_DIVISOR = 8 };

static bool has_several(const ashlar_allocator *a) {
    return a->stream_states != NULL && a->stream_states->next != NULL;
}

static ashlar_status map_new(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    const ashlar_status status = ashlar__rung_map_new(a, r, out);
    const size_t limit = a->heap.range.limit_bytes;
    a->heap.is_near_limit =
        has_several(a) && a->heap.range.mapped_bytes > limit - limit / NEAR_DIVISOR;
    return status;
}

/* Take from the stream's own gaps that have memory, after putting all remote frees into their
 * zones. A request that comes to this rung shows that memory is short. */
static ashlar_status take_own_in_need(ashlar_allocator *a, const ashlar_request *r,
                                      ashlar_block **out) {
    a->heap.short_at = ashlar__heap_count_use(&a->heap);
    a->heap.short_count++;
    a->heap.was_short = true;
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        ashlar__remote_put_locked(a, state);
    }
    return ashlar__rung_take_mapped(a, r, out);
}

/* Ask the driver about all streams; then cross-stream blocks may have come back to the own zone. */
static ashlar_status ask_all(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    ASHLAR_TRY(ashlar__rung_ask_all(a));
    return ashlar__rung_take_mapped(a, r, out);
}

/* Take another stream's gap behind an in-stream wait. Captured work may not wait for other work,
 * and a request for memory that all streams may use has no stream that could wait. */
static ashlar_status wait_in_stream(ashlar_allocator *a, const ashlar_request *r, bool prompt,
                                    ashlar_block **out) {
    return ashlar__stream_state_can_wait(r->stream_state, &a->client)
               ? ashlar__rung_borrow_waited(a, r, prompt, out)
               : ASHLAR_OK;
}

static ashlar_status wait_promptly(ashlar_allocator *a, const ashlar_request *r,
                                   ashlar_block **out) {
    return wait_in_stream(a, r, true, out);
}

/* The rungs after the first, the best gap of the own zone: see ashlar__ladder_take_locked(). */
static const rung search_rungs[] = {
    {ashlar__rung_take_cross, ASHLAR_RUNG_IDLE, 0},
    {ashlar__rung_borrow_ended, ASHLAR_RUNG_COMPLETED, HAS_SEGMENTS},
    {ashlar__rung_leave_plan, ASHLAR_RUNG_IDLE, MAY_MAP},
    {map_new, ASHLAR_RUNG_MAPPED, MAY_MAP},
    {take_own_in_need, ASHLAR_RUNG_SAME_STREAM, 0},
    {ask_all, ASHLAR_RUNG_COMPLETED, 0},
    {ashlar__rung_borrow_past, ASHLAR_RUNG_COMPLETED, 0},
    {wait_promptly, ASHLAR_RUNG_WAITED, MAY_WAIT},
    {ashlar__rung_map_free, ASHLAR_RUNG_GATHERED, MAY_MOVE},
};

/* Try search_rungs. *out stays NULL if none finds a block; then the error detail says why. */
static ashlar_status search_on(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                               ashlar_rung *counter) {
    ashlar__caches_take_over_locked(a); /* all these rungs may touch other streams' zones */
    a->client.is_wanting = true;
    const ashlar_status status =
        climb(a, r, search_rungs, sizeof search_rungs / sizeof(rung), out, counter);
    a->client.is_wanting = false;
    return status;
}

static ashlar_status search(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    ashlar_rung unused;
    ASHLAR_TRY(ashlar__rung_take_own(a, r, out));
    return *out == NULL ? search_on(a, r, out, &unused) : ASHLAR_OK;
}

/* ---- making room ---- */

/* Put the blocks of all caches into their zones. False: there were none. */
static bool drain_caches(ashlar_allocator *a) {
    const size_t used_bytes = ashlar__heap_used_bytes(&a->heap);
    ashlar__caches_flush_locked(a);
    ASHLAR_CHECK2(ashlar__heap_used_bytes(&a->heap) <= used_bytes);
    return ashlar__heap_used_bytes(&a->heap) != used_bytes;
}

static ashlar_status take_of_caches(ashlar_allocator *a, const ashlar_request *r,
                                    ashlar_block **out) {
    return drain_caches(a) ? search(a, r, out) : ASHLAR_OK;
}

/* Take another stream's gap behind an in-stream wait, even for work queued after its free. */
static ashlar_status wait_behind_all(ashlar_allocator *a, const ashlar_request *r,
                                     ashlar_block **out) {
    a->client.is_wanting = true;
    const ashlar_status status = wait_in_stream(a, r, false, out);
    a->client.is_wanting = false;
    return status;
}

/* Give up plans that no step is in, one memory at a time, until the request is served. */
static ashlar_status take_of_plans(ashlar_allocator *a, const ashlar_request *r,
                                   ashlar_block **out) {
    while (*out == NULL && ashlar__planner_give_up_locked(&a->planner, &a->heap)) {
        ASHLAR_TRY(search(a, r, out));
        if (*out == NULL) { /* a wait for its steps' work may save giving up another plan */
            ASHLAR_TRY(wait_behind_all(a, r, out));
        }
    }
    return ASHLAR_OK;
}

/* Search again after the lock was dropped: meanwhile other threads or the program's callback may
 * have filled caches, or freed the last block that kept a plan's memory. */
static ashlar_status search_again(ashlar_allocator *a, const ashlar_request *r,
                                  ashlar_block **out) {
    (void)drain_caches(a);
    ASHLAR_TRY(search(a, r, out));
    return *out == NULL ? take_of_plans(a, r, out) : ASHLAR_OK;
}

/* Have the device's other allocators give back what the request wants. */
static bool has_of_others(ashlar_allocator *a, const ashlar_request *r, bool may_wait) {
    const size_t handle_bytes = a->heap.range.handle_bytes;
    ashlar_others others;
    const bool has_any = ashlar__others_give_back_locked(
        a, r->bytes / handle_bytes * handle_bytes + 2 * handle_bytes, may_wait, &others);
    a->others = others; /* only now: without the lock, another thread may have set it */
    return has_any;
}

/* Have other allocators give back their idle memory, if the device, and not the limit, is what
 * lacks memory; then search again, since mapping may succeed now. */
static ashlar_status take_of_allocators(ashlar_allocator *a, const ashlar_request *r, bool may_wait,
                                        ashlar_block **out) {
    a->others = (ashlar_others){0};
    return ashlar__rung_may_create(a) != 0 && ashlar__range_left(&a->heap.range) != 0 &&
                   a->heap.range.kind != ASHLAR_RANGE_HOST && has_of_others(a, r, may_wait)
               ? search_again(a, r, out)
               : ASHLAR_OK;
}

static ashlar_status ask_allocators(ashlar_allocator *a, const ashlar_request *r,
                                    ashlar_block **out) {
    return take_of_allocators(a, r, false, out);
}

static ashlar_status press_allocators(ashlar_allocator *a, const ashlar_request *r,
                                      ashlar_block **out) {
    return take_of_allocators(a, r, true, out);
}

/* Search again, if the program's callback has given memory back. */
static ashlar_status ask_program(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    return ashlar__reclaim_locked(a, r->bytes) ? search_again(a, r, out) : ASHLAR_OK;
}

/* ---- waiting on the host ---- */

/* Streams whose work keeps memory from being used. */
typedef struct awaited {
    ashlar_stream_state *states[ASHLAR_AWAITED_MAX];
    size_t count;
} awaited;

/* Record the events that are missing, and collect the streams that have pending ones. */
static ashlar_status collect_awaited(ashlar_allocator *a, awaited *out) {
    a->client.is_wanting = true;
    ashlar_status status = ashlar__cross_cover(&a->heap);
    out->count = 0;
    for (ashlar_stream_state *state = a->stream_states; state != NULL && status == ASHLAR_OK;
         state = state->next) {
        if (ashlar__stream_state_is_quiet(state) && state->oldest_cross == NULL) {
            continue;
        }
        bool is_covered;
        status = ashlar__stream_state_try_cover(state, &a->client, state->last_tick,
                                                &a->stats.events_recorded, &is_covered);
        if (state->pending_count > 0 && out->count < ASHLAR_AWAITED_MAX) {
            out->states[out->count++] = state;
        }
    }
    a->client.is_wanting = false;
    return status;
}

/*
 * Wait until any one of the streams has got further, since another may be waiting for what the
 * program does next; or, if none has a pending event, for the whole device, because the driver must
 * not see the handles of watched streams, which may have ended.
 */
ashlar_status ashlar__wait_for_any_locked(ashlar_allocator *a, bool *waited) {
    awaited on;
    ashlar_status status = collect_awaited(a, &on);
    *waited = status == ASHLAR_OK && on.count > 0;
    if (*waited) {
        a->heap.waited_at = ashlar__heap_count_use(&a->heap);
        ashlar__caches_hand_back_locked(a); /* the wait drops the lock */
        status = ashlar__stream_states_wait(on.states, on.count, &a->client, &a->lock);
        ashlar__caches_take_over_locked(a);
    } else if (status == ASHLAR_OK) {
        *waited = ashlar__watch_wait_locked(a);
    }
    ASHLAR_OWNS(&a->lock); /* the wait has taken the lock again */
    ashlar__cross_settle(&a->heap);
    return status;
}

/* Ask this allocator's streams and the device's other allocators by turns, until there is progress:
 * a wait for streams alone might never end, though another allocator is about to have free memory.
 */
static ashlar_status ask_everywhere(ashlar_allocator *a, const ashlar_request *r, bool *may_help) {
    long pause_ns = ASHLAR_PAUSE_NS_MIN;
    for (bool has_any = false; !has_any;) {
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
        has_any = has_any || has_of_others(a, r, false);
        if (!has_any) {
            ashlar__allocator_leave(a);
            ashlar__clock_pause(&pause_ns);
            ashlar__allocator_enter(a);
        }
    }
    ashlar__caches_take_over_locked(a);
    ashlar__cross_settle(&a->heap);
    return ASHLAR_OK;
}

/*
 * Wait for one stream after another while that may help. If there are several, one may be waiting
 * for what the program does next: then look in all gaps before each wait.
 */
static ashlar_status wait_for_room(ashlar_allocator *a, const ashlar_request *r,
                                   ashlar_block **out) {
    /* Waiting helps only if free, shared and mappable bytes suffice together, with the plan
     * memories that only a shared block keeps from being given up. */
    bool may_help = r->bytes <= ashlar__heap_free_bytes(&a->heap) + a->heap.cross_bytes +
                                    a->deferred.bytes + ashlar__range_left(&a->heap.range) +
                                    ashlar__planner_quiet_bytes(&a->planner);
    while (*out == NULL && may_help) {
        if (has_several(a)) {
            ASHLAR_TRY(ashlar__rung_take_anywhere(a, r, out));
        }
        if (*out == NULL) {
            ASHLAR_TRY(a->others.idle_bytes > 0 ? ask_everywhere(a, r, &may_help)
                                                : ashlar__wait_for_any_locked(a, &may_help));
        }
        if (*out == NULL && may_help) {
            ASHLAR_TRY(search_again(a, r, out));
        }
    }
    return ASHLAR_OK;
}

static const rung room_rungs[] = {
    {take_of_caches, ASHLAR_RUNG_DRAINED, 0},
    {ask_allocators, ASHLAR_RUNG_DRAINED, 0},
    {take_of_plans, ASHLAR_RUNG_DRAINED, 0},
    {ask_program, ASHLAR_RUNG_RECLAIMED, 0},
    {wait_behind_all, ASHLAR_RUNG_WAITED, 0},
    {wait_for_room, ASHLAR_RUNG_AFTER_SYNC, 0},
    {press_allocators, ASHLAR_RUNG_AFTER_SYNC, 0},
    {ashlar__rung_take_anywhere, ASHLAR_RUNG_AFTER_SYNC, 0},
};

static ashlar_status make_room(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                               ashlar_rung *counter) {
    return climb(a, r, room_rungs, sizeof room_rungs / sizeof(rung), out, counter);
}

/* ---- the whole search ---- */

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

/* Serve a request that the best gap of the stream's own zone cannot serve. */
static ASHLAR_NOINLINE ashlar_status search_everywhere(ashlar_allocator *a, const ashlar_request *r,
                                                       ashlar_block **out, ashlar_rung *counter) {
    ashlar_block *found = NULL;
    ASHLAR_TRY(search_on(a, r, &found, counter));
    if (found == NULL && !r->is_at_hand) {
        ASHLAR_TRY(make_room(a, r, &found, counter));
        if (found == NULL && ashlar__rung_leave_own_plan(a, r)) {
            ASHLAR_TRY(make_room(a, r, &found, counter));
        }
    } else if (found == NULL && (abilities(a, r) & MAY_MOVE) != 0) {
        ASHLAR_TRY(ashlar__rung_take_anywhere(a, r, &found));
    }
    if (found == NULL) {
        name_captured(a);
        ASHLAR_TRY(ashlar__may_map_locked(a)); /* the detail says so if the seal was the reason */
        return ASHLAR_ENOMEM;
    }
    *out = found;
    return ASHLAR_OK;
}

ashlar_status ashlar__ladder_take_locked(ashlar_allocator *a, const ashlar_request *r,
                                         ashlar_block **out, ashlar_rung *counter) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(r->bytes > 0 && r->bytes % ASHLAR_BLOCK_ALIGN == 0 && r->stream_state != NULL);
    ashlar_block *found = NULL;
    if (r->own != NULL) {
        ashlar__heap_catch_up(&a->heap, r->own->use_clock);
        ashlar__cycle_count_miss(r->own);
    }
    r->stream_state->last_used = ashlar__heap_count_use(&a->heap);
    *counter = ASHLAR_RUNG_SAME_STREAM;
    ASHLAR_TRY(ashlar__rung_take_own(a, r, &found));
    if (!ASHLAR_LIKELY(found != NULL)) {
        return search_everywhere(a, r, out, counter);
    }
    *out = found;
    return ASHLAR_OK;
}

/* ---- a request ---- */

static bool is_replaying(const ashlar_request *r) {
    return r->own != NULL && ashlar__cache_is_replaying(r->own);
}

/* Whether the recorded step was refused this request, too, and nothing can serve it now: a search
 * would take memory from others in vain, in every step. */
static bool is_hopeless(ashlar_allocator *a, const ashlar_request *r) {
    return is_replaying(r) && !r->is_idle && r->own->active_replay->is_at_refusal &&
           r->bytes > ashlar__room_locked(a) && !ashlar__reclaim_locked(a, r->bytes);
}

/* Let the thread's cache own the stream, get magazines for it, and receive its remote frees. */
static void prepare(ashlar_allocator *a, const ashlar_request *r) {
    ashlar_stream_state *state = r->stream_state;
    ashlar_magazines *m = NULL;
    ashlar__owner_cache_set_locked(a, r->own, state);
    if (r->own != NULL && ashlar__cycle_is_tight(&a->heap, r->own)) {
        ashlar__cycle_restart(r->own);
    }
    if (r->own != NULL) {
        ashlar__remote_send(r->own); /* they may include blocks of this stream */
        m = ashlar__cache_need_locked(r->own, state);
    }
    if (m != NULL && ashlar__owner_cache(state) == r->own) {
        ashlar__remote_receive(r->own, m);
    } else {
        ashlar__remote_put_locked(a, state);
    }
}

static ashlar_block *pop_own(ashlar_cache *own, ashlar_stream_state *state, size_t bytes) {
    ashlar_magazines *m = own != NULL ? own->recent : NULL;
    if (m != NULL && m->stream_state != state) {
        m = ashlar__cache_find_state(own, state);
    }
    return m != NULL ? ashlar__cache_pop(own, m, bytes) : NULL;
}

/* Find a block in the thread's cache, which may have received remote frees, or by the ladder. */
static ashlar_status find_block(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                                ashlar_rung *counter) {
    *out = pop_own(r->own, r->stream_state, r->bytes);
    *counter = ASHLAR_RUNG_CACHED;
    if (*out != NULL) {
        return ASHLAR_OK;
    }
    const ashlar_status status = ashlar__ladder_take_locked(a, r, out, counter);
    if (status == ASHLAR_OK && r->own != NULL && r->bytes > ASHLAR_SC_MAX_BYTES) {
        r->own->last_large = a->heap.is_near_limit ? NULL : *out;
    }
    if (r->own != NULL && a->heap.was_short) {
        r->own->stream = ASHLAR_NO_STREAM; /* as in set_recent() of cache.c */
    }
    /* The search may have mapped memory even if it failed, and the peak counts it. */
    ashlar__update_reserved_peak_locked(a);
    return status;
}

/* Find a block of the step's plan, or any other that fits. Sets call->request.stream_state. */
static ashlar_status choose(ashlar_allocator *a, ashlar_call *call, ashlar_block **out,
                            ashlar_rung *counter) {
    ashlar_request *r = &call->request;
    ashlar_stream_state *state = NULL;
    *counter = ASHLAR_RUNG_PLANNED;
    *out = is_replaying(r) && !r->is_unplanned
               ? ashlar__replay_serve_otherwise(r->own->active_replay, call->bytes,
                                                (unsigned)call->tag,
                                                ashlar__stream_named(call->stream))
               : NULL;
    if (*out != NULL) {
        r->stream_state = (*out)->stream_state;
        return ASHLAR_OK;
    }
    ASHLAR_TRY(r->is_idle ? ashlar__stream_state_idle_locked(a, &state)
                          : ashlar__stream_state_of_locked(a, call->stream, &state));
    r->stream_state = state->pool != NULL ? state->pool : state;
    ASHLAR_FAIL_IF(is_hopeless(a, r), ASHLAR_ENOMEM, "the recorded step was refused this, too");
    prepare(a, r);
    return find_block(a, r, out, counter);
}

/* The offset in ashlar_stats of each rung's counter. */
static const size_t served_at[] = {
    [ASHLAR_RUNG_PLANNED] = offsetof(ashlar_stats, served_planned),
    [ASHLAR_RUNG_CACHED] = offsetof(ashlar_stats, served_cached),
    [ASHLAR_RUNG_SAME_STREAM] = offsetof(ashlar_stats, served_same_stream),
    [ASHLAR_RUNG_IDLE] = offsetof(ashlar_stats, served_idle),
    [ASHLAR_RUNG_COMPLETED] = offsetof(ashlar_stats, served_completed),
    [ASHLAR_RUNG_WAITED] = offsetof(ashlar_stats, served_waited),
    [ASHLAR_RUNG_MAPPED] = offsetof(ashlar_stats, served_mapped),
    [ASHLAR_RUNG_DRAINED] = offsetof(ashlar_stats, served_drained),
    [ASHLAR_RUNG_RECLAIMED] = offsetof(ashlar_stats, served_reclaimed),
    [ASHLAR_RUNG_AFTER_SYNC] = offsetof(ashlar_stats, served_after_sync),
    [ASHLAR_RUNG_GATHERED] = offsetof(ashlar_stats, served_gathered),
};
ASHLAR_TABLE_IS_FULL(served_at, ASHLAR_RUNG_COUNT);

ashlar_status ashlar__core_alloc_locked(ashlar_allocator *a, ashlar_call *call) {
    ASHLAR_OWNS(&a->lock);
    ashlar_block *block = NULL;
    ASHLAR_FAIL_IF(call->request.bytes == 0 &&
                       !ashlar__block_bytes(call->bytes, &call->request.bytes),
                   ASHLAR_ENOMEM, "more than there is");
    ASHLAR_TRY(choose(a, call, &block, &call->by));
    /* No caller has the block yet, and it is large enough. Its fields are set only below. */
    ASHLAR_CHECK2(block->state == ASHLAR_BLOCK_USED && block->requested == 0);
    ASHLAR_CHECK2(block->bytes >= call->bytes && !ashlar__block_is_shared(block));
    block->stream_state = call->request.stream_state;
    block->requested = call->bytes;
    block->tag = (unsigned char)call->tag;
    block->list = (uint16_t)ashlar__cache_list(block->bytes);
    ASHLAR_CHECK3(ashlar__is_sound_locked(a));
    call->block = block;
    call->ptr = ashlar__ptr_out(a->constants.base + block->offset);
    return ASHLAR_OK;
}

void ashlar__account_alloc_locked(ashlar_allocator *a, const ashlar_call *call) {
    ASHLAR_OWNS(&a->lock);
    ashlar_cache *own = call->request.own;
    ashlar_counters *counters = ashlar__counters_of(a, own);
    if (call->by == ASHLAR_RUNG_CACHED) {
        counters->hit_count++;
    } else if (call->by != ASHLAR_RUNG_PLANNED) { /* which the replayed step counts itself */
        ++*(uint64_t *)((char *)&a->stats + served_at[call->by]);
        a->stats.alloc_count++;
    }
    ashlar__count_alloc(counters, call->bytes, (unsigned)call->tag);
    ashlar__publish_locked(a, own);
    ashlar__step_record_alloc_locked(own, call->bytes, call->block);
}

void ashlar__take_back_locked(ashlar_allocator *a, const ashlar_call *call) {
    ASHLAR_OWNS(&a->lock);
    ashlar_block *block = call->block;
    if (ashlar__block_is_of_slot(block)) {
        call->request.own->counters.free_count++; /* the replay has counted the block as served */
        ashlar__slot_block_vacate(block);
        return;
    }
    block->requested = 0;
    ashlar__caches_take_over_locked(a); /* another thread's cache may own the zone */
    ashlar__release_block_locked(&a->heap, block, block->stream_state);
}

/* ---- out of memory ---- */

enum { TOP_TAGS = 3, TEXT_BYTES = 160, ACCOUNT_BYTES = 480, OTHERS_BYTES = 120 };

/* Memory behind addresses that belong to no block. */
typedef struct holes {
    size_t gap_bytes;
    size_t largest; /* of all gaps, and of all spare memory taken together */
} holes;

static holes find_holes(const ashlar_allocator *a) {
    holes found = {.largest = a->heap.range.spare_count * a->heap.range.handle_bytes};
    for (ashlar_heap_piece at = {0}; ashlar__heap_next_piece(&a->heap, &at);) {
        if (at.is_mapped && at.block->state == ASHLAR_BLOCK_FREE) {
            found.gap_bytes += at.bytes;
            found.largest = at.bytes > found.largest ? at.bytes : found.largest;
        }
    }
    return found;
}

/* Write the tags that hold the most bytes, for example " (weights 1024, batch 512)". */
static void name_top_tags(const ashlar_stats *stats, char *text) {
    bool is_named[ASHLAR_TAG_COUNT] = {false};
    size_t at = 0;
    for (int i = 0; i < TOP_TAGS; i++) {
        int best = -1;
        for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
            const uint64_t live = stats->tags[tag].live_bytes;
            if (live > 0 && !is_named[tag] && (best < 0 || live > stats->tags[best].live_bytes)) {
                best = tag;
            }
        }
        if (best < 0) {
            break;
        }
        is_named[best] = true;
        at += (size_t)snprintf(text + at, TEXT_BYTES - at, "%s%s %llu", i == 0 ? " (" : ", ",
                               ashlar_tag_name((ashlar_tag)best),
                               (unsigned long long)stats->tags[best].live_bytes);
        ASHLAR_CHECK2(at < TEXT_BYTES - 1);
    }
    (void)snprintf(text + at, TEXT_BYTES - at, "%s", at > 0 ? ")" : "");
}

/* Write the use of all reserved memory, in parts that add up to the whole. */
static void write_account(const ashlar_stats *stats, size_t gap_bytes,
                          char text[static ACCOUNT_BYTES]) {
    char top[TEXT_BYTES];
    name_top_tags(stats, top);
    (void)snprintf(text, ACCOUNT_BYTES,
                   "%" PRIu64 " live in %" PRIu64 " blocks%s, %" PRIu64 " of rounding, %" PRIu64
                   " cached, %" PRIu64 " shared, %" PRIu64 " planned, %zu in gaps, %" PRIu64
                   " spare: %" PRIu64 " reserved",
                   stats->live_bytes, stats->live_blocks, top,
                   stats->block_bytes - stats->live_bytes, stats->cached_bytes, stats->shared_bytes,
                   stats->planned_bytes, gap_bytes, stats->spare_bytes, stats->reserved_bytes);
}

/* The event's `bytes` are an upper bound of the device's free memory: reading the exact number
 * would take a driver call. */
static void trace_refusal(ashlar_allocator *a, const ashlar_call *call) {
    const ashlar_range *range = &a->heap.range;
    ashlar__trace_put(a->client.trace, &(ashlar_trace_event){
                                           .action = ASHLAR_TRACE_OOM,
                                           .bytes = range->memory_bytes - range->mapped_bytes,
                                           .requested = call->bytes,
                                           .stream = (uintptr_t)ashlar__stream_named(call->stream),
                                           .tag = (uint8_t)call->tag,
                                       });
}

ashlar_status ashlar__no_memory_locked(ashlar_allocator *a, const ashlar_call *call) {
    ASHLAR_OWNS(&a->lock);
    const char *cause = ashlar_error_detail(); /* why the last attempt failed */
    const ashlar_tag tag = call->tag;
    trace_refusal(a, call);
    ashlar__caches_take_over_locked(a);
    const bool is_model =
        tag == ASHLAR_TAG_WEIGHTS || tag == ASHLAR_TAG_GRADIENTS || tag == ASHLAR_TAG_MOMENTS;
    const ashlar_range *range = &a->heap.range;
    const holes found = find_holes(a);
    char account[ACCOUNT_BYTES], limit[40] = "", others[OTHERS_BYTES] = "";
    ashlar_stats stats;
    ashlar__stats_sum_locked(a, &stats);
    write_account(&stats, found.gap_bytes, account);
    if (range->limit_bytes < range->memory_bytes) {
        (void)snprintf(limit, sizeof limit, " (limit %zu)", range->limit_bytes);
    }
    if (a->others.count > 0) {
        (void)snprintf(others, sizeof others,
                       "; %zu other allocator%s of the device hold%s %zu bytes, %zu of them idle",
                       a->others.count, a->others.count == 1 ? "" : "s",
                       a->others.count == 1 ? "s" : "", a->others.reserved_bytes,
                       a->others.idle_bytes);
    }
    return ashlar__fail_driver(
        ASHLAR_ENOMEM, ashlar_error_driver_code(),
        "out of memory on %s:%d: %zu bytes asked for (%s), %s of the %s's %zu%s, largest hole "
        "%zu%s; make the %s smaller%s, or free blocks (%s)",
        a->device->driver->name, a->device->info.ordinal, call->bytes, ashlar_tag_name(tag),
        account, range->kind == ASHLAR_RANGE_HOST ? "host" : "device", range->memory_bytes, limit,
        found.largest, others, is_model ? "model" : "batch or the sequences",
        limit[0] != '\0' ? ", raise the limit" : "", cause);
}
