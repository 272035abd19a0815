/*
 * pack_bound.h - lower bounds above the peak of live bytes (internal).
 *
 * A window is a run of sections (pack_items.h). What a plan of all items has in a window is a plan
 * of the items that are live there, with their lives cut to the window. So no plan is smaller than
 * the smallest one of any window. An item that is live in all of the window adds its whole size to
 * that: the others lie wholly above or wholly below it, so it can be moved to the bottom, and what
 * was below it moves up by its size. The rest is a small problem, and the exact search proves which
 * capacities are too small for it.
 *
 * A window of up to three sections proves nothing, since it has a plan as small as its peak: put
 * what lives in all of it at the bottom, what lives in the first two sections on that, what lives
 * in the last two at the top, and the rest between.
 */
#ifndef ASHLAR_PACK_BOUND_H
#define ASHLAR_PACK_BOUND_H

#include "allocator/pack/pack_budget.h"
#include "allocator/pack/pack_items.h"

/* Raise *bound, a size that no plan is below, as far as windows of `width` sections prove it.
 *
 * width   above 3
 * unit    divides all sizes
 * below   the size of a known plan: stop if *bound reaches it
 * steps   most steps of the search in each window
 * Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_bound_raise(const ashlar_pack_items *problem,
                                                         uint32_t width, size_t unit, size_t below,
                                                         uint64_t steps, ashlar_pack_budget *budget,
                                                         size_t *bound);

#endif /* ASHLAR_PACK_BOUND_H */
