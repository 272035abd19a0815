/*
 * heap.h - the range cut into blocks: splitting, coalescing, growing, giving back (internal).
 *
 * The heap knows stamps (stream state, tick) but decides nothing about streams: the allocator says
 * which free block may serve a request.
 *
 * Invariants (ashlar__heap_check; those of a block and its neighbours: ashlar__heap_is_linked):
 *   first->offset == 0,  last->next == NULL
 *   block->next->offset == block->offset + block->bytes,  block->next->prev == block
 *   used_bytes + free_bytes == range.mapped_bytes == sum of the blocks that are not holes
 *   the range's chunks cover the blocks that are not holes, and nothing else
 *   a free block is in the bins of its stream, or in `idle` if it has none, and in no other bins
 *   the page map has the used blocks, and the slot blocks of plan memory instead of that itself
 *   a used block has requested <= bytes and a stream; any other has requested == 0
 *   two free neighbours have different streams, or the upper one starts a segment
 *   two holes are never neighbours, and the last block is not a hole
 */
#ifndef ASHLAR_HEAP_H
#define ASHLAR_HEAP_H

#include "allocator/heap/stream_state.h"
#include "allocator/heap/page_map.h"
#include "allocator/heap/range.h"

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
    ashlar_block *spare; /* nodes that no block uses, linked by next */
    size_t spare_count;
    ashlar_node_chunk *nodes; /* the host memory of all nodes */
} ashlar_heap;

/* Errors: as ashlar_allocator_create(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_init(ashlar_heap *heap, ashlar_driver_client *client,
                                                  ashlar_range_kind kind);
void ashlar__heap_finish(ashlar_heap *heap);

/*
 * Take `bytes` from the front of a free block; the rest stays free with the block's stamp. Then
 * the block is used, and in the page map; the caller must set its stream_state, requested and tag.
 *
 * bytes   > 0, a multiple of ASHLAR_BLOCK_ALIGN, at most block->bytes
 * Errors: ASHLAR_EHOSTMEM; then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_take(ashlar_heap *heap, ashlar_block *block,
                                                  size_t bytes);

/*
 * Make a used block free, stamped (state, tick), and merge it with each free neighbour that has
 * the same stream, or if the last use of either block is known to be over. The merged block keeps
 * the node of the lowest one. Cannot fail.
 */
void ashlar__heap_put(ashlar_heap *heap, ashlar_block *block, ashlar_stream_state *state,
                      uint64_t tick);

/*
 * ashlar__heap_put() with the stamp of a use on `state` that ends now: with the work queued there
 * so far. Lock: the allocator's.
 */
void ashlar__release_block_locked(ashlar_heap *heap, ashlar_block *block,
                                  ashlar_stream_state *state);

/*
 * Map more memory, so that there is a free block of `bytes` that work on `state` may use. The
 * memory goes where the least of it is needed: behind the last block or into a hole. A free block
 * beside the place counts towards `bytes` if `state` may use it. A range of segments takes a new
 * segment instead. Requires that every free block that `state` may use is smaller than `bytes`.
 *
 * Errors: ASHLAR_ENOMEM (the limit, before any driver call; the device), ASHLAR_EDRIVER,
 *         ASHLAR_EHOSTMEM; then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_grow(ashlar_heap *heap, ashlar_stream_state *state,
                                                  size_t bytes, ashlar_block **out);

/*
 * Have at least `bytes` mapped in all: map the missing memory as one contiguous run, which is idle.
 *
 * Errors: as ashlar__heap_grow().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_reserve(ashlar_heap *heap, size_t bytes);

/* Make every free block whose last use is over idle, and merge it with its neighbours. */
void ashlar__heap_sweep(ashlar_heap *heap);

/* Stamp the free blocks of `from` as last used on `to`, at `tick`. */
void ashlar__heap_restamp(ashlar_heap *heap, const ashlar_stream_state *from,
                          ashlar_stream_state *to, uint64_t tick);

/*
 * Return memory that no queued work touches to the device, in whole chunks from the top down, until
 * at most `target_bytes` are mapped or no chunk is idle.
 *
 * Errors: ASHLAR_EDRIVER, ASHLAR_EHOSTMEM; what was returned before that stays returned.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_trim(ashlar_heap *heap, size_t target_bytes);

/*
 * The last resort: make a free block of `bytes` that work on `state` may use. Move idle chunks from
 * anywhere to lie one behind another, and map what is still missing. A range of segments frees
 * idle segments until the driver gives it a segment that is large enough.
 *
 * Errors: ASHLAR_ENOMEM (not enough is idle), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM. Then every free
 *         block is as before, except for freed segments and memory that the driver would not map
 *         again.
 * Cost:   O(blocks * chunks), and three driver calls per chunk.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_gather(ashlar_heap *heap, ashlar_stream_state *state,
                                                    size_t bytes, ashlar_block **out);

/*
 * Let another device use all memory of the heap, now and later.
 * Errors: as ashlar__range_allow_peer().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_allow_peer(ashlar_heap *heap, int ordinal);

/* The block or hole that contains `offset`; NULL above the last one. For messages. O(blocks). */
const ashlar_block *ashlar__heap_find(const ashlar_heap *heap, size_t offset);

/* Errors: ASHLAR_EFORMAT, naming the invariant that does not hold. O(blocks). */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_check(const ashlar_heap *heap);

#endif /* ASHLAR_HEAP_H */
