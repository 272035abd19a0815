/* pack_budget.h - when the packer has to stop, and when it reports progress (internal). */
#ifndef ASHLAR_PACK_BUDGET_H
#define ASHLAR_PACK_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include <ashlar/pack.h>

/* Invariants: is_stopped is never reset;  begin_ms <= told_ms <= the clock. */
typedef struct ashlar_pack_budget {
    const ashlar_pack_options *options;
    uint64_t begin_ms, told_ms; /* monotonic clock: start of the call, last progress report */
    ashlar_pack_progress now;   /* the packer sets plan_bytes, bound_bytes and strategy */
    bool has_deadline;          /* false: the time budget is ignored, as for the greedy orders */
    bool is_stopped;
} ashlar_pack_budget;

void ashlar__pack_budget_init(ashlar_pack_budget *budget, const ashlar_pack_options *options,
                              size_t bound_bytes);

/* Read the clock, and report progress if it is time to. Returns false if the packer must stop. */
bool ashlar__pack_budget_is_left(ashlar_pack_budget *budget);

#endif /* ASHLAR_PACK_BUDGET_H */
