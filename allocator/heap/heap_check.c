/* heap_check.c - walks over a heap and its queues that check the invariants of heap.h and
 * stream_state.h. */
#include "allocator/heap/heap.h"

#include "allocator/base/error.h"

static ashlar_status broken(const ashlar_block *block, const char *what) {
    return ashlar__fail(ASHLAR_EFORMAT, "heap check: block at offset %zu of %zu bytes: %s",
                        block->offset, block->bytes, what);
}

static ashlar_status broken_window(const ashlar_window *w, const char *what) {
    return ashlar__fail(ASHLAR_EFORMAT, "heap check: window at offset %zu of %zu bytes: %s",
                        w->offset, w->bytes, what);
}

static ashlar_status check_gap(const ashlar_heap *heap, const ashlar_block *gap) {
    const size_t holes = ashlar__holes_in(gap->window, ashlar__handles_inside(heap, gap));
    return !ashlar__free_bins_has(&gap->window->zone->gaps, gap)
               ? broken(gap, "a gap, but not in its zone's bins")
           : gap->next != NULL && ashlar__block_is_free(gap->next)
               ? broken(gap, "not merged with the gap behind it")
           : gap->stream_state != NULL ? broken(gap, "a gap, but it has a stream")
           : gap->requested != 0       ? broken(gap, "a gap, but bytes of it are asked for")
           : gap->holes != holes       ? broken(gap, "its holes are miscounted")
                                       : ASHLAR_OK;
}

static ashlar_status check_used(const ashlar_heap *heap, const ashlar_block *block) {
    const ashlar_window *w = block->window;
    if (block->state == ASHLAR_BLOCK_PLAN_MEMORY && block->requested != 0) {
        return broken(block, "a plan's memory, but bytes of it are asked for");
    }
    if (block->requested > block->bytes || block->stream_state == NULL) {
        return broken(block, "used, with a wrong size or no stream");
    }
    return ashlar__holes_in(w, ashlar__handles_touched(heap, w, block->offset, block->bytes)) == 0
               ? ASHLAR_OK
               : broken(block, "used, but memory is missing behind it");
}

static ashlar_status check_block(const ashlar_heap *heap, const ashlar_block *block) {
    const bool is_plan_memory = block->state == ASHLAR_BLOCK_PLAN_MEMORY;
    const bool is_used = !ashlar__block_is_free(block);
    const ashlar_block *mapped = ashlar__page_map_get(&heap->map, block->offset);
    /* The offset needs no check: it is the sum of the sizes of lower blocks, which are aligned. */
    if (block->bytes == 0 || block->bytes % ASHLAR_BLOCK_ALIGN != 0) {
        return broken(block, "not aligned, or empty");
    }
    /* For plan memory the page map has the slot blocks instead of this block. */
    if (is_plan_memory ? mapped == block : mapped != (is_used ? block : NULL)) {
        return broken(block,
                      is_used ? "used, but not in the page map" : "free, but in the page map");
    }
    return is_used ? check_used(heap, block) : check_gap(heap, block);
}

/* Whether all of a window's memory is past once the owner's last use is, as its stamps say. */
static bool is_covered(const ashlar_window *w, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (w->backing[i].is_mapped && w->backing[i].covered_by > w->zone->owner->last_tick + 1) {
            return false;
        }
    }
    return true;
}

static ashlar_status check_window(const ashlar_heap *heap, const ashlar_window *w) {
    size_t offset = w->offset;
    const ashlar_block *prev = NULL;
    for (const ashlar_block *block = w->first; block != NULL; block = block->next) {
        if (block->offset != offset || block->prev != prev || block->window != w) {
            return broken(block, "does not follow the block before it");
        }
        ASHLAR_TRY(check_block(heap, block));
        offset += block->bytes;
        prev = block;
    }
    if (w->last != prev || offset != w->offset + w->bytes) {
        return broken_window(w, "its blocks do not end where it does");
    }
    const size_t count = w->bytes / heap->range.handle_bytes;
    if (w->mapped_count != count - ashlar__holes_in(w, (ashlar_handle_span){0, count})) {
        return broken_window(w, "its mapped handles are miscounted");
    }
    if (!is_covered(w, count)) {
        return broken_window(w, "memory stamped after its owner's last tick");
    }
    return heap->range.segments == NULL || w->mapped_count == count
               ? ASHLAR_OK
               : broken_window(w, "a segment with a hole");
}

static size_t used_bytes_of(const ashlar_window *w) {
    size_t bytes = 0;
    for (const ashlar_block *block = w->first; block != NULL; block = block->next) {
        bytes += ashlar__block_is_free(block) ? 0 : block->bytes;
    }
    return bytes;
}

/* Check that each window is in its zone's list, that each zone with windows is in the heap's list,
 * and that used_bytes of each zone is right. */
static ashlar_status check_zones(const ashlar_heap *heap) {
    size_t count = 0;
    for (const ashlar_zone *zone = heap->zones; zone != NULL; zone = zone->next) {
        size_t used = 0;
        ASHLAR_FAIL_IF(zone->windows == NULL, ASHLAR_EFORMAT,
                       "heap check: a zone without windows is listed");
        for (const ashlar_window *w = zone->windows; w != NULL; w = w->next, count++) {
            if (w->zone != zone) {
                return broken_window(w, "in the list of another zone");
            }
            used += used_bytes_of(w);
        }
        ASHLAR_FAIL_IF(used != zone->used_bytes, ASHLAR_EFORMAT,
                       "heap check: %zu bytes of a zone used, counted %zu", used, zone->used_bytes);
    }
    return count == heap->window_count
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EFORMAT, "heap check: zones have %zu of %zu windows", count,
                              heap->window_count);
}

ashlar_status ashlar__heap_check(const ashlar_heap *heap) {
    size_t handles = heap->range.spare_count, count = 0, end = 0;
    for (const ashlar_window *w = heap->windows; w != NULL; w = w->above, count++) {
        if (w->offset < end) {
            return broken_window(w, "overlaps the window below it");
        }
        end = w->offset + w->bytes;
        handles += w->mapped_count;
        ASHLAR_TRY(check_window(heap, w));
    }
    ASHLAR_FAIL_IF(!ashlar__range_is_sound(&heap->range), ASHLAR_EFORMAT,
                   "heap check: the range contradicts itself");
    ASHLAR_FAIL_IF(count != heap->window_count, ASHLAR_EFORMAT,
                   "heap check: %zu windows, counted %zu", count, heap->window_count);
    ASHLAR_FAIL_IF(handles * heap->range.handle_bytes != heap->range.mapped_bytes, ASHLAR_EFORMAT,
                   "heap check: %zu bytes mapped, counted %zu", handles * heap->range.handle_bytes,
                   heap->range.mapped_bytes);
    return check_zones(heap);
}

ashlar_status ashlar__cross_check(const ashlar_heap *heap) {
    size_t bytes = 0;
    for (const ashlar_stream_state *user = heap->awaited; user != NULL; user = user->next_awaited) {
        const ashlar_block *newest = NULL;
        for (const ashlar_block *block = user->oldest_cross; block != NULL; block = block->older) {
            ASHLAR_FAIL_IF(!user->is_awaited || !ashlar__block_is_shared(block) ||
                               ashlar__block_live_bytes(block) != 0 || block->uses == NULL ||
                               block->uses->stream_state != user,
                           ASHLAR_EFORMAT,
                           "cross-stream check: block at offset %zu is in the wrong queue",
                           block->offset);
            bytes += block->bytes;
            newest = block;
        }
        ASHLAR_FAIL_IF(newest != user->newest_cross, ASHLAR_EFORMAT,
                       "cross-stream check: a queue does not end where it says");
    }
    return bytes == heap->cross_bytes
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EFORMAT,
                              "cross-stream check: %zu bytes in queues, counted %zu", bytes,
                              heap->cross_bytes);
}
