/* The order in which a request is served. Each step that declines leaves *out NULL. */
#include "allocator_impl.h"

#include "error.h"

/* Step 3: another stream's block, if asking its event shows that its last use is over. */
static ashlar_status try_completed(ashlar_allocator *a, const ashlar_order *order, size_t bytes,
                                   ashlar_block **out) {
    for (ashlar_order *other = a->orders; other != NULL; other = other->next) {
        ashlar_block *block = ashlar_free_tree_best_fit(&other->free, bytes);
        if (other == order || block == NULL) {
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
        ashlar_block *block = ashlar_free_tree_best_fit(&other->free, bytes);
        if (other != order && block != NULL && (best == NULL || block->bytes < best->bytes)) {
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

/* Wait on the host until no free block is in use any more. */
static ashlar_status synchronize_free_blocks(ashlar_allocator *a) {
    for (ashlar_order *order = a->orders; order != NULL; order = order->next) {
        if (order->free.root == NULL) {
            continue;
        }
        /* No free block of this stream has a later tick than its newest recording. */
        ashlar_status status =
            ashlar_order_cover(order, &a->caller, order->recorded, &a->stats.events_recorded);
        if (status == ASHLAR_OK) {
            status = ashlar_order_synchronize(order, &a->caller);
        }
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    ashlar_heap_sweep(&a->heap);
    return ASHLAR_OK;
}

static ashlar_block *best_without_wait(const ashlar_allocator *a, const ashlar_order *order,
                                       size_t bytes, ashlar_step *step) {
    ashlar_block *block = ashlar_free_tree_best_fit(&order->free, bytes); /* step 1 */
    *step = ASHLAR_STEP_SAME_STREAM;
    if (block == NULL) {
        block = ashlar_free_tree_best_fit(&a->heap.idle, bytes); /* step 2 */
        *step = ASHLAR_STEP_IDLE;
    }
    return block;
}

/* Step 6: with the device full, wait until everything free may be merged, and search again. */
static ashlar_status find_after_sync(ashlar_allocator *a, ashlar_order *order, size_t bytes,
                                     ashlar_block **out) {
    ashlar_status status = synchronize_free_blocks(a);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_step ignored;
    *out = best_without_wait(a, order, bytes, &ignored);
    return *out != NULL ? ASHLAR_OK : ashlar_heap_grow(&a->heap, order, bytes, out);
}

ashlar_status ashlar_ladder_find_locked(ashlar_allocator *a, ashlar_order *order, size_t bytes,
                                        ashlar_block **out, ashlar_step *step) {
    ashlar_block *found = best_without_wait(a, order, bytes, step); /* steps 1 and 2 */
    ashlar_status status = ASHLAR_OK;
    if (found == NULL) {
        *step = ASHLAR_STEP_COMPLETED;
        status = try_completed(a, order, bytes, &found);
    }
    if (status == ASHLAR_OK && found == NULL) {
        *step = ASHLAR_STEP_WAITED;
        status = try_waited(a, order, bytes, &found);
    }
    if (status == ASHLAR_OK && found == NULL) {
        *step = ASHLAR_STEP_MAPPED;
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
