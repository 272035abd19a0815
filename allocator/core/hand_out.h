/* hand_out.h - handing a block out, or taking one back, as the last act of an allocation or free
 * without the lock (internal). */
#ifndef ASHLAR_HAND_OUT_H
#define ASHLAR_HAND_OUT_H

#include "allocator/core/allocator_impl.h"

#include "allocator/base/check_level.h"

/*
 * Hand out a block, and leave the cache.
 *
 * count   the counter to raise; NULL for a block of a plan, see ashlar__replay_served()
 *
 * The public functions call other functions only as their last act. So they need not save registers
 * on the stack, which would make a hit a fifth longer.
 */
static inline void ashlar__hand_out(const ashlar_allocator *a, ashlar_cache *cache,
                                    ashlar_block *block, size_t bytes, ashlar_tag tag,
                                    uint64_t *count, void **out) {
    ASHLAR_CHECK2(bytes > 0 && bytes <= block->bytes && block->state == ASHLAR_BLOCK_USED);
    ASHLAR_CHECK2(block->taken == 0 && block->offset < a->constants.range_bytes);
    /* Atomic because other threads read `taken` of slot blocks. */
    atomic_store_explicit(&block->taken, bytes, memory_order_relaxed);
    block->tag = (unsigned char)tag;
    if (count != NULL) {
        ++*count;
    }
    ashlar__count_alloc(&cache->counters, bytes, (unsigned)tag);
    *out = ashlar__ptr_out(a->constants.base + block->offset);
    ashlar__cache_leave(cache);
}

/* Count the free of a block that no caller holds any more. */
static inline void ashlar__count_back(ashlar_cache *cache, ashlar_block *block) {
    ASHLAR_CHECK2(block->requested <= block->bytes && block->marks == 0);
    cache->counters.free_count++;
    ashlar__count_free(&cache->counters, block->requested, block->tag);
    block->requested = 0;
}

static inline void ashlar__take_back(ashlar_cache *cache, ashlar_block *block) {
    ashlar__count_back(cache, block);
    ashlar__cache_leave(cache);
}

#endif /* ASHLAR_HAND_OUT_H */
