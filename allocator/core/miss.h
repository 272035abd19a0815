/*
 * miss.h - finding the best gap in a stream's own zone, and serving a miss without the lock
 * (internal).
 */
#ifndef ASHLAR_MISS_H
#define ASHLAR_MISS_H

#include "allocator/core/hold.h"

/*
 * The best fit among the gaps of a zone, with memory behind it or not. So a block's address does
 * not depend on what was mapped before, and a repeated step repeats its addresses. The gap at a
 * window's end is the last resort: before choosing it, the thread gives its cached blocks up. NULL:
 * no gap fits. own: the calling thread's cache, or NULL.
 */
ashlar_block *ashlar__gap_of_own(const ashlar_zone *zone, ashlar_cache *own, size_t bytes);

/*
 * Serve a request that the recent magazines, which are those of its stream, cannot serve: from a
 * zone that the cache holds, as rung 1 does, or otherwise with the lock. The caller has entered the
 * cache; this function leaves it.
 */
ashlar_status ashlar__alloc_miss(ashlar_allocator *allocator, size_t bytes, ashlar_tag tag,
                                 ashlar_stream stream, void **out);

/*
 * Whether a freed block that does not fit into the magazines can go to its zone now. Call it inside
 * the cache, or with the lock.
 */
static inline bool ashlar__miss_may_put(const ashlar_allocator *a, const ashlar_cache *own,
                                        const ashlar_stream_state *state) {
    return ashlar__holder_of(state) == own && !ashlar__heap_is_short(&a->heap);
}

/*
 * Put a block for which ashlar__miss_may_put() is true into its zone. Inside the cache, or with the
 * lock.
 */
static inline void ashlar__miss_put(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block) {
    ASHLAR_CHECK2(ashlar__holder_of(block->stream_state) == own && block->requested == 0);
    if (block->bytes <= ASHLAR_SC_MAX_BYTES) {
        own->was_full = true;
    } else if (own->weight[1] != 0) {
        ashlar__cache_flush_large(own);
    }
    ashlar__heap_put(&a->heap, block);
}

/*
 * Free a block that does not fit into its magazines. The caller has entered the cache; this
 * function leaves it.
 */
ashlar_status ashlar__free_miss(ashlar_allocator *allocator, void *ptr, ashlar_block *block);

/*
 * Take the blocks of a stream that other threads have freed: into the magazines or, when these are
 * full, into the zones. Call it inside the cache that holds the stream, or with the lock.
 */
void ashlar__miss_take_returned(ashlar_cache *own, ashlar_magazines *magazines);

#endif /* ASHLAR_MISS_H */
