/*
 * ladder.c - the order in which a request is served that the thread's own cache does not have.
 *
 *    1  a free block last used on the same stream      6  free blocks of other streams, merged
 *    2  an idle block                                  7  newly mapped memory
 *    3  what the thread's own cache holds, given up    8  what all caches hold, given up
 *    4  another stream's block, its event completed    9  what the caller's callbacks give back
 *    5  another stream's block, after an in-stream    10  a wait on the host, oldest event first
 *       wait                                          11  physical pages gathered into one hole
 *
 * Each step that declines leaves *out NULL. Every step that frees something is followed by a
 * search from the first. Steps 4 and 5 may look at every stream: a block of the request's own
 * would have served in step 1.
 */
#include "allocator_impl.h"

#include "error.h"

/* Steps 1 and 2. */
static ashlar_block *best_without_wait(const ashlar_allocator *a, const ashlar_request *r,
                                       ashlar_step *step) {
    ashlar_block *block = ashlar_free_bins_best_fit(&r->order->free, r->bytes);
    *step = ASHLAR_STEP_SAME_STREAM;
    if (block == NULL) {
        block = ashlar_free_bins_best_fit(&a->heap.idle, r->bytes);
        *step = ASHLAR_STEP_IDLE;
    }
    return block;
}

/* Step 3: before other streams are disturbed or memory is mapped, what is here is used up. */
static ashlar_block *flush_own(const ashlar_allocator *a, const ashlar_request *r,
                               ashlar_step *step) {
    if (r->own == NULL || ashlar_cache_is_empty(r->own)) {
        return NULL;
    }
    ashlar_cache_flush_locked(r->own);
    return best_without_wait(a, r, step);
}

/* Step 4: another stream's block, if asking its event shows that its last use is over. */
static ashlar_status try_completed(ashlar_allocator *a, size_t bytes, ashlar_block **out) {
    for (ashlar_order *other = a->orders; other != NULL; other = other->next) {
        ashlar_block *block = ashlar_free_bins_best_fit(&other->free, bytes);
        if (block == NULL) {
            continue;
        }
        /* Asking can only help where a recording covers the block's last use. */
        if (!ashlar_order_is_past(other, block->tick) && other->recorded > block->tick) {
            const ashlar_status status = ashlar_order_query(other, &a->caller);
            if (status != ASHLAR_OK) {
                return status;
            }
        }
        if (ashlar_order_is_past(other, block->tick)) {
            *out = block;
            return ASHLAR_OK;
        }
    }
    return ASHLAR_OK;
}

/* Step 5: the best fit among other streams' blocks, its last use put before `order`'s work. */
static ashlar_status try_waited(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    ashlar_order *owner = NULL;
    ashlar_block *best = NULL;
    for (ashlar_order *other = a->orders; other != NULL; other = other->next) {
        ashlar_block *block = ashlar_free_bins_best_fit(&other->free, r->bytes);
        if (block != NULL && (best == NULL || block->bytes < best->bytes)) {
            owner = other;
            best = block;
        }
    }
    if (best == NULL) {
        return ASHLAR_OK;
    }
    ashlar_status status =
        ashlar_order_cover(owner, &a->caller, best->tick, &a->stats.events_recorded);
    if (status == ASHLAR_OK) {
        status = ashlar_order_wait_on(owner, &a->caller, r->order->stream);
    }
    if (status == ASHLAR_OK) {
        *out = best;
    }
    return status;
}

/*
 * Step 6: the first two again, once the free blocks of other streams whose work is over have been
 * merged. No block alone was large enough, but several side by side may be.
 */
static ashlar_status try_merged(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                                ashlar_step *step) {
    bool may_merge = false;
    if (a->heap.free_bytes < r->bytes) {
        return ASHLAR_OK;
    }
    for (ashlar_order *other = a->orders; other != NULL; other = other->next) {
        /* This stream's own blocks are merged already, and merge with others while in use. */
        if (other == r->order || ashlar_free_bins_is_empty(&other->free)) {
            continue;
        }
        may_merge = true;
        if (ashlar_order_is_past(other, other->last_tick)) {
            continue;
        }
        ashlar_status status =
            ashlar_order_cover(other, &a->caller, other->last_tick, &a->stats.events_recorded);
        if (status == ASHLAR_OK) {
            status = ashlar_order_query(other, &a->caller);
        }
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    if (may_merge) {
        ashlar_heap_sweep(&a->heap);
        *out = best_without_wait(a, r, step);
    }
    return ASHLAR_OK;
}

/* Steps 4 to 6: memory there is, last used by other streams. */
static ashlar_status try_others(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                                ashlar_step *step) {
    *step = ASHLAR_STEP_COMPLETED;
    ashlar_status status = try_completed(a, r->bytes, out);
    if (status == ASHLAR_OK && *out == NULL) {
        *step = ASHLAR_STEP_WAITED;
        status = try_waited(a, r, out);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        status = try_merged(a, r, out, step);
    }
    return status;
}

/*
 * Steps 1 to 7: everything that waits for nobody and takes nothing from others. *out is NULL where
 * the device, or the limit, is full; the detail then has the words of who said so.
 */
static ashlar_status search(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                            ashlar_step *step) {
    *out = best_without_wait(a, r, step);
    if (*out == NULL) {
        *out = flush_own(a, r, step);
    }
    ashlar_status status = *out == NULL ? try_others(a, r, out, step) : ASHLAR_OK;
    if (status != ASHLAR_OK || *out != NULL) {
        return status;
    }
    *step = ASHLAR_STEP_MAPPED;
    status = ashlar_heap_grow(&a->heap, r->order, r->bytes, out);
    return status == ASHLAR_ENOMEM ? ASHLAR_OK : status;
}

/* Step 8. True: there was something to take back. */
static bool drain_caches(ashlar_allocator *a, const ashlar_request *r) {
    const size_t free_bytes = a->heap.free_bytes;
    ashlar_caches_claim_locked(a, r->own);
    for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        ashlar_cache_flush_locked(cache);
    }
    ashlar_caches_release_locked(a, r->own);
    return a->heap.free_bytes != free_bytes;
}

/* The stream whose free blocks will be the first to be past, of those that are not; or NULL. */
static ashlar_order *oldest_pending(const ashlar_allocator *a) {
    ashlar_order *oldest = NULL;
    for (ashlar_order *order = a->orders; order != NULL; order = order->next) {
        if (!ashlar_free_bins_is_empty(&order->free) &&
            !ashlar_order_is_past(order, order->last_tick) &&
            (oldest == NULL || order->recorded_at < oldest->recorded_at)) {
            oldest = order;
        }
    }
    return oldest;
}

/* Step 10, once: wait for one stream. *waited: there was one to wait for. */
static ashlar_status wait_for_oldest(ashlar_allocator *a, bool *waited) {
    ashlar_status status = ASHLAR_OK;
    for (ashlar_order *order = a->orders; order != NULL && status == ASHLAR_OK;
         order = order->next) {
        if (!ashlar_free_bins_is_empty(&order->free) &&
            !ashlar_order_is_past(order, order->last_tick)) {
            status =
                ashlar_order_cover(order, &a->caller, order->last_tick, &a->stats.events_recorded);
        }
    }
    ashlar_order *oldest = status == ASHLAR_OK ? oldest_pending(a) : NULL;
    *waited = oldest != NULL;
    if (oldest != NULL) {
        status = ashlar_order_synchronize(oldest, &a->caller, &a->lock);
        ashlar_heap_sweep(&a->heap);
    }
    return status;
}

/* Steps 8 to 11, where a search found nothing. */
static ashlar_status make_room(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out,
                               ashlar_step *step) {
    const ashlar_range *range = &a->heap.range;
    ashlar_step unused;
    *step = ASHLAR_STEP_DRAINED;
    ashlar_status status = drain_caches(a, r) ? search(a, r, out, &unused) : ASHLAR_OK;
    /* Waiting helps only where what is free and what may be mapped are enough together. */
    bool may_help = r->bytes <= a->heap.free_bytes + (range->device_bytes - range->mapped_bytes);
    while (status == ASHLAR_OK && *out == NULL && may_help) {
        *step = ASHLAR_STEP_AFTER_SYNC;
        status = wait_for_oldest(a, &may_help);
        if (status == ASHLAR_OK && may_help) {
            (void)drain_caches(a, r); /* other threads went on during the wait */
            status = search(a, r, out, &unused);
        }
    }
    return status;
}

ashlar_status ashlar_ladder_find_locked(ashlar_allocator *a, const ashlar_request *request,
                                        ashlar_block **out, ashlar_step *step) {
    if (request->own != NULL) {
        ashlar_cache_flush_pending_locked(request->own);
        if (request->bytes > ASHLAR_SC_MAX_BYTES) {
            ashlar_cache_flush_large_locked(request->own);
        }
    }
    ashlar_block *found = NULL;
    ashlar_status status = search(a, request, &found, step);
    if (status == ASHLAR_OK && found == NULL) {
        status = make_room(a, request, &found, step);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    *out = found;
    return found != NULL ? ASHLAR_OK : ASHLAR_ENOMEM;
}
