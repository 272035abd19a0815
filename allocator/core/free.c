/*
 * free.c - freeing under the lock: whatever a thread's cache does not take.
 */
#include "allocator/core/allocator_impl.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/plan/region.h"
#include "allocator/core/note.h"
#include "allocator/core/rehearsal.h"
#include "allocator/core/shared.h"
#include "allocator/trace/trace_ring.h"

/* The block that an offset is in; in a region a live seat's, where there is one. */
static const ashlar_block *find_around(const ashlar_heap *heap, size_t offset) {
    const ashlar_block *block = ashlar_heap_find(heap, offset);
    const ashlar_block *at = block;
    while (at != NULL && block->state == ASHLAR_BLOCK_REGION && at != block->next) {
        if (at != block && at->offset <= offset && offset < at->offset + at->bytes) {
            return at;
        }
        at = ashlar_block_after(at);
    }
    return block;
}

/* What is wrong with a pointer that is not the start of a live block. */
static ashlar_status bad_pointer_locked(ashlar_allocator *a, const void *ptr, size_t offset) {
    /* Other threads' hits write what is read here. */
    ashlar_caches_claim_locked(a, ashlar_cache_recent);
    const ashlar_block *block = find_around(&a->heap, offset);
    const size_t requested = block != NULL ? ashlar_block_live_bytes(block) : 0;
    ashlar_caches_release_locked(a, ashlar_cache_recent);
    if (block == NULL || block->state == ASHLAR_BLOCK_UNMAPPED) {
        return ashlar_fail(ASHLAR_EPOINTER, "%p: not a block of this allocator", ptr);
    }
    if (requested == 0) {
        return ashlar_fail(ASHLAR_EPOINTER, "%p: freed before, or never handed out", ptr);
    }
    return ashlar_fail(ASHLAR_EPOINTER, "%p: %zu bytes inside a block; use the block's own address",
                       ptr, offset - block->offset);
}

ashlar_status ashlar_find_live_locked(ashlar_allocator *a, const void *ptr, ashlar_block **out) {
    /* An address below the base wraps to a huge offset, and is refused with the others. */
    const size_t offset = (size_t)(ashlar_ptr_in(ptr) - a->fixed.base);
    ashlar_block *block = NULL;
    if (offset < a->fixed.range_bytes) {
        block = ashlar_page_map_get(&a->fixed.map, offset);
    }
    if (block == NULL || ashlar_block_live_bytes(block) == 0) {
        return bad_pointer_locked(a, ptr, offset);
    }
    *out = block;
    return ASHLAR_OK;
}

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

static void count_free_locked(ashlar_allocator *a, ashlar_cache *own, size_t requested,
                              unsigned tag) {
    ashlar_counters *counters = ashlar_counters_of(a, own);
    counters->free_count++;
    ashlar_count_free(counters, requested, tag);
    ashlar_publish_locked(a, own);
}

void ashlar_note_free_locked(ashlar_allocator *a, ashlar_cache *own, const ashlar_block *block) {
    count_free_locked(a, own, block->requested, block->tag);
    ashlar_note_block_locked(a, ASHLAR_TRACE_FREE, block, block->order);
}

static void free_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block,
                        ashlar_order *order) {
    count_free_locked(a, own, block->requested, block->tag);
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
    count_free_locked(a, NULL, requested, block->tag);
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
        count_free_locked(a, NULL, requested, tag);
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
    ashlar_status status = ashlar_rehearsal_has(own, ptr)
                               ? ashlar_rehearsal_free_locked(a, own, ptr, stream)
                           : a->guards.unmap != NULL ? free_pages_locked(a, ptr, stream)
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
        *out = pages != NULL ? pages->requested : a->guards.fill != NULL ? block->requested : block->bytes;
    }
    return status;
}

ashlar_status ashlar_find_around(ashlar_allocator *a, const void *ptr, void **base,
                                 size_t *bytes) {
    const size_t offset = (size_t)(ashlar_ptr_in(ptr) - a->fixed.base);
    ashlar_status status = ASHLAR_OK;
    pthread_mutex_lock(&a->lock);
    ashlar_caches_claim_locked(a, ashlar_cache_recent);
    const bool is_ours = offset < a->fixed.range_bytes;
    const ashlar_block *block = is_ours ? find_around(&a->heap, offset) : NULL;
    const size_t requested = block != NULL ? ashlar_block_live_bytes(block) : 0;
    if (requested != 0 && offset - block->offset < requested) {
        *base = ashlar_ptr_out(a->fixed.base + block->offset);
        *bytes = requested;
    } else {
        status = ashlar_fail(ASHLAR_EPOINTER, "%p: in no live block of this allocator", ptr);
    }
    ashlar_caches_release_locked(a, ashlar_cache_recent);
    pthread_mutex_unlock(&a->lock);
    return status;
}

bool ashlar_has_reserved(ashlar_allocator *a, const void *ptr) {
    const size_t offset = (size_t)(ashlar_ptr_in(ptr) - a->fixed.base);
    const ashlar_range *range = &a->heap.range;
    bool is_there = false;
    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < range->chunk_count && !is_there; i++) {
        is_there = offset - range->chunks[i].offset < range->chunks[i].bytes;
    }
    pthread_mutex_unlock(&a->lock);
    return is_there;
}

ashlar_status ashlar_usable_bytes(ashlar_allocator *a, const void *ptr, size_t *out) {
    pthread_mutex_lock(&a->lock);
    const ashlar_status status = usable_bytes_locked(a, ptr, out);
    pthread_mutex_unlock(&a->lock);
    return status;
}
