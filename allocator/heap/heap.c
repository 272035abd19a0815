/* heap.c - the heap's life, and taking and putting blocks: what runs for every request. */
#include "allocator/heap/heap_impl.h"

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "allocator/heap/size_class.h"

ashlar_status ashlar__heap_init(ashlar_heap *heap, ashlar_driver_client *client,
                                ashlar_range_kind kind) {
    *heap = (ashlar_heap){0};
    ashlar_status status = ashlar__range_init(&heap->range, client, kind);
    if (status != ASHLAR_OK) {
        return status;
    }
    status = ashlar__page_map_init(&heap->map, heap->range.bytes);
    if (status != ASHLAR_OK) {
        ashlar__range_finish(&heap->range);
    }
    return status;
}

void ashlar__heap_finish(ashlar_heap *heap) {
    ashlar__range_finish(&heap->range);
    ashlar__page_map_finish(&heap->map);
    ashlar__heap_free_nodes(heap);
}

ashlar_status ashlar__heap_take(ashlar_heap *heap, ashlar_block *block, size_t bytes) {
    ASHLAR_ASSERT(ashlar__block_is_free(block) && bytes > 0 && bytes <= block->bytes);
    ASHLAR_ASSERT(bytes % ASHLAR_BLOCK_ALIGN == 0);
    ashlar_status status = ashlar__page_map_reserve(&heap->map, block->offset);
    if (status == ASHLAR_OK && heap->spare_count == 0 && bytes < block->bytes) {
        status = ashlar__heap_reserve_nodes(heap, 1);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_free_bins *bins = ashlar__heap_bins_of(heap, block);
    ashlar__free_bins_remove(bins, block);
    if (bytes < block->bytes) {
        ashlar__free_bins_insert(bins, ashlar__heap_split(heap, block, bytes));
    }
    block->state = ASHLAR_BLOCK_USED;
    ashlar__page_map_set(&heap->map, block->offset, block);
    heap->used_bytes += bytes;
    heap->free_bytes -= bytes;
    ASHLAR_CHECK2(heap->used_bytes + heap->free_bytes == heap->range.mapped_bytes);
    return ASHLAR_OK;
}

/*
 * Whether two free stamps may become one, which then is the later of both. A past stamp yields to
 * the other; two different streams that may both still be busy have no common stamp.
 */
static bool merge_stamps(const ashlar_block *a, const ashlar_block *b, ashlar_stream_state **state,
                         uint64_t *tick) {
    const bool a_past = ashlar__stream_state_is_past(a->stream_state, a->tick);
    const bool b_past = ashlar__stream_state_is_past(b->stream_state, b->tick);
    if (a_past && b_past) {
        *state = NULL;
        *tick = 0;
    } else if (a_past || b_past) {
        /* What a pool took on, nobody else would have until its graph is gone. */
        if ((a_past ? b->stream_state : a->stream_state)->is_pool) {
            return false;
        }
        *state = a_past ? b->stream_state : a->stream_state;
        *tick = a_past ? b->tick : a->tick;
    } else if (a->stream_state == b->stream_state) {
        *state = a->stream_state;
        *tick = a->tick > b->tick ? a->tick : b->tick;
    } else {
        return false;
    }
    return true;
}

bool ashlar__heap_try_merge_free(ashlar_heap *heap, ashlar_block **block, ashlar_block *other) {
    const bool is_below = other->offset < (*block)->offset;
    ashlar_block *lower = is_below ? other : *block;
    const ashlar_block *upper = is_below ? *block : other;
    ashlar_stream_state *state;
    uint64_t tick;
    if (upper->starts_segment || !merge_stamps(*block, other, &state, &tick)) {
        return false;
    }
    ashlar__free_bins_remove(ashlar__heap_bins_of(heap, other), other);
    ashlar__heap_absorb(heap, lower);
    lower->stream_state = state;
    lower->tick = tick;
    *block = lower;
    return true;
}

/* Put a free block that is in no bin where it belongs, merged as far as it goes. Returns it. */
static ashlar_block *settle(ashlar_heap *heap, ashlar_block *block) {
    if (ashlar__stream_state_is_past(block->stream_state, block->tick)) {
        block->stream_state = NULL;
        block->tick = 0;
    }
    /*
     * Below first, then above; no merge above lets one below succeed that failed. Two streams in
     * use stay two; and where a past block and a pool's did not merge, the pool's stays that, and
     * the past one becomes no block of the same pool.
     */
    while (ashlar__heap_try_merge(heap, &block, block->prev)) {
    }
    while (ashlar__heap_try_merge(heap, &block, block->next)) {
    }
    ashlar__free_bins_insert(ashlar__heap_bins_of(heap, block), block);
    return block;
}

void ashlar__heap_put(ashlar_heap *heap, ashlar_block *block, ashlar_stream_state *state,
                      uint64_t tick) {
    ASHLAR_ASSERT(block->state == ASHLAR_BLOCK_USED);
    ashlar__page_map_set(&heap->map, block->offset, NULL);
    heap->used_bytes -= block->bytes;
    heap->free_bytes += block->bytes;
    block->state = ASHLAR_BLOCK_FREE;
    block->requested = 0;
    block->stream_state = state;
    block->tick = tick;
    (void)settle(heap, block);
    ASHLAR_CHECK2(heap->used_bytes + heap->free_bytes == heap->range.mapped_bytes);
}

void ashlar__release_block_locked(ashlar_heap *heap, ashlar_block *block,
                                  ashlar_stream_state *state) {
    state->last_tick = ashlar__stream_state_stamp(state);
    ashlar__heap_put(heap, block, state, state->last_tick);
}

void ashlar__heap_sweep(ashlar_heap *heap) {
    for (ashlar_block *block = heap->first; block != NULL; block = block->next) {
        if (ashlar__block_is_free(block) &&
            ashlar__stream_state_is_past(block->stream_state, block->tick)) {
            ashlar__free_bins_remove(ashlar__heap_bins_of(heap, block), block);
            block = settle(heap, block);
        }
    }
}

void ashlar__heap_restamp(ashlar_heap *heap, const ashlar_stream_state *from,
                          ashlar_stream_state *to, uint64_t tick) {
    for (ashlar_block *block = heap->first; block != NULL; block = block->next) {
        if (block->stream_state == from && ashlar__block_is_free(block)) {
            ashlar__free_bins_remove(ashlar__heap_bins_of(heap, block), block);
            block->stream_state = to;
            block->tick = tick;
            block = settle(heap, block);
        }
    }
}

ashlar_status ashlar__heap_allow_peer(ashlar_heap *heap, int ordinal) {
    return ashlar__range_allow_peer(&heap->range, ordinal);
}

const ashlar_block *ashlar__heap_find(const ashlar_heap *heap, size_t offset) {
    const ashlar_block *block = heap->first;
    while (block != NULL && block->offset + block->bytes <= offset) {
        block = block->next;
    }
    return block;
}
