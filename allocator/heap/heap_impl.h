/* heap_impl.h - what the heap's own files share: lists of blocks, and places for memory. */
#ifndef ASHLAR_HEAP_IMPL_H
#define ASHLAR_HEAP_IMPL_H

#include "allocator/base/check_level.h"
#include "allocator/heap/heap.h"

static inline bool ashlar__block_is_free(const ashlar_block *block) {
    return block->state == ASHLAR_BLOCK_FREE;
}

/*
 * Whether a block is free for work on `state`, and may be merged with idle memory. A graph pool's
 * own blocks may not, so they do not count until they are idle themselves.
 */
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

/* Whether a block is linked, and has been merged with its neighbours on both sides. */
static inline bool ashlar__heap_is_settled(const ashlar_heap *heap, const ashlar_block *block) {
    return ashlar__heap_is_linked(heap, block) && !ashlar__heap_is_unmerged(block->prev, block) &&
           !ashlar__heap_is_unmerged(block, block->next);
}

/* Whether the used and the free bytes add up to what is mapped. */
static inline bool ashlar__heap_is_balanced(const ashlar_heap *heap) {
    return heap->used_bytes + heap->free_bytes == heap->range.mapped_bytes;
}

/* ---- nodes and the list ---- */

/* Have `count` spare nodes. Call this before changing anything, so that no change fails midway. */
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

/*
 * Cut a block that is in no bin after `bytes`, using one spare node. Returns the rest, which has
 * the same state and stamp.
 */
static inline ashlar_block *ashlar__heap_split(ashlar_heap *heap, ashlar_block *block,
                                               size_t bytes) {
    ASHLAR_ASSERT(bytes > 0 && bytes < block->bytes);
    ashlar_block *rest = ashlar__heap_pop_spare(heap), *next = block->next;
    /* Field by field: for a compound literal compilers fill the node first, at twice the cost. */
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
 * Merge *block, which is free and in no bin, with its free neighbour `other`. *block is then the
 * lower of the two. False: they stay apart, since a segment starts between them or no stamp holds
 * for both.
 */
bool ashlar__heap_try_merge_free(ashlar_heap *heap, ashlar_block **block, ashlar_block *other);

/* The same for a neighbour in any state, or NULL. Inline, since most neighbours are not free. */
static inline bool ashlar__heap_try_merge(ashlar_heap *heap, ashlar_block **block,
                                          ashlar_block *other) {
    return other != NULL && ashlar__block_is_free(other) &&
           ashlar__heap_try_merge_free(heap, block, other);
}

/* ---- memory that comes and goes ---- */

/*
 * Make a free block of [offset, offset + bytes), which has just been mapped. The block is idle, and
 * in no bin yet. Needs two spare nodes.
 */
ashlar_block *ashlar__heap_add_memory(ashlar_heap *heap, size_t offset, size_t bytes);

/*
 * Turn [offset, offset + bytes), which lies in one free block, into a hole. Needs two spare nodes.
 */
void ashlar__heap_punch_hole(ashlar_heap *heap, size_t offset, size_t bytes);

/*
 * ashlar__heap_add_memory(), then merge the block with neighbours that work on `state` may use, and
 * put it into its bin.
 */
ashlar_block *ashlar__heap_add_memory_for(ashlar_heap *heap, const ashlar_stream_state *state,
                                          size_t offset, size_t bytes);

/* Where memory could be mapped to make a block of some size: need <= high - low. */
typedef struct ashlar_map_place {
    const ashlar_block *below; /* the blocks on either side, NULL at the ends of the range */
    const ashlar_block *above;
    size_t low, high; /* the addresses between the two, which have no memory */
    size_t need;      /* bytes of memory to map */
    bool is_high;     /* true: the memory has to end at `high`; false: to start at `low` */
} ashlar_map_place;

/* The offset at which memory of `bytes` begins in a place. */
static inline size_t ashlar__map_place_offset(const ashlar_map_place *place, size_t bytes) {
    ASHLAR_CHECK2(place->low <= place->high && bytes <= place->high - place->low);
    return place->is_high ? place->high - bytes : place->low;
}

/*
 * Find the place where a block of `bytes` for work on `state` needs the least new memory, among the
 * places with room for that memory and `slack` more bytes. Errors: ASHLAR_ENOMEM (no such place).
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
