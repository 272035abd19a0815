/* pack_budget.c - the packer's clock: its deadline, and when it reports progress. */
#include "allocator/pack/pack_budget.h"

#include "allocator/base/check_level.h"
#include "allocator/base/clock.h"

enum { TELL_EVERY_MS = 100 };

static uint64_t now_ms(void) {
    return ashlar__clock_ns() / 1000000;
}

void ashlar__pack_budget_init(ashlar_pack_budget *budget, const ashlar_pack_options *options,
                              size_t bound_bytes) {
    const uint64_t now = now_ms();
    ASHLAR_CHECK2(options != NULL); /* ashlar_pack() replaces NULL by its defaults */
    *budget = (ashlar_pack_budget){
        .options = options,
        .begin_ms = now,
        .told_ms = now,
        .now = {.bound_bytes = bound_bytes, .strategy = ""},
    };
}

bool ashlar__pack_budget_is_left(ashlar_pack_budget *budget) {
    const ashlar_pack_options *options = budget->options;
    const uint64_t now = now_ms();
    ASHLAR_CHECK2(budget->begin_ms <= budget->told_ms && budget->told_ms <= now);
    if (budget->is_stopped) {
        return false;
    }
    budget->now.elapsed_ms = now - budget->begin_ms;
    /* <ashlar/pack.h> promises `progress` what these two lines assert. */
    ASHLAR_CHECK2(budget->now.strategy != NULL);
    ASHLAR_CHECK2(budget->now.plan_bytes == 0 || budget->now.plan_bytes >= budget->now.bound_bytes);
    if (options->progress != NULL && now - budget->told_ms >= TELL_EVERY_MS) {
        budget->told_ms = now;
        budget->is_stopped = !options->progress(options->user, &budget->now);
    }
    if (budget->has_deadline && budget->now.elapsed_ms >= options->time_budget_ms) {
        budget->is_stopped = true;
    }
    return !budget->is_stopped;
}
