/*
 * allocate.c - allocating and freeing under the lock: whatever a thread's cache does not settle.
 */
#include "allocator_impl.h"

#include "check_level.h"
#include "error.h"
#include "guard.h"

/* ---- counting ---- */

static void raise_to(uint64_t *peak, uint64_t value) {
    *peak = value > *peak ? value : *peak;
}

static void count_step_locked(ashlar_allocator *a, ashlar_counters *counters, ashlar_step step) {
    ashlar_stats *stats = &a->stats;
    uint64_t *const served[] = {
        [ASHLAR_STEP_SAME_STREAM] = &stats->served_same_stream,
        [ASHLAR_STEP_IDLE] = &stats->served_idle,
        [ASHLAR_STEP_COMPLETED] = &stats->served_completed,
        [ASHLAR_STEP_WAITED] = &stats->served_waited,
        [ASHLAR_STEP_MAPPED] = &stats->served_mapped,
        [ASHLAR_STEP_DRAINED] = &stats->served_drained,
        [ASHLAR_STEP_RECLAIMED] = &stats->served_reclaimed,
        [ASHLAR_STEP_AFTER_SYNC] = &stats->served_after_sync,
        [ASHLAR_STEP_GATHERED] = &stats->served_gathered,
    };
    if (step == ASHLAR_STEP_CACHED) {
        counters->hit_count++;
    } else {
        ++*served[step];
        stats->alloc_count++;
    }
}

/* Where the calling thread counts; published before the lock is dropped. */
static ashlar_counters *counters_of(ashlar_allocator *a, ashlar_cache *own) {
    return own != NULL ? &own->counters : &a->counters;
}

/* ---- allocating ---- */

static ashlar_block *pop_own_locked(ashlar_cache *own, ashlar_order *order, size_t bytes) {
    if (own == NULL) {
        return NULL;
    }
    ashlar_magazines *m = ashlar_cache_find_order(own, order);
    return m != NULL ? ashlar_cache_pop(own, m, bytes) : NULL;
}

/* The ladder; where it finds no memory, again after the guard's quarantine was given up. */
static ashlar_status climb_locked(ashlar_allocator *a, const ashlar_request *request,
                                  ashlar_block **out, ashlar_step *step) {
    ashlar_status status = ashlar_ladder_find_locked(a, request, out, step);
    if (status != ASHLAR_ENOMEM || a->fill == NULL || a->fill->count == 0) {
        return status;
    }
    ashlar_step unused;
    status = ashlar_guard_fill_release_locked(a->fill);
    *step = ASHLAR_STEP_DRAINED;
    return status == ASHLAR_OK ? ashlar_ladder_find_locked(a, request, out, &unused) : status;
}

static ashlar_status find_block_locked(ashlar_allocator *a, const ashlar_request *request,
                                       ashlar_block **out, ashlar_step *step) {
    *out = pop_own_locked(request->own, request->order, request->bytes);
    *step = ASHLAR_STEP_CACHED;
    if (*out != NULL) {
        return ASHLAR_OK;
    }
    ashlar_status status = climb_locked(a, request, out, step);
    /* Memory that the ladder mapped counts as reserved even if the rest fails. */
    raise_to(&a->stats.reserved_peak_bytes, a->heap.range.mapped_bytes);
    if (status == ASHLAR_OK) {
        status = ashlar_heap_take(&a->heap, *out, request->bytes);
    }
    return status;
}

static ashlar_status alloc_locked(ashlar_allocator *a, size_t requested, ashlar_request *request,
                                  ashlar_tag tag, ashlar_stream stream, void **out) {
    ashlar_block *block = NULL;
    ashlar_step step = ASHLAR_STEP_CACHED;
    ashlar_status status = ashlar_order_of_locked(a, stream, &request->order);
    if (status == ASHLAR_OK) {
        status = find_block_locked(a, request, &block, &step);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_counters *counters = counters_of(a, request->own);
    block->order = request->order;
    block->requested = requested;
    block->tag = (unsigned char)tag;
    block->list = (uint16_t)ashlar_cache_list(block->bytes);
    if (a->fill != NULL) {
        status = ashlar_guard_fill_take_locked(a->fill, block);
        if (status != ASHLAR_OK) {
            ashlar_release_block_locked(a, block, block->order);
            return status;
        }
    }
    count_step_locked(a, counters, step);
    ashlar_count_alloc(counters, requested, (unsigned)tag);
    ashlar_counters_publish(counters, &a->stats);
    ASHLAR_CHECK3(ashlar_heap_check(&a->heap) == ASHLAR_OK);
    *out = ashlar_ptr_out(a->fixed.base + block->offset);
    return ASHLAR_OK;
}

/* guard=unmap */
static ashlar_status alloc_pages_locked(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                        ashlar_stream stream, void **out) {
    ashlar_order *order = NULL;
    ashlar_pages *block = NULL;
    ashlar_status status = ashlar_order_of_locked(a, stream, &order);
    if (status == ASHLAR_OK) {
        status = ashlar_guard_unmap_take_locked(a->unmap, bytes, tag, order, &block);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    raise_to(&a->stats.reserved_peak_bytes, a->unmap->mapped_bytes);
    count_step_locked(a, &a->counters, ASHLAR_STEP_MAPPED);
    ashlar_count_alloc(&a->counters, bytes, (unsigned)tag);
    ashlar_counters_publish(&a->counters, &a->stats);
    *out = ashlar_ptr_out(block->ptr);
    return ASHLAR_OK;
}

static bool block_bytes_of(const ashlar_allocator *a, size_t bytes, size_t *out) {
    return a->fill != NULL ? ashlar_guard_fill_block_bytes(bytes, out) : ashlar_block_bytes(bytes, out);
}

ashlar_status ashlar_alloc_slow(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                ashlar_stream stream, void **out) {
    ashlar_request request = {0};
    if (bytes == 0) {
        return ashlar_fail(ASHLAR_EINVAL, "bytes: a block of 0 bytes; ask for at least 1");
    }
    if ((unsigned)tag >= (unsigned)ASHLAR_TAG_COUNT) {
        return ashlar_fail(ASHLAR_EINVAL, "tag: %d is no ashlar_tag", (int)tag);
    }
    request.own = ashlar_cache_get(a);
    pthread_mutex_lock(&a->lock);
    ashlar_status status;
    /* A request beyond the whole device needs no search, and its rounding might not fit. */
    if (bytes <= a->heap.range.device_bytes && block_bytes_of(a, bytes, &request.bytes)) {
        status = a->unmap != NULL ? alloc_pages_locked(a, bytes, tag, stream, out)
                                  : alloc_locked(a, bytes, &request, tag, stream, out);
        if (status == ASHLAR_ENOMEM) {
            status = ashlar_no_memory_locked(a, bytes, tag, ashlar_error_detail());
        }
    } else {
        status = ashlar_no_memory_locked(a, bytes, tag, "more than the device has");
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}

/* ---- freeing ---- */

/* What is wrong with a pointer that is not the start of a live block. */
static ashlar_status bad_pointer_locked(const ashlar_allocator *a, const void *ptr, size_t offset) {
    const ashlar_block *block = ashlar_heap_find(&a->heap, offset);
    if (block == NULL || block->state == ASHLAR_BLOCK_UNMAPPED) {
        return ashlar_fail(ASHLAR_EPOINTER, "%p: not a block of this allocator", ptr);
    }
    if (block->requested == 0) {
        return ashlar_fail(ASHLAR_EPOINTER, "%p: freed before, or never handed out", ptr);
    }
    return ashlar_fail(ASHLAR_EPOINTER, "%p: %zu bytes inside a block; use the block's own address",
                       ptr, offset - block->offset);
}

static ashlar_status find_live_locked(const ashlar_allocator *a, const void *ptr,
                                      ashlar_block **out) {
    /* An address below the base wraps to a huge offset, and is refused with the others. */
    const size_t offset = (size_t)(ashlar_ptr_in(ptr) - a->fixed.base);
    ashlar_block *block = NULL;
    if (offset < a->fixed.range_bytes) {
        block = ashlar_page_map_get(&a->fixed.map, offset);
    }
    if (block == NULL || block->requested == 0) {
        return bad_pointer_locked(a, ptr, offset);
    }
    *out = block;
    return ASHLAR_OK;
}

void ashlar_release_block_locked(ashlar_allocator *a, ashlar_block *block, ashlar_order *order) {
    order->last_tick = order->recorded;
    ashlar_heap_put(&a->heap, block, order, order->last_tick);
    ASHLAR_CHECK3(ashlar_heap_check(&a->heap) == ASHLAR_OK);
}

/* The thread's cache takes the block where it can; else the heap, with those that wait for it. */
static void give_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block,
                        ashlar_order *order) {
    ashlar_magazines *m = NULL;
    if (own != NULL) {
        m = ashlar_cache_find_order(own, order);
        m = m != NULL ? m : ashlar_cache_add_locked(own, order);
    }
    block->order = order;
    if (m != NULL && ashlar_cache_push(own, m, block)) {
        return;
    }
    if (own != NULL) {
        ashlar_cache_flush_pending_locked(own);
    }
    ashlar_release_block_locked(a, block, order);
}

static void count_free_locked(ashlar_allocator *a, ashlar_counters *counters, size_t requested,
                              unsigned tag) {
    counters->free_count++;
    ashlar_count_free(counters, requested, tag);
    ashlar_counters_publish(counters, &a->stats);
}

static void free_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block,
                        ashlar_order *order) {
    count_free_locked(a, counters_of(a, own), block->requested, block->tag);
    block->requested = 0;
    give_locked(a, own, block, order);
}

/* guard=fill */
static ashlar_status free_filled_locked(ashlar_allocator *a, ashlar_block *block,
                                        ashlar_order *order, ashlar_place place) {
    const size_t requested = block->requested;
    const ashlar_status status = ashlar_guard_fill_free_locked(a->fill, block, order);
    if (status != ASHLAR_OK) {
        return status;
    }
    count_free_locked(a, &a->counters, requested, block->tag);
    block->requested = 0;
    ashlar_guard_fill_put_locked(a->fill, block, requested, order, place);
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
    ashlar_status status = ashlar_guard_unmap_find_locked(a->unmap, ptr, &block);
    if (status == ASHLAR_OK) {
        status = last_order_locked(a, stream, block->order, &order);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    const size_t requested = block->requested;
    const unsigned tag = block->tag;
    status = ashlar_guard_unmap_free_locked(a->unmap, block, order);
    if (status == ASHLAR_OK) { /* and the block may be gone */
        count_free_locked(a, &a->counters, requested, tag);
    }
    return status;
}

static ashlar_status free_block_locked(ashlar_allocator *a, ashlar_cache *own, const void *ptr,
                                       const ashlar_stream *stream, ashlar_place place) {
    ashlar_block *block = NULL;
    ashlar_order *order = NULL;
    ashlar_status status = find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        status = last_order_locked(a, stream, block->order, &order);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    if (a->fill != NULL) {
        return free_filled_locked(a, block, order, place);
    }
    free_locked(a, own, block, order);
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
    ashlar_status status = a->unmap != NULL ? free_pages_locked(a, ptr, stream)
                                            : free_block_locked(a, own, ptr, stream, place);
    status = ashlar_guard_note_free_locked(a, ptr, place, status);
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
static ashlar_status usable_bytes_locked(const ashlar_allocator *a, const void *ptr, size_t *out) {
    ashlar_block *block = NULL;
    ashlar_pages *pages = NULL;
    const ashlar_status status = a->unmap != NULL ? ashlar_guard_unmap_find_locked(a->unmap, ptr, &pages)
                                                  : find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        *out = pages != NULL     ? pages->requested
               : a->fill != NULL ? block->requested
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
