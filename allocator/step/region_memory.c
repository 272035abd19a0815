/*
 * region_memory.c - where a plan's region gets its memory: from the ladder, as a request does.
 */
#include "allocator/step/region_memory.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/core/ladder.h"
#include "allocator/core/seal.h"

/* A block of the heap's, free for work on `order`. */
static ashlar_status take_block(ashlar_allocator *a, ashlar_cache *own, ashlar_order *order,
                                size_t bytes, ashlar_block **out) {
    const ashlar_request request = {.order = order, .bytes = bytes, .own = own};
    ashlar_block *block = NULL;
    ashlar_step unused;
    if (bytes > a->heap.range.memory_bytes) {
        return ashlar_fail(ASHLAR_ENOMEM, "a plan of %zu bytes is more than the device has", bytes);
    }
    ashlar_status status = ashlar_ladder_find_locked(a, &request, &block, &unused);
    ashlar_note_mapped_locked(a);
    if (status == ASHLAR_OK) {
        status = ashlar_heap_take(&a->heap, block, bytes);
    }
    if (status == ASHLAR_OK) {
        block->order = order;
        *out = block;
    }
    return status;
}

ashlar_status ashlar_region_create_locked(ashlar_allocator *a, ashlar_cache *own,
                                          ashlar_order *order, size_t bytes, const size_t *offsets,
                                          size_t count, ashlar_plan_region **out) {
    ASHLAR_ASSERT(count > 0 && bytes > 0);
    ashlar_block *block = NULL;
    ashlar_plan_region *region = ashlar_region_new(count);
    if (region == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for a plan's region");
    }
    ashlar_status status = take_block(a, own, order, bytes, &block);
    if (status == ASHLAR_OK) {
        status = ashlar_region_place_locked(region, &a->heap, block, offsets);
        if (status != ASHLAR_OK) {
            ashlar_release_block_locked(&a->heap, block, order);
        }
    }
    if (status != ASHLAR_OK) {
        ashlar_region_free(region);
        return status;
    }
    *out = region;
    return ASHLAR_OK;
}
