/* heap_impl.h - what the heap's own files share: lists of blocks, and places for memory. */
#ifndef ASHLAR_HEAP_IMPL_H
#define ASHLAR_HEAP_IMPL_H

#include "allocator/base/check_level.h"
#include "allocator/heap/heap.h"

static inline bool ashlar__block_is_free(const ashlar_block *block) {
    return block->state == ASHLAR_BLOCK_FREE;
}

/* Whether a block is free for work on `state`, also when merged with memory that is idle. */
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

/* ---- what holds after every change, for assertions; O(1) ---- */

/* Whether a block and its neighbours, or the ends of the list, know each other and leave no gap. */
static inline bool ashlar__heap_is_linked(const ashlar_heap *heap, const ashlar_block *block) {
    const ashlar_block *prev = block->prev, *next = block->next;
    const bool is_above_prev = prev != NULL ? prev->next == block &&
                                                  prev->offset + prev->bytes == block->offset
                                            : heap->first == block && block->offset == 0;
    const bool is_below_next = next != NULL ? next->prev == block &&
                                                  block->offset + block->bytes == next->offset
                                            : heap->last == block;
    return block->bytes > 0 && is_above_prev && is_below_next;
}

/* Whether a block ought to have been merged with the next one. */
static inline bool ashlar__heap_is_unmerged(const ashlar_block *block, const ashlar_block *next) {
    return block != NULL && next != NULL && block->state == next->state &&
           (block->state == ASHLAR_BLOCK_UNMAPPED ||
            (ashlar__block_is_free(block) && block->stream_state == next->stream_state &&
             !next->starts_segment));
}

/* Whether a block is as it stays: linked, and merged on both sides. */
static inline bool ashlar__heap_is_settled(const ashlar_heap *heap, const ashlar_block *block) {
    return ashlar__heap_is_linked(heap, block) && !ashlar__heap_is_unmerged(block->prev, block) &&
           !ashlar__heap_is_unmerged(block, block->next);
}

/* Whether the blocks are as many bytes as is mapped. */
static inline bool ashlar__heap_is_balanced(const ashlar_heap *heap) {
    return heap->used_bytes + heap->free_bytes == heap->range.mapped_bytes;
}

/* ---- nodes and the list ---- */

/* Have `count` spare nodes. Call it before changing anything, so that no change fails half done. */
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
    ASHLAR_CHECK2(heap->spare_count > 0);
    heap->spare = node->next;
    heap->spare_count--;
    return node;
}

/* Cut a block, in no bin, after `bytes`. Returns the rest, which has the same state and stamp. */
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
    ASHLAR_CHECK2(ashlar__heap_is_linked(heap, block) && ashlar__heap_is_linked(heap, rest));
    return rest;
}

/* Extend `block` over the next one, whose node becomes spare; neither is in a bin. */
static inline void ashlar__heap_absorb(ashlar_heap *heap, ashlar_block *block) {
    ashlar_block *other = block->next, *next = other->next;
    ASHLAR_CHECK2(block->state == other->state && !other->starts_segment);
    block->bytes += other->bytes;
    block->next = next;
    *(next != NULL ? &next->prev : &heap->last) = block;
    ashlar__heap_push_spare(heap, other);
    ASHLAR_CHECK2(ashlar__heap_is_linked(heap, block));
}

/*
 * Merge *block, free and in no bin, with its free neighbour `other`, unless a segment starts
 * between them or their stamps cannot become one. *block is then the lower one of the two.
 */
bool ashlar__heap_try_merge_free(ashlar_heap *heap, ashlar_block **block, ashlar_block *other);

/* The same for any neighbour, or NULL. Inline, since most are not free. */
static inline bool ashlar__heap_try_merge(ashlar_heap *heap, ashlar_block **block,
                                          ashlar_block *other) {
    return other != NULL && ashlar__block_is_free(other) &&
           ashlar__heap_try_merge_free(heap, block, other);
}

/* ---- memory that comes and goes ---- */

/*
 * Make a free block, in no bin and idle, of [offset, offset + bytes), which has just been mapped.
 * Needs two nodes.
 */
ashlar_block *ashlar__heap_add_memory(ashlar_heap *heap, size_t offset, size_t bytes);

/* Make a hole of [offset, offset + bytes), all in one free block. Needs two nodes. */
void ashlar__heap_punch_hole(ashlar_heap *heap, size_t offset, size_t bytes);

/* ashlar__heap_add_memory(), merged with what work on `state` may use beside it, and put into bins.
 */
ashlar_block *ashlar__heap_add_memory_for(ashlar_heap *heap, const ashlar_stream_state *state,
                                          size_t offset, size_t bytes);

/* Where memory could be mapped to make a block of some size: need <= high - low. */
typedef struct ashlar_map_place {
    const ashlar_block *below; /* its neighbours, NULL at the ends of the range */
    const ashlar_block *above;
    size_t low, high; /* the addresses between the two, which have no memory */
    size_t need;      /* bytes of memory to map */
    bool is_high;     /* the memory has to end at `high`; else to start at `low` */
} ashlar_map_place;

/* Where memory of `bytes` begins in a place. */
static inline size_t ashlar__map_place_offset(const ashlar_map_place *place, size_t bytes) {
    ASHLAR_CHECK2(place->low <= place->high && bytes <= place->high - place->low);
    return place->is_high ? place->high - bytes : place->low;
}

/*
 * The place where a block of `bytes` for work on `state` needs the least memory, among those with
 * room for that and `slack` bytes more. Errors: ASHLAR_ENOMEM, if there is none.
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
