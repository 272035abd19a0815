/* heap_check.c - the walk that compares a heap with every invariant of heap.h. */
#include "allocator/heap/heap_impl.h"

#include "allocator/base/error.h"

static ashlar_status broken(const ashlar_block *block, const char *what) {
    return ashlar__fail(ASHLAR_EFORMAT, "heap check: block at offset %zu of %zu bytes: %s",
                        block->offset, block->bytes, what);
}

static bool is_hole(const ashlar_block *block) {
    return block->state == ASHLAR_BLOCK_UNMAPPED;
}

static ashlar_status check_free(const ashlar_heap *heap, const ashlar_block *block) {
    const ashlar_free_bins *bins =
        block->stream_state != NULL ? &block->stream_state->free : &heap->idle;
    const ashlar_block *next = block->next;
    if (!ashlar__free_bins_has(bins, block)) {
        return broken(block, "free, but not in its bins");
    }
    if (next != NULL && ashlar__block_is_free(next) && next->stream_state == block->stream_state &&
        !next->starts_segment) {
        return broken(block, "not merged with the free block behind it");
    }
    return ASHLAR_OK;
}

static ashlar_status check_hole(const ashlar_block *block) {
    if (block->next == NULL || is_hole(block->next)) {
        return broken(block, "a hole at the end, or not merged with the hole behind it");
    }
    return block->stream_state == NULL && !block->starts_segment
               ? ASHLAR_OK
               : broken(block, "a hole, with a stamp or a segment's start");
}

static ashlar_status check_block(const ashlar_heap *heap, const ashlar_block *block) {
    const bool is_plan_memory = block->state == ASHLAR_BLOCK_PLAN_MEMORY;
    const bool is_used = block->state == ASHLAR_BLOCK_USED || is_plan_memory;
    const ashlar_block *mapped = ashlar__page_map_get(&heap->map, block->offset);
    /* The offset is aligned as well: it is the sum of the sizes below, which were checked. */
    if (block->bytes == 0 || block->bytes % ASHLAR_BLOCK_ALIGN != 0) {
        return broken(block, "not aligned, or empty");
    }
    if (is_plan_memory && block->requested != 0) {
        return broken(block, "a plan's memory, but bytes of it are asked for");
    }
    /* The page map has the slot blocks of plan memory instead of the block itself. */
    if (is_plan_memory ? mapped == block : mapped != (is_used ? block : NULL)) {
        return broken(block,
                      is_used ? "used, but not in the page map" : "free, but in the page map");
    }
    if (is_used && (block->requested > block->bytes || block->stream_state == NULL)) {
        return broken(block, "used, with a wrong size or no stream");
    }
    if (!is_used && block->requested != 0) {
        return broken(block, "not used, but bytes of it are asked for");
    }
    if (is_hole(block)) {
        return check_hole(block);
    }
    return is_used ? ASHLAR_OK : check_free(heap, block);
}

/*
 * Compare the chunks with the blocks. The chunks do not overlap, and have as many bytes as the
 * blocks that are not holes. So if no chunk reaches into a hole, they cover those blocks exactly.
 */
static ashlar_status check_chunks(const ashlar_heap *heap) {
    const ashlar_range *range = &heap->range;
    const ashlar_block *block = heap->first;
    size_t mapped_bytes = 0, end = 0;
    for (size_t i = 0; i < range->chunk_count; i++) {
        const ashlar_chunk *chunk = &range->chunks[i];
        if (chunk->offset < end || chunk->is_chosen || chunk->is_gone) {
            return ashlar__fail(ASHLAR_EFORMAT, "heap check: chunk %zu overlaps, or is half moved",
                                i);
        }
        end = chunk->offset + chunk->bytes;
        mapped_bytes += chunk->bytes;
        while (block != NULL && block->offset + block->bytes <= chunk->offset) {
            block = block->next;
        }
        const bool may_start = block != NULL && block->offset == chunk->offset;
        if (range->segments != NULL && !(may_start && block->starts_segment)) {
            return ashlar__fail(ASHLAR_EFORMAT, "heap check: segment %zu starts inside a block", i);
        }
        for (; block != NULL && block->offset < end; block = block->next) {
            if (is_hole(block)) {
                return broken(block, "a hole where memory is mapped");
            }
            if (block->offset + block->bytes > end) {
                break; /* the next chunk covers more of this block */
            }
        }
    }
    return mapped_bytes == range->mapped_bytes
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EFORMAT, "heap check: %zu bytes mapped, counted %zu",
                              mapped_bytes, range->mapped_bytes);
}

/* Compare the sums found by the walk over the blocks with those that the heap keeps. */
static ashlar_status check_sums(const ashlar_heap *heap, size_t used_bytes, size_t free_bytes) {
    if (used_bytes != heap->used_bytes || free_bytes != heap->free_bytes) {
        return ashlar__fail(ASHLAR_EFORMAT,
                            "heap check: %zu used and %zu free bytes, counted %zu and %zu",
                            used_bytes, free_bytes, heap->used_bytes, heap->free_bytes);
    }
    return used_bytes + free_bytes == heap->range.mapped_bytes
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EFORMAT, "heap check: blocks of %zu bytes, %zu mapped",
                              used_bytes + free_bytes, heap->range.mapped_bytes);
}

ashlar_status ashlar__heap_check(const ashlar_heap *heap) {
    size_t offset = 0, used_bytes = 0, free_bytes = 0;
    const ashlar_block *prev = NULL;
    for (const ashlar_block *block = heap->first; block != NULL; block = block->next) {
        if (block->offset != offset || block->prev != prev) {
            return broken(block, "does not follow the block before it");
        }
        const ashlar_status status = check_block(heap, block);
        if (status != ASHLAR_OK) {
            return status;
        }
        if (!is_hole(block)) {
            *(ashlar__block_is_free(block) ? &free_bytes : &used_bytes) += block->bytes;
        }
        offset += block->bytes;
        prev = block;
    }
    if (heap->last != prev) {
        return ashlar__fail(ASHLAR_EFORMAT, "heap check: blocks end at %zu, but not with the last",
                            offset);
    }
    const ashlar_status status = check_sums(heap, used_bytes, free_bytes);
    return status == ASHLAR_OK ? check_chunks(heap) : status;
}
