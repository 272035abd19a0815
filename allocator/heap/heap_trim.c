/* heap_trim.c - returning idle memory to the device, and gathering it into one block. */
#include "allocator/heap/heap_impl.h"

#include "allocator/base/error.h"

/*
 * Choose chunks that lie in idle blocks other than `below` and `above`, from the top down, until
 * the chunks add up to `bytes` or more. Returns that sum; *count is the number of chosen chunks.
 */
static size_t choose(ashlar_heap *heap, size_t bytes, const ashlar_block *below,
                     const ashlar_block *above, size_t *count) {
    const ashlar_range *range = &heap->range;
    const ashlar_block *block = heap->last;
    size_t chosen = 0;
    *count = 0;
    for (size_t i = range->chunk_count; i-- > 0 && chosen < bytes;) {
        ashlar_chunk *chunk = &range->chunks[i];
        ASHLAR_CHECK2(!chunk->is_chosen && !chunk->is_gone);
        while (block->offset > chunk->offset) {
            block = block->prev;
        }
        if (ashlar__block_is_free(block) && block->stream_state == NULL && block != below &&
            block != above && chunk->offset + chunk->bytes <= block->offset + block->bytes) {
            chunk->is_chosen = true;
            chosen += chunk->bytes;
            ++*count;
        }
    }
    ASHLAR_CHECK2(chosen <= heap->free_bytes && (chosen > 0) == (*count > 0));
    return chosen;
}

static void choose_none(ashlar_heap *heap) {
    for (size_t i = 0; i < heap->range.chunk_count; i++) {
        heap->range.chunks[i].is_chosen = false;
    }
}

/* Make a hole in place of each chunk that is gone, and drop its entry. Needs two nodes for each. */
static void punch_gone(ashlar_heap *heap) {
    for (size_t i = heap->range.chunk_count; i-- > 0;) {
        const ashlar_chunk *chunk = &heap->range.chunks[i];
        if (chunk->is_gone) {
            ashlar__heap_punch_hole(heap, chunk->offset, chunk->bytes);
        }
    }
    ashlar__range_forget_gone(&heap->range);
    ASHLAR_CHECK2(ashlar__heap_is_balanced(heap));
}

/* Unmap the `count` chosen chunks, up to the first that the driver refuses. */
static ashlar_status unmap_chosen(ashlar_heap *heap, size_t count) {
    ashlar_status status = ashlar__heap_reserve_nodes(heap, 2 * count);
    for (size_t i = heap->range.chunk_count; i-- > 0 && status == ASHLAR_OK;) {
        if (heap->range.chunks[i].is_chosen) {
            status = ashlar__range_unmap(&heap->range, &heap->range.chunks[i]);
        }
    }
    choose_none(heap);
    punch_gone(heap);
    return status;
}

ashlar_status ashlar__heap_trim(ashlar_heap *heap, size_t target_bytes) {
    const size_t mapped = heap->range.mapped_bytes;
    if (mapped <= target_bytes) {
        return ASHLAR_OK;
    }
    ashlar__heap_sweep(heap);
    size_t count;
    (void)choose(heap, mapped - target_bytes, NULL, NULL, &count);
    return unmap_chosen(heap, count);
}

/* ---- gathering ---- */

static ashlar_status gather_segments(ashlar_heap *heap, ashlar_stream_state *state, size_t bytes,
                                     ashlar_block **out) {
    ashlar_status status;
    size_t count;
    do {
        status = ashlar__heap_grow(heap, state, bytes, out);
        if (status != ASHLAR_ENOMEM || choose(heap, 1, NULL, NULL, &count) == 0) {
            return status;
        }
        status = unmap_chosen(heap, count);
    } while (status == ASHLAR_OK);
    return status;
}

/* Move the `count` chosen chunks, of `bytes` together, to `place`; *out is the block there. */
static ashlar_status move_chosen(ashlar_heap *heap, const ashlar_stream_state *state,
                                 const ashlar_map_place *place, size_t bytes, size_t count,
                                 ashlar_block **out) {
    ASHLAR_CHECK2(count > 0 && bytes <= heap->free_bytes);
    const size_t offset = ashlar__map_place_offset(place, bytes);
    ashlar_status status = ashlar__heap_reserve_nodes(heap, 2 * count + 2);
    if (status == ASHLAR_OK) {
        status = ashlar__range_move(&heap->range, offset);
    }
    if (status == ASHLAR_OK) {
        *out = ashlar__heap_add_memory_for(heap, state, offset, bytes);
        for (size_t i = 0; i < heap->range.chunk_count; i++) {
            const ashlar_chunk *chunk = &heap->range.chunks[i];
            if (chunk->is_chosen) {
                ashlar__heap_punch_hole(heap, chunk->moved_from, chunk->bytes);
            }
        }
    }
    choose_none(heap);
    punch_gone(heap);
    return status;
}

/* Unmap what lies in [offset, offset + bytes), which has just been mapped. */
static void give_back(ashlar_heap *heap, size_t offset, size_t bytes) {
    size_t count = 0;
    for (size_t i = 0; i < heap->range.chunk_count; i++) {
        ashlar_chunk *chunk = &heap->range.chunks[i];
        chunk->is_chosen = chunk->offset >= offset && chunk->offset < offset + bytes;
        count += chunk->is_chosen;
    }
    (void)unmap_chosen(heap, count); /* what stays mapped is idle, and harmless */
}

/*
 * move_chosen() if the chunks are too small together: first map the `lacking` bytes, then move the
 * chunks beside them.
 */
static ashlar_status move_and_map(ashlar_heap *heap, const ashlar_stream_state *state,
                                  ashlar_map_place place, size_t moved, size_t lacking,
                                  size_t count, ashlar_block **out) {
    const size_t offset = ashlar__map_place_offset(&place, lacking);
    ashlar_block *unused;
    ashlar_status status = ashlar__heap_map(heap, state, &place, lacking, &unused);
    if (status != ASHLAR_OK) {
        choose_none(heap);
        return status;
    }
    *(place.is_high ? &place.high : &place.low) = place.is_high ? offset : offset + lacking;
    status = move_chosen(heap, state, &place, moved, count, out);
    if (status != ASHLAR_OK) {
        give_back(heap, offset, lacking);
    }
    return status;
}

ashlar_status ashlar__heap_gather(ashlar_heap *heap, ashlar_stream_state *state, size_t bytes,
                                  ashlar_block **out) {
    ashlar__heap_sweep(heap);
    /* Merging may just have made a block that is large enough. */
    ashlar_block *fit = ashlar__free_bins_best_fit(&heap->idle, bytes);
    if (fit == NULL) {
        fit = ashlar__free_bins_best_fit(&state->free, bytes);
    }
    if (fit != NULL) {
        *out = fit;
        return ASHLAR_OK;
    }
    if (heap->range.segments != NULL) {
        return gather_segments(heap, state, bytes, out);
    }
    /* With slack, since chunks seldom add up to just the size that is wanted. */
    ashlar_map_place place = {0};
    ashlar_status status = ashlar__heap_find_place(heap, state, bytes, ASHLAR_CHUNK_BYTES, &place);
    if (status != ASHLAR_OK) {
        return status;
    }
    size_t count;
    const size_t moved = choose(heap, place.need, place.below, place.above, &count);
    if (moved == 0) {
        return ashlar__fail(ASHLAR_ENOMEM, "no idle memory that could be gathered");
    }
    if (moved < place.need) {
        return move_and_map(heap, state, place, moved, place.need - moved, count, out);
    }
    return move_chosen(heap, state, &place, moved, count, out);
}
