/*
 * pack_greedy.h - packing one item after the other, each at the lowest offset where it fits
 * (internal).
 */
#ifndef ASHLAR_PACK_GREEDY_H
#define ASHLAR_PACK_GREEDY_H

#include "allocator/pack/pack_items.h"
#include "allocator/pack/pack_occupancy.h"
#include "allocator/pack/pack_budget.h"

/*
 * The best plan so far, and what it takes to make another.
 *
 * Invariants: plan_bytes == highest end of `offsets`, or SIZE_MAX where there is no plan yet;
 *             peak_bytes of the problem <= plan_bytes
 */
typedef struct ashlar_pack_state {
    const ashlar_pack_items *problem;
    size_t target_bytes; /* the packer is done once plan_bytes <= target_bytes */
    size_t plan_bytes;   /* SIZE_MAX: no plan yet */
    size_t *offsets;     /* [count], of the best plan */
    const char *strategy;
    ashlar_pack_budget budget;
    /* Scratch: */
    ashlar_pack_occupancy *occupancy;
    uint32_t *order; /* [count]: items in the order of their placing */
    double *keys;    /* [count], by item: the larger, the earlier in the order */
    size_t *trial;   /* [count]: offsets of the plan in the making */
} ashlar_pack_state;

/* Make `order` from `keys`. */
void ashlar__pack_sort(ashlar_pack_state *state);

/*
 * Place all items in `order`, with their offsets in `trial`. *bytes is the highest end, or SIZE_MAX
 * where this was cut short: the budget was used up and there is a plan already.
 * Errors: ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_place(ashlar_pack_state *state, size_t *bytes);

/* The highest end of an item in a plan. */
size_t ashlar__pack_highest_end(const ashlar_pack_items *problem, const size_t *offsets);

/* Make `trial` the best plan if its `bytes` are fewer. */
void ashlar__pack_keep_trial(ashlar_pack_state *state, size_t bytes);

/*
 * Try the orders until one is close to the target; the best plan is kept. The first one is
 * completed even when the budget is used up, so that there is a plan afterwards. Errors:
 * ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_greedy(ashlar_pack_state *state);

#endif /* ASHLAR_PACK_GREEDY_H */
