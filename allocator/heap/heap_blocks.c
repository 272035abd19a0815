/* heap_blocks.c - the list of blocks: nodes, and cutting, joining, filling and hollowing them. */
#include "allocator/heap/heap_impl.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* Block nodes come in chunks, and go back to the host only with the heap. */
enum { CHUNK_NODES = 256 };

struct ashlar_node_chunk {
    ashlar_node_chunk *next;
    unsigned char
        room[CHUNK_NODES * sizeof(ashlar_block) + ASHLAR_CACHE_LINE]; /* from a line's start */
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

static void link_after(ashlar_heap *heap, ashlar_block *block, ashlar_block *prev) {
    block->prev = prev;
    block->next = prev != NULL ? prev->next : heap->first;
    *(prev != NULL ? &prev->next : &heap->first) = block;
    *(block->next != NULL ? &block->next->prev : &heap->last) = block;
}

/* A new last block. */
static ashlar_block *append(ashlar_heap *heap, size_t bytes, ashlar_block_state state) {
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
        ashlar__heap_remove_block(heap, block);
    }
}
