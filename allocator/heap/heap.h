/*
 * heap.h - the range cut into blocks: splitting, coalescing, growing, giving back (internal).
 *
 * The heap knows stamps (stream state, tick) but makes no decision about streams: which free block
 * may serve a request is the allocator's to say.
 *
 * Invariants (ashlar__heap_check):
 *   the blocks cover [0, end of the last) exactly, in address order, without gaps
 *   the chunks of the range are exactly what the mapped blocks cover
 *   used_bytes + free_bytes == range.mapped_bytes
 *   a free block is in its stream's bins, or in `idle` where it has no stream, and in no other
 *   the page map knows the used blocks and nothing else
 *   a used block has requested <= bytes and a stream; any other has requested == 0
 *   two neighbouring free blocks never have the same stream, but where a segment starts
 *   two holes are never neighbours, and the last block is none
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
    ashlar_block *spare; /* nodes for blocks to come, linked by next */
    size_t spare_count;
    ashlar_node_chunk *nodes;
} ashlar_heap;

/* Errors: as ashlar_allocator_create(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_init(ashlar_heap *heap, ashlar_driver_client *client,
                                                  ashlar_range_kind kind);
void ashlar__heap_finish(ashlar_heap *heap);

/*
 * Hand out `bytes` from the front of a free block; the rest stays free with the block's stamp.
 * Writes offset, bytes, the state and the page map; stream_state, requested and tag are the
 * caller's to set.
 *
 * bytes   a multiple of ASHLAR_BLOCK_ALIGN, at most block->bytes
 * Errors: ASHLAR_EHOSTMEM; then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_take(ashlar_heap *heap, ashlar_block *block,
                                                  size_t bytes);

/*
 * Make a used block free, last used at (stream_state, tick), and merge it with its free
 * neighbours where both have the same stream or one of the two is known to be past: what is merged
 * is the lowest of them. Cannot fail.
 */
void ashlar__heap_put(ashlar_heap *heap, ashlar_block *block, ashlar_stream_state *state,
                      uint64_t tick);

/* The same for a block that was last used on `state` no later than now. Lock: the allocator's. */
void ashlar__release_block_locked(ashlar_heap *heap, ashlar_block *block,
                                  ashlar_stream_state *state);

/*
 * Map more memory, where that takes the least of it, so that there is a free block of `bytes` that
 * work on `state` may use: at the end of the range or in a hole, next to a free block that is
 * `state`'s or past and counts towards it; in a range of segments, a segment of its own. Requires
 * that no free block that `state` may use is as large.
 *
 * Errors: ASHLAR_ENOMEM (the limit, before any driver call; the device), ASHLAR_EDRIVER,
 *         ASHLAR_EHOSTMEM; then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_grow(ashlar_heap *heap, ashlar_stream_state *state,
                                                  size_t bytes, ashlar_block **out);

/*
 * Map memory in one piece, until at least `bytes` are mapped in all. It is idle.
 *
 * Errors: as ashlar__heap_grow().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_reserve(ashlar_heap *heap, size_t bytes);

/* Move every free block whose last use is past to the idle ones, and merge them. */
void ashlar__heap_sweep(ashlar_heap *heap);

/* The free blocks last used on `from` were last used on `to`, at `tick`. */
void ashlar__heap_restamp(ashlar_heap *heap, const ashlar_stream_state *from,
                          ashlar_stream_state *to, uint64_t tick);

/*
 * Give memory that no queued work touches back to the device, in whole chunks from the top down,
 * until at most `target_bytes` are mapped or no chunk is idle.
 *
 * Errors: ASHLAR_EDRIVER, ASHLAR_EHOSTMEM; what was given back before stays so.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_trim(ashlar_heap *heap, size_t target_bytes);

/*
 * Make a free block of `bytes` that work on `state` may use out of idle chunks from anywhere, by
 * mapping them one behind another; what they lack is mapped new. A range of segments frees idle
 * segments until one of the size can be had. For when nothing else has helped.
 *
 * Errors: ASHLAR_ENOMEM (not enough is idle), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM; then every free
 *         block is as before, but for memory that the driver refused to take back, and for segments
 *         that were freed.
 * Cost:   O(blocks * chunks), and three driver calls per chunk.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_gather(ashlar_heap *heap, ashlar_stream_state *state,
                                                    size_t bytes, ashlar_block **out);

/*
 * Let another device use all memory of the heap, now and later.
 * Errors: as ashlar__range_allow_peer().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_allow_peer(ashlar_heap *heap, int ordinal);

/* The block that holds `offset`, a hole perhaps; NULL above the last. For messages. O(blocks). */
const ashlar_block *ashlar__heap_find(const ashlar_heap *heap, size_t offset);

/* Errors: ASHLAR_EFORMAT, naming the invariant that does not hold. O(blocks). */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_check(const ashlar_heap *heap);

#endif /* ASHLAR_HEAP_H */
