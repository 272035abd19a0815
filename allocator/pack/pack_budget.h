/*
 * pack_budget.h - when the packer has to stop, and telling the caller how far it is (internal).
 */
#ifndef ASHLAR_PACK_BUDGET_H
#define ASHLAR_PACK_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include <ashlar/pack.h>

/* Invariant: once is_stopped it stays so. */
typedef struct ashlar_pack_budget {
    const ashlar_pack_options *options;
    uint64_t begin_ms, told_ms; /* of the monotonic clock */
    ashlar_pack_progress now;   /* plan_bytes, bound_bytes and strategy are the packer's to set */
    bool has_deadline; /* the time budget counts: the greedy orders are not cut off by it */
    bool is_stopped;
} ashlar_pack_budget;

void ashlar__pack_budget_init(ashlar_pack_budget *budget, const ashlar_pack_options *options,
                              size_t bound_bytes);

/* Look at the clock, and tell the caller if it is time to. False: stop. */
bool ashlar__pack_budget_is_left(ashlar_pack_budget *budget);

#endif /* ASHLAR_PACK_BUDGET_H */
