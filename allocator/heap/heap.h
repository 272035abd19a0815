/*
 * heap.h - the range cut into blocks: splitting, coalescing, growing, giving back (internal).
 *
 * The heap knows stamps (stream state, tick) but decides nothing about streams: the allocator says
 * which free block may serve a request.
 *
 * Invariants (ashlar__heap_check; those of a block and its neighbours: ashlar__heap_is_linked):
 *   first->offset == 0,  last->next == NULL
 *   block->next->offset == block->offset + block->bytes,  block->next->prev == block
 *   used_bytes + free_bytes == range.mapped_bytes == sum of the blocks that are no holes
 *   the range's chunks cover the blocks that are no holes, and nothing else
 *   a free block is in its stream's bins, or where it has no stream in `idle`, and in no others
 *   the page map has the used blocks, in place of plan memory its slot blocks, and nothing else
 *   a used block has requested <= bytes and a stream; any other has requested == 0
 *   two free neighbours have different streams, or the upper one starts a segment
 *   two holes are never neighbours, and the last block is no hole
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
    ashlar_block *spare; /* nodes of no block, linked by next */
    size_t spare_count;
    ashlar_node_chunk *nodes; /* what all nodes were taken from */
} ashlar_heap;

/* Errors: as ashlar_allocator_create(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_init(ashlar_heap *heap, ashlar_driver_client *client,
                                                  ashlar_range_kind kind);
void ashlar__heap_finish(ashlar_heap *heap);

/*
 * Take `bytes` from the front of a free block; the rest stays free with the block's stamp. The
 * block is used then, and in the page map; the caller sets stream_state, requested and tag.
 *
 * bytes   > 0, a multiple of ASHLAR_BLOCK_ALIGN, at most block->bytes
 * Errors: ASHLAR_EHOSTMEM; then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_take(ashlar_heap *heap, ashlar_block *block,
                                                  size_t bytes);

/*
 * Make a used block free, stamped (state, tick), and merge it with free neighbours: those of the
 * same stream, and those where one of the two stamps is known to be past. The merged block is the
 * lowest of them. Cannot fail.
 */
void ashlar__heap_put(ashlar_heap *heap, ashlar_block *block, ashlar_stream_state *state,
                      uint64_t tick);

/* The same for a block whose last use on `state` ends by now. Lock: the allocator's. */
void ashlar__release_block_locked(ashlar_heap *heap, ashlar_block *block,
                                  ashlar_stream_state *state);

/*
 * Map more memory, so that there is a free block of `bytes` that work on `state` may use. The
 * memory goes where the least of it is needed: to the end of the range or into a hole, beside a
 * free block that `state` may use and that counts towards `bytes`. A range of segments takes a new
 * segment. Requires that no free block that `state` may use has `bytes`.
 *
 * Errors: ASHLAR_ENOMEM (the limit, before any driver call; the device), ASHLAR_EDRIVER,
 *         ASHLAR_EHOSTMEM; then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_grow(ashlar_heap *heap, ashlar_stream_state *state,
                                                  size_t bytes, ashlar_block **out);

/*
 * Map what is missing for `bytes` mapped in all, in one piece. It is idle.
 *
 * Errors: as ashlar__heap_grow().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_reserve(ashlar_heap *heap, size_t bytes);

/* Move every free block whose last use is past to the idle ones, and merge them. */
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
 * Make a free block of `bytes` that work on `state` may use: move idle chunks from anywhere to lie
 * one behind another, and map what is still missing. A range of segments frees idle segments until
 * it can have one of the size. The last resort.
 *
 * Errors: ASHLAR_ENOMEM (not enough is idle), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM. Every free block is
 *         as before, except for memory that the driver would not map again, and freed segments.
 * Cost:   O(blocks * chunks), and three driver calls per chunk.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_gather(ashlar_heap *heap, ashlar_stream_state *state,
                                                    size_t bytes, ashlar_block **out);

/*
 * Let another device use all memory of the heap, now and later.
 * Errors: as ashlar__range_allow_peer().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_allow_peer(ashlar_heap *heap, int ordinal);

/* The block or hole that holds `offset`; NULL above the last. For messages. O(blocks). */
const ashlar_block *ashlar__heap_find(const ashlar_heap *heap, size_t offset);

/* Errors: ASHLAR_EFORMAT, naming the invariant that does not hold. O(blocks). */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_check(const ashlar_heap *heap);

#endif /* ASHLAR_HEAP_H */
