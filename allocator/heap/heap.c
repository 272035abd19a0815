/*
 * heap.c - the heap's blocks: taking them, putting them back and merging them, and the changes to
 * their list when memory is mapped or unmapped.
 */
#include "allocator/heap/heap_impl.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* ---- nodes ---- */

/* Block nodes are allocated this many at a time, and returned to the host only with the heap. */
enum { CHUNK_NODES = 256 };

struct ashlar_node_chunk {
    ashlar_node_chunk *next;
    /* The nodes begin where the first cache line in here begins. */
    unsigned char room[CHUNK_NODES * sizeof(ashlar_block) + ASHLAR_CACHE_LINE];
};

ashlar_status ashlar__heap_reserve_nodes(ashlar_heap *heap, size_t count) {
    while (heap->spare_count < count) {
        ashlar_node_chunk *chunk = ashlar__host_calloc(1, sizeof *chunk);
        if (chunk == NULL) {
            return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for block descriptors");
        }
        chunk->next = heap->nodes;
        heap->nodes = chunk;
        const uintptr_t start = ((uintptr_t)chunk->room + ASHLAR_CACHE_LINE - 1) /
                                ASHLAR_CACHE_LINE * ASHLAR_CACHE_LINE;
        ashlar_block *nodes = (ashlar_block *)start;
        ASHLAR_CHECK2((unsigned char *)(nodes + CHUNK_NODES) <= chunk->room + sizeof chunk->room);
        for (int i = CHUNK_NODES - 1; i >= 0; i--) {
            ashlar__heap_push_spare(heap, &nodes[i]);
        }
    }
    return ASHLAR_OK;
}

void ashlar__heap_free_nodes(ashlar_heap *heap) {
    while (heap->nodes != NULL) {
        ashlar_node_chunk *next = heap->nodes->next;
        ashlar__host_free(heap->nodes);
        heap->nodes = next;
    }
}

/* ---- the heap's life ---- */

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
    ASHLAR_CHECK2(status != ASHLAR_OK || ashlar__heap_is_balanced(heap));
    return status;
}

void ashlar__heap_finish(ashlar_heap *heap) {
    ashlar__range_finish(&heap->range);
    ashlar__page_map_finish(&heap->map);
    ashlar__heap_free_nodes(heap);
}

/* ---- taking and putting ---- */

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
    ASHLAR_CHECK2(ashlar__page_map_get(&heap->map, block->offset) == NULL);
    ashlar_free_bins *bins = ashlar__heap_bins_of(heap, block);
    ashlar__free_bins_remove(bins, block);
    if (bytes < block->bytes) {
        ashlar__free_bins_insert(bins, ashlar__heap_split(heap, block, bytes));
    }
    block->state = ASHLAR_BLOCK_USED;
    ashlar__page_map_set(&heap->map, block->offset, block);
    heap->used_bytes += bytes;
    heap->free_bytes -= bytes;
    ASHLAR_CHECK2(block->bytes == bytes && ashlar__heap_is_linked(heap, block));
    ASHLAR_CHECK2(ashlar__heap_is_balanced(heap));
    return ASHLAR_OK;
}

/*
 * Find a stamp that holds for two free blocks together. Of two stamps of one stream it is the later
 * one; if one block's last use is over, it is the other block's stamp. False: two streams may
 * both still be busy, and no stamp holds for both; or a graph's block would take in idle memory.
 */
static bool merge_stamps(const ashlar_block *a, const ashlar_block *b, ashlar_stream_state **state,
                         uint64_t *tick) {
    ASHLAR_CHECK2(ashlar__block_is_free(a) && ashlar__block_is_free(b));
    const bool a_past = ashlar__stream_state_is_past(a->stream_state, a->tick);
    const bool b_past = ashlar__stream_state_is_past(b->stream_state, b->tick);
    if (a_past && b_past) {
        *state = NULL;
        *tick = 0;
    } else if (a_past || b_past) {
        /* A graph keeps its blocks until it is gone, and would keep merged idle memory as well. */
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
    ASHLAR_CHECK2(other == (is_below ? (*block)->prev : (*block)->next));
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

/*
 * Merge a free block, which is in no bin, with as many neighbours as possible, and put the result
 * into its bin. Returns the merged block.
 */
static ashlar_block *settle(ashlar_heap *heap, ashlar_block *block) {
    if (ashlar__stream_state_is_past(block->stream_state, block->tick)) {
        block->stream_state = NULL;
        block->tick = 0;
    }
    /*
     * Downwards first, then upwards. If a merge downwards has failed, a merge upwards does not make
     * it possible: two busy streams stay two, and an idle block that did not merge with a graph's
     * block below it does not become that graph's block by merging upwards.
     */
    while (ashlar__heap_try_merge(heap, &block, block->prev)) {
    }
    while (ashlar__heap_try_merge(heap, &block, block->next)) {
    }
    ashlar__free_bins_insert(ashlar__heap_bins_of(heap, block), block);
    ASHLAR_CHECK2(ashlar__heap_is_settled(heap, block));
    return block;
}

void ashlar__heap_put(ashlar_heap *heap, ashlar_block *block, ashlar_stream_state *state,
                      uint64_t tick) {
    ASHLAR_ASSERT(block->state == ASHLAR_BLOCK_USED);
    ASHLAR_CHECK2(block->marks == 0 && block->bytes <= heap->used_bytes);
    ashlar__page_map_set(&heap->map, block->offset, NULL);
    heap->used_bytes -= block->bytes;
    heap->free_bytes += block->bytes;
    block->state = ASHLAR_BLOCK_FREE;
    block->requested = 0;
    block->stream_state = state;
    block->tick = tick;
    (void)settle(heap, block);
    ASHLAR_CHECK2(ashlar__heap_is_balanced(heap));
}

void ashlar__release_block_locked(ashlar_heap *heap, ashlar_block *block,
                                  ashlar_stream_state *state) {
    ASHLAR_CHECK2(ashlar__stream_state_is_sound(state));
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
    ASHLAR_CHECK2(from != to && tick <= to->recorded);
    for (ashlar_block *block = heap->first; block != NULL; block = block->next) {
        if (block->stream_state == from && ashlar__block_is_free(block)) {
            ashlar__free_bins_remove(ashlar__heap_bins_of(heap, block), block);
            block->stream_state = to;
            block->tick = tick;
            block = settle(heap, block);
        }
    }
    ASHLAR_CHECK2(ashlar__free_bins_is_empty(&from->free));
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

/* ---- memory that comes and goes ---- */

static void link_after(ashlar_heap *heap, ashlar_block *block, ashlar_block *prev) {
    block->prev = prev;
    block->next = prev != NULL ? prev->next : heap->first;
    *(prev != NULL ? &prev->next : &heap->first) = block;
    *(block->next != NULL ? &block->next->prev : &heap->last) = block;
    ASHLAR_CHECK2(ashlar__heap_is_linked(heap, block));
}

/* Take a block that is in no bin out of the list. Its node becomes spare. */
static void remove_block(ashlar_heap *heap, ashlar_block *block) {
    *(block->prev != NULL ? &block->prev->next : &heap->first) = block->next;
    *(block->next != NULL ? &block->next->prev : &heap->last) = block->prev;
    ashlar__heap_push_spare(heap, block);
}

/* A new last block. */
static ashlar_block *append(ashlar_heap *heap, size_t bytes, ashlar_block_state state) {
    ASHLAR_CHECK2(bytes > 0 && bytes % ASHLAR_BLOCK_ALIGN == 0);
    ashlar_block *block = ashlar__heap_pop_spare(heap);
    *block = (ashlar_block){
        .offset = ashlar__heap_end(heap), .bytes = bytes, .state = (unsigned char)state};
    link_after(heap, block, heap->last);
    return block;
}

ashlar_block *ashlar__heap_add_memory(ashlar_heap *heap, size_t offset, size_t bytes) {
    heap->free_bytes += bytes;
    const size_t end = ashlar__heap_end(heap);
    if (offset >= end) {
        if (offset > end) {
            (void)append(heap, offset - end, ASHLAR_BLOCK_UNMAPPED);
        }
        return append(heap, bytes, ASHLAR_BLOCK_FREE);
    }
    ashlar_block *block = heap->last;
    while (block->offset > offset) {
        block = block->prev;
    }
    ASHLAR_ASSERT(block->state == ASHLAR_BLOCK_UNMAPPED &&
                  offset + bytes <= block->offset + block->bytes);
    if (offset > block->offset) {
        block = ashlar__heap_split(heap, block, offset - block->offset);
    }
    if (bytes < block->bytes) {
        (void)ashlar__heap_split(heap, block, bytes);
    }
    block->state = ASHLAR_BLOCK_FREE;
    ASHLAR_CHECK2(block->stream_state == NULL && ashlar__heap_is_linked(heap, block));
    return block;
}

static bool is_hole(const ashlar_block *block) {
    return block != NULL && block->state == ASHLAR_BLOCK_UNMAPPED;
}

void ashlar__heap_punch_hole(ashlar_heap *heap, size_t offset, size_t bytes) {
    ashlar_block *block = heap->last;
    while (block->offset > offset) {
        block = block->prev;
    }
    ASHLAR_ASSERT(ashlar__block_is_free(block) && offset + bytes <= block->offset + block->bytes);
    ashlar_free_bins *bins = ashlar__heap_bins_of(heap, block);
    ASHLAR_CHECK2(bytes > 0 && bytes <= heap->free_bytes);
    heap->free_bytes -= bytes;
    ashlar__free_bins_remove(bins, block);
    if (offset > block->offset) {
        ashlar_block *below = block;
        block = ashlar__heap_split(heap, below, offset - below->offset);
        ashlar__free_bins_insert(bins, below);
    }
    if (bytes < block->bytes) {
        ashlar__free_bins_insert(bins, ashlar__heap_split(heap, block, bytes));
    }
    block->state = ASHLAR_BLOCK_UNMAPPED;
    block->starts_segment = false;
    block->stream_state = NULL;
    block->tick = 0;
    if (is_hole(block->next)) {
        ashlar__heap_absorb(heap, block);
    }
    if (is_hole(block->prev)) {
        block = block->prev;
        ashlar__heap_absorb(heap, block);
    }
    if (block == heap->last) {
        remove_block(heap, block);
    }
    ASHLAR_CHECK2(heap->last == NULL || !is_hole(heap->last));
}
