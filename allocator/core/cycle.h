/*
 * cycle.h - a program's steps as a thread's cache sees them, and when the cache gives its blocks up
 * (internal).
 */
#ifndef ASHLAR_CYCLE_H
#define ASHLAR_CYCLE_H

#include "allocator/core/cache.h"
#include "allocator/heap/heap.h"

/* The rest of ashlar__cycle_count_miss(), for a miss that may have to give blocks up. */
void ashlar__cycle_look(ashlar_cache *own);

/*
 * Whether a step may begin where memory was short once: the thread has no more live than when its
 * cycle began, and had more since. Then the cache is emptied, however alike the steps are. For
 * which cached block serves which request differs from step to step, and so does what is left
 * between them; but a step that just fits needs the addresses that it had.
 */
static inline bool ashlar__cycle_is_tight(const ashlar_heap *heap, const ashlar_cache *own) {
    const int64_t live = own->counters.published + own->counters.all.live;
    return heap->was_short && live >= 0 && (uint64_t)live <= own->trough &&
           own->trough < own->crest && !ashlar__cache_is_empty(own);
}

/*
 * Count a miss, before the search for a block, and give up cached blocks that may keep free memory
 * from merging. Call it with the lock, or inside the cache if the cache holds all streams of its
 * magazines.
 *
 * In a program that works in steps, live bytes are fewest between two steps. Cached blocks keep the
 * free memory around them from merging, so the next step's blocks would lie further apart than the
 * last step's. Therefore each step empties the cache once, unless the steps are alike: then the
 * cached blocks lie where the next step wants them. A large block is always given up.
 *
 * The cache is also emptied if it is full of sizes that nobody asks for: it had no room for a freed
 * block, and has had no hit since it was last full.
 */
static inline void ashlar__cycle_count_miss(ashlar_cache *own) {
    const int64_t live = own->counters.published + own->counters.all.live;
    own->misses++;
    if (live > (int64_t)own->crest) {
        own->crest = own->quiet = (uint64_t)live; /* the next miss with fewer live bytes looks for a
                                                   * trough */
    }
    if (!ASHLAR_LIKELY(live >= (int64_t)own->quiet && own->pending == NULL && own->weight[1] == 0 &&
                       !own->was_full)) {
        ashlar__cycle_look(own);
    }
}

/* Empty the cache, and forget what it has seen of the program's cycles. As for a miss. */
void ashlar__cycle_restart(ashlar_cache *own);

#endif /* ASHLAR_CYCLE_H */
