/* pack_refine.h - making a greedy plan smaller within the time budget (internal). */
#ifndef ASHLAR_PACK_REFINE_H
#define ASHLAR_PACK_REFINE_H

#include "allocator/pack/pack_greedy.h"

/* Search, longer in each round, until the plan meets the target, is proven to be the smallest, or
 * the budget is used up. The best plan is kept in `state`; no plan is smaller than *proven_bytes.
 * Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_refine(ashlar_pack_state *state, size_t *proven_bytes);

#endif /* ASHLAR_PACK_REFINE_H */
