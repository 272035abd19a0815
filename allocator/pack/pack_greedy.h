/* pack_greedy.h - packing items one by one, each at the lowest offset where it fits, and making
 * such a plan smaller within the time budget (internal). */
#ifndef ASHLAR_PACK_GREEDY_H
#define ASHLAR_PACK_GREEDY_H

#include "allocator/pack/pack_items.h"
#include "allocator/pack/pack_occupancy.h"
#include "allocator/pack/pack_budget.h"

/*
 * The best plan so far, and scratch memory for the next.
 *
 * Invariants: plan_bytes == highest end of `offsets`, or SIZE_MAX if there is no plan yet;
 *             problem->peak_bytes <= plan_bytes
 */
typedef struct ashlar_pack_state {
    const ashlar_pack_items *problem;
    size_t target_bytes; /* the packer is done once plan_bytes <= target_bytes */
    size_t plan_bytes;   /* SIZE_MAX: no plan yet */
    size_t *offsets;     /* [count], of the best plan */
    const char *strategy;
    ashlar_pack_budget budget;
    ashlar_pack_occupancy *occupancy;
    uint32_t *order; /* [count], scratch: items in the order of placing */
    double *keys;    /* [count], scratch, by item: larger keys are placed earlier */
    size_t *trial;   /* [count], scratch: offsets of the plan being made */
} ashlar_pack_state;

/* Sort `order` by `keys`. */
void ashlar__pack_sort(ashlar_pack_state *state);

/* Place all items in `order`; their offsets go to `trial`. *bytes is the highest end. It is
 * SIZE_MAX if that end is not below `limit`, or if the budget ran out on the way and there is a
 * plan already. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_place(ashlar_pack_state *state, size_t limit,
                                                   size_t *bytes);

/* The highest end of an item in a plan. */
size_t ashlar__pack_highest_end(const ashlar_pack_items *problem, const size_t *offsets);

/* Make `state->trial`, a plan of `bytes` bytes, the best plan if it is smaller. */
void ashlar__pack_keep_trial(ashlar_pack_state *state, size_t bytes);

/* Try orders, at most the first `order_count`, until a plan is close to the target, and keep the
 * best plan. The first order is completed even without budget. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_greedy(ashlar_pack_state *state, size_t order_count);

/* Search, longer in each round, until the plan meets the target, is proven to be the smallest, or
 * the budget is used up. Without a plan to begin with, one is made even without budget. The best
 * plan is kept in `state`; no plan is smaller than *proven_bytes. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_refine(ashlar_pack_state *state, size_t *proven_bytes);

#endif /* ASHLAR_PACK_GREEDY_H */
