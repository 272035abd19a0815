/* heap_map.c - giving zones new windows of addresses, mapping memory at the addresses of gaps, and
 * giving other devices access to that memory. */
#include "allocator/heap/heap_impl.h"

#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* ---- windows ---- */

/*
 * The bytes of addresses for a new window. The windows of the first streams can hold all of the
 * device's memory, and as many holes again. A program with hundreds of streams has too few
 * addresses for that, so its later streams get less.
 */
static size_t window_share(const ashlar_heap *heap) {
    const size_t memory = heap->range.memory_bytes;
    return heap->window_count < 4 ? 2 * memory : heap->window_count < 64 ? memory / 4 : memory / 64;
}

/*
 * The smallest window of at least `need` bytes that has no block, nor memory that the device may
 * still use; of two equal ones, one without memory. NULL: none.
 */
static ashlar_window *find_empty(const ashlar_heap *heap, size_t need) {
    ashlar_window *best = NULL;
    for (ashlar_window *w = heap->windows; w != NULL; w = w->above) {
        const bool is_better = best == NULL || w->bytes < best->bytes ||
                               (w->bytes == best->bytes && w->mapped_count < best->mapped_count);
        if (w->bytes >= need && is_better && ashlar__block_is_free(w->first) &&
            w->first == w->last && ashlar__heap_is_past(heap, w->first, w->bytes)) {
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
    size_t bytes = window_share(heap);
    bytes = bytes < left / 2 ? bytes : left / 2;
    bytes = zone->windows != NULL && bytes < 2 * zone->windows->bytes ? 2 * zone->windows->bytes
                                                                      : bytes;
    bytes = bytes < left ? bytes : left;
    bytes -= bytes % range->handle_bytes;
    bytes = bytes < need ? need : bytes;
    if (bytes > left) {
        ashlar_window *empty = find_empty(heap, need);
        if (empty != NULL) {
            ASHLAR_TRY(ashlar__heap_unmap_window(heap, empty));
            ashlar__window_move(heap, empty, zone);
            return ASHLAR_OK;
        }
        return ashlar__fail(ASHLAR_ENOMEM, "%zu bytes exceed the reserved address range", need);
    }
    ashlar_window *w = new_window(heap, bytes);
    if (w == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a window of %zu bytes", bytes);
    }
    w->offset = range->next_offset;
    w->bytes = bytes;
    range->next_offset += bytes;
    ashlar__heap_link_window(heap, w, zone);
    return ASHLAR_OK;
}

/* Blocks up to this size share segments. Larger ones get a segment of just their size. */
#define SHARED_SEGMENT_BYTES ((size_t)16 << 20)
/* Page-locked memory is the host's, too, which misses it. */
#define SHARED_HOST_SEGMENT_BYTES ((size_t)4 << 20)
/* On a small device, a segment is shared by as many blocks as fill 1/16 of the device's memory. */
enum { SEGMENTS_PER_DEVICE = 16 };
/* The size of a segment for blocks that have a size class. */
#define SMALL_SEGMENT_BYTES ((size_t)2 << 20)

static size_t max_of(size_t a, size_t b) {
    return a > b ? a : b;
}

/* The size of a segment for blocks of `need` bytes: enough for as many as fill it with little
 * waste. */
static size_t segment_bytes(const ashlar_range *range, size_t need) {
    const size_t part = range->memory_bytes / SEGMENTS_PER_DEVICE;
    const size_t most =
        range->kind == ASHLAR_RANGE_HOST ? SHARED_HOST_SEGMENT_BYTES : SHARED_SEGMENT_BYTES;
    const size_t shared = part < most ? part : most;
    const size_t least = max_of(need < shared ? shared : 0, range->growth_min_bytes);
    const size_t grain = range->handle_bytes;
    if (range->kind == ASHLAR_RANGE_SHARED && need % grain == 0) {
        return max_of(need, range->growth_min_bytes); /* a segment of its own, as whoever registers
                                                       * the block wants it */
    }
    if (need <= ASHLAR_SC_MAX_BYTES) {
        return (max_of(SMALL_SEGMENT_BYTES, range->growth_min_bytes) + grain - 1) / grain * grain;
    }
    size_t sum = need > least ? need : (least + need - 1) / need * need;
    size_t bytes = (sum + grain - 1) / grain * grain;
    while (bytes - sum > bytes / ASHLAR_WASTE_DIVISOR && bytes + need < 2 * least) {
        sum += need;
        bytes = (sum + grain - 1) / grain * grain;
    }
    return bytes;
}

ashlar_status ashlar__heap_exchange(ashlar_heap *heap, ashlar_block *misfit, size_t bytes) {
    ashlar_zone *zone = misfit->window->zone;
    ashlar_status status = ashlar__heap_add_window(heap, zone, bytes);
    if (status != ASHLAR_ENOMEM || !ashlar__heap_is_past(heap, misfit, misfit->bytes)) {
        return status;
    }
    status = ashlar__range_free_segment(&heap->range, misfit->window->offset, misfit->bytes);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar__heap_drop_window(heap, misfit->window);
    return ashlar__heap_add_window(heap, zone, bytes);
}

static ashlar_status add_segment_of(ashlar_heap *heap, ashlar_zone *zone, size_t bytes) {
    ashlar_status status = ashlar__range_allows(&heap->range, bytes);
    if (status != ASHLAR_OK) {
        return status; /* before allocating host memory in proportion to an absurd size */
    }
    ashlar_window *w = new_window(heap, bytes);
    if (w == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a segment of %zu bytes", bytes);
    }
    status = ashlar__range_take_segment(&heap->range, bytes, &w->offset);
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
    if (!ashlar__align_up(need, heap->range.handle_bytes, &least)) {
        return ashlar__fail(ASHLAR_ENOMEM, "%zu bytes are too many for a segment", need);
    }
    const size_t bytes = segment_bytes(&heap->range, need);
    const ashlar_status status = add_segment_of(heap, zone, bytes);
    return status == ASHLAR_ENOMEM && bytes > least ? add_segment_of(heap, zone, least) : status;
}

ashlar_status ashlar__heap_add_window(ashlar_heap *heap, ashlar_zone *zone, size_t bytes) {
    size_t need = 0;
    ashlar_status status = ashlar__heap_reserve_nodes(heap, zone, 1);
    if (status != ASHLAR_OK) {
        return status;
    }
    if (heap->range.segments != NULL) {
        return add_segment(heap, zone, bytes);
    }
    if (!ashlar__align_up(bytes, heap->range.handle_bytes, &need)) {
        return ashlar__fail(ASHLAR_ENOMEM, "%zu bytes are too many for a window", bytes);
    }
    return add_virtual(heap, zone, need);
}

/* ---- memory behind a gap ---- */

/* Create handles until `count` are spare. *created: the number of new handles, even on failure. */
static ashlar_status create(ashlar_range *range, size_t count, size_t *created) {
    ashlar_status status = ASHLAR_OK;
    *created = 0;
    while (status == ASHLAR_OK && range->spare_count < count) {
        status = ashlar__range_create(range);
        *created += status == ASHLAR_OK;
    }
    return status;
}

/* Make at least `count` handles spare. */
static ashlar_status provide(ashlar_heap *heap, const ashlar_heap_place *place, size_t count,
                             unsigned may) {
    ashlar_range *range = &heap->range;
    size_t created = 0, moved = 0;
    ashlar_status status = ashlar__range_reserve_spare(range, count);
    if (status != ASHLAR_OK) {
        return status;
    }
    if (count > range->spare_count && (may & ASHLAR_MAY_CREATE) == 0) {
        status = ashlar__fail(ASHLAR_ENOMEM, "no memory may be taken from the device");
    } else if (count > range->spare_count) {
        /* Check the limit first, so that no handle is created in vain. */
        const size_t need = (count - range->spare_count) * range->handle_bytes;
        const size_t elsewhere =
            ashlar__heap_free_bytes(heap) - range->spare_count * range->handle_bytes;
        const size_t most = (may & ASHLAR_MAY_MOVE) != 0 ? elsewhere : 0;
        status = need <= most ? ASHLAR_OK : ashlar__range_allows(range, need - most);
    }
    if (status == ASHLAR_OK) {
        status = create(range, count, &created);
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
    const ashlar_status status =
        ashlar__range_map(range, w->offset + first * range->handle_bytes, count);
    if (status != ASHLAR_OK) {
        return status;
    }
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
    ashlar_range *range = &heap->range;
    if (bytes <= range->mapped_bytes) {
        return ASHLAR_OK;
    }
    size_t lacking = 0;
    if (!ashlar__align_up(bytes - range->mapped_bytes, range->handle_bytes, &lacking)) {
        return ashlar__fail(ASHLAR_ENOMEM, "%zu bytes are more than there is", bytes);
    }
    if (range->segments != NULL) {
        const ashlar_status status = ashlar__heap_reserve_nodes(heap, zone, 1);
        return status == ASHLAR_OK ? add_segment_of(heap, zone, lacking) : status;
    }
    ashlar_status status = ashlar__range_allows(range, lacking);
    size_t created = 0;
    const size_t count = range->spare_count + lacking / range->handle_bytes;
    if (status == ASHLAR_OK) {
        status = ashlar__range_reserve_spare(range, count);
    }
    if (status == ASHLAR_OK) {
        status = create(range, count, &created);
    }
    while (status != ASHLAR_OK && created-- > 0 && ashlar__range_release(range) == ASHLAR_OK) {
    }
    return status;
}

/* ---- peers ---- */

/*
 * Find the first run of mapped handles from *first on. Sets *first to its start and returns its
 * end.
 */
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

/* Give or take back a device's access to all mapped memory, stopping at the first failure. */
static ashlar_status change_access(ashlar_heap *heap, int ordinal, bool is_open) {
    ashlar_range *range = &heap->range;
    const size_t size = range->handle_bytes;
    for (const ashlar_window *w = heap->windows; w != NULL; w = w->above) {
        const size_t count = w->bytes / size;
        for (size_t first = 0, end; first < count; first = end) {
            end = run_end(w, count, &first);
            if (end == first) {
                break;
            }
            const size_t offset = w->offset + first * size, bytes = (end - first) * size;
            if (!is_open) {
                ashlar__range_close(range, offset, bytes, ordinal);
                continue;
            }
            const ashlar_status status = ashlar__range_open(range, offset, bytes, ordinal);
            if (status != ASHLAR_OK) {
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
    if (range->peer_count == ASHLAR_PEERS_MAX) {
        return ashlar__fail(ASHLAR_ENOTSUP, "peer %d: at most %d devices can share an allocator",
                            ordinal, ASHLAR_PEERS_MAX + 1);
    }
    const ashlar_status status = change_access(heap, ordinal, true);
    if (status != ASHLAR_OK) {
        (void)change_access(heap, ordinal, false);
        return status;
    }
    range->peers[range->peer_count++] = ordinal;
    return ASHLAR_OK;
}
