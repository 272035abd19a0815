/*
 * heap.h - the range cut into blocks: splitting, coalescing, growing (internal).
 *
 * The heap knows stamps (order, tick) but makes no decision about streams: which free block may
 * serve a request is the allocator's to say.
 *
 * Invariants (ashlar_heap_check):
 *   the blocks cover [0, range.mapped_bytes) exactly, in address order, without gaps
 *   used_bytes + free_bytes == range.mapped_bytes
 *   a free block is in its order's bins, or in `idle` where its order is NULL, and in no other
 *   the page map knows the live and the cached blocks and nothing else
 *   a live block has 1 <= requested <= bytes and an order; any other has requested == 0
 *   two neighbouring free blocks never have the same order
 */
#ifndef ASHLAR_HEAP_H
#define ASHLAR_HEAP_H

#include "order.h"
#include "page_map.h"
#include "range.h"

typedef struct ashlar_node_chunk ashlar_node_chunk;

/* Lock: the allocator's guards every field. */
typedef struct ashlar_heap {
    ashlar_range range;
    ashlar_page_map map;
    ashlar_free_bins idle; /* free blocks that no queued work touches */
    ashlar_block *first;   /* address order */
    ashlar_block *last;
    size_t used_bytes;
    size_t free_bytes;
    ashlar_block *spare;   /* nodes for blocks to come, linked by next */
    size_t spare_count;
    ashlar_node_chunk *chunks;
} ashlar_heap;

/* Errors: as ashlar_allocator_create(). */
ASHLAR_MUST_CHECK ashlar_status ashlar_heap_init(ashlar_heap *heap, ashlar_caller *caller);
void ashlar_heap_finish(ashlar_heap *heap);

/*
 * Hand out `bytes` from the front of a free block; the rest stays free with the block's stamp.
 * Writes offset, bytes, state (live) and the page map; order, requested and tag are the caller's.
 *
 * bytes   a multiple of ASHLAR_BLOCK_ALIGN, at most block->bytes
 * Errors: ASHLAR_EHOSTMEM; then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_heap_take(ashlar_heap *heap, ashlar_block *block,
                                                 size_t bytes);

/*
 * Make a live or cached block free, last used at (order, tick), and merge it with its free neighbours where
 * both have the same order or one of the two is known to be past. Cannot fail.
 */
void ashlar_heap_put(ashlar_heap *heap, ashlar_block *block, ashlar_order *order, uint64_t tick);

/*
 * Map more memory so that a free block of `bytes` that work on `order` may use ends the range.
 * A block that already ends it, is free, and is `order`'s or past counts towards it.
 *
 * Errors: ASHLAR_ENOMEM, ASHLAR_EDRIVER, ASHLAR_EHOSTMEM; then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_heap_grow(ashlar_heap *heap, ashlar_order *order,
                                                 size_t bytes, ashlar_block **out);

/* Move every free block whose last use is past to the idle ones, and merge them. */
void ashlar_heap_sweep(ashlar_heap *heap);

/* The block that holds `offset`, for messages. O(blocks). */
const ashlar_block *ashlar_heap_find(const ashlar_heap *heap, size_t offset);

/* Errors: ASHLAR_EFORMAT, naming the invariant that does not hold. O(blocks). */
ASHLAR_MUST_CHECK ashlar_status ashlar_heap_check(const ashlar_heap *heap);

#endif /* ASHLAR_HEAP_H */
