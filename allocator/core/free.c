/* free.c - from an address to its block; freeing under the lock; uses on other streams. */
#include "allocator/core/core.h"

#include "allocator/base/error.h"
#include "allocator/plan/planner.h"

/* The block around an offset; inside a plan's memory, the live slot block there, if any. */
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

/* Say why a pointer is not the start of a live block. Errors: ASHLAR_EPOINTER. */
static ashlar_status bad_pointer_locked(ashlar_allocator *a, const void *ptr, size_t offset) {
    ASHLAR_OWNS(&a->lock);
    /* Other threads' hits write the fields read here. */
    ashlar__caches_take_over_locked(a);
    const ashlar_block *block = find_around(&a->heap, offset);
    const size_t requested = block != NULL ? ashlar__block_live_bytes(block) : 0;
    ASHLAR_FAIL_IF(block == NULL || !ashlar__heap_is_mapped(&a->heap, offset), ASHLAR_EPOINTER,
                   "%p: not a block of this allocator", ptr);
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
    ashlar__allocator_enter(a);
    const bool is_ours = offset < a->constants.range_bytes;
    const ashlar_block *block = is_ours ? find_around(&a->heap, offset) : NULL;
    const size_t requested = block != NULL ? ashlar__block_live_bytes(block) : 0;
    if (requested != 0 && offset - block->offset < requested) {
        *base = ashlar__ptr_out(a->constants.base + block->offset);
        *bytes = requested;
    } else {
        status = ashlar__fail(ASHLAR_EPOINTER, "%p: in no live block of this allocator", ptr);
    }
    ashlar__allocator_leave(a);
    return status;
}

ashlar_status ashlar_segment(ashlar_allocator *a, const void *ptr, void **base, size_t *bytes) {
    void *start = NULL;
    size_t block_bytes = 0;
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

size_t ashlar__allocator_segment_granularity(const ashlar_allocator *a) {
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

bool ashlar__is_sound_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    ashlar__caches_take_over_locked(a); /* because hits write to the blocks that they hand out */
    return ashlar__heap_check(&a->heap) == ASHLAR_OK;
}

/* ---- freeing ---- */

ashlar_status ashlar__call_find_locked(ashlar_allocator *a, ashlar_call *call) {
    ASHLAR_OWNS(&a->lock);
    if (call->block != NULL) {
        return ASHLAR_OK;
    }
    ashlar_block *block = NULL;
    ASHLAR_TRY(ashlar__find_live_locked(a, call->ptr, &block));
    call->state = block->stream_state;
    if (call->names_stream) {
        ASHLAR_TRY(ashlar__stream_state_of_locked(a, call->stream, &call->state));
    }
    call->block = block;
    return ASHLAR_OK;
}

/* Do what a free without the lock does, so that an allocator hands out the same blocks when every
 * call takes the lock. False: the block must go to the heap. */
static bool keep_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state *state = block->stream_state;
    if (ashlar__is_remote(own, block)) {
        ashlar__remote_free(own, block);
        return true;
    }
    /* When a cache gives the block back, it may be too late to record an event behind its use. */
    ashlar_magazines *m = ashlar__stream_state_is_recorded_at_calls(state, &a->client)
                              ? NULL
                              : ashlar__cache_need_locked(own, state);
    if (m == NULL || ashlar__cache_push(own, m, block)) {
        return m != NULL;
    }
    if (ashlar__miss_may_put(a, own, state)) {
        ashlar__miss_put(a, own, block);
        return true;
    }
    return ashlar__cache_add_pending(own, block);
}

/* Free a slot block that other streams use, if the block's plan knows of these uses. If streams may
 * end unannounced, an event cannot be recorded later, so no use may be left to the step's end. */
static bool vacate_shared_locked(ashlar_allocator *a, ashlar_block *block,
                                 ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ashlar_plan_memory *memory = ashlar__planner_memory(&a->planner, ashlar__block_owner(block));
    return memory != NULL && memory->block == block->prev && !a->client.watches_streams &&
           !a->client.records_at_calls &&
           ashlar__plan_memory_vacate_locked(memory, &a->heap, block, state);
}

/* Give a freed block to the thread's cache or, if that is full, give it and the cache's pending
 * blocks to the heap. */
static void give_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block,
                        ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(block->requested == 0 || ashlar__block_is_of_slot(block));
    const bool is_of_slot = ashlar__block_is_of_slot(block);
    if (ashlar__block_is_shared(block) || ashlar__block_owner(block) != state) {
        ashlar__caches_take_over_locked(a);
        if (is_of_slot && vacate_shared_locked(a, block, state)) {
            return;
        }
        if (is_of_slot) {
            atomic_store_explicit(&block->taken, ASHLAR_SLOT_BLOCK_AWAITED, memory_order_relaxed);
        }
        ashlar__release_block_locked(&a->heap, block, state);
        return;
    }
    if (is_of_slot) {
        ashlar__slot_block_vacate(block);
        return;
    }
    block->marks &= (unsigned char)~ASHLAR_BLOCK_BORROWED; /* its zone belongs to this stream now */
    block->stream_state = state;
    if (a->heap.is_near_limit && block->bytes > ASHLAR_SC_MAX_BYTES) {
        ashlar__caches_take_over_locked(a);
        ashlar__release_covered_locked(&a->heap, block, state);
        return;
    }
    if (own != NULL && keep_locked(a, own, block)) {
        return;
    }
    if (own != NULL) {
        ashlar__cache_flush_pending(own);
    }
    if (own != NULL && block->bytes > ASHLAR_SC_MAX_BYTES) {
        ashlar__cache_flush_large(own);
    }
    ashlar__cache_give_back_locked(a, block);
}

/* Let a graph pool's block return to the pool, which hands it out to work captured later on the
 * same stream. A last use on another stream has no such order, so the block must wait for it. */
static ashlar_status return_to_pool_locked(ashlar_allocator *a, ashlar_call *call) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state *pool = call->block->stream_state, *last = call->state;
    call->state = pool;
    return last == pool || last->pool == pool
               ? ASHLAR_OK
               : ashlar__cross_add_any_use(&a->heap, call->block, last);
}

ashlar_status ashlar__core_free_locked(ashlar_allocator *a, ashlar_call *call) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_TRY(ashlar__call_find_locked(a, call));
    ashlar_block *block = call->block;
    if (block->stream_state->is_pool) {
        ASHLAR_TRY(return_to_pool_locked(a, call));
    }
    ashlar__count_free_locked(a, call->request.own, block->requested, block->tag);
    if (call->state != block->stream_state) {
        ashlar__step_record_share_locked(a, block);
    }
    ashlar__step_record_free_locked(a, block);
    ASHLAR_CHECK2(block->state == ASHLAR_BLOCK_USED && ashlar__block_live_bytes(block) > 0);
    if (!ashlar__block_is_of_slot(block)) {
        block->requested = 0;
    }
    give_locked(a, call->request.own, block, call->state);
    ASHLAR_CHECK3(ashlar__is_sound_locked(a));
    return ASHLAR_OK;
}

/* ---- blocks that several streams use ---- */

ashlar_status ashlar__core_use_locked(ashlar_allocator *a, ashlar_call *call) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_TRY(ashlar__call_find_locked(a, call));
    ashlar_block *block = call->block;
    if (call->state == block->stream_state || call->state->pool == block->stream_state) {
        return ASHLAR_OK;
    }
    const ashlar_status status = ashlar__cross_add_use(&a->heap, block, call->state);
    ashlar__step_record_share_locked(a, block);
    return status;
}

bool ashlar__shared_has_lost(const ashlar_use *uses) {
    while (uses != NULL && !uses->stream_state->is_lost) {
        uses = uses->next;
    }
    return uses != NULL;
}
