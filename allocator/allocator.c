#include "allocator_impl.h"

#include "check_level.h"
#include "error.h"
#include "host.h"
#include "size_class.h"

const char *ashlar_tag_name(ashlar_tag tag) {
    static const char *const names[ASHLAR_TAG_COUNT] = {
#define X(name, text) [ASHLAR_TAG_##name] = text,
        ASHLAR_TAG_MAP(X)
#undef X
    };
    return (unsigned)tag < (unsigned)ASHLAR_TAG_COUNT ? names[tag] : "unknown";
}

ashlar_status ashlar_allocator_create(ashlar_device *device, ashlar_allocator **out) {
    ashlar_allocator *a = ashlar_host_calloc(1, sizeof *a);
    if (a == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for an allocator");
    }
    a->device = device;
    a->caller = (ashlar_caller){.device = device};
    const ashlar_status status = ashlar_heap_init(&a->heap, &a->caller, &(ashlar_heap_options){0});
    if (status != ASHLAR_OK) {
        ashlar_host_free(a);
        return status;
    }
    pthread_mutex_init(&a->lock, NULL); /* cannot fail with default attributes on Linux */
    *out = a;
    return ASHLAR_OK;
}

void ashlar_allocator_destroy(ashlar_allocator *a) {
    if (a == NULL) {
        return;
    }
    if (ashlar_device_enter(a->device) == ASHLAR_OK) {
        (void)ASHLAR_CALL(&a->caller, ctx_synchronize, ());
        ashlar_device_leave(a->device);
    }
    while (a->orders != NULL) {
        ashlar_order *order = a->orders;
        a->orders = order->next;
        ashlar_order_finish(order, &a->caller);
        ashlar_host_free(order);
    }
    ashlar_heap_finish(&a->heap);
    pthread_mutex_destroy(&a->lock);
    ashlar_host_free(a);
}

ashlar_device *ashlar_allocator_device(const ashlar_allocator *a) {
    return a->device;
}

/* The record of a stream, made at its first use. */
static ashlar_status order_of_locked(ashlar_allocator *a, ashlar_stream stream,
                                     ashlar_order **out) {
    /* CU_STREAM_LEGACY is another name of the default stream. */
    const ashlar_stream named = (uintptr_t)stream == CU_STREAM_LEGACY ? NULL : stream;
    if ((uintptr_t)stream == CU_STREAM_PER_THREAD) {
        return ashlar_fail(ASHLAR_ENOTSUP,
                           "stream: the per-thread default stream is another one in "
                           "each thread; make a stream with ashlar_stream_create()");
    }
    ashlar_order *order = a->recent;
    if (order == NULL || order->stream != named) {
        for (order = a->orders; order != NULL && order->stream != named; order = order->next) {
        }
    }
    if (order == NULL) {
        order = ashlar_host_calloc(1, sizeof *order);
        if (order == NULL) {
            return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for the record of a stream");
        }
        order->stream = named;
        order->next = a->orders;
        a->orders = order;
    }
    a->recent = order;
    *out = order;
    return ASHLAR_OK;
}

static void raise_to(uint64_t *peak, uint64_t value) {
    *peak = value > *peak ? value : *peak;
}

static void copy_tags_at_peak(ashlar_stats *stats) {
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        stats->tags[tag].at_peak_bytes = stats->tags[tag].live_bytes;
    }
}

static void count_alloc_locked(ashlar_allocator *a, const ashlar_block *block, ashlar_step step) {
    ashlar_stats *stats = &a->stats;
    uint64_t *const served[] = {
        [ASHLAR_STEP_SAME_STREAM] = &stats->served_same_stream,
        [ASHLAR_STEP_IDLE] = &stats->served_idle,
        [ASHLAR_STEP_COMPLETED] = &stats->served_completed,
        [ASHLAR_STEP_WAITED] = &stats->served_waited,
        [ASHLAR_STEP_MAPPED] = &stats->served_mapped,
        [ASHLAR_STEP_AFTER_SYNC] = &stats->served_after_sync,
    };
    ashlar_tag_stats *tag = &stats->tags[block->tag];
    ++*served[step];
    stats->alloc_count++;
    stats->live_blocks++;
    stats->live_bytes += block->requested;
    stats->block_bytes += block->bytes;
    tag->live_bytes += block->requested;
    raise_to(&tag->peak_bytes, tag->live_bytes);
    if (stats->live_bytes > stats->live_peak_bytes) {
        stats->live_peak_bytes = stats->live_bytes;
        a->is_at_peak = true;
    }
}

static void count_free_locked(ashlar_allocator *a, const ashlar_block *block) {
    ashlar_stats *stats = &a->stats;
    if (a->is_at_peak) {
        copy_tags_at_peak(stats);
        a->is_at_peak = false;
    }
    stats->free_count++;
    stats->live_blocks--;
    stats->live_bytes -= block->requested;
    stats->block_bytes -= block->bytes;
    stats->tags[block->tag].live_bytes -= block->requested;
}

static ashlar_status alloc_locked(ashlar_allocator *a, size_t requested, size_t bytes,
                                  ashlar_tag tag, ashlar_stream stream, void **out) {
    ashlar_order *order = NULL;
    ashlar_block *block = NULL;
    ashlar_step step = ASHLAR_STEP_SAME_STREAM;
    ashlar_status status = order_of_locked(a, stream, &order);
    if (status == ASHLAR_OK) {
        status = ashlar_ladder_find_locked(a, order, bytes, &block, &step);
    }
    /* Memory that the ladder mapped counts as reserved even if the rest fails. */
    raise_to(&a->stats.reserved_peak_bytes, a->heap.range.mapped_bytes);
    if (status == ASHLAR_OK) {
        status = ashlar_heap_take(&a->heap, block, bytes);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    block->order = order;
    block->requested = requested;
    block->tag = (unsigned char)tag;
    count_alloc_locked(a, block, step);
    ASHLAR_CHECK3(ashlar_heap_check(&a->heap) == ASHLAR_OK);
    *out = ashlar_ptr_out(a->heap.range.base + block->offset);
    return ASHLAR_OK;
}

static size_t largest_hole_locked(const ashlar_allocator *a) {
    size_t largest = ashlar_free_bins_largest(&a->heap.idle);
    for (const ashlar_order *order = a->orders; order != NULL; order = order->next) {
        const size_t bytes_here = ashlar_free_bins_largest(&order->free);
        largest = bytes_here > largest ? bytes_here : largest;
    }
    return largest;
}

/* The report of a request that the device cannot serve. `cause`: the last step's own words. */
static ashlar_status no_memory_locked(const ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                      const char *cause) {
    const ashlar_device_info *info = &a->device->info;
    const bool is_model = tag == ASHLAR_TAG_WEIGHTS || tag == ASHLAR_TAG_GRADIENTS ||
                          tag == ASHLAR_TAG_MOMENTS;
    return ashlar_fail(
        ASHLAR_ENOMEM,
        "out of memory on %s:%d: %zu bytes asked for (%s), %llu live in %llu blocks, %zu reserved "
        "of the device's %zu, largest hole %zu; make the %s smaller, or free blocks (%s)",
        a->device->driver->name, info->ordinal, bytes, ashlar_tag_name(tag),
        (unsigned long long)a->stats.live_bytes, (unsigned long long)a->stats.live_blocks,
        a->heap.range.mapped_bytes, info->total_bytes, largest_hole_locked(a),
        is_model ? "model" : "batch or the sequences", cause);
}

ashlar_status ashlar_alloc_tagged(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                  ashlar_stream stream, void **out) {
    size_t block_bytes;
    if (bytes == 0) {
        return ashlar_fail(ASHLAR_EINVAL, "bytes: a block of 0 bytes; ask for at least 1");
    }
    if ((unsigned)tag >= (unsigned)ASHLAR_TAG_COUNT) {
        return ashlar_fail(ASHLAR_EINVAL, "tag: %d is no ashlar_tag", (int)tag);
    }
    pthread_mutex_lock(&a->lock);
    ashlar_status status;
    /* A request beyond the whole device needs no search, and its rounding might not fit. */
    if (bytes <= a->heap.range.device_bytes && ashlar_block_bytes(bytes, &block_bytes)) {
        status = alloc_locked(a, bytes, block_bytes, tag, stream, out);
        if (status == ASHLAR_ENOMEM) {
            status = no_memory_locked(a, bytes, tag, ashlar_error_detail());
        }
    } else {
        status = no_memory_locked(a, bytes, tag, "more than the device has");
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}

ashlar_status ashlar_alloc(ashlar_allocator *a, size_t bytes, ashlar_stream stream, void **out) {
    return ashlar_alloc_tagged(a, bytes, ASHLAR_TAG_USER, stream, out);
}

/* What is wrong with a pointer that is not the start of a live block. */
static ashlar_status bad_pointer_locked(const ashlar_allocator *a, const void *ptr, size_t offset) {
    const ashlar_block *block = ashlar_heap_find(&a->heap, offset);
    if (block == NULL || block->state == ASHLAR_BLOCK_UNMAPPED) {
        return ashlar_fail(ASHLAR_EPOINTER, "%p: not a block of this allocator", ptr);
    }
    if (block->state != ASHLAR_BLOCK_LIVE) {
        return ashlar_fail(ASHLAR_EPOINTER, "%p: freed before, or never handed out", ptr);
    }
    return ashlar_fail(ASHLAR_EPOINTER,
                       "%p: %zu bytes inside a block; use the block's own address", ptr,
                       offset - block->offset);
}

static ashlar_status find_live_locked(const ashlar_allocator *a, const void *ptr,
                                      ashlar_block **out) {
    /* An address below the base wraps to a huge offset, and is refused with the others. */
    const size_t offset = (size_t)(ashlar_ptr_in(ptr) - a->heap.range.base);
    ashlar_block *block = NULL;
    if (offset < a->heap.range.bytes) {
        block = ashlar_page_map_get(&a->heap.map, offset);
    }
    if (block == NULL) {
        return bad_pointer_locked(a, ptr, offset);
    }
    *out = block;
    return ASHLAR_OK;
}

static void free_locked(ashlar_allocator *a, ashlar_block *block, ashlar_order *order) {
    count_free_locked(a, block);
    order->last_tick = order->recorded;
    ashlar_heap_put(&a->heap, block, order, order->last_tick);
    ASHLAR_CHECK3(ashlar_heap_check(&a->heap) == ASHLAR_OK);
}

ashlar_status ashlar_free(ashlar_allocator *a, void *ptr) {
    if (ptr == NULL) {
        return ASHLAR_OK;
    }
    ashlar_block *block = NULL;
    pthread_mutex_lock(&a->lock);
    const ashlar_status status = find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        free_locked(a, block, block->order);
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
    pthread_mutex_lock(&a->lock);
    ashlar_status status = find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        status = order_of_locked(a, stream, &order);
    }
    if (status == ASHLAR_OK) {
        free_locked(a, block, order);
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}

ashlar_status ashlar_usable_bytes(ashlar_allocator *a, const void *ptr, size_t *out) {
    ashlar_block *block = NULL;
    pthread_mutex_lock(&a->lock);
    const ashlar_status status = find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        *out = block->bytes;
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}

void ashlar_stats_read(ashlar_allocator *a, ashlar_stats *stats) {
    pthread_mutex_lock(&a->lock);
    *stats = a->stats;
    if (a->is_at_peak) {
        copy_tags_at_peak(stats);
    }
    stats->reserved_bytes = a->heap.range.mapped_bytes;
    stats->driver_calls = a->caller.calls;
    stats->driver_calls_sealed = stats->is_sealed ? a->caller.calls - a->calls_at_seal : 0;
    pthread_mutex_unlock(&a->lock);
}

void ashlar_allocator_seal(ashlar_allocator *a) {
    pthread_mutex_lock(&a->lock);
    a->stats.is_sealed = true;
    a->calls_at_seal = a->caller.calls;
    pthread_mutex_unlock(&a->lock);
}
