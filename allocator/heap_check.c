#include "heap.h"

#include "error.h"
#include "size_class.h"

static ashlar_status broken(const ashlar_block *block, const char *what) {
    return ashlar_fail(ASHLAR_EFORMAT, "heap check: block at offset %zu of %zu bytes: %s",
                       block->offset, block->bytes, what);
}

static ashlar_status check_free(const ashlar_heap *heap, const ashlar_block *block) {
    const ashlar_free_bins *bins = block->order != NULL ? &block->order->free : &heap->idle;
    if (!ashlar_free_bins_has(bins, block)) {
        return broken(block, "free, but not in its bins");
    }
    if (block->next != NULL && block->next->state == ASHLAR_BLOCK_FREE &&
        block->next->order == block->order) {
        return broken(block, "not merged with the free block behind it");
    }
    return ASHLAR_OK;
}

static ashlar_status check_block(const ashlar_heap *heap, const ashlar_block *block) {
    const bool is_free = block->state == ASHLAR_BLOCK_FREE;
    const bool is_live = block->state == ASHLAR_BLOCK_LIVE;
    const ashlar_block *mapped = ashlar_page_map_get(&heap->map, block->offset);
    /* So is the offset then: it is the sum of the sizes before it. */
    if (block->bytes == 0 || block->bytes % ASHLAR_BLOCK_ALIGN != 0) {
        return broken(block, "not aligned, or empty");
    }
    if (mapped != (is_free ? NULL : block)) {
        return broken(block,
                      is_free ? "free, but in the page map" : "live, but not in the page map");
    }
    if (is_live &&
        (block->requested == 0 || block->requested > block->bytes || block->order == NULL)) {
        return broken(block, "live, with a wrong size or no stream");
    }
    if (!is_live && block->requested != 0) {
        return broken(block, "not live, but bytes of it are asked for");
    }
    return is_free ? check_free(heap, block) : ASHLAR_OK;
}

ashlar_status ashlar_heap_check(const ashlar_heap *heap) {
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
        *(block->state == ASHLAR_BLOCK_FREE ? &free_bytes : &used_bytes) += block->bytes;
        offset += block->bytes;
        prev = block;
    }
    if (offset != heap->range.mapped_bytes || heap->last != prev) {
        return ashlar_fail(ASHLAR_EFORMAT, "heap check: blocks end at %zu, the mapped range at %zu",
                           offset, heap->range.mapped_bytes);
    }
    if (used_bytes != heap->used_bytes || free_bytes != heap->free_bytes) {
        return ashlar_fail(ASHLAR_EFORMAT,
                           "heap check: %zu used and %zu free bytes, counted %zu and %zu",
                           used_bytes, free_bytes, heap->used_bytes, heap->free_bytes);
    }
    return ASHLAR_OK;
}
