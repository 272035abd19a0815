/*
 * test_schedule.c - learning rates step by step, and values that make none.
 */
#include <ashlar/optimizer.h>

#include "tests/check.h"

static const double pi = 3.14159265358979323846;

static ashlar_schedule cosine(void) {
    return (ashlar_schedule){.kind = ASHLAR_SCHEDULE_COSINE,
                             .rate = 0.5,
                             .warmup_steps = 4,
                             .total_steps = 14,
                             .floor = 0.1};
}

static ashlar_schedule step(void) {
    return (ashlar_schedule){.kind = ASHLAR_SCHEDULE_STEP, .rate = 2, .step_size = 3, .gamma = 0.5};
}

static void check_rates(const ashlar_schedule *s, const double *want, size_t count) {
    CHECK(ashlar_schedule_check(s) == ASHLAR_OK);
    for (size_t i = 0; i < count; i++) {
        CHECK_NEAR(ashlar_schedule_rate(s, i + 1), want[i], 1e-17, 1e-15);
    }
}

CASE(kinds_have_names) {
    CHECK(strcmp(ashlar_schedule_name(ASHLAR_SCHEDULE_CONSTANT), "constant") == 0);
    CHECK(strcmp(ashlar_schedule_name(ASHLAR_SCHEDULE_STEP), "step") == 0);
    CHECK(strcmp(ashlar_schedule_name(ASHLAR_SCHEDULE_COUNT), "unknown") == 0);
    CHECK(strcmp(ashlar_schedule_name((ashlar_schedule_kind)-1), "unknown") == 0);
}

CASE(a_constant_rate_stays) {
    const ashlar_schedule s = {.kind = ASHLAR_SCHEDULE_CONSTANT, .rate = 0.3};
    check_rates(&s, (const double[]){0.3, 0.3, 0.3}, 3);
    CHECK(ashlar_schedule_rate(&s, UINT64_MAX) == 0.3);
}

CASE(a_warm_up_rises_to_the_full_rate_at_its_last_step) {
    ashlar_schedule s = {.kind = ASHLAR_SCHEDULE_CONSTANT, .rate = 8, .warmup_steps = 4};
    check_rates(&s, (const double[]){2, 4, 6, 8, 8, 8}, 6);
    CHECK(ashlar_schedule_rate(&s, 0) == 2); /* counts as step 1 */
    s.warmup_steps = 1;
    check_rates(&s, (const double[]){8, 8}, 2);
    CHECK(ashlar_schedule_rate(&s, 0) == 8);
}

CASE(a_cosine_falls_from_the_rate_to_its_floor) {
    ashlar_schedule s = cosine();
    double want[20];
    for (size_t t = 1; t <= 20; t++) {
        const double done = t <= 4 ? 0 : t >= 14 ? 1 : ((double)t - 4) / 10;
        want[t - 1] = t < 4 ? 0.125 * (double)t : 0.5 * (0.1 + 0.9 * (1 + cos(pi * done)) / 2);
    }
    check_rates(&s, want, 20);
    CHECK(ashlar_schedule_rate(&s, 4) == 0.5);
    CHECK(ashlar_schedule_rate(&s, 14) == 0.05);
    s.warmup_steps = 0;
    s.floor = 0;
    s.total_steps = 3;
    check_rates(&s, (const double[]){0.5, 0.25, 0, 0}, 4);
    s.total_steps = 1;
    check_rates(&s, (const double[]){0.5, 0}, 2);
    s.warmup_steps = 1;
    check_rates(&s, (const double[]){0.5, 0}, 2);
}

CASE(steps_multiply_the_rate) {
    ashlar_schedule s = step();
    check_rates(&s, (const double[]){2, 2, 2, 1, 1, 1, 0.5, 0.5, 0.5, 0.25}, 10);
    s.warmup_steps = 2; /* counted from its end */
    check_rates(&s, (const double[]){1, 2, 2, 2, 2, 1, 1, 1, 0.5}, 9);
    s.gamma = 0.9;
    s.step_size = 1;
    s.warmup_steps = 0;
    CHECK_NEAR(ashlar_schedule_rate(&s, 101), 2 * pow(0.9, 100), 0, 1e-13);
    CHECK(ashlar_schedule_rate(&s, UINT64_MAX) == 0);
}

static void check_refused(ashlar_schedule s, const char *part) {
    CHECK_FAILS(ashlar_schedule_check(&s), ASHLAR_EINVAL, part);
}

CASE(values_outside_their_ranges_are_refused) {
    const double nan = (double)NAN, inf = (double)INFINITY;
    const double rates[] = {0, -1, nan, inf};
    for (size_t i = 0; i < 4; i++) {
        ashlar_schedule s = cosine();
        s.rate = rates[i];
        check_refused(s, "rate");
        s.kind = ASHLAR_SCHEDULE_CONSTANT;
        check_refused(s, "rate");
    }
    const double floors[] = {-0.1, 1.1, nan};
    for (size_t i = 0; i < 3; i++) {
        ashlar_schedule s = cosine();
        s.floor = floors[i];
        check_refused(s, "schedule cosine");
        s.kind = ASHLAR_SCHEDULE_CONSTANT; /* which has none */
        CHECK(ashlar_schedule_check(&s) == ASHLAR_OK);
    }
    const double gammas[] = {-0.5, 1.5, nan};
    for (size_t i = 0; i < 3; i++) {
        ashlar_schedule s = step();
        s.gamma = gammas[i];
        check_refused(s, "schedule step");
    }
    ashlar_schedule s = cosine();
    s.warmup_steps = 15;
    check_refused(s, "14 steps with 15 of warm-up");
    s.warmup_steps = s.total_steps = 0;
    check_refused(s, "at least 1 step");
    s = step();
    s.step_size = 0;
    check_refused(s, "every 0 steps");
    s.kind = ASHLAR_SCHEDULE_COUNT;
    check_refused(s, "kind 3");
    s.kind = (ashlar_schedule_kind)-1;
    check_refused(s, "kind -1");
    s = step();
    s.gamma = 1;
    CHECK(ashlar_schedule_check(&s) == ASHLAR_OK);
    s = cosine();
    s.warmup_steps = 14;
    s.floor = 1;
    CHECK(ashlar_schedule_check(&s) == ASHLAR_OK);
}

RUN_CASES()
