/*
 * allocate.c - allocating and freeing under the lock: whatever a thread's cache does not settle.
 */
#include "allocator_impl.h"

#include <stdio.h>

#include "check_level.h"
#include "error.h"
#include "shared.h"
#include "trace_ring.h"

/* ---- counting ---- */

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

/* Where the calling thread counts. */
static ashlar_counters *counters_of(ashlar_allocator *a, ashlar_cache *own) {
    return own != NULL ? &own->counters : &a->counters;
}

/* To be called with what counters_of() gave before the lock is dropped. */
static void publish_locked(ashlar_allocator *a, const ashlar_cache *own,
                           ashlar_counters *counters) {
    if (own == NULL) {
        ashlar_counters_publish(counters, &a->stats);
    } else {
        ashlar_counters_settle(counters, &a->stats, a->cache_bytes / 2);
    }
}

/* ---- tracing ---- */

static void note_block_locked(ashlar_allocator *a, ashlar_trace_action action,
                              const ashlar_block *block, const ashlar_order *order) {
    ashlar_trace_note(a->caller.trace, &(ashlar_trace_event){
                                           .action = (uint8_t)action,
                                           .address = a->fixed.base + block->offset,
                                           .bytes = block->bytes,
                                           .requested = block->requested,
                                           .stream = (uintptr_t)order->stream,
                                           .tag = block->tag,
                                       });
}

/* What the device has free: an upper bound, but it costs no call of the driver. */
static void note_refusal_locked(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                ashlar_stream stream) {
    const ashlar_range *range = &a->heap.range;
    ashlar_trace_note(a->caller.trace, &(ashlar_trace_event){
                                           .action = ASHLAR_TRACE_OOM,
                                           .bytes = range->device_bytes - range->mapped_bytes,
                                           .requested = bytes,
                                           .stream = (uintptr_t)ashlar_stream_named(stream),
                                           .tag = (uint8_t)tag,
                                       });
}

/* ---- allocating ---- */

static ashlar_block *pop_own_locked(ashlar_cache *own, ashlar_order *order, size_t bytes) {
    if (own == NULL) {
        return NULL;
    }
    ashlar_magazines *m = ashlar_cache_find_order(own, order);
    return m != NULL ? ashlar_cache_pop(own, m, bytes) : NULL;
}

static ashlar_status find_block_locked(ashlar_allocator *a, const ashlar_request *request,
                                       ashlar_block **out, ashlar_step *step) {
    *out = pop_own_locked(request->own, request->order, request->bytes);
    *step = ASHLAR_STEP_CACHED;
    if (*out != NULL) {
        return ASHLAR_OK;
    }
    ashlar_status status = ashlar_ladder_find_locked(a, request, out, step);
    /* Memory that the ladder mapped counts as reserved even if the rest fails. */
    ashlar_note_mapped_locked(a);
    if (status == ASHLAR_OK) {
        status = ashlar_heap_take(&a->heap, *out, request->bytes);
    }
    return status;
}

static ashlar_status alloc_locked(ashlar_allocator *a, size_t requested, ashlar_request *request,
                                  ashlar_tag tag, ashlar_stream stream, void **out) {
    ashlar_block *block = NULL;
    ashlar_step step = ASHLAR_STEP_CACHED;
    ashlar_order *order = NULL;
    ashlar_status status = ashlar_order_of_locked(a, stream, &order);
    if (status == ASHLAR_OK) {
        request->order = order->pool != NULL ? order->pool : order;
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
    count_step_locked(a, counters, step);
    ashlar_count_alloc(counters, requested, (unsigned)tag);
    publish_locked(a, request->own, counters);
    note_block_locked(a, ASHLAR_TRACE_ALLOC, block, block->order);
    ASHLAR_CHECK3(ashlar_heap_check(&a->heap) == ASHLAR_OK);
    *out = ashlar_ptr_out(a->fixed.base + block->offset);
    return ASHLAR_OK;
}

static ashlar_status serve_locked(ashlar_allocator *a, size_t bytes, ashlar_request *request,
                                  ashlar_tag tag, ashlar_stream stream, void **out) {
    ashlar_status status = ASHLAR_ENOMEM;
    const char *cause = "more than the device has";
    /* A request beyond the whole device needs no search, and its rounding might not fit. */
    if (bytes <= a->heap.range.device_bytes && ashlar_block_bytes(bytes, &request->bytes)) {
        status = alloc_locked(a, bytes, request, tag, stream, out);
        cause = ashlar_error_detail();
    }
    if (status == ASHLAR_ENOMEM) {
        note_refusal_locked(a, bytes, tag, stream);
        status = ashlar_no_memory_locked(a, bytes, tag, cause);
    }
    return status;
}

/* Whom to tell that memory was mapped, if it was and the seal says so; no lock is held then. */
typedef struct warning {
    ashlar_warn_fn warn;
    void *user;
} warning;

static warning warning_locked(const ashlar_allocator *a, size_t mapped_before) {
    const bool is_due = a->stats.is_sealed && a->seal == ASHLAR_SEAL_WARN &&
                        a->heap.range.mapped_bytes > mapped_before;
    return (warning){is_due ? a->warn : NULL, a->warn_user};
}

static void give_warning(const warning *w, size_t bytes, ashlar_tag tag) {
    char line[128];
    if (w->warn != NULL) {
        (void)snprintf(line, sizeof line,
                       "a request of %zu bytes (%s) made the sealed allocator take more memory",
                       bytes, ashlar_tag_name(tag));
        w->warn(w->user, line);
    }
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
    const size_t mapped_before = a->heap.range.mapped_bytes;
    const ashlar_status status = serve_locked(a, bytes, &request, tag, stream, out);
    const warning w = warning_locked(a, mapped_before);
    pthread_mutex_unlock(&a->lock);
    give_warning(&w, bytes, tag);
    return status;
}

/* ---- freeing ---- */

/* What is wrong with a pointer that is not the start of a live block. */
static ashlar_status bad_pointer_locked(ashlar_allocator *a, const void *ptr, size_t offset) {
    /* Other threads' hits write what is read here. */
    ashlar_caches_claim_locked(a, ashlar_cache_recent);
    const ashlar_block *block = ashlar_heap_find(&a->heap, offset);
    const size_t requested = block != NULL ? block->requested : 0;
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
    if (block == NULL || block->requested == 0) {
        return bad_pointer_locked(a, ptr, offset);
    }
    *out = block;
    return ASHLAR_OK;
}

void ashlar_release_block_locked(ashlar_allocator *a, ashlar_block *block, ashlar_order *order) {
    order->last_tick = ashlar_order_stamp(order);
    ashlar_heap_put(&a->heap, block, order, order->last_tick);
    ASHLAR_CHECK3(ashlar_heap_check(&a->heap) == ASHLAR_OK);
}

/*
 * A request finds magazines by its stream's handle. So there are none for the handle's other
 * meanings: a stream or capture of the past, another thread's default stream, a captured stream.
 */
static bool may_cache(const ashlar_order *order) {
    const bool is_others =
        order->thread != 0 && order->thread != (uint64_t)ashlar_trace_thread() + 1;
    return !order->is_gone && !order->is_ended && !is_others && order->pool == NULL;
}

/*
 * The thread's cache takes the block where it can; else the heap, with those that wait for it. As
 * a free without the lock does: an allocator that is watched hands out the same blocks.
 */
static void give_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block,
                        ashlar_order *order) {
    ashlar_magazines *m = NULL;
    if (block->is_shared) {
        ashlar_shared_put_locked(a, block, order);
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
    ashlar_release_block_locked(a, block, order);
}

static void free_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block,
                        ashlar_order *order) {
    ashlar_counters *counters = counters_of(a, own);
    counters->free_count++;
    ashlar_count_free(counters, block->requested, block->tag);
    publish_locked(a, own, counters);
    note_block_locked(a, ASHLAR_TRACE_FREE, block, order);
    block->requested = 0;
    give_locked(a, own, block, order);
}

ashlar_status ashlar_free_slow(ashlar_allocator *a, void *ptr) {
    if (ptr == NULL) {
        return ASHLAR_OK;
    }
    ashlar_block *block = NULL;
    ashlar_cache *own = ashlar_cache_get(a);
    pthread_mutex_lock(&a->lock);
    const ashlar_status status = ashlar_find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        free_locked(a, own, block, block->order);
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}

ashlar_status ashlar_free_on(ashlar_allocator *a, void *ptr, ashlar_stream stream) {
    if (ptr == NULL) {
        return ASHLAR_OK;
    }
    ashlar_block *block = NULL;
    ashlar_order *order = NULL;
    ashlar_cache *own = ashlar_cache_get(a);
    pthread_mutex_lock(&a->lock);
    ashlar_status status = ashlar_find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        status = ashlar_order_of_locked(a, stream, &order);
    }
    if (status == ASHLAR_OK) {
        /* A graph's block is its pool's, wherever else it was used. */
        free_locked(a, own, block, block->order->is_pool ? block->order : order);
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}

ashlar_status ashlar_usable_bytes(ashlar_allocator *a, const void *ptr, size_t *out) {
    ashlar_block *block = NULL;
    pthread_mutex_lock(&a->lock);
    const ashlar_status status = ashlar_find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        *out = block->bytes;
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}
