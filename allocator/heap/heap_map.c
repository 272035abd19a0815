/* heap_map.c - memory behind addresses: windows for zones, mapping and unmapping behind gaps, the
 * place that needs the least memory, other devices' access. */
#include "allocator/heap/heap.h"

#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

static size_t min_of(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t max_of(size_t a, size_t b) {
    return a > b ? a : b;
}

/* ---- windows ---- */

/* The bytes of addresses for a new window. The windows of the first streams are large enough for
 * all of the device's memory, and as much again in holes between live blocks. A program with
 * hundreds of streams has too few addresses for that, so its later streams get less. */
static size_t window_share(const ashlar_heap *heap) {
    const size_t memory = heap->range.memory_bytes;
    return heap->window_count < 4 ? 2 * memory : heap->window_count < 64 ? memory / 4 : memory / 64;
}

/* Whether the device is done with the memory of a handle of `window`. */
static bool is_past(const ashlar_window *window, const ashlar_backing *backing) {
    return window->zone->owner->completed >= backing->covered_by;
}

static bool is_one_gap(const ashlar_window *w) {
    return w->first == w->last && ashlar__block_is_free(w->first);
}

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
        if (!backing->is_mapped || !is_past(w, backing) || is_kept(heap, kept, w, i)) {
            continue;
        }
        ASHLAR_TRY(ashlar__range_unmap(&heap->range, w->offset + i * heap->range.handle_bytes,
                                       backing->handle));
        *backing = (ashlar_backing){0};
        w->mapped_count--;
        gap->holes++;
        --*count;
    }
    return ASHLAR_OK;
}

/* Unmap the memory of a window that has no block. The device must be done with the memory. After an
 * error part of it is still mapped. */
static ashlar_status unmap_window(ashlar_heap *heap, ashlar_window *w) {
    size_t count = w->mapped_count;
    ASHLAR_CHECK2(is_one_gap(w));
    ASHLAR_TRY(ashlar__range_reserve_spare(&heap->range, heap->range.spare_count + count));
    return unmap_of_gap(heap, w->first, NULL, &count);
}

/* The smallest window of at least `need` bytes that has no block, nor memory that the device may
 * still use; of windows of one size, that with the least memory. NULL: there is none. */
static ashlar_window *find_empty(const ashlar_heap *heap, size_t need) {
    ashlar_window *best = NULL;
    for (ashlar_window *w = heap->windows; w != NULL; w = w->above) {
        const bool is_better = best == NULL || w->bytes < best->bytes ||
                               (w->bytes == best->bytes && w->mapped_count < best->mapped_count);
        if (w->bytes >= need && is_better && is_one_gap(w) &&
            ashlar__heap_is_past(heap, w->first, w->bytes)) {
            best = w;
        }
    }
    return best;
}

static ashlar_window *new_window(const ashlar_heap *heap, size_t bytes) {
    const size_t count = bytes / heap->range.handle_bytes;
    return ashlar__host_calloc(1, sizeof(ashlar_window) + count * sizeof(ashlar_backing));
}

static ashlar_status add_virtual(ashlar_heap *heap, ashlar_zone *zone, size_t need) {
    ashlar_range *range = &heap->range;
    const size_t left = range->bytes - range->next_offset;
    size_t bytes = min_of(window_share(heap), left / 2);
    bytes = zone->windows != NULL ? max_of(bytes, 2 * zone->windows->bytes) : bytes;
    bytes = min_of(bytes, left);
    bytes = max_of(bytes - bytes % range->handle_bytes, need);
    if (bytes > left) {
        ashlar_window *empty = find_empty(heap, need);
        ASHLAR_FAIL_IF(empty == NULL, ASHLAR_ENOMEM, "%zu bytes exceed the reserved address range",
                       need);
        ASHLAR_TRY(unmap_window(heap, empty));
        ashlar__window_move(heap, empty, zone);
        return ASHLAR_OK;
    }
    ashlar_window *w = new_window(heap, bytes);
    ASHLAR_FAIL_IF(w == NULL, ASHLAR_EHOSTMEM, "no host memory for a window of %zu bytes", bytes);
    w->offset = range->next_offset;
    w->bytes = bytes;
    range->next_offset += bytes;
    ashlar__heap_link_window(heap, w, zone);
    return ASHLAR_OK;
}

/* Blocks up to this size share segments. Larger ones get a segment of just their size. */
#define SHARED_SEGMENT_BYTES ((size_t)16 << 20)
/* A lower limit for page-locked memory, since the rest of the host has to do without it. */
#define SHARED_HOST_SEGMENT_BYTES ((size_t)4 << 20)
/* On a small device, shared segments are smaller: 1/16 of the device's memory. */
enum { SEGMENTS_PER_DEVICE = 16 };
/* The size of a segment for blocks that have a size class. */
#define SMALL_SEGMENT_BYTES ((size_t)2 << 20)

/* The size of a segment for blocks of `need` bytes. If they share segments, it is close to a
 * multiple of `need`, so that little is wasted. */
static size_t segment_bytes(const ashlar_range *range, size_t need) {
    const size_t part = range->memory_bytes / SEGMENTS_PER_DEVICE;
    const size_t most =
        range->kind == ASHLAR_RANGE_HOST ? SHARED_HOST_SEGMENT_BYTES : SHARED_SEGMENT_BYTES;
    const size_t shared = min_of(part, most);
    const size_t least = max_of(need < shared ? shared : 0, range->growth_min_bytes);
    const size_t grain = range->handle_bytes;
    if (range->kind == ASHLAR_RANGE_SHARED && need % grain == 0) {
        return max_of(need, range->growth_min_bytes); /* the block's own segment, so that a library
                                                       * can register it alone */
    }
    if (need <= ASHLAR_SC_MAX_BYTES) {
        return ashlar__round_up(max_of(SMALL_SEGMENT_BYTES, range->growth_min_bytes), grain);
    }
    size_t sum = need > least ? need : (least + need - 1) / need * need;
    size_t bytes = ashlar__round_up(sum, grain);
    while (bytes - sum > bytes / ASHLAR_WASTE_DIVISOR && bytes + need < 2 * least) {
        sum += need;
        bytes = ashlar__round_up(sum, grain);
    }
    return bytes;
}

ashlar_status ashlar__heap_exchange(ashlar_heap *heap, ashlar_block *misfit, size_t bytes) {
    ashlar_zone *zone = misfit->window->zone;
    const ashlar_status status = ashlar__heap_add_window(heap, zone, bytes);
    if (status != ASHLAR_ENOMEM || !ashlar__heap_is_past(heap, misfit, misfit->bytes)) {
        return status;
    }
    ASHLAR_TRY(ashlar__range_free_segment(&heap->range, misfit->window->offset, misfit->bytes));
    ashlar__heap_drop_window(heap, misfit->window);
    return ashlar__heap_add_window(heap, zone, bytes);
}

static ashlar_status add_segment_of(ashlar_heap *heap, ashlar_zone *zone, size_t bytes) {
    /* Check the limit first: for an absurd size the window's host memory would be absurd, too. */
    ASHLAR_TRY(ashlar__range_allows(&heap->range, bytes));
    ashlar_window *w = new_window(heap, bytes);
    ASHLAR_FAIL_IF(w == NULL, ASHLAR_EHOSTMEM, "no host memory for a segment of %zu bytes", bytes);
    const ashlar_status status = ashlar__range_take_segment(&heap->range, bytes, &w->offset);
    if (status != ASHLAR_OK) {
        ashlar__host_free(w);
        return status;
    }
    w->bytes = bytes;
    w->mapped_count = bytes / heap->range.handle_bytes;
    for (size_t i = 0; i < w->mapped_count; i++) {
        w->backing[i].is_mapped = 1;
    }
    ashlar__heap_link_window(heap, w, zone);
    return ASHLAR_OK;
}

static ashlar_status add_segment(ashlar_heap *heap, ashlar_zone *zone, size_t need) {
    size_t least = 0;
    ASHLAR_FAIL_IF(!ashlar__align_up(need, heap->range.handle_bytes, &least), ASHLAR_ENOMEM,
                   "%zu bytes are too many for a segment", need);
    const size_t bytes = segment_bytes(&heap->range, need);
    const ashlar_status status = add_segment_of(heap, zone, bytes);
    return status == ASHLAR_ENOMEM && bytes > least ? add_segment_of(heap, zone, least) : status;
}

ashlar_status ashlar__heap_add_window(ashlar_heap *heap, ashlar_zone *zone, size_t bytes) {
    size_t need = 0;
    ASHLAR_TRY(ashlar__heap_reserve_nodes(heap, zone, 1));
    if (heap->range.segments != NULL) {
        return add_segment(heap, zone, bytes);
    }
    ASHLAR_FAIL_IF(!ashlar__align_up(bytes, heap->range.handle_bytes, &need), ASHLAR_ENOMEM,
                   "%zu bytes are too many for a window", bytes);
    return add_virtual(heap, zone, need);
}

/* ---- memory behind a gap ---- */

/* Make at least `count` handles spare. The place `place` keeps its handles; it may be NULL. */
static ashlar_status provide(ashlar_heap *heap, const ashlar_heap_place *place, size_t count,
                             unsigned may) {
    ashlar_range *range = &heap->range;
    if (count <= range->spare_count) {
        return ASHLAR_OK;
    }
    /* Check the limit first, so that no handle is created in vain. */
    const size_t need = (count - range->spare_count) * range->handle_bytes;
    const size_t elsewhere =
        ashlar__heap_free_bytes(heap) - range->spare_count * range->handle_bytes;
    const size_t most = (may & ASHLAR_MAY_MOVE) != 0 ? elsewhere : 0;
    size_t created = 0, moved = 0;
    ashlar_status status =
        (may & ASHLAR_MAY_CREATE) == 0
            ? ashlar__fail(ASHLAR_ENOMEM, "no memory may be taken from the device")
        : need <= most ? ASHLAR_OK
                       : ashlar__range_allows(range, need - most);
    ASHLAR_THEN(status, ashlar__range_reserve_spare(range, count));
    while (status == ASHLAR_OK && range->spare_count < count) {
        status = ashlar__range_create(range);
        created += status == ASHLAR_OK;
    }
    if (status == ASHLAR_ENOMEM && (may & ASHLAR_MAY_MOVE) != 0) {
        const size_t lacking = count - range->spare_count;
        const ashlar_status unmapped = ashlar__heap_unmap_free(heap, place, lacking, &moved);
        status = unmapped != ASHLAR_OK ? unmapped : moved == lacking ? ASHLAR_OK : status;
    }
    while (status != ASHLAR_OK && created-- > 0 && ashlar__range_release(range) == ASHLAR_OK) {
    }
    return status;
}

/* Map spare handles at the first unmapped run of [*at, end). */
static ashlar_status map_run(ashlar_heap *heap, ashlar_block *gap, size_t *at, size_t end) {
    ashlar_window *w = gap->window;
    ashlar_range *range = &heap->range;
    while (*at < end && w->backing[*at].is_mapped) {
        ++*at;
    }
    const size_t first = *at;
    while (*at < end && !w->backing[*at].is_mapped) {
        ++*at;
    }
    const size_t count = *at - first;
    if (count == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__range_map(range, w->offset + first * range->handle_bytes, count));
    for (size_t i = 0; i < count; i++) {
        w->backing[first + i] =
            (ashlar_backing){.handle = range->spare[range->spare_count + i], .is_mapped = 1};
    }
    w->mapped_count += count;
    gap->holes -= count;
    return ASHLAR_OK;
}

size_t ashlar__heap_missing_at(const ashlar_heap *heap, const ashlar_heap_place *place) {
    const ashlar_window *w = place->gap->window;
    return heap->range.handle_bytes *
           ashlar__holes_in(w, ashlar__handles_touched(heap, w, place->offset, place->bytes));
}

ashlar_status ashlar__heap_back_at(ashlar_heap *heap, const ashlar_heap_place *place,
                                   unsigned may) {
    ashlar_block *gap = place->gap;
    const ashlar_window *w = gap->window;
    ASHLAR_CHECK2(ashlar__block_is_free(gap) && place->offset >= gap->offset);
    if (gap->holes == 0) {
        return ASHLAR_OK;
    }
    const ashlar_handle_span span = ashlar__handles_touched(heap, w, place->offset, place->bytes);
    const size_t count = ashlar__holes_in(w, span);
    ashlar_status status = count > 0 ? provide(heap, place, count, may) : ASHLAR_OK;
    for (size_t at = span.first; status == ASHLAR_OK && at < span.end;) {
        status = map_run(heap, gap, &at, span.end);
    }
    ASHLAR_CHECK2(status != ASHLAR_OK || ashlar__holes_in(w, span) == 0);
    return status;
}

ashlar_status ashlar__heap_reserve(ashlar_heap *heap, ashlar_zone *zone, size_t bytes) {
    const ashlar_range *range = &heap->range;
    size_t lacking = 0;
    if (bytes <= range->mapped_bytes) {
        return ASHLAR_OK;
    }
    ASHLAR_FAIL_IF(!ashlar__align_up(bytes - range->mapped_bytes, range->handle_bytes, &lacking),
                   ASHLAR_ENOMEM, "%zu bytes are more than there is", bytes);
    if (range->segments != NULL) {
        ASHLAR_TRY(ashlar__heap_reserve_nodes(heap, zone, 1));
        return add_segment_of(heap, zone, lacking);
    }
    return provide(heap, NULL, range->spare_count + lacking / range->handle_bytes,
                   ASHLAR_MAY_CREATE);
}

/* ---- giving back ---- */

/* Unmap free handles of a zone: first in the largest gaps, from which it takes blocks last. */
static ashlar_status unmap_of_zone(ashlar_heap *heap, const ashlar_zone *zone,
                                   const ashlar_heap_place *kept, size_t *count) {
    ashlar_block *gap = ashlar__free_bins_prev(&zone->gaps, SIZE_MAX, SIZE_MAX);
    for (; gap != NULL && gap->bytes >= heap->range.handle_bytes && *count > 0;
         gap = ashlar__free_bins_prev(&zone->gaps, gap->bytes, gap->offset)) {
        ASHLAR_TRY(unmap_of_gap(heap, gap, kept, count));
    }
    return ASHLAR_OK;
}

static ashlar_status unmap_of_zones(ashlar_heap *heap, bool have_ended,
                                    const ashlar_heap_place *kept, size_t *count) {
    for (const ashlar_zone *zone = heap->zones; zone != NULL && *count > 0; zone = zone->next) {
        if (ashlar__stream_state_has_ended(zone->owner) == have_ended) {
            ASHLAR_TRY(unmap_of_zone(heap, zone, kept, count));
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__heap_unmap_free(ashlar_heap *heap, const ashlar_heap_place *kept,
                                      size_t count, size_t *moved) {
    size_t left = count;
    *moved = 0;
    ASHLAR_TRY(ashlar__range_reserve_spare(&heap->range, heap->range.spare_count + count));
    ashlar_status status = unmap_of_zones(heap, true, kept, &left);
    ASHLAR_THEN(status, unmap_of_zones(heap, false, kept, &left));
    *moved = count - left;
    return status;
}

/* Return segments that are free as a whole. */
static ashlar_status free_segments(ashlar_heap *heap, size_t target_bytes) {
    for (ashlar_window *w = heap->windows, *above;
         w != NULL && heap->range.mapped_bytes > target_bytes; w = above) {
        above = w->above;
        if (is_one_gap(w) && ashlar__heap_is_past(heap, w->first, w->bytes)) {
            ASHLAR_TRY(ashlar__range_free_segment(&heap->range, w->offset, w->bytes));
            ashlar__heap_drop_window(heap, w);
        }
    }
    return ASHLAR_OK;
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

/* ---- the place that takes the fewest handles ---- */

/* The cost of a handle that a block touches. A handle costs nothing if other blocks use a part of
 * it, since it cannot be unmapped then, or if no other stream may have it yet. Among all other
 * handles, a mapped one costs a little less, since it saves a driver call. */
#define COST_MAPPED ((uint64_t)1 << 20)
#define COST_MISSING (COST_MAPPED + 1)
#define COST_BLOCKED ((uint64_t)1 << 52) /* another stream's work may still use it */

typedef struct search {
    const ashlar_heap *heap;
    const ashlar_stream_state *state;
    uint64_t least; /* the cost of *best */
    ashlar_heap_place *best;
} search;

static uint64_t cost_of(const search *s, const ashlar_window *w, ashlar_handle_span inside,
                        size_t idx) {
    const ashlar_backing *backing = &w->backing[idx];
    if (!is_past(w, backing)) {
        return w->zone->owner == s->state ? 0 : COST_BLOCKED;
    }
    return idx < inside.first || idx >= inside.end ? 0
           : backing->is_mapped                    ? COST_MAPPED
                                                   : COST_MISSING;
}

/* Try a block at the gap's start, and at the start of each later handle: a block that begins
 * further on in a handle touches no fewer handles. `cost` is the cost of the handles [at, end). */
static void search_gap(search *s, ashlar_block *gap, size_t bytes) {
    const ashlar_window *w = gap->window;
    const ashlar_handle_span inside = ashlar__handles_inside(s->heap, gap);
    const size_t last = gap->offset + gap->bytes - bytes, size = s->heap->range.handle_bytes;
    uint64_t cost = 0;
    size_t at = ashlar__handles_touched(s->heap, w, gap->offset, gap->bytes).first, end = at;
    for (size_t offset = gap->offset; offset <= last; offset = w->offset + at * size) {
        for (const size_t to = ashlar__handles_touched(s->heap, w, offset, bytes).end; end < to;) {
            cost += cost_of(s, w, inside, end++);
        }
        if (cost < s->least) {
            s->least = cost;
            *s->best = (ashlar_heap_place){gap, offset, bytes};
        }
        cost -= cost_of(s, w, inside, at++);
    }
}

static void search_zone(search *s, const ashlar_zone *zone, size_t bytes) {
    ashlar_block *gap = ashlar__free_bins_best_fit(&zone->gaps, bytes);
    for (; gap != NULL && s->least > 0;
         gap = ashlar__free_bins_next(&zone->gaps, gap->bytes, gap->offset)) {
        search_gap(s, gap, bytes);
    }
}

bool ashlar__heap_find_place(const ashlar_heap *heap, ashlar_stream_state *state, size_t bytes,
                             ashlar_heap_place *out) {
    search s = {.heap = heap, .state = state, .least = COST_BLOCKED, .best = out};
    const ashlar_zone *own = ashlar__zone_of(state, bytes);
    search_zone(&s, own, bytes);
    search_zone(&s, own == state->zones ? &state->zones[1] : state->zones, bytes);
    for (const ashlar_zone *zone = heap->zones; zone != NULL; zone = zone->next) {
        if (zone->owner != state && !zone->owner->is_pool) {
            search_zone(&s, zone, bytes);
        }
    }
    return s.least < COST_BLOCKED;
}

/* ---- peers ---- */

/* Move *first to the next mapped handle, and return the end of the run of mapped handles there. */
static size_t run_end(const ashlar_window *w, size_t count, size_t *first) {
    while (*first < count && !w->backing[*first].is_mapped) {
        ++*first;
    }
    size_t end = *first;
    while (end < count && w->backing[end].is_mapped) {
        end++;
    }
    return end;
}

/* Give a device access to all mapped memory, up to the first failure; or end it where possible. */
static ashlar_status change_access(ashlar_heap *heap, int ordinal, bool is_open) {
    const size_t size = heap->range.handle_bytes;
    for (const ashlar_window *w = heap->windows; w != NULL; w = w->above) {
        const size_t count = w->bytes / size;
        for (size_t first = 0, end; (end = run_end(w, count, &first)) > first; first = end) {
            const ashlar_status status = ashlar__range_set_access(
                &heap->range, w->offset + first * size, (end - first) * size, ordinal, is_open);
            if (is_open && status != ASHLAR_OK) {
                return status;
            }
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__heap_allow_peer(ashlar_heap *heap, int ordinal) {
    ashlar_range *range = &heap->range;
    const int own = range->client->device->info.ordinal;
    bool is_known = ordinal == own;
    for (size_t i = 0; i < range->peer_count; i++) {
        is_known = is_known || range->peers[i] == ordinal;
    }
    if (is_known) {
        return ASHLAR_OK;
    }
    if (range->segments != NULL && range->kind != ASHLAR_RANGE_SHARED) {
        return ashlar__fail(ASHLAR_ENOTSUP,
                            "peer %d: device %d has no virtual memory management; copy between "
                            "them instead",
                            ordinal, own);
    }
    ASHLAR_FAIL_IF(range->peer_count == ASHLAR_PEERS_MAX, ASHLAR_ENOTSUP,
                   "peer %d: at most %d devices can share an allocator", ordinal,
                   ASHLAR_PEERS_MAX + 1);
    const ashlar_status status = change_access(heap, ordinal, true);
    if (status != ASHLAR_OK) {
        ASHLAR_IGNORE(change_access(heap, ordinal, false)); /* takes back what it can */
        return status;
    }
    range->peers[range->peer_count++] = ordinal;
    return ASHLAR_OK;
}
