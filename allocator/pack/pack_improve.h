/*
 * pack_improve.h - a better greedy order from what was wrong with the last one (internal).
 */
#ifndef ASHLAR_PACK_IMPROVE_H
#define ASHLAR_PACK_IMPROVE_H

#include "allocator/pack/pack_greedy.h"

/*
 * Begin with the items in the order of the best plan's offsets, and place all of them again and
 * again, after those that stuck out above the target were moved forward: for `rounds` rounds, or
 * until the target is met. The best plan is kept in `state`.
 *
 * random   state of the random numbers; another one tries other orders
 *
 * Errors: ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_improve(ashlar_pack_state *state, size_t rounds,
                                                     uint64_t *random);

#endif /* ASHLAR_PACK_IMPROVE_H */
