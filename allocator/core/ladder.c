/*
 * ladder.c - the order of attempts to serve a request that the thread's own cache cannot serve.
 *
 *    1  a free block last used on the same stream      6  free blocks of other streams, merged
 *    2  an idle block                                  7  newly mapped memory
 *    3  what the thread's own cache holds, given up    8  what all caches hold, given up
 *    4  another stream's block, its event completed    9  what the program's callback gives back
 *    5  another stream's block, after an in-stream    10  a wait on the host, oldest event first
 *       wait                                          11  physical pages gathered into one hole
 *
 * A rung that finds no block leaves *out NULL. After a rung that frees memory the search begins
 * anew with rung 1. Rungs 4 and 5 need not skip the request's own stream: a block of that stream
 * would have served in rung 1. Every function here is called with the allocator's lock held.
 */
#include "allocator/core/slow_path.h"

#include "allocator/base/check_level.h"
#include "allocator/core/shared.h"

/*
 * Live bytes are at a trough if they lie in the lowest eighth of the range between the fewest and
 * the most of this cycle, and this range is more than an eighth of the most.
 */
enum { TROUGH_DIVISOR = 8 };

/* For assertions: whether the block is free, large enough, and in use by no other stream's work. */
static bool can_serve(const ashlar_block *block, const ashlar_request *r) {
    return block->state == ASHLAR_BLOCK_FREE && block->bytes >= r->bytes &&
           (block->stream_state == r->stream_state ||
            ashlar__stream_state_is_past(block->stream_state, block->tick));
}

/* Rungs 1 and 2. */
static ashlar_block *best_without_wait(const ashlar_allocator *a, const ashlar_request *r,
                                       ashlar_rung *rung) {
    ashlar_block *block = ashlar__free_bins_best_fit(&r->stream_state->free, r->bytes);
    *rung = ASHLAR_RUNG_SAME_STREAM;
    if (block == NULL) {
        block = ashlar__free_bins_best_fit(&a->heap.idle, r->bytes);
        *rung = ASHLAR_RUNG_IDLE;
    }
    ASHLAR_CHECK2(block == NULL || can_serve(block, r));
    return block;
}

/*
 * The live bytes that threads have published, with this thread's own changes. 0 if the sum is below
 * zero: this thread freed blocks whose allocation another thread has not published yet.
 */
static uint64_t live_bytes(const ashlar_allocator *a, const ashlar_cache *own) {
    const uint64_t live = a->stats.live_bytes + (uint64_t)own->counters.all.live;
    return (int64_t)live < 0 ? 0 : live;
}

static void begin_cycle(const ashlar_allocator *a, ashlar_cache *own) {
    own->trough = own->crest = live_bytes(a, own);
    own->hits_before = own->counters.hit_count;
    own->misses = 0;
}

static bool is_at_trough(const ashlar_allocator *a, ashlar_cache *own) {
    const uint64_t live = live_bytes(a, own);
    own->crest = live > own->crest ? live : own->crest;
    own->trough = live < own->trough ? live : own->trough;
    ASHLAR_CHECK2(own->trough <= live && live <= own->crest);
    const uint64_t range = own->crest - own->trough;
    return range > own->crest / TROUGH_DIVISOR && live - own->trough < range / TROUGH_DIVISOR;
}

/*
 * Whether the cycle that ends asked for as many blocks as the cycle before, and its crest was as
 * high. Crests are read at misses only, so the cycle with more hits may show a lower crest, by no
 * more than the cache may hold.
 */
static bool is_like_the_last(ashlar_cache *own) {
    ASHLAR_CHECK2(own->counters.hit_count >= own->hits_before);
    const uint64_t hits = own->counters.hit_count - own->hits_before;
    const uint64_t requests = hits + own->misses;
    const bool is_higher = own->crest > own->last_crest;
    const uint64_t apart = is_higher ? own->crest - own->last_crest : own->last_crest - own->crest;
    const bool is_explained = is_higher ? hits < own->last_hits : hits > own->last_hits;
    const bool is_alike =
        requests == own->last_requests && (apart == 0 || (is_explained && apart <= own->limit[0]));
    own->last_crest = own->crest;
    own->last_requests = requests;
    own->last_hits = hits;
    return is_alike;
}

/*
 * Before a search: give up cached blocks that may keep free memory from being one hole.
 *
 * In a program that works in steps, live bytes are fewest between two steps. Cached blocks that
 * then lie between free blocks keep these from merging, and the next step's blocks would lie
 * further apart than the last step's. So the cache is emptied once a step, unless the steps are
 * alike: then the cached blocks lie where the next step wants them. A large block is always given
 * up.
 *
 * The cache is also emptied if it had no room for a block freed since the last miss: then it is
 * full of sizes that nobody asks for.
 */
static void make_way(ashlar_allocator *a, ashlar_cache *own) {
    ASHLAR_CHECK2(own->allocator == a && own->thread == ashlar__thread_number());
    const bool was_full = own->pending_count > 0;
    if (was_full) {
        ashlar__cache_flush_pending_locked(own);
    }
    ashlar__cache_fit_locked(own, a->cache_bytes, a->heap.range.mapped_bytes);
    const bool is_new_cycle = is_at_trough(a, own);
    if (is_new_cycle ? !is_like_the_last(own) : was_full) {
        ashlar__cache_flush_locked(own);
    }
    if (own->weight[1] > 0) {
        ashlar__cache_flush_large_locked(own);
    }
    if (is_new_cycle) {
        begin_cycle(a, own);
    }
    own->misses++;
    ASHLAR_CHECK2(own->pending_count == 0 && own->weight[1] == 0);
}

/*
 * Rung 3: give up what this thread's cache holds, before disturbing other streams or mapping
 * memory.
 */
static ashlar_block *flush_own(ashlar_allocator *a, const ashlar_request *r, ashlar_rung *rung) {
    if (r->own == NULL || ashlar__cache_is_empty(r->own)) {
        return NULL;
    }
    ashlar__cache_flush_locked(r->own);
    begin_cycle(a, r->own);
    return best_without_wait(a, r, rung);
}

/*
 * The best-fitting free block of another stream. A stream that is being captured lends no block,
 * nor does a graph's pool.
 */
static ashlar_block *best_of_other(const ashlar_allocator *a, const ashlar_stream_state *other,
                                   size_t bytes) {
    return ashlar__stream_state_is_closed(other, &a->client)
               ? NULL
               : ashlar__free_bins_best_fit(&other->free, bytes);
}

/* Rung 4: another stream's block, if asking its event shows that its last use is over. */
static ashlar_status try_completed(ashlar_allocator *a, const ashlar_request *r,
                                   ashlar_block **out) {
    const size_t bytes = r->bytes;
    for (ashlar_stream_state *other = a->stream_states; other != NULL; other = other->next) {
        ashlar_block *block = best_of_other(a, other, bytes);
        if (block == NULL) {
            continue;
        }
        ASHLAR_CHECK2(block->stream_state == other && block->tick <= other->last_tick);
        /* Asking helps only if an event was recorded after the block's last use. */
        if (!ashlar__stream_state_is_past(other, block->tick) && other->recorded > block->tick) {
            const ashlar_status status = ashlar__stream_state_query(other, &a->client);
            if (status != ASHLAR_OK) {
                return status;
            }
        }
        if (ashlar__stream_state_is_past(other, block->tick)) {
            *out = block;
            return ASHLAR_OK;
        }
    }
    const ashlar_status status = ashlar__shared_query_locked(a, bytes);
    if (status == ASHLAR_OK && ashlar__shared_settle_locked(a)) {
        ashlar_rung unused;
        *out = best_without_wait(a, r, &unused);
    }
    return status;
}

/*
 * Rung 5: the best fit among all other streams' blocks. The request's stream waits in-stream for
 * the block's last use.
 */
static ashlar_status try_waited(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    ashlar_stream_state *owner = NULL;
    ashlar_block *best = NULL;
    for (ashlar_stream_state *other = a->stream_states; other != NULL; other = other->next) {
        ashlar_block *block = best_of_other(a, other, r->bytes);
        if (block != NULL && (best == NULL || block->bytes < best->bytes)) {
            owner = other;
            best = block;
        }
    }
    if (best == NULL) {
        bool found = false;
        const ashlar_status status =
            ashlar__shared_wait_locked(a, r->stream_state, r->bytes, &found);
        if (found) {
            *out = ashlar__free_bins_best_fit(&r->stream_state->free, r->bytes);
        }
        return status;
    }
    ashlar_status status =
        ashlar__stream_state_cover(owner, &a->client, best->tick, &a->stats.events_recorded);
    if (status == ASHLAR_OK) {
        status = ashlar__stream_state_wait_on(owner, &a->client, r->stream_state->stream);
    }
    if (status == ASHLAR_OK) {
        ASHLAR_CHECK2(owner->recorded > best->tick); /* the event waited for comes after the
                                                      * block's last use */
        *out = best;
    }
    return status;
}

/*
 * Rung 6: merge the free blocks of other streams whose work is over, and try rungs 1 and 2 again.
 * No single block was large enough, but several side by side may be.
 */
static ashlar_status try_merged(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                                ashlar_rung *rung) {
    bool may_merge = false;
    if (a->heap.free_bytes < r->bytes) {
        return ASHLAR_OK;
    }
    for (ashlar_stream_state *other = a->stream_states; other != NULL; other = other->next) {
        /* This stream's own blocks are merged already. */
        if (other == r->stream_state || ashlar__free_bins_is_empty(&other->free)) {
            continue;
        }
        may_merge = true;
        if (ashlar__stream_state_is_closed(other, &a->client)) {
            continue; /* it cannot be asked: merge only what is known to be past */
        }
        const ashlar_status status = ashlar__stream_state_ask(other, &a->client, other->last_tick,
                                                              &a->stats.events_recorded);
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    if (may_merge) {
        ashlar__heap_sweep(&a->heap);
        *out = best_without_wait(a, r, rung);
    }
    return ASHLAR_OK;
}

/* Rungs 4 to 6: mapped memory that other streams used last. */
static ashlar_status try_others(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                                ashlar_rung *rung) {
    /*
     * Captured work may not wait for other work: it gets only blocks whose last use is known to be
     * past.
     */
    if (ashlar__stream_state_is_closed(r->stream_state, &a->client)) {
        ashlar__heap_sweep(&a->heap);
        *out = best_without_wait(a, r, rung);
        return ASHLAR_OK;
    }
    *rung = ASHLAR_RUNG_COMPLETED;
    ashlar_status status = try_completed(a, r, out);
    /*
     * After an in-stream wait only the waiting stream may use the block, so that is no idle block.
     */
    if (status == ASHLAR_OK && *out == NULL && !r->is_idle) {
        *rung = ASHLAR_RUNG_WAITED;
        status = try_waited(a, r, out);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        status = try_merged(a, r, out, rung);
    }
    return status;
}

/*
 * Rungs 3 to 7. *out is NULL if no block was found and no memory may be mapped: the device is full,
 * the limit is reached or the allocator is sealed; the error detail says which. With r->is_at_hand
 * nothing is mapped, and there is no error detail.
 */
static ashlar_status search_on(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                               ashlar_rung *rung) {
    *out = flush_own(a, r, rung);
    ashlar_status status = *out == NULL ? try_others(a, r, out, rung) : ASHLAR_OK;
    if (status != ASHLAR_OK || *out != NULL || r->is_at_hand) {
        return status;
    }
    *rung = ASHLAR_RUNG_MAPPED;
    status = ashlar__may_map_locked(a);
    if (status == ASHLAR_OK) {
        status = ashlar__heap_grow(&a->heap, r->stream_state, r->bytes, out);
    }
    return status == ASHLAR_ENOMEM ? ASHLAR_OK : status;
}

/* Rungs 1 to 7, without a wait on the host, and without emptying other threads' caches. */
static ashlar_status search(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                            ashlar_rung *rung) {
    *out = best_without_wait(a, r, rung);
    return *out == NULL ? search_on(a, r, out, rung) : ASHLAR_OK;
}

/* Rung 8. True if the caches gave any memory back. */
static bool drain_caches(ashlar_allocator *a, const ashlar_request *r) {
    const size_t free_bytes = a->heap.free_bytes;
    ashlar__caches_flush_locked(a, r->own);
    ASHLAR_CHECK2(a->heap.free_bytes >= free_bytes);
    return a->heap.free_bytes != free_bytes;
}

/* Whether waiting for this stream on the host would make free memory usable by other streams. */
static bool is_worth_waiting_for(const ashlar_allocator *a, const ashlar_stream_state *state) {
    if (ashlar__stream_state_is_closed(state, &a->client)) {
        return false;
    }
    return (!ashlar__free_bins_is_empty(&state->free) &&
            !ashlar__stream_state_is_past(state, state->last_tick)) ||
           ashlar__shared_waits_for_locked(a, state);
}

/*
 * Record the events that are missing, and find the stream worth waiting for whose event is oldest;
 * *out is NULL if there is none.
 */
static ashlar_status find_oldest(ashlar_allocator *a, ashlar_stream_state **out) {
    ashlar_status status = ashlar__shared_cover_locked(a);
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
    if (*waited) {
        status = ashlar__stream_state_synchronize(oldest, &a->client, &a->lock);
    }
    ASHLAR_OWNS(&a->lock); /* held again after the wait */
    ashlar__shared_settle_locked(a);
    ashlar__heap_sweep(&a->heap);
    return status;
}

/* Rung 10: wait for one stream after the other, as long as that may help. */
static ashlar_status wait_for_room(ashlar_allocator *a, const ashlar_request *r,
                                   ashlar_block **out) {
    ashlar_rung unused;
    ashlar_status status = ASHLAR_OK;
    /* Waiting helps only if free, shared and mappable bytes together are enough. */
    bool may_help =
        r->bytes <= a->heap.free_bytes + a->shared_bytes + ashlar__range_left(&a->heap.range);
    while (status == ASHLAR_OK && *out == NULL && may_help) {
        status = wait_for_oldest(a, &may_help);
        if (status == ASHLAR_OK && may_help) {
            (void)drain_caches(a, r); /* other threads may have filled their caches during the
                                       * wait */
            status = search(a, r, out, &unused);
        }
    }
    return status;
}

/* Rung 11. If too little memory is idle, the rest is newly mapped, so the seal must permit that. */
static ashlar_status gather(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    if (ashlar__may_map_locked(a) != ASHLAR_OK) {
        return ASHLAR_OK;
    }
    const ashlar_status status = ashlar__heap_gather(&a->heap, r->stream_state, r->bytes, out);
    return status == ASHLAR_ENOMEM ? ASHLAR_OK : status;
}

/* Rungs 8 to 11, for a request for which rungs 1 to 7 found nothing. */
static ashlar_status make_room(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                               ashlar_rung *rung) {
    ashlar_rung unused;
    *rung = ASHLAR_RUNG_DRAINED;
    ashlar_status status = drain_caches(a, r) ? search(a, r, out, &unused) : ASHLAR_OK;
    if (status == ASHLAR_OK && *out == NULL && ashlar__reclaim_locked(a, r->bytes)) {
        *rung = ASHLAR_RUNG_RECLAIMED;
        drain_caches(a, r); /* the blocks given back may be in a cache */
        status = search(a, r, out, &unused);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        *rung = ASHLAR_RUNG_AFTER_SYNC;
        status = wait_for_room(a, r, out);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        *rung = ASHLAR_RUNG_GATHERED;
        status = gather(a, r, out);
    }
    return status;
}

/* Rungs 3 to 11, for a request that rungs 1 and 2 do not serve. */
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
    ASHLAR_CHECK2(found == NULL || (found->state == ASHLAR_BLOCK_FREE && found->bytes >= r->bytes));
    *out = found;
    return found != NULL ? ASHLAR_OK : ASHLAR_ENOMEM;
}

ashlar_status ashlar__ladder_find_locked(ashlar_allocator *a, const ashlar_request *request,
                                         ashlar_block **out, ashlar_rung *rung) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(request->bytes > 0 && request->bytes % ASHLAR_BLOCK_ALIGN == 0);
    ASHLAR_CHECK2(request->stream_state != NULL);
    if (request->own != NULL) {
        make_way(a, request->own);
    }
    if (a->shared != NULL) {
        ashlar__shared_settle_locked(a);
    }
    ashlar_block *found = best_without_wait(a, request, rung);
    if (!ASHLAR_LIKELY(found != NULL)) {
        return climb(a, request, out, rung);
    }
    *out = found;
    return ASHLAR_OK;
}
