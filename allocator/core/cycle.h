/*
 * cycle.h - the steps of a program as a thread's cache sees them, and when it gives its blocks up
 * (internal).
 */
#ifndef ASHLAR_CYCLE_H
#define ASHLAR_CYCLE_H

#include "allocator/core/cache.h"

/*
 * Count a miss, before a search for a block: give up cached blocks that may keep free memory from
 * being one gap. Inside the cache, if it holds all streams of its magazines; or with the lock.
 *
 * In a program that works in steps, live bytes are fewest between two steps. Cached blocks that
 * then lie between free blocks keep these from merging, and the next step's blocks would lie
 * further apart than the last step's. So the cache is emptied once a step, unless the steps are
 * alike: then the cached blocks lie where the next step wants them. A large block is always given
 * up.
 *
 * The cache is also emptied if it had no room for a block freed since the last miss: then it is
 * full of sizes that nobody asks for.
 */
void ashlar__cycle_count_miss(ashlar_cache *own);

/* Empty the cache, and forget all that it has seen of the program. With the lock. */
void ashlar__cycle_restart(ashlar_cache *own);

#endif /* ASHLAR_CYCLE_H */
