/*
 * heap_impl.h - what the heap's own files share (internal).
 */
#ifndef ASHLAR_HEAP_IMPL_H
#define ASHLAR_HEAP_IMPL_H

#include "allocator/base/check_level.h"
#include "allocator/heap/heap.h"

static inline bool ashlar__block_is_free(const ashlar_block *block) {
    return block->state == ASHLAR_BLOCK_FREE;
}

/* Whether work on `state` may use a block, and merge it with memory that is idle. */
static inline bool ashlar__block_is_usable(const ashlar_block *block,
                                           const ashlar_stream_state *state) {
    return ashlar__block_is_free(block) &&
           (ashlar__stream_state_is_past(block->stream_state, block->tick) ||
            (block->stream_state == state && !state->is_pool));
}

static inline ashlar_free_bins *ashlar__heap_bins_of(ashlar_heap *heap, const ashlar_block *block) {
    return block->stream_state != NULL ? &block->stream_state->free : &heap->idle;
}

/* Where the last block ends. */
static inline size_t ashlar__heap_end(const ashlar_heap *heap) {
    return heap->last != NULL ? heap->last->offset + heap->last->bytes : 0;
}

/* Nodes are fetched before anything is changed, so that no change can be left half done. */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_reserve_nodes(ashlar_heap *heap, size_t count);

void ashlar__heap_free_nodes(ashlar_heap *heap);

static inline void ashlar__heap_push_spare(ashlar_heap *heap, ashlar_block *node) {
    node->next = heap->spare;
    heap->spare = node;
    heap->spare_count++;
}

static inline ashlar_block *ashlar__heap_pop_spare(ashlar_heap *heap) {
    ashlar_block *node = heap->spare;
    ASHLAR_ASSERT(node != NULL);
    heap->spare = node->next;
    heap->spare_count--;
    return node;
}

/* Take a block, in no bin, out of the list; its node is spare. */
static inline void ashlar__heap_remove_block(ashlar_heap *heap, ashlar_block *block) {
    *(block->prev != NULL ? &block->prev->next : &heap->first) = block->next;
    *(block->next != NULL ? &block->next->prev : &heap->last) = block->prev;
    ashlar__heap_push_spare(heap, block);
}

/* Cut a block, in no bin, after `bytes`; the rest, its new neighbour, has its state and stamp. */
static inline ashlar_block *ashlar__heap_split(ashlar_heap *heap, ashlar_block *block,
                                               size_t bytes) {
    ASHLAR_ASSERT(bytes > 0 && bytes < block->bytes);
    ashlar_block *rest = ashlar__heap_pop_spare(heap), *next = block->next;
    /* Field by field: of a compound literal compilers make a fill that costs as much again. */
    rest->offset = block->offset + bytes;
    rest->bytes = block->bytes - bytes;
    rest->requested = 0;
    rest->stream_state = block->stream_state;
    rest->tick = block->tick;
    rest->state = block->state;
    rest->tag = 0;
    rest->list = 0;
    rest->marks = 0;
    rest->starts_segment = false;
    rest->prev = block;
    rest->next = next;
    block->bytes = bytes;
    block->next = rest;
    *(next != NULL ? &next->prev : &heap->last) = rest;
    return rest;
}

/* Let `block` take the place of the one above it as well; neither is in a bin. */
static inline void ashlar__heap_absorb(ashlar_heap *heap, ashlar_block *block) {
    ashlar_block *other = block->next, *next = other->next;
    block->bytes += other->bytes;
    block->next = next;
    *(next != NULL ? &next->prev : &heap->last) = block;
    ashlar__heap_push_spare(heap, other);
}

/*
 * Merge *block, which is in no bin, with its neighbour `other`, if that is free, their stamps have
 * a common one, and no segment starts between them. *block is then the lower one of the two.
 */
bool ashlar__heap_try_merge_free(ashlar_heap *heap, ashlar_block **block, ashlar_block *other);

/* The same; most neighbours are not free. */
static inline bool ashlar__heap_try_merge(ashlar_heap *heap, ashlar_block **block,
                                          ashlar_block *other) {
    return other != NULL && ashlar__block_is_free(other) &&
           ashlar__heap_try_merge_free(heap, block, other);
}

/*
 * [offset, offset + bytes), without memory so far, has some now: a free block in no bin, stamped
 * as past. Needs two nodes.
 */
ashlar_block *ashlar__heap_add_memory(ashlar_heap *heap, size_t offset, size_t bytes);

/* [offset, offset + bytes) of a free block has lost its memory. Needs two nodes. */
void ashlar__heap_punch_hole(ashlar_heap *heap, size_t offset, size_t bytes);

/* ashlar__heap_add_memory(), merged with what work on `state` may use beside it, and put in its
 * bins. */
ashlar_block *ashlar__heap_add_memory_for(ashlar_heap *heap, const ashlar_stream_state *state,
                                          size_t offset, size_t bytes);

/* Where a block could come to be. */
typedef struct ashlar_map_place {
    const ashlar_block *below; /* its neighbours, NULL at the ends of the range */
    const ashlar_block *above;
    size_t low, high; /* addresses without memory between the two */
    size_t need;      /* bytes of memory that make a block of the size wanted */
    bool is_high;     /* the memory has to end at `high`, else to start at `low` */
} ashlar_map_place;

/* Where memory of `bytes` begins in a place. */
static inline size_t ashlar__map_place_offset(const ashlar_map_place *place, size_t bytes) {
    return place->is_high ? place->high - bytes : place->low;
}

/*
 * The place where a block of `bytes` for work on `state` takes the least memory, and where that
 * and `slack` bytes more have room. Errors: ASHLAR_ENOMEM, if there is none.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_find_place(const ashlar_heap *heap,
                                                        const ashlar_stream_state *state,
                                                        size_t bytes, size_t slack,
                                                        ashlar_map_place *out);

/* Map new memory of `bytes` in a place, all or nothing. Errors: as ashlar__heap_grow(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_map(ashlar_heap *heap,
                                                 const ashlar_stream_state *state,
                                                 const ashlar_map_place *place, size_t bytes,
                                                 ashlar_block **out);

#endif /* ASHLAR_HEAP_IMPL_H */
