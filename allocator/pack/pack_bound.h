/*
 * pack_bound.h - lower bounds above the peak of live bytes (internal).
 *
 * A plan of all items, looked at in a window of sections only, is a plan of the items that are live
 * there, with their lives cut to the window. So no plan is smaller than the smallest one of a
 * window. Items that are live in all of the window add their size to it: others lie wholly above or
 * wholly below such an item, so it can be moved to the bottom, and what was below it up by its
 * size. What is left is a small problem, and the exact search proves what capacity is too small for
 * it.
 *
 * In a window of up to three sections the peak is met: put what lives in all of it at the bottom,
 * what lives in the first two sections on it, what lives in the last two at the top, and the rest
 * between.
 */
#ifndef ASHLAR_PACK_BOUND_H
#define ASHLAR_PACK_BOUND_H

#include "allocator/pack/pack_budget.h"
#include "allocator/pack/pack_items.h"

/* Raise *bound, below which no plan is, by what windows of `width` sections prove.
 *
 * width   above 3
 * unit    divides all sizes
 * below   stop at this bound: the size of a plan
 * steps   most steps of the search in each window
 * Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_bound_raise(const ashlar_pack_items *problem,
                                                         uint32_t width, size_t unit, size_t below,
                                                         uint64_t steps, ashlar_pack_budget *budget,
                                                         size_t *bound);

#endif /* ASHLAR_PACK_BOUND_H */
