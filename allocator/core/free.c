/*
 * free.c - freeing under the lock: whatever a thread's cache does not take.
 */
#include "allocator/core/allocator_impl.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/core/findings.h"
#include "allocator/core/lookup.h"
#include "allocator/core/note.h"
#include "allocator/core/rehearsal.h"
#include "allocator/core/shared.h"
#include "allocator/core/slow_path.h"
#include "allocator/core/streams.h"
#include "allocator/plan/region.h"
#include "allocator/trace/trace_ring.h"

/*
 * A request finds magazines by its stream's handle. So there are none for the handle's other
 * meanings: a stream or capture of the past, another thread's default stream, a captured stream.
 */
static bool may_cache(const ashlar_order *order) {
    return !order->is_gone && !order->is_ended && !ashlar_order_is_others(order) &&
           order->pool == NULL;
}

/*
 * The thread's cache takes the block where it can; else the heap, with those that wait for it. As
 * a free without the lock does: an allocator that is watched hands out the same blocks.
 */
static void give_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block,
                        ashlar_order *order) {
    ashlar_magazines *m = NULL;
    if (ashlar_block_is_shared(block)) {
        if (ashlar_block_is_seat(block)) {
            atomic_store_explicit(&block->taken, ASHLAR_SEAT_AWAITED, memory_order_relaxed);
        }
        ashlar_shared_put_locked(a, block, order);
        return;
    }
    if (ashlar_block_is_seat(block)) {
        ashlar_seat_vacate(block);
        return;
    }
    if (own != NULL && may_cache(order)) {
        m = ashlar_cache_find_order(own, order);
        m = m != NULL ? m : ashlar_cache_add_locked(own, order);
    }
    block->order = order;
    if (m != NULL && (ashlar_cache_push(own, m, block) || ashlar_cache_defer(own, block))) {
        return;
    }
    if (own != NULL) {
        ashlar_cache_flush_pending_locked(own);
    }
    ashlar_release_block_locked(&a->heap, block, order);
}

static void free_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block,
                        ashlar_order *order) {
    ashlar_count_free_locked(a, own, block->requested, block->tag);
    ashlar_note_block_locked(a, ASHLAR_TRACE_FREE, block, order);
    ashlar_step_note_free_locked(a, block, order == block->order);
    if (!ashlar_block_is_seat(block)) {
        block->requested = 0;
    }
    give_locked(a, own, block, order);
    ASHLAR_CHECK3(ashlar_is_sound_locked(a, own));
}

/* guard=fill */
static ashlar_status free_filled_locked(ashlar_allocator *a, ashlar_block *block,
                                        ashlar_order *order, ashlar_place place) {
    const size_t requested = block->requested;
    ashlar_status status = ashlar_shared_join_locked(a, block, order);
    if (status == ASHLAR_OK) {
        status = ashlar_guard_fill_free_locked(a->guards.fill, block, order);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_count_free_locked(a, NULL, requested, block->tag);
    ashlar_note_block_locked(a, ASHLAR_TRACE_FREE, block, order);
    block->requested = 0;
    ashlar_guard_fill_put_locked(a->guards.fill, block, requested, order, place);
    return ASHLAR_OK;
}

/* Whose use was the last: *stream's, or where NULL stands, that of the stream it was taken for. */
static ashlar_status last_order_locked(ashlar_allocator *a, const ashlar_stream *stream,
                                       ashlar_order *taken_for, ashlar_order **out) {
    *out = taken_for;
    return stream != NULL ? ashlar_order_of_locked(a, *stream, out) : ASHLAR_OK;
}

/* guard=unmap */
static ashlar_status free_pages_locked(ashlar_allocator *a, const void *ptr,
                                       const ashlar_stream *stream) {
    ashlar_pages *block = NULL;
    ashlar_order *order = NULL;
    ashlar_status status = ashlar_guard_unmap_find_locked(a->guards.unmap, ptr, &block);
    if (status == ASHLAR_OK) {
        status = last_order_locked(a, stream, block->order, &order);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    const size_t requested = block->requested;
    const unsigned tag = block->tag;
    status = ashlar_guard_unmap_free_locked(a->guards.unmap, block, order);
    if (status == ASHLAR_OK) { /* and the block may be gone */
        ashlar_count_free_locked(a, NULL, requested, tag);
    }
    return status;
}

static ashlar_status free_block_locked(ashlar_allocator *a, ashlar_cache *own, const void *ptr,
                                       const ashlar_stream *stream, ashlar_place place) {
    ashlar_block *block = NULL;
    ashlar_order *order = NULL;
    ashlar_status status = ashlar_find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        status = last_order_locked(a, stream, block->order, &order);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    if (a->guards.fill != NULL) {
        return free_filled_locked(a, block, order, place);
    }
    if (ashlar_block_is_seat(block) && order != block->order) {
        /* Its stream has it back when this one is done with it. */
        status = ashlar_shared_add_use_locked(block, order);
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    /* A graph's block is its pool's, wherever else it was used. */
    free_locked(a, own, block, block->order->is_pool ? block->order : order);
    return ASHLAR_OK;
}

static ashlar_status free_from(ashlar_allocator *a, const void *ptr, const ashlar_stream *stream,
                               const void *caller) {
    if (ptr == NULL) {
        return ASHLAR_OK;
    }
    const ashlar_place place = {caller, ashlar_thread_number()};
    ashlar_cache *own = ashlar_cache_get(a);
    pthread_mutex_lock(&a->lock);
    ashlar_status status =
        ashlar_rehearsal_has(own, ptr) ? ashlar_rehearsal_free_locked(a, own, ptr, stream)
        : a->guards.unmap != NULL      ? free_pages_locked(a, ptr, stream)
                                       : free_block_locked(a, own, ptr, stream, place);
    status = ashlar_guard_note_free_locked(a->guards.frees, ptr, place, status);
    pthread_mutex_unlock(&a->lock);
    return status == ASHLAR_OK ? ashlar_guard_take_finding(a) : status;
}

ashlar_status ashlar_free_from(ashlar_allocator *a, void *ptr, const void *caller) {
    return free_from(a, ptr, NULL, caller);
}

ashlar_status ashlar_free_slow(ashlar_allocator *a, void *ptr) {
    return free_from(a, ptr, NULL, NULL);
}

ashlar_status ashlar_free_on(ashlar_allocator *a, void *ptr, ashlar_stream stream) {
    return free_from(a, ptr, &stream, ASHLAR_RETURN_ADDRESS());
}

/* In a guard mode what was asked for: behind it, an access is a mistake. */
static ashlar_status usable_bytes_locked(ashlar_allocator *a, const void *ptr, size_t *out) {
    ashlar_block *block = NULL;
    ashlar_pages *pages = NULL;
    const ashlar_status status = a->guards.unmap != NULL
                                     ? ashlar_guard_unmap_find_locked(a->guards.unmap, ptr, &pages)
                                     : ashlar_find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        *out = pages != NULL            ? pages->requested
               : a->guards.fill != NULL ? block->requested
                                        : block->bytes;
    }
    return status;
}

ashlar_status ashlar_usable_bytes(ashlar_allocator *a, const void *ptr, size_t *out) {
    pthread_mutex_lock(&a->lock);
    const ashlar_status status = usable_bytes_locked(a, ptr, out);
    pthread_mutex_unlock(&a->lock);
    return status;
}
