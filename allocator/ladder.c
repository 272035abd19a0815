/*
 * The order in which a request is served. Each step that declines leaves *out NULL. Steps 3 and 4
 * may look at every stream: a block of the request's own would have served in step 1.
 */
#include "allocator_impl.h"

#include "error.h"

/* Step 3: another stream's block, if asking its event shows that its last use is over. */
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

/* Step 4: the best fit among other streams' blocks, its last use put before `order`'s work. */
static ashlar_status try_waited(ashlar_allocator *a, const ashlar_order *order, size_t bytes,
                                ashlar_block **out) {
    ashlar_order *owner = NULL;
    ashlar_block *best = NULL;
    for (ashlar_order *other = a->orders; other != NULL; other = other->next) {
        ashlar_block *block = ashlar_free_bins_best_fit(&other->free, bytes);
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
        status = ashlar_order_wait_on(owner, &a->caller, order->stream);
    }
    if (status == ASHLAR_OK) {
        *out = best;
    }
    return status;
}

static ashlar_block *best_without_wait(const ashlar_allocator *a, const ashlar_order *order,
                                       size_t bytes, ashlar_step *step) {
    ashlar_block *block = ashlar_free_bins_best_fit(&order->free, bytes); /* step 1 */
    *step = ASHLAR_STEP_SAME_STREAM;
    if (block == NULL) {
        block = ashlar_free_bins_best_fit(&a->heap.idle, bytes); /* step 2 */
        *step = ASHLAR_STEP_IDLE;
    }
    return block;
}

/*
 * Step 5: the same search again, once the free blocks of other streams whose work is over have
 * been merged. No block alone was large enough, but several side by side may be.
 */
static ashlar_status try_merged(ashlar_allocator *a, const ashlar_order *order, size_t bytes,
                                ashlar_block **out, ashlar_step *step) {
    bool may_merge = false;
    if (a->heap.free_bytes < bytes) {
        return ASHLAR_OK;
    }
    for (ashlar_order *other = a->orders; other != NULL; other = other->next) {
        /* This stream's own blocks are merged already, and merge with others while in use. */
        if (other == order || ashlar_free_bins_is_empty(&other->free)) {
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
        *out = best_without_wait(a, order, bytes, step);
    }
    return ASHLAR_OK;
}

/*
 * Wait on the host until no free block is in use any more. The lock is dropped while waiting;
 * streams are added in front of the list and never removed, so the loop stays on it.
 */
static ashlar_status synchronize_free_blocks(ashlar_allocator *a) {
    for (ashlar_order *order = a->orders; order != NULL; order = order->next) {
        if (ashlar_free_bins_is_empty(&order->free) ||
            ashlar_order_is_past(order, order->last_tick)) {
            continue;
        }
        ashlar_status status =
            ashlar_order_cover(order, &a->caller, order->last_tick, &a->stats.events_recorded);
        if (status == ASHLAR_OK) {
            status = ashlar_order_synchronize(order, &a->caller, &a->lock);
        }
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    ashlar_heap_sweep(&a->heap);
    return ASHLAR_OK;
}

/* Step 7: with the device full, wait until everything free may be merged, and search again. */
static ashlar_status find_after_sync(ashlar_allocator *a, ashlar_order *order, size_t bytes,
                                     ashlar_block **out) {
    const ashlar_range *range = &a->heap.range;
    if (bytes > a->heap.free_bytes + (range->device_bytes - range->mapped_bytes)) {
        return ashlar_fail(ASHLAR_ENOMEM, "no waiting would help");
    }
    const ashlar_status status = synchronize_free_blocks(a);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_step unused;
    *out = best_without_wait(a, order, bytes, &unused);
    return *out != NULL ? ASHLAR_OK : ashlar_heap_grow(&a->heap, order, bytes, out);
}

/* Steps 3 to 5: memory there is, last used by other streams. */
static ashlar_status try_others(ashlar_allocator *a, const ashlar_order *order, size_t bytes,
                                ashlar_block **out, ashlar_step *step) {
    *step = ASHLAR_STEP_COMPLETED;
    ashlar_status status = try_completed(a, bytes, out);
    if (status == ASHLAR_OK && *out == NULL) {
        *step = ASHLAR_STEP_WAITED;
        status = try_waited(a, order, bytes, out);
    }
    if (status == ASHLAR_OK && *out == NULL) {
        status = try_merged(a, order, bytes, out, step);
    }
    return status;
}

ashlar_status ashlar_ladder_find_locked(ashlar_allocator *a, ashlar_order *order, size_t bytes,
                                        ashlar_block **out, ashlar_step *step) {
    ashlar_block *found = best_without_wait(a, order, bytes, step); /* steps 1 and 2 */
    ashlar_status status = ASHLAR_OK;
    if (found == NULL) {
        status = try_others(a, order, bytes, &found, step);
    }
    if (status == ASHLAR_OK && found == NULL) {
        *step = ASHLAR_STEP_MAPPED; /* step 6 */
        status = ashlar_heap_grow(&a->heap, order, bytes, &found);
        if (status == ASHLAR_ENOMEM) {
            *step = ASHLAR_STEP_AFTER_SYNC;
            status = find_after_sync(a, order, bytes, &found);
        }
    }
    if (status == ASHLAR_OK) {
        *out = found;
    }
    return status;
}
