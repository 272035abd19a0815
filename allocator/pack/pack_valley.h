/*
 * pack_valley.h - plans that are filled from the bottom up, always at the lowest floor (internal).
 *
 * A valley is a run of sections with one floor between higher neighbours. Of the items that lie
 * wholly inside the lowest valley, the one with the largest key is placed on its floor; if there is
 * none, the floor rises to the lower neighbour, and the bytes between are wasted. Waste costs
 * something only where the load is near the peak. So a key is a product of powers of an item's
 * size, its lifetime and the highest load during its life. Which powers are best is found by
 * trying: a plan of 20,000 items takes a tenth of a second.
 */
#ifndef ASHLAR_PACK_VALLEY_H
#define ASHLAR_PACK_VALLEY_H

#include "allocator/pack/pack_greedy.h"

typedef struct ashlar_pack_valley ashlar_pack_valley;

/* Ownership: the caller destroys *out; `state` must outlive it. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_valley_create(ashlar_pack_state *state,
                                                           ashlar_pack_valley **out);
void ashlar__pack_valley_destroy(ashlar_pack_valley *valley); /* NULL is allowed */

/* Make `plan_count` plans, or fewer if the target is met or the budget is used up, and keep the
 * best plan in `state`. Which powers are tried depends on earlier plans, and not on the clock. */
void ashlar__pack_valley_run(ashlar_pack_valley *valley, uint64_t plan_count);

#endif /* ASHLAR_PACK_VALLEY_H */
