/*
 * plan_memory_create.c - where a plan's memory gets its memory: from the ladder, as a request does.
 */
#include "allocator/step/plan_memory_create.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/core/slow_path.h"

/* A block of the heap's, free for work on `state`. */
static ashlar_status take_block(ashlar_allocator *a, ashlar_cache *own, ashlar_stream_state *state,
                                size_t bytes, ashlar_block **out) {
    const ashlar_request request = {.stream_state = state, .bytes = bytes, .own = own};
    ashlar_block *block = NULL;
    ashlar_rung unused;
    if (bytes > a->heap.range.memory_bytes) {
        return ashlar__fail(ASHLAR_ENOMEM, "a plan of %zu bytes is more than the device has",
                            bytes);
    }
    ashlar_status status = ashlar__ladder_find_locked(a, &request, &block, &unused);
    ashlar__update_reserved_peak_locked(a);
    if (status == ASHLAR_OK) {
        status = ashlar__heap_take(&a->heap, block, bytes);
    }
    if (status == ASHLAR_OK) {
        block->stream_state = state;
        *out = block;
    }
    return status;
}

ashlar_status ashlar__plan_memory_create_locked(ashlar_allocator *a, ashlar_cache *own,
                                                ashlar_stream_state *state, size_t bytes,
                                                const size_t *offsets, size_t count,
                                                ashlar_plan_memory **out) {
    ASHLAR_ASSERT(count > 0 && bytes > 0);
    ashlar_block *block = NULL;
    ashlar_plan_memory *memory = ashlar__region_new(count);
    if (memory == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a plan's memory");
    }
    ashlar_status status = take_block(a, own, state, bytes, &block);
    if (status == ASHLAR_OK) {
        status = ashlar__region_place_locked(memory, &a->heap, block, offsets);
        if (status != ASHLAR_OK) {
            ashlar__release_block_locked(&a->heap, block, state);
        }
    }
    if (status != ASHLAR_OK) {
        ashlar__plan_memory_free(memory);
        return status;
    }
    *out = memory;
    return ASHLAR_OK;
}
