/*
 * pack_eject.h - makes a plan smaller by moving items about (internal).
 *
 * The items that end above a capacity are taken out. Then, until none is out: the heaviest goes
 * where it costs least, and those that are in its way are taken out. An item's cost is its area
 * times how often it has been hard to place, so a search does not run in circles. If that takes too
 * many moves, or if what is out has not become less for long, the capacity was too ambitious, and
 * the next is halfway to the plan.
 *
 * A phase moves the short-lived items of one plan (pack_movable.h): of a plan made for it, in which
 * the long-lived lie at the bottom without gaps, or of the best one. Phases differ in what they
 * call short. Which moves are made depends on the problem and earlier moves, and not on the clock.
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

/* Make `move_count` moves, or fewer if the target is met or the budget used up, and keep the best
 * plan in `state`. A later call goes on where this one ended. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_eject_run(ashlar_pack_eject *eject,
                                                       uint64_t move_count);

#endif /* ASHLAR_PACK_EJECT_H */
