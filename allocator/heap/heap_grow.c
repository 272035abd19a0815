/* heap_grow.c - mapping new memory where the least of it is enough for the wanted block. */
#include "allocator/heap/heap_impl.h"

#include "allocator/base/checked.h"
#include "allocator/base/error.h"

ashlar_block *ashlar__heap_add_memory_for(ashlar_heap *heap, const ashlar_stream_state *state,
                                          size_t offset, size_t bytes) {
    ashlar_block *block = ashlar__heap_add_memory(heap, offset, bytes);
    block->starts_segment = heap->range.segments != NULL;
    /*
     * Merge only with neighbours that `state` may use. Merged with another stream's block, the new
     * memory would get that block's stamp, and `state` would have to wait for that stream.
     */
    ashlar_block *prev, *next;
    do {
        prev = block->prev;
        next = block->next;
    } while ((prev != NULL && ashlar__block_is_usable(prev, state) &&
              ashlar__heap_try_merge(heap, &block, prev)) ||
             (next != NULL && ashlar__block_is_usable(next, state) &&
              ashlar__heap_try_merge(heap, &block, next)));
    ashlar__free_bins_insert(ashlar__heap_bins_of(heap, block), block);
    ASHLAR_CHECK2(ashlar__heap_is_linked(heap, block) && ashlar__block_is_usable(block, state));
    return block;
}

ashlar_status ashlar__heap_map(ashlar_heap *heap, const ashlar_stream_state *state,
                               const ashlar_map_place *place, size_t bytes, ashlar_block **out) {
    ASHLAR_CHECK2(bytes > 0 && ashlar__heap_is_balanced(heap));
    size_t offset = ashlar__map_place_offset(place, bytes);
    ashlar_status status = ashlar__heap_reserve_nodes(heap, 2);
    if (status == ASHLAR_OK) {
        status = ashlar__range_map(&heap->range, &offset, bytes);
    }
    if (status == ASHLAR_OK) {
        *out = ashlar__heap_add_memory_for(heap, state, offset, bytes);
        ASHLAR_CHECK2(ashlar__heap_is_balanced(heap));
    }
    return status;
}

/* ---- places ---- */

typedef struct search {
    const ashlar_stream_state *stream_state;
    size_t bytes, slack, granularity;
    bool is_alone;         /* free blocks beside the place do not count towards `bytes` */
    ashlar_map_place best; /* need == SIZE_MAX: none yet */
} search;

static size_t usable_bytes(const search *s, const ashlar_block *block) {
    return !s->is_alone && block != NULL && ashlar__block_is_usable(block, s->stream_state)
               ? block->bytes
               : 0;
}

/* The bytes to map so that `had` bytes become a block of s->bytes, rounded up to whole granules. */
static size_t missing(const search *s, size_t had) {
    ASHLAR_ASSERT(had < s->bytes); /* else there would be no need to grow */
    return (s->bytes - had + s->granularity - 1) & ~(s->granularity - 1);
}

static void consider(search *s, const ashlar_map_place *place, size_t need, bool is_high) {
    ASHLAR_CHECK2(need > 0 && need % s->granularity == 0 && place->low <= place->high);
    size_t room;
    if (need < s->best.need && ashlar__add(need, s->slack, &room) &&
        room <= place->high - place->low) {
        s->best = *place;
        s->best.need = need;
        s->best.is_high = is_high;
    }
}

/* Consider mapping memory in a hole: at its lower end, at its upper end, or all through it. */
static void consider_hole(search *s, const ashlar_block *hole) {
    const ashlar_map_place place = {.below = hole->prev,
                                    .above = hole->next,
                                    .low = hole->offset,
                                    .high = hole->offset + hole->bytes};
    const size_t below = usable_bytes(s, place.below), above = usable_bytes(s, place.above);
    consider(s, &place, missing(s, below), false);
    consider(s, &place, missing(s, above), true);
    if (below + hole->bytes + above >= s->bytes) {
        consider(s, &place, hole->bytes, false);
    }
}

static ashlar_status find_place(const ashlar_heap *heap, search s, ashlar_map_place *out) {
    const ashlar_range *range = &heap->range;
    const size_t end = ashlar__heap_end(heap);
    if (s.bytes <= range->bytes) {
        s.granularity = range->granularity;
        s.best.need = SIZE_MAX;
        /* Holes first: they win a tie against the place at the end, which uses up addresses. */
        const bool has_holes = end > range->mapped_bytes && range->segments == NULL;
        for (const ashlar_block *at = has_holes ? heap->first : NULL; at != NULL; at = at->next) {
            if (at->state == ASHLAR_BLOCK_UNMAPPED) {
                consider_hole(&s, at);
            }
        }
        /* The driver may put a segment anywhere, so it does not extend the last block. */
        s.is_alone = s.is_alone || range->segments != NULL;
        const ashlar_map_place top = {.below = heap->last, .low = end, .high = range->bytes};
        consider(&s, &top, missing(&s, usable_bytes(&s, heap->last)), false);
        if (s.best.need != SIZE_MAX) {
            ASHLAR_CHECK2(s.best.need <= s.best.high - s.best.low);
            *out = s.best;
            return ASHLAR_OK;
        }
    }
    return ashlar__fail(ASHLAR_ENOMEM, "%zu bytes exceed the reserved address range", s.bytes);
}

ashlar_status ashlar__heap_find_place(const ashlar_heap *heap, const ashlar_stream_state *state,
                                      size_t bytes, size_t slack, ashlar_map_place *out) {
    return find_place(heap, (search){.stream_state = state, .bytes = bytes, .slack = slack}, out);
}

/* ---- growing ---- */

ashlar_status ashlar__heap_grow(ashlar_heap *heap, ashlar_stream_state *state, size_t bytes,
                                ashlar_block **out) {
    ashlar_map_place place = {0};
    ashlar_status status = ashlar__heap_find_place(heap, state, bytes, 0, &place);
    if (status != ASHLAR_OK) {
        return status;
    }
    const size_t step = ashlar__range_growth_bytes(&heap->range);
    if (step > place.need && step <= place.high - place.low) {
        status = ashlar__heap_map(heap, state, &place, step, out);
        if (status != ASHLAR_ENOMEM) {
            return status;
        }
    }
    status = ashlar__heap_map(heap, state, &place, place.need, out);
    ASHLAR_CHECK2(status != ASHLAR_OK || (*out)->bytes >= bytes);
    return status;
}

ashlar_status ashlar__heap_reserve(ashlar_heap *heap, size_t bytes) {
    if (bytes <= heap->range.mapped_bytes) {
        return ASHLAR_OK;
    }
    const search piece = {.bytes = bytes - heap->range.mapped_bytes, .is_alone = true};
    ashlar_map_place place = {0};
    ashlar_block *unused;
    const ashlar_status status = find_place(heap, piece, &place);
    return status == ASHLAR_OK ? ashlar__heap_map(heap, NULL, &place, place.need, &unused) : status;
}
