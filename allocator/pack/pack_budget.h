/*
 * pack_budget.h - when the packer has to stop, and its reports of progress (internal).
 */
#ifndef ASHLAR_PACK_BUDGET_H
#define ASHLAR_PACK_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include <ashlar/pack.h>

/* Invariants: once is_stopped it stays so;  begin_ms <= told_ms <= the clock. */
typedef struct ashlar_pack_budget {
    const ashlar_pack_options *options;
    uint64_t begin_ms, told_ms; /* of the monotonic clock */
    ashlar_pack_progress now;   /* plan_bytes, bound_bytes and strategy are the packer's to set */
    bool has_deadline; /* the time budget counts; false during the greedy orders */
    bool is_stopped;
} ashlar_pack_budget;

void ashlar__pack_budget_init(ashlar_pack_budget *budget, const ashlar_pack_options *options,
                              size_t bound_bytes);

/* Read the clock, and report progress to the caller where that is due. False: stop. */
bool ashlar__pack_budget_is_left(ashlar_pack_budget *budget);

#endif /* ASHLAR_PACK_BUDGET_H */
