/*
 * lookup.c - finding the block of an address, and saying what is wrong with an address that has
 * none.
 */
#include "allocator/core/slow_path.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/core/forked.h"
#include "allocator/core/hold.h"
#include "allocator/plan/planner.h"

/*
 * The block that contains an offset. Inside a plan's memory, the live slot block at the offset, if
 * any.
 */
static const ashlar_block *find_around(const ashlar_heap *heap, size_t offset) {
    const ashlar_block *block = ashlar__heap_find(heap, offset);
    const ashlar_block *at = block;
    while (at != NULL && block->state == ASHLAR_BLOCK_PLAN_MEMORY &&
           at != ashlar__heap_next(block)) {
        if (at != block && at->offset <= offset && offset < at->offset + at->bytes) {
            return at;
        }
        at = ashlar__block_after(at);
    }
    return block;
}

/*
 * Say what is wrong with a pointer that is not the start of a live block. Errors: ASHLAR_EPOINTER.
 */
static ashlar_status bad_pointer_locked(ashlar_allocator *a, const void *ptr, size_t offset) {
    ASHLAR_OWNS(&a->lock);
    /* Shut out other threads' hits, which write the fields read here. */
    ashlar__caches_claim_locked(a, ashlar__cache_recent);
    const ashlar_block *block = find_around(&a->heap, offset);
    const size_t requested = block != NULL ? ashlar__block_live_bytes(block) : 0;
    ashlar__caches_release_locked(a, ashlar__cache_recent);
    if (block == NULL || !ashlar__heap_is_mapped(&a->heap, offset)) {
        return ashlar__fail(ASHLAR_EPOINTER, "%p: not a block of this allocator", ptr);
    }
    if (requested == 0) {
        return ashlar__fail(ASHLAR_EPOINTER, "%p: freed before, or never handed out", ptr);
    }
    return ashlar__fail(ASHLAR_EPOINTER,
                        "%p: %zu bytes inside a block; use the block's own address", ptr,
                        offset - block->offset);
}

ashlar_status ashlar__find_live_locked(ashlar_allocator *a, const void *ptr, ashlar_block **out) {
    ASHLAR_OWNS(&a->lock);
    /* An address below the base wraps around to a huge offset, so it is refused like one above. */
    const size_t offset = (size_t)(ashlar__ptr_in(ptr) - a->constants.base);
    ashlar_block *block = NULL;
    if (offset < a->constants.range_bytes) {
        block = ashlar__page_map_get(&a->constants.map, offset);
    }
    if (block == NULL || ashlar__block_live_bytes(block) == 0) {
        return bad_pointer_locked(a, ptr, offset);
    }
    ASHLAR_CHECK2(block->offset == offset && block->state == ASHLAR_BLOCK_USED);
    *out = block;
    return ASHLAR_OK;
}

ashlar_status ashlar__find_around(ashlar_allocator *a, const void *ptr, void **base,
                                  size_t *bytes) {
    const size_t offset = (size_t)(ashlar__ptr_in(ptr) - a->constants.base);
    ashlar_status status = ASHLAR_OK;
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__lock_acquire(&a->lock);
    ashlar__caches_claim_locked(a, ashlar__cache_recent);
    const bool is_ours = offset < a->constants.range_bytes;
    const ashlar_block *block = is_ours ? find_around(&a->heap, offset) : NULL;
    const size_t requested = block != NULL ? ashlar__block_live_bytes(block) : 0;
    if (requested != 0 && offset - block->offset < requested) {
        *base = ashlar__ptr_out(a->constants.base + block->offset);
        *bytes = requested;
    } else {
        status = ashlar__fail(ASHLAR_EPOINTER, "%p: in no live block of this allocator", ptr);
    }
    ashlar__caches_release_locked(a, ashlar__cache_recent);
    ashlar__lock_release(&a->lock);
    return status;
}

ashlar_status ashlar_allocator_segment(ashlar_allocator *a, const void *ptr, void **base,
                                       size_t *bytes) {
    void *start;
    size_t block_bytes;
    ASHLAR_FAIL_IF(a->heap.range.kind != ASHLAR_RANGE_SHARED, ASHLAR_ENOTSUP,
                   "segment: the allocator was made without share=on");
    ASHLAR_TRY(ashlar__find_around(a, ptr, &start, &block_bytes));
    ashlar__allocator_enter(a);
    const ashlar_block *block = ashlar__heap_find(&a->heap, (size_t)ashlar__ptr_in(start));
    if (block != NULL) {
        *base = ashlar__ptr_out(block->window->offset);
        *bytes = block->window->bytes;
    }
    ashlar__allocator_leave(a);
    ASHLAR_FAIL_IF(block == NULL, ASHLAR_EPOINTER, "%p: freed meanwhile", ptr);
    return ASHLAR_OK;
}

size_t ashlar_allocator_segment_granularity(const ashlar_allocator *a) {
    return a->heap.range.kind == ASHLAR_RANGE_SHARED ? a->heap.range.handle_bytes : 1;
}

bool ashlar__has_reserved(ashlar_allocator *a, const void *ptr) {
    const size_t offset = (size_t)(ashlar__ptr_in(ptr) - a->constants.base);
    if (ashlar__is_of_parent(a)) {
        return false;
    }
    ashlar__allocator_enter(a);
    const bool is_there = ashlar__heap_is_mapped(&a->heap, offset);
    ashlar__allocator_leave(a);
    return is_there;
}

bool ashlar__is_sound_locked(ashlar_allocator *a, const ashlar_cache *own) {
    ASHLAR_OWNS(&a->lock);
    ashlar__caches_claim_locked(a, own); /* because hits write to the blocks that they hand out */
    const bool is_sound = ashlar__heap_check(&a->heap) == ASHLAR_OK;
    ashlar__caches_release_locked(a, own);
    return is_sound;
}
