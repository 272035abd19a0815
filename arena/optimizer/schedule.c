/* schedule.c - the learning rate of each step: a warm-up, then constant, along a cosine, or lowered
 * every so many steps. */
#include <ashlar/optimizer.h>

#include <math.h>
#include <stdbool.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "arena/optimizer/optimizer_formula.h"

const char *ashlar_schedule_name(ashlar_schedule_kind kind) {
#define NAME(name, text) [ASHLAR_SCHEDULE_##name] = text,
    static const char *const names[] = {ASHLAR_SCHEDULE_MAP(NAME)};
    ASHLAR_TABLE_IS_FULL(names, ASHLAR_SCHEDULE_COUNT);
    return (unsigned)kind < (unsigned)ASHLAR_SCHEDULE_COUNT ? names[kind] : "unknown";
}

static bool is_cosine_fine(const ashlar_schedule *s) {
    return s->total_steps >= 1 && s->warmup_steps <= s->total_steps && s->floor >= 0 &&
           s->floor <= 1;
}

static void fill_in(ashlar_schedule *s) {
    s->gamma = s->gamma >= 0 && s->gamma <= 0 ? 0.1 : s->gamma;
}

static ashlar_status check(const ashlar_schedule *s) {
    ASHLAR_FAIL_IF((unsigned)s->kind >= (unsigned)ASHLAR_SCHEDULE_COUNT, ASHLAR_EINVAL,
                   "schedule: kind %d; there are %d", (int)s->kind, (int)ASHLAR_SCHEDULE_COUNT);
    ASHLAR_FAIL_IF(!(s->rate > 0 && isfinite(s->rate)), ASHLAR_EINVAL,
                   "schedule: rate %g; give a number above 0", s->rate);
    ASHLAR_FAIL_IF(s->kind == ASHLAR_SCHEDULE_COSINE && !is_cosine_fine(s), ASHLAR_EINVAL,
                   "schedule %s: %llu steps with %llu of warm-up down to %g; give at least 1 step, "
                   "no longer a warm-up, and a floor from 0 to 1",
                   ashlar_schedule_name(s->kind), (unsigned long long)s->total_steps,
                   (unsigned long long)s->warmup_steps, s->floor);
    ASHLAR_FAIL_IF(s->kind == ASHLAR_SCHEDULE_STEP &&
                       !(s->step_size >= 1 && s->gamma > 0 && s->gamma <= 1),
                   ASHLAR_EINVAL,
                   "schedule %s: times %g every %llu steps; give at least 1 step, and a factor "
                   "above 0 that is at most 1",
                   ashlar_schedule_name(s->kind), s->gamma, (unsigned long long)s->step_size);
    return ASHLAR_OK;
}

ashlar_status ashlar_schedule_check(const ashlar_schedule *schedule) {
    ashlar_schedule s = ASHLAR_OR_ZERO(ashlar_schedule, schedule);
    fill_in(&s);
    return check(&s);
}

static double cosine(const ashlar_schedule *s, uint64_t step) {
    const double pi = 3.14159265358979323846;
    const uint64_t start = s->warmup_steps > 0 ? s->warmup_steps : 1;
    ASHLAR_CHECK2(step >= start && is_cosine_fine(s));
    if (step == start) {
        return s->rate;
    }
    if (step >= s->total_steps) {
        return s->rate * s->floor;
    }
    const double done = (double)(step - start) / (double)(s->total_steps - start);
    return s->rate * (s->floor + (1 - s->floor) * (1 + cos(pi * done)) / 2);
}

static double rate_of(const ashlar_schedule *s, uint64_t step) {
    step = step > 0 ? step : 1;
    ASHLAR_CHECK2((unsigned)s->kind < (unsigned)ASHLAR_SCHEDULE_COUNT && s->rate > 0);
    if (step < s->warmup_steps) {
        return s->rate * ((double)step / (double)s->warmup_steps);
    }
    if (step == s->warmup_steps || s->kind == ASHLAR_SCHEDULE_CONSTANT) {
        return s->rate;
    }
    return s->kind == ASHLAR_SCHEDULE_COSINE
               ? cosine(s, step)
               : s->rate * ashlar__power(s->gamma, (step - s->warmup_steps - 1) / s->step_size);
}

double ashlar_schedule_rate(const ashlar_schedule *schedule, uint64_t step) {
    ashlar_schedule s = ASHLAR_OR_ZERO(ashlar_schedule, schedule);
    fill_in(&s);
    return rate_of(&s, step);
}
