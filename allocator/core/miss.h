/*
 * miss.h - the best gap of a stream's own zone, and what a thread does about a miss without the
 * lock (internal).
 */
#ifndef ASHLAR_MISS_H
#define ASHLAR_MISS_H

#include "allocator/core/hold.h"

/*
 * The best fit among the gaps of a zone, whether or not memory is behind it: which address a block
 * gets does not depend on what was mapped before, so that a repeated step repeats its addresses.
 * The gap at a window's end is used last, so before it is, the thread gives up what it has cached.
 * NULL: there is none. own: the calling thread's cache, or NULL.
 */
ashlar_block *ashlar__gap_of_own(const ashlar_zone *zone, ashlar_cache *own, size_t bytes);

/*
 * Serve a request that the magazines of its stream, the recent ones, lack: from the zones that the
 * cache holds, just as rung 1 would, or else with the lock. The cache has been entered, and is
 * left.
 */
ashlar_status ashlar__alloc_miss(ashlar_allocator *allocator, size_t bytes, ashlar_tag tag,
                                 ashlar_stream stream, void **out);

/*
 * Whether a freed block of a stream, for which the magazines have no room, can go to its zone now.
 * Inside, or with the lock.
 */
static inline bool ashlar__miss_may_put(const ashlar_allocator *a, const ashlar_cache *own,
                                        const ashlar_stream_state *state) {
    return ashlar__holder_of(state) == own && !ashlar__heap_is_short(&a->heap);
}

/* Put it there. Inside, or with the lock. */
void ashlar__miss_put(ashlar_allocator *allocator, ashlar_cache *own, ashlar_block *block);

/*
 * Take what other threads have freed of a stream: into the magazines, and from what they have no
 * room for into the zones. Inside the cache that holds the stream; or with the lock.
 */
void ashlar__miss_take_returned(ashlar_cache *own, ashlar_magazines *magazines);

#endif /* ASHLAR_MISS_H */
