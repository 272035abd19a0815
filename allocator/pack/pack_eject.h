/*
 * pack_eject.h - makes a plan smaller by moving items about (internal).
 *
 * An attempt at a capacity takes out the items that end above it. Then, until none is out, the
 * heaviest item is placed where that costs least, and the items in its way are taken out. An item's
 * weight, which is also its cost, is its area times how hard it has been to place, so the search
 * does not run in circles. An attempt fails if it takes too many moves, or if for long the area
 * that is out has not shrunk. The next one then aims only half as far below the plan.
 *
 * A phase moves the short-lived items of one plan (pack_movable.h). This is a new plan, in which
 * the long-lived items lie at the bottom without gaps, or the best plan so far. Phases differ in
 * which items they call short-lived. Which moves are made depends on the problem and earlier moves,
 * and not on the clock.
 */
#ifndef ASHLAR_PACK_EJECT_H
#define ASHLAR_PACK_EJECT_H

#include "allocator/pack/pack_greedy.h"

typedef struct ashlar_pack_eject ashlar_pack_eject;

/* Ownership: the caller destroys *out; `state` must outlive it.
 *
 * unit     divides all sizes
 * Errors:  ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_eject_create(ashlar_pack_state *state, size_t unit,
                                                          ashlar_pack_eject **out);
void ashlar__pack_eject_destroy(ashlar_pack_eject *eject); /* NULL is allowed */

/* Make `move_count` moves, or fewer if the target is met or the budget is used up, and keep the
 * best plan in `state`. A later call goes on where this one ended. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_eject_run(ashlar_pack_eject *eject,
                                                       uint64_t move_count);

#endif /* ASHLAR_PACK_EJECT_H */
