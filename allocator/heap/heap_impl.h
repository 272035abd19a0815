/* heap_impl.h - what the heap's own files share: lists of blocks, handles in windows (internal). */
#ifndef ASHLAR_HEAP_IMPL_H
#define ASHLAR_HEAP_IMPL_H

#include "allocator/base/check_level.h"
#include "allocator/heap/heap.h"

static inline bool ashlar__block_is_free(const ashlar_block *block) {
    return block->state == ASHLAR_BLOCK_FREE;
}

/* ---- conditions that hold after every change, for assertions; O(1) ---- */

/*
 * Whether the links between a block and its neighbours, or the ends of its window, are consistent.
 */
static inline bool ashlar__heap_is_linked(const ashlar_block *block) {
    const ashlar_window *w = block->window;
    const ashlar_block *prev = block->prev, *next = block->next;
    const bool is_above_prev =
        prev != NULL ? prev->next == block && prev->offset + prev->bytes == block->offset
                     : w->first == block && block->offset == w->offset;
    const bool is_below_next =
        next != NULL ? next->prev == block && block->offset + block->bytes == next->offset
                     : w->last == block && block->offset + block->bytes == w->offset + w->bytes;
    return block->bytes > 0 && is_above_prev && is_below_next;
}

/* Whether a block is linked, and no two gaps are neighbours around it. */
static inline bool ashlar__heap_is_settled(const ashlar_block *block) {
    return ashlar__heap_is_linked(block) &&
           (!ashlar__block_is_free(block) ||
            ((block->prev == NULL || !ashlar__block_is_free(block->prev)) &&
             (block->next == NULL || !ashlar__block_is_free(block->next))));
}

/* ---- nodes ---- */

/* A spare node is a FREE block of unspecified size. So the fields that all gaps share are set. */
static inline void ashlar__node_push(ashlar_node_pool *pool, ashlar_block *node) {
    ASHLAR_CHECK2(node->state == ASHLAR_BLOCK_FREE && node->marks == 0);
    ASHLAR_CHECK2(node->requested == 0 && node->stream_state == NULL);
    node->next = pool->first;
    pool->first = node;
    pool->count++;
}

static inline ashlar_block *ashlar__node_pop(ashlar_node_pool *pool) {
    ashlar_block *node = pool->first;
    ASHLAR_CHECK2(node != NULL && pool->count > 0);
    pool->first = node->next;
    pool->count--;
    return node;
}

/* ---- handles ---- */

/* The handles [first, end) of a window that a byte range touches, or that lie wholly in it. */
typedef struct ashlar_handle_span {
    size_t first, end;
} ashlar_handle_span;

static inline ashlar_handle_span ashlar__handles_touched(const ashlar_heap *heap,
                                                         const ashlar_window *window, size_t offset,
                                                         size_t bytes) {
    const size_t from = offset - window->offset;
    const unsigned shift = heap->range.handle_shift;
    ASHLAR_CHECK2(bytes > 0 && from + bytes <= window->bytes);
    return (ashlar_handle_span){from >> shift, ((from + bytes - 1) >> shift) + 1};
}

/* The handles that lie wholly in a gap; first == end if there are none. */
static inline ashlar_handle_span ashlar__handles_inside(const ashlar_heap *heap,
                                                        const ashlar_block *gap) {
    const size_t from = gap->offset - gap->window->offset, size = heap->range.handle_bytes;
    const size_t first = (from + size - 1) / size, end = (from + gap->bytes) / size;
    return (ashlar_handle_span){first, end > first ? end : first};
}

/* How many handles of a span are not mapped. */
static inline size_t ashlar__holes_in(const ashlar_window *window, ashlar_handle_span span) {
    size_t count = 0;
    for (size_t i = span.first; i < span.end; i++) {
        count += !window->backing[i].is_mapped;
    }
    return count;
}

/* Whether all handles of a span are mapped. */
static inline bool ashlar__is_all_mapped(const ashlar_window *window, ashlar_handle_span span) {
    size_t i = span.first;
    while (i < span.end && window->backing[i].is_mapped) {
        i++;
    }
    return i == span.end;
}

/* Whether the device is done with the memory of a handle of `window`. */
static inline bool ashlar__backing_is_past(const ashlar_window *window,
                                           const ashlar_backing *backing) {
    return window->zone->owner->completed >= backing->covered_by;
}

/* ---- windows ---- */

/* Add a new window, as one gap, to its zone and to the heap. Needs one spare node. */
void ashlar__heap_link_window(ashlar_heap *heap, ashlar_window *window, ashlar_zone *zone);

/* Unmap the memory of a window that is one gap, and that the device is done with; its handles
 * become spare. Errors: ASHLAR_EDRIVER, ASHLAR_EHOSTMEM; then part of it is still mapped. */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_unmap_window(ashlar_heap *heap, ashlar_window *window);

/* Give an empty window, which has no memory, to another zone. */
void ashlar__window_move(ashlar_heap *heap, ashlar_window *window, ashlar_zone *to);

/* Remove a window that is one gap, and free it. */
void ashlar__heap_drop_window(ashlar_heap *heap, ashlar_window *window);

#endif /* ASHLAR_HEAP_IMPL_H */
