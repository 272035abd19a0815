/*
 * heap.c - the heap's blocks: taking them from gaps and putting them back; and windows: adding,
 * removing and moving them between zones.
 */
#include "allocator/heap/heap.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* ---- conditions that hold after every change, for assertions; O(1) ---- */

/* Whether the links between a block and its neighbours, or the ends of its window, are right. */
static inline bool is_linked(const ashlar_block *block) {
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
static inline bool is_settled(const ashlar_block *block) {
    return is_linked(block) && (!ashlar__block_is_free(block) ||
                                ((block->prev == NULL || !ashlar__block_is_free(block->prev)) &&
                                 (block->next == NULL || !ashlar__block_is_free(block->next))));
}

/* ---- nodes ---- */

/* A spare node is FREE, with no mark and no stream, as all gaps are, so split() need not set
 * those. */
static inline void push_node(ashlar_node_pool *pool, ashlar_block *node) {
    ASHLAR_CHECK2(node->state == ASHLAR_BLOCK_FREE && node->marks == 0);
    ASHLAR_CHECK2(node->requested == 0 && node->stream_state == NULL);
    node->next = pool->first;
    pool->first = node;
    pool->count++;
}

static inline ashlar_block *pop_node(ashlar_node_pool *pool) {
    ashlar_block *node = pool->first;
    ASHLAR_CHECK2(node != NULL && pool->count > 0);
    pool->first = node->next;
    pool->count--;
    return node;
}

/* Block nodes are allocated CHUNK_NODES at a time, and stay allocated until the heap ends. A zone
 * takes ZONE_NODES of them at a time, so that a thread without the lock can cut blocks, and shares
 * no cache line with other zones while its nodes are new. */
enum { CHUNK_NODES = 1024, ZONE_NODES = 16 };
_Static_assert(ZONE_NODES * sizeof(ashlar_block) % ASHLAR_CACHE_LINE == 0, "whole lines");

struct ashlar_node_chunk {
    ashlar_node_chunk *next;
    /* The nodes begin at the first cache line that starts in this array. */
    unsigned char room[CHUNK_NODES * sizeof(ashlar_block) + ASHLAR_CACHE_LINE];
};

static ashlar_status add_chunk(ashlar_heap *heap) {
    ashlar_node_chunk *chunk = ashlar__host_calloc(1, sizeof *chunk);
    ASHLAR_FAIL_IF(chunk == NULL, ASHLAR_EHOSTMEM, "no host memory for block descriptors");
    chunk->next = heap->chunks;
    heap->chunks = chunk;
    const uintptr_t start =
        ((uintptr_t)chunk->room + ASHLAR_CACHE_LINE - 1) / ASHLAR_CACHE_LINE * ASHLAR_CACHE_LINE;
    ashlar_block *nodes = (ashlar_block *)start;
    ASHLAR_CHECK2((unsigned char *)(nodes + CHUNK_NODES) <= chunk->room + sizeof chunk->room);
    for (int i = CHUNK_NODES - 1; i >= 0; i--) {
        push_node(&heap->nodes, &nodes[i]);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__heap_reserve_nodes(ashlar_heap *heap, ashlar_zone *zone, size_t count) {
    if (zone->nodes.count >= count) {
        return ASHLAR_OK;
    }
    while (zone->nodes.count + heap->nodes.count < count) {
        ASHLAR_TRY(add_chunk(heap));
    }
    while (zone->nodes.count < count || (zone->nodes.count < ZONE_NODES && heap->nodes.count > 0)) {
        push_node(&zone->nodes, pop_node(&heap->nodes));
    }
    return ASHLAR_OK;
}

static void return_nodes(ashlar_heap *heap, ashlar_zone *zone) {
    while (zone->nodes.count > 0) {
        push_node(&heap->nodes, pop_node(&zone->nodes));
    }
}

void ashlar__heap_return_nodes(ashlar_heap *heap, ashlar_stream_state *state) {
    for (size_t kind = 0; kind < ASHLAR_ZONE_COUNT; kind++) {
        return_nodes(heap, &state->zones[kind]);
    }
}

static void free_nodes(ashlar_heap *heap) {
    while (heap->spare_uses != NULL) {
        ashlar_use *next = heap->spare_uses->next;
        ashlar__host_free(heap->spare_uses);
        heap->spare_uses = next;
    }
    while (heap->chunks != NULL) {
        ashlar_node_chunk *next = heap->chunks->next;
        ashlar__host_free(heap->chunks);
        heap->chunks = next;
    }
}

/* ---- creation and end of the heap ---- */

ashlar_status ashlar__heap_init(ashlar_heap *heap, ashlar_driver_client *client,
                                ashlar_range_kind kind, size_t handle_bytes,
                                uint64_t *events_recorded) {
    *heap = (ashlar_heap){.events_recorded = events_recorded};
    ASHLAR_TRY(ashlar__range_init(&heap->range, client, kind, handle_bytes));
    const ashlar_status status = ashlar__page_map_init(&heap->map, heap->range.bytes);
    if (status != ASHLAR_OK) {
        ashlar__range_finish(&heap->range);
    }
    return status;
}

/* Return a window's memory. Failures are ignored, since nothing can be done about them. */
static void return_memory(ashlar_heap *heap, ashlar_window *w) {
    ashlar_range *range = &heap->range;
    const size_t bytes = range->handle_bytes;
    if (range->segments != NULL) {
        if (ashlar__range_free_segment(range, w->offset, w->bytes) != ASHLAR_OK) {
            range->mapped_bytes -= w->bytes;
        }
        return;
    }
    for (size_t i = 0; i < w->bytes / bytes && w->mapped_count > 0; i++) {
        if (w->backing[i].is_mapped) {
            ashlar__range_abandon(range, w->offset + i * bytes);
            (void)ASHLAR_CALL(range->client, mem_release, (w->backing[i].handle));
            range->mapped_bytes -= bytes;
            w->mapped_count--;
        }
    }
}

void ashlar__heap_finish(ashlar_heap *heap) {
    while (heap->windows != NULL) {
        ashlar_window *w = heap->windows;
        heap->windows = w->above;
        return_memory(heap, w);
        ashlar__host_free(w);
    }
    ashlar__range_finish(&heap->range);
    ashlar__page_map_finish(&heap->map);
    free_nodes(heap);
}

/* ---- windows ---- */

static void join_zone(ashlar_heap *heap, ashlar_window *w, ashlar_zone *zone) {
    if (zone->windows == NULL) {
        zone->next = heap->zones;
        heap->zones = zone;
    }
    w->zone = zone;
    w->next = zone->windows;
    zone->windows = w;
}

/* Take a zone that has no windows, and so no blocks, out of the heap's list. */
static void unlist_zone(ashlar_heap *heap, ashlar_zone *zone) {
    ashlar_zone **link = &heap->zones;
    ASHLAR_CHECK2(zone->used_bytes == 0);
    while (*link != zone) {
        link = &(*link)->next;
    }
    *link = zone->next;
    return_nodes(heap, zone);
}

static void leave_zone(ashlar_heap *heap, const ashlar_window *w) {
    ashlar_window **link = &w->zone->windows;
    while (*link != w) {
        link = &(*link)->next;
    }
    *link = w->next;
    if (w->zone->windows == NULL) {
        unlist_zone(heap, w->zone);
    }
}

void ashlar__heap_link_window(ashlar_heap *heap, ashlar_window *w, ashlar_zone *zone) {
    ashlar_window **link = &heap->windows;
    while (*link != NULL && (*link)->offset < w->offset) {
        link = &(*link)->above;
    }
    ASHLAR_CHECK2(*link == NULL || w->offset + w->bytes <= (*link)->offset);
    w->above = *link;
    *link = w;
    heap->window_count++;
    join_zone(heap, w, zone);
    ashlar_block *gap = pop_node(&zone->nodes);
    *gap = (ashlar_block){.offset = w->offset,
                          .bytes = w->bytes,
                          .state = ASHLAR_BLOCK_FREE,
                          .holes = w->bytes / heap->range.handle_bytes - w->mapped_count,
                          .window = w};
    w->first = w->last = gap;
    ashlar__free_bins_insert(&zone->gaps, gap);
    ASHLAR_CHECK2(is_settled(gap));
}

void ashlar__heap_drop_window(ashlar_heap *heap, ashlar_window *w) {
    ASHLAR_ASSERT(w->first == w->last && ashlar__block_is_free(w->first));
    ashlar__free_bins_remove(&w->zone->gaps, w->first);
    push_node(&heap->nodes, w->first);
    ashlar_window **link = &heap->windows;
    while (*link != w) {
        link = &(*link)->above;
    }
    *link = w->above;
    leave_zone(heap, w);
    heap->window_count--;
    ashlar__host_free(w);
}

void ashlar__window_move(ashlar_heap *heap, ashlar_window *w, ashlar_zone *to) {
    ASHLAR_ASSERT(w->first == w->last && w->mapped_count == 0);
    ashlar__free_bins_remove(&w->zone->gaps, w->first);
    leave_zone(heap, w);
    join_zone(heap, w, to);
    ashlar__free_bins_insert(&to->gaps, w->first);
}

void ashlar__zone_move(ashlar_heap *heap, ashlar_zone *from, ashlar_zone *to, bool is_past) {
    ASHLAR_CHECK2(from != to && from->windows != NULL);
    const uint64_t covered_by = is_past ? 0 : ashlar__stream_state_next(to->owner);
    ashlar_window **end = &from->windows;
    for (; *end != NULL; end = &(*end)->next) {
        ashlar_window *w = *end;
        for (ashlar_block *block = w->first; block != NULL; block = block->next) {
            if (ashlar__block_is_free(block)) {
                ashlar__free_bins_remove(&from->gaps, block);
                ashlar__free_bins_insert(&to->gaps, block);
            } else if (ashlar__block_is_cross(block)) {
                from->owner->cross_count--;
                to->owner->cross_count++;
                block->covered_by = covered_by;
            }
        }
        for (size_t i = 0, left = w->mapped_count; left > 0; i++) {
            ASHLAR_CHECK2(i < w->bytes / heap->range.handle_bytes);
            left -= w->backing[i].is_mapped;
            w->backing[i].covered_by = covered_by & (UINT64_MAX >> 1);
        }
        w->zone = to;
    }
    if (to->windows == NULL) {
        to->next = heap->zones;
        heap->zones = to;
    }
    to->used_bytes += from->used_bytes;
    from->used_bytes = 0;
    unlist_zone(heap, from);
    *end = to->windows;
    to->windows = from->windows;
    from->windows = NULL;
    ASHLAR_CHECK2(ashlar__free_bins_is_empty(&from->gaps));
}

/* ---- taking blocks and putting them back ---- */

/* Whether there is memory behind the first `bytes` of a gap. */
static inline bool is_backed(const ashlar_heap *heap, const ashlar_block *gap, size_t bytes) {
    const ashlar_window *w = gap->window;
    const ashlar_handle_span span = ashlar__handles_touched(heap, w, gap->offset, bytes);
    size_t i = span.first;
    while (i < span.end && w->backing[i].is_mapped) {
        i++;
    }
    return i == span.end;
}

size_t ashlar__heap_missing(const ashlar_heap *heap, const ashlar_block *gap, size_t bytes) {
    ASHLAR_CHECK2(ashlar__block_is_free(gap) && bytes > 0 && bytes <= gap->bytes);
    if (gap->holes == 0) {
        return 0;
    }
    const size_t count = ashlar__holes_in(
        gap->window, ashlar__handles_touched(heap, gap->window, gap->offset, bytes));
    ASHLAR_CHECK2(count <= gap->holes);
    return count * heap->range.handle_bytes;
}

/* The largest covered_by among the handles behind a byte range of a window. */
static uint64_t covered_by(const ashlar_heap *heap, const ashlar_window *w, size_t offset,
                           size_t bytes) {
    const ashlar_handle_span span = ashlar__handles_touched(heap, w, offset, bytes);
    uint64_t most = 0;
    for (size_t i = span.first; i < span.end; i++) {
        most = w->backing[i].covered_by > most ? w->backing[i].covered_by : most;
    }
    return most;
}

bool ashlar__heap_is_past_at(const ashlar_heap *heap, const ashlar_window *w, size_t offset,
                             size_t bytes) {
    return w->zone->owner->completed >= covered_by(heap, w, offset, bytes);
}

uint64_t ashlar__heap_tick_at(const ashlar_heap *heap, const ashlar_window *w, size_t offset,
                              size_t bytes) {
    const uint64_t number = covered_by(heap, w, offset, bytes);
    ASHLAR_CHECK2(number > 0);
    return number - 1;
}

/* Split a gap, which is in no bin, after `bytes` bytes, using one of its zone's nodes. Returns the
 * rest. */
static inline ashlar_block *split(ashlar_zone *zone, ashlar_block *gap, size_t bytes) {
    ASHLAR_CHECK2(bytes > 0 && bytes < gap->bytes && gap->window->zone == zone);
    ashlar_block *rest = pop_node(&zone->nodes), *next = gap->next;
    /* Set field by field, since compilers clear the whole node first for a compound literal. */
    rest->offset = gap->offset + bytes;
    rest->bytes = gap->bytes - bytes;
    rest->holes = gap->holes; /* the bytes before `rest` have no holes */
    rest->window = gap->window;
    rest->prev = gap;
    rest->next = next;
    gap->bytes = bytes;
    gap->next = rest;
    *(next != NULL ? &next->prev : &gap->window->last) = rest;
    ASHLAR_CHECK2(is_linked(gap) && is_linked(rest));
    return rest;
}

/* Take `bytes` from the front of a gap as a block, and enter it in the page map at `entry`. The
 * zone must have a spare node. */
static inline void take(ashlar_zone *zone, ashlar_block *gap, size_t bytes,
                        ashlar_page_entry *entry) {
    ASHLAR_CHECK2(ashlar__block_is_free(gap) && bytes > 0 && bytes <= gap->bytes);
    ASHLAR_CHECK2(bytes % ASHLAR_BLOCK_ALIGN == 0);
    ASHLAR_CHECK2(atomic_load_explicit(entry, memory_order_relaxed) == 0);
    ashlar__free_bins_remove(&zone->gaps, gap);
    if (bytes < gap->bytes) {
        ashlar__free_bins_insert(&zone->gaps, split(zone, gap, bytes));
    }
    ASHLAR_CHECK2(gap->marks == 0 && gap->own_use.stream_state == NULL);
    gap->state = ASHLAR_BLOCK_USED;
    gap->uses = NULL;
    atomic_store_explicit(entry, (uintptr_t)gap, memory_order_release);
    zone->used_bytes += bytes;
    ASHLAR_CHECK2(gap->bytes == bytes && is_linked(gap));
}

/* The page map's entry for a block that takes the first `bytes` of a gap; NULL: the zone's own
 * memory, nodes and pages do not suffice. */
static inline ashlar_page_entry *entry_at_hand(ashlar_heap *heap, const ashlar_zone *zone,
                                               const ashlar_block *gap, size_t bytes) {
    if (zone->nodes.count == 0 || (gap->holes > 0 && !is_backed(heap, gap, bytes))) {
        return NULL;
    }
    ashlar_page_entry *entry = ashlar__page_map_room(&heap->map, gap->offset);
    if (!ASHLAR_LIKELY(entry != NULL) && ashlar__page_map_has_leaf(&heap->map, gap->offset) &&
        ashlar__page_map_reserve(&heap->map, gap->offset) == ASHLAR_OK) {
        entry = ashlar__page_map_room(&heap->map, gap->offset);
    }
    return entry;
}

ashlar_block *ashlar__heap_take_fit(ashlar_heap *heap, ashlar_zone *zone, size_t bytes,
                                    bool may_be_last) {
    ashlar_block *gap = ashlar__free_bins_best_fit(&zone->gaps, bytes);
    if (!ASHLAR_LIKELY(gap != NULL && (may_be_last || gap->next != NULL))) {
        return NULL;
    }
    ashlar_page_entry *entry = entry_at_hand(heap, zone, gap, bytes);
    if (!ASHLAR_LIKELY(entry != NULL)) {
        return NULL;
    }
    take(zone, gap, bytes, entry);
    return gap;
}

/* Extend a gap over the gap behind it, whose node returns to the zone's pool. Neither is in a
 * bin. */
static inline void absorb(ashlar_zone *zone, ashlar_block *gap) {
    ashlar_block *other = gap->next, *next = other->next;
    gap->bytes += other->bytes;
    gap->holes += other->holes;
    gap->next = next;
    *(next != NULL ? &next->prev : &gap->window->last) = gap;
    push_node(&zone->nodes, other);
}

/* Make a block part of a gap, without stamping the handles behind it. */
static inline void put(ashlar_heap *heap, ashlar_zone *zone, ashlar_block *block) {
    ASHLAR_CHECK2(block->state == ASHLAR_BLOCK_USED);
    ashlar_free_bins *gaps = &zone->gaps;
    ASHLAR_CHECK2((block->marks & ~ASHLAR_BLOCK_BORROWED) == 0 && block->bytes <= zone->used_bytes);
    ashlar__page_map_set(&heap->map, block->offset, NULL);
    zone->used_bytes -= block->bytes;
    block->state = ASHLAR_BLOCK_FREE;
    block->requested = 0;
    block->stream_state = NULL; /* the state may be deleted before the gap is used again */
    block->marks = 0;
    block->holes = 0;
    ashlar_block *prev = block->prev, *next = block->next;
    if (next != NULL && ashlar__block_is_free(next)) {
        ashlar__free_bins_remove(gaps, next);
        absorb(zone, block);
    }
    if (prev != NULL && ashlar__block_is_free(prev)) {
        ashlar__free_bins_remove(gaps, prev);
        absorb(zone, prev);
        block = prev;
    }
    ashlar__free_bins_insert(gaps, block);
    ASHLAR_CHECK2(is_settled(block));
}

void ashlar__heap_put_stamped(ashlar_heap *heap, ashlar_block *block, uint64_t covered_by) {
    ashlar_window *w = block->window;
    const ashlar_handle_span span = ashlar__handles_touched(heap, w, block->offset, block->bytes);
    ashlar_backing *backing = &w->backing[span.first], *const end = &w->backing[span.end];
    do {
        if (backing->covered_by < covered_by) {
            backing->covered_by = covered_by & (UINT64_MAX >> 1);
        }
    } while (++backing < end);
    put(heap, w->zone, block);
}

void ashlar__heap_put(ashlar_heap *heap, ashlar_block *block) {
    ashlar__heap_put_stamped(heap, block, ashlar__stream_state_next(block->window->zone->owner));
}

/* ---- finding ---- */

static const ashlar_window *window_at(const ashlar_heap *heap, size_t offset) {
    const ashlar_window *w = heap->windows;
    while (w != NULL && w->offset + w->bytes <= offset) {
        w = w->above;
    }
    return w != NULL && w->offset <= offset ? w : NULL;
}

const ashlar_block *ashlar__heap_find(const ashlar_heap *heap, size_t offset) {
    const ashlar_window *w = window_at(heap, offset);
    const ashlar_block *block = w != NULL ? w->first : NULL;
    while (block != NULL && block->offset + block->bytes <= offset) {
        block = block->next;
    }
    return block;
}

bool ashlar__heap_is_mapped(const ashlar_heap *heap, size_t offset) {
    const ashlar_window *w = window_at(heap, offset);
    return w != NULL && w->backing[(offset - w->offset) / heap->range.handle_bytes].is_mapped;
}

/* The number of bytes from `offset` on for which a gap is all mapped, or all unmapped. */
static size_t part_of_gap(const ashlar_heap *heap, const ashlar_block *gap, size_t offset,
                          bool *is_mapped) {
    const ashlar_window *w = gap->window;
    const size_t size = heap->range.handle_bytes, end = gap->offset + gap->bytes;
    size_t at = (offset - w->offset) / size;
    *is_mapped = w->backing[at].is_mapped;
    do {
        at++;
    } while (w->offset + at * size < end && (bool)w->backing[at].is_mapped == *is_mapped);
    const size_t part_end = w->offset + at * size;
    return (part_end < end ? part_end : end) - offset;
}

bool ashlar__heap_next_piece(const ashlar_heap *heap, ashlar_heap_piece *piece) {
    const size_t offset = piece->offset + piece->bytes;
    const ashlar_block *block = piece->block;
    if (block == NULL) {
        block = ashlar__heap_first(heap);
    } else if (offset == block->offset + block->bytes) {
        block = ashlar__heap_next(block);
    }
    if (block == NULL) {
        return false;
    }
    *piece = (ashlar_heap_piece){.block = block,
                                 .offset = block == piece->block ? offset : block->offset,
                                 .bytes = block->bytes,
                                 .is_mapped = true};
    if (ashlar__block_is_free(block)) {
        piece->bytes = part_of_gap(heap, block, piece->offset, &piece->is_mapped);
    }
    return true;
}

/* ---- a run of memory in a gap ---- */

bool ashlar__heap_find_run(const ashlar_heap *heap, const ashlar_block *gap, size_t bytes,
                           size_t *out) {
    const size_t end = gap->offset + gap->bytes;
    uint64_t least = UINT64_MAX;
    for (size_t at = gap->offset; at < end && least > 0;) {
        bool is_mapped;
        const size_t run = part_of_gap(heap, gap, at, &is_mapped);
        const size_t places[] = {at, at + run - bytes};
        for (size_t i = 0; i < 2 && is_mapped && run >= bytes; i++) {
            const uint64_t number = covered_by(heap, gap->window, places[i], bytes);
            if (number < least) {
                least = number;
                *out = places[i];
            }
        }
        at += run;
    }
    return least < UINT64_MAX;
}

ashlar_status ashlar__heap_take_run(ashlar_heap *heap, ashlar_block *gap, size_t offset,
                                    size_t bytes, ashlar_block **out) {
    ashlar_zone *zone = gap->window->zone;
    const size_t end = offset + bytes, gap_end = gap->offset + gap->bytes;
    const size_t rests = (size_t)(offset > gap->offset) + (size_t)(end < gap_end);
    ASHLAR_CHECK2(offset >= gap->offset && end <= gap_end);
    ASHLAR_TRY(ashlar__page_map_reserve(&heap->map, offset));
    ASHLAR_TRY(ashlar__heap_reserve_nodes(heap, zone, rests));
    if (offset > gap->offset) {
        const size_t holes = gap->holes;
        ashlar__free_bins_remove(&zone->gaps, gap);
        ashlar_block *rest = split(zone, gap, offset - gap->offset);
        gap->holes = ashlar__holes_in(gap->window, ashlar__handles_inside(heap, gap));
        rest->holes = holes - gap->holes;
        ashlar__free_bins_insert(&zone->gaps, gap);
        ashlar__free_bins_insert(&zone->gaps, rest);
        gap = rest;
    }
    ASHLAR_CHECK2(ashlar__heap_missing(heap, gap, bytes) == 0);
    take(zone, gap, bytes, ashlar__page_map_room(&heap->map, offset));
    *out = gap;
    return ASHLAR_OK;
}
