/* heap_trim.c - unmapping, or giving back, free memory that the device is done with. */
#include "allocator/heap/heap_impl.h"

#include "allocator/base/error.h"

/* Which zones to search: those of ended streams, or the others. */
typedef enum zone_kind { ENDED, ALIVE } zone_kind;

/* Whether the handle lies in the place `kept`, which must keep its memory; NULL: no such place. */
static bool is_kept(const ashlar_heap *heap, const ashlar_heap_place *kept, const ashlar_window *w,
                    size_t idx) {
    if (kept == NULL || kept->gap->window != w) {
        return false;
    }
    const ashlar_handle_span span = ashlar__handles_touched(heap, w, kept->offset, kept->bytes);
    return idx >= span.first && idx < span.end;
}

/* Unmap up to *count free handles of a gap, from its top down, and lower *count by their number. */
static ashlar_status unmap_of_gap(ashlar_heap *heap, ashlar_block *gap,
                                  const ashlar_heap_place *kept, size_t *count) {
    ashlar_window *w = gap->window;
    const ashlar_handle_span span = ashlar__handles_inside(heap, gap);
    for (size_t i = span.end; i-- > span.first && *count > 0;) {
        ashlar_backing *backing = &w->backing[i];
        if (!backing->is_mapped || !ashlar__backing_is_past(w, backing) ||
            is_kept(heap, kept, w, i)) {
            continue;
        }
        const ashlar_status status = ashlar__range_unmap(
            &heap->range, w->offset + i * heap->range.handle_bytes, backing->handle);
        if (status != ASHLAR_OK) {
            return status;
        }
        *backing = (ashlar_backing){0};
        w->mapped_count--;
        gap->holes++;
        --*count;
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__heap_unmap_window(ashlar_heap *heap, ashlar_window *w) {
    size_t count = w->mapped_count;
    ASHLAR_CHECK2(w->first == w->last && ashlar__block_is_free(w->first));
    ASHLAR_TRY(ashlar__range_reserve_spare(&heap->range, heap->range.spare_count + count));
    return unmap_of_gap(heap, w->first, NULL, &count);
}

/* The largest gaps first, since a zone uses those last. */
static ashlar_status unmap_of_zone(ashlar_heap *heap, const ashlar_zone *zone,
                                   const ashlar_heap_place *kept, size_t *count) {
    ashlar_block *gap = ashlar__free_bins_prev(&zone->gaps, SIZE_MAX, SIZE_MAX);
    ashlar_status status = ASHLAR_OK;
    while (status == ASHLAR_OK && gap != NULL && gap->bytes >= heap->range.handle_bytes &&
           *count > 0) {
        status = unmap_of_gap(heap, gap, kept, count);
        gap = ashlar__free_bins_prev(&zone->gaps, gap->bytes, gap->offset);
    }
    return status;
}

static bool is_ended(const ashlar_zone *zone) {
    return zone->owner->is_gone || zone->owner->is_ended;
}

static ashlar_status unmap_of_zones(ashlar_heap *heap, zone_kind kind,
                                    const ashlar_heap_place *kept, size_t *count) {
    ashlar_status status = ASHLAR_OK;
    for (const ashlar_zone *zone = heap->zones; zone != NULL && status == ASHLAR_OK && *count > 0;
         zone = zone->next) {
        if (is_ended(zone) == (kind == ENDED)) {
            status = unmap_of_zone(heap, zone, kept, count);
        }
    }
    return status;
}

ashlar_status ashlar__heap_unmap_free(ashlar_heap *heap, const ashlar_heap_place *kept,
                                      size_t count, size_t *moved) {
    size_t left = count;
    *moved = 0;
    ashlar_status status =
        ashlar__range_reserve_spare(&heap->range, heap->range.spare_count + count);
    if (status == ASHLAR_OK) {
        status = unmap_of_zones(heap, ENDED, kept, &left);
    }
    if (status == ASHLAR_OK) {
        status = unmap_of_zones(heap, ALIVE, kept, &left);
    }
    *moved = count - left;
    return status;
}

/* Return segments that are free as a whole. */
static ashlar_status free_segments(ashlar_heap *heap, size_t target_bytes) {
    ashlar_status status = ASHLAR_OK;
    for (ashlar_window *w = heap->windows, *above; w != NULL && status == ASHLAR_OK; w = above) {
        above = w->above;
        if (heap->range.mapped_bytes <= target_bytes) {
            break;
        }
        if (w->first == w->last && ashlar__block_is_free(w->first) &&
            ashlar__heap_is_past(heap, w->first, w->bytes)) {
            status = ashlar__range_free_segment(&heap->range, w->offset, w->bytes);
            if (status == ASHLAR_OK) {
                ashlar__heap_drop_window(heap, w);
            }
        }
    }
    return status;
}

ashlar_status ashlar__heap_trim(ashlar_heap *heap, size_t target_bytes) {
    ashlar_range *range = &heap->range;
    if (range->mapped_bytes <= target_bytes) {
        return ASHLAR_OK;
    }
    if (range->segments != NULL) {
        return free_segments(heap, target_bytes);
    }
    const size_t size = range->handle_bytes;
    const size_t count = (range->mapped_bytes - target_bytes + size - 1) / size;
    size_t moved = 0;
    ashlar_status status = ASHLAR_OK;
    if (count > range->spare_count) {
        status = ashlar__heap_unmap_free(heap, NULL, count - range->spare_count, &moved);
    }
    while (status == ASHLAR_OK && range->spare_count > 0 && range->mapped_bytes > target_bytes) {
        status = ashlar__range_release(range);
    }
    return status;
}

/* ---- what could serve elsewhere ---- */

static bool is_live(const ashlar_block *block) {
    return block->state == ASHLAR_BLOCK_PLAN_MEMORY ||
           (block->state == ASHLAR_BLOCK_USED && block->requested != 0);
}

/* The number of a window's handles that no live block touches. */
static size_t free_handles(const ashlar_heap *heap, const ashlar_window *w) {
    size_t kept = 0, end = 0;
    for (const ashlar_block *block = w->first; block != NULL; block = block->next) {
        if (is_live(block)) {
            const ashlar_handle_span span =
                ashlar__handles_touched(heap, w, block->offset, block->bytes);
            kept += span.end - (span.first > end ? span.first : end);
            end = span.end;
        }
    }
    ASHLAR_CHECK2(kept <= w->mapped_count);
    return w->mapped_count - kept;
}

/* The number of blocks of a handle's size that fit between the live blocks of a segment. */
static size_t free_places(const ashlar_heap *heap, const ashlar_window *w) {
    const size_t size = heap->range.handle_bytes;
    size_t count = 0, start = w->offset;
    for (const ashlar_block *block = w->first; block != NULL; block = block->next) {
        if (is_live(block)) {
            count += (block->offset - start) / size;
            start = block->offset + block->bytes;
        }
    }
    return count + (w->offset + w->bytes - start) / size;
}

size_t ashlar__heap_servable_bytes(const ashlar_heap *heap) {
    const bool has_segments = heap->range.segments != NULL;
    size_t count = heap->range.spare_count;
    for (const ashlar_window *w = heap->windows; w != NULL; w = w->above) {
        count += !has_segments             ? free_handles(heap, w)
                 : w->zone->owner->is_pool ? 0
                                           : free_places(heap, w);
    }
    return count * heap->range.handle_bytes;
}
