/*
 * test_optimizer_errors.c - what an optimizer refuses; schedules, step by step and refused.
 */
#include "tests/arena/optimizer/optimizer_fixture.h"

#include <float.h>

#include <ashlar/optimizer.h>

#include "tests/check.h"

#define TEXT(name, text) text,
static const char *const kind_texts[] = {ASHLAR_OPTIMIZER_MAP(TEXT)};

/* ---- values ---- */

/* Each value in a field's place, for kinds that use it; the others do not look at it. */
static void check_field(size_t field, const char *name, unsigned kinds, const double *bad,
                        size_t bad_count, const double *good, size_t good_count) {
    for (int kind = 0; kind < ASHLAR_OPTIMIZER_COUNT; kind++) {
        const bool is_used = (kinds >> kind & 1) != 0;
        ashlar_optimizer_config config = defaults((ashlar_optimizer_kind)kind);
        for (size_t i = 0; i < bad_count; i++) {
            memcpy((char *)&config + field, &bad[i], sizeof bad[i]);
            CHECK(check_config(&config) == (is_used ? ASHLAR_EINVAL : ASHLAR_OK));
            if (is_used) {
                CHECK_HAS(ashlar_error_detail(), name);
                CHECK_HAS(ashlar_error_detail(), kind_texts[kind]);
            }
        }
        for (size_t i = 0; i < good_count; i++) {
            memcpy((char *)&config + field, &good[i], sizeof good[i]);
            CHECK(check_config(&config) == ASHLAR_OK);
        }
    }
}

#define FIELD(name, kinds, bad, good)                                       \
    check_field(offsetof(ashlar_optimizer_config, name), #name, kinds, bad, \
                sizeof(bad) / sizeof(bad)[0], good, sizeof(good) / sizeof(good)[0])

enum {
    SGD = 1 << ASHLAR_OPTIMIZER_SGD,
    ADAMS = 1 << ASHLAR_OPTIMIZER_ADAM | 1 << ASHLAR_OPTIMIZER_ADAMW,
    ADAGRAD = 1 << ASHLAR_OPTIMIZER_ADAGRAD,
    RMSPROP = 1 << ASHLAR_OPTIMIZER_RMSPROP,
    MUON = 1 << ASHLAR_OPTIMIZER_MUON,
    ALL = SGD | ADAMS | ADAGRAD | RMSPROP | MUON,
};

CASE(values_outside_their_ranges_are_refused) {
    const double nan = (double)NAN, inf = (double)INFINITY;
    const double not_positive[] = {0, -1e-3, nan, inf, 1e39, 1e-50}, positive[] = {1e-12, 1, 1e38};
    const double not_decays[] = {-1, nan, inf, 1e39}, decays[] = {0, 2};
    const double not_clips[] = {-1, nan}, clips[] = {0, 1e-3, inf};
    const double not_fractions[] = {-0.1, 1, 1.5, nan}, fractions[] = {0, 0.999};
    const double not_parts[] = {-0.1, 1.1, nan}, passes[] = {0, 0.5, 1};
    const double not_scales[] = {-1, nan, inf, 1e39, 1e-50}, scales[] = {0, 1, 65536};
    FIELD(learning_rate, ALL, not_positive, positive);
    FIELD(weight_decay, ALL, not_decays, decays);
    FIELD(clip_norm, ALL, not_clips, clips);
    FIELD(epsilon, ALL & ~SGD, not_positive, positive);
    FIELD(beta1, ADAMS | MUON, not_fractions, fractions);
    FIELD(beta2, ADAMS | MUON, not_fractions, fractions);
    FIELD(momentum, SGD | RMSPROP | MUON, not_fractions, fractions);
    FIELD(dampening, SGD, not_parts, passes);
    FIELD(smoothing, RMSPROP, not_parts, passes);
    FIELD(rate_decay, ADAGRAD, ((const double[]){-1, nan, inf}), decays);
    FIELD(ns[1], MUON, ((const double[]){nan, inf}), decays);
    FIELD(ns_epsilon, MUON, not_positive, positive);
    FIELD(loss_scale, ALL, not_scales, scales);
}

CASE(nesterov_needs_momentum_and_no_dampening) {
    ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_SGD);
    config.nesterov = true;
    CHECK_FAILS(check_config(&config), ASHLAR_EINVAL, "nesterov with momentum");
    config.momentum = 0.9;
    CHECK(check_config(&config) == ASHLAR_OK);
    config.dampening = 0.1;
    CHECK_FAILS(check_config(&config), ASHLAR_EINVAL, "nesterov with dampening");
    config.kind = ASHLAR_OPTIMIZER_ADAM;
    CHECK(check_config(&config) == ASHLAR_OK);
}

CASE(values_of_loss_scaling_count_when_it_is_on) {
    const double nan = (double)NAN;
    for (int is_on = 0; is_on < 2; is_on++) {
        const ashlar_status want = is_on ? ASHLAR_EINVAL : ASHLAR_OK;
        ashlar_optimizer_config fine = defaults(ASHLAR_OPTIMIZER_SGD);
        fine.loss_scale = is_on;
        CHECK(check_config(&fine) == ASHLAR_OK);
        const double growths[] = {0.5, nan, (double)INFINITY}, backoffs[] = {0, 1, -1, nan};
        for (size_t i = 0; i < 3; i++) {
            ashlar_optimizer_config config = fine;
            config.scale_growth = growths[i];
            CHECK(check_config(&config) == want);
        }
        for (size_t i = 0; i < 4; i++) {
            ashlar_optimizer_config config = fine;
            config.scale_backoff = backoffs[i];
            CHECK(check_config(&config) == want);
        }
        fine.scale_interval = 0;
        CHECK(check_config(&fine) == want);
    }
}

CASE(a_kind_that_is_none_is_refused) {
    ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_SGD);
    config.kind = ASHLAR_OPTIMIZER_COUNT;
    CHECK_FAILS(check_config(&config), ASHLAR_EINVAL, "kind 6");
    config.kind = (ashlar_optimizer_kind)-1;
    CHECK(check_config(&config) == ASHLAR_EINVAL);
}

/* ---- steps ---- */

static void check_nothing_happened(const image *before) {
    const ashlar_optimizer_state state = state_now();
    CHECK(state.step == 0 && state.skipped == 0 && is_image(before));
}

CASE_WITH(steps_with_values_that_cannot_be_are_refused, open_kind(ASHLAR_OPTIMIZER_ADAMW)) {
    const double nan = (double)NAN, inf = (double)INFINITY;
    const double rates[] = {-1, nan, inf, 1e39, (double)FLT_MAX}; /* the last, / (1 - beta1) */
    const double scales[] = {0, -1, nan, inf, 1e39};
    image before;
    draw(ASHLAR_REGION_GRADIENTS, 1, 1);
    take_image(&before);
    for (size_t i = 0; i < 5; i++) {
        CHECK_FAILS(ashlar_optimizer_step(optimizer, rates[i], 1, streams[0]), ASHLAR_EINVAL,
                    "learning_rate");
        CHECK(update_range(0, 256, rates[i]) == ASHLAR_EINVAL);
        CHECK_FAILS(ashlar_optimizer_step(optimizer, 0.1, scales[i], streams[0]), ASHLAR_EINVAL,
                    "gradient_scale");
        CHECK(decide(scales[i]) == ASHLAR_EINVAL);
    }
    check_nothing_happened(&before);
    free_image(&before);
}

/* The rate times the largest scale, 3 here, and times the weight decay with its scale, 2. */
CASE(rates_that_options_make_too_large_are_refused) {
    ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_SGD);
    REQUIRE(open_optimizer(&config));
    const double most = (double)FLT_MAX / 3;
    CHECK(update_range(0, 0, 0.99 * most) == ASHLAR_OK);
    CHECK(update_range(0, 0, 1.01 * most) == ASHLAR_EINVAL);
    close_optimizer();
    config.kind = ASHLAR_OPTIMIZER_ADAM; /* whose first rate is divided by 1 - beta1 */
    REQUIRE(open_optimizer(&config));
    CHECK(update_range(0, 0, 0.09 * most) == ASHLAR_OK);
    CHECK(update_range(0, 0, 0.11 * most) == ASHLAR_EINVAL);
    close_optimizer();
    config.kind = ASHLAR_OPTIMIZER_SGD;
    config.weight_decay = 2;
    REQUIRE(open_optimizer(&config));
    CHECK(update_range(0, 0, 0.24 * most) == ASHLAR_OK);
    CHECK(update_range(0, 0, 0.26 * most) == ASHLAR_EINVAL);
}

CASE_WITH(ranges_that_are_none_are_refused, open_kind(ASHLAR_OPTIMIZER_ADAMW)) {
    const size_t all = ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_PARAMETERS];
    const size_t ranges[][2] = {{128, 256}, {0, 128},       {0, all + 256},
                                {all, 256}, {all + 256, 0}, {256, SIZE_MAX - 255}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const size_t offset = ranges[i][0], bytes = ranges[i][1];
        CHECK_FAILS(sum_range(offset, bytes), ASHLAR_EINVAL, "multiples of 256");
        CHECK(update_range(offset, bytes, 0.1) == ASHLAR_EINVAL);
    }
    CHECK(sum_range(all, 0) == ASHLAR_OK);
    CHECK(sum_range(0, all) == ASHLAR_OK);
}

CASE(states_with_a_bad_loss_scale_are_refused) {
    const double scales[] = {-1, (double)NAN, (double)INFINITY, 1e39, 1e-50};
    ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_ADAMW);
    config.loss_scale = 32;
    REQUIRE(open_optimizer(&config));
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        const ashlar_optimizer_state state = {.step = 9, .loss_scale = scales[i]};
        CHECK_FAILS(ashlar_optimizer_copy_state_to_device(optimizer, &state, NULL, streams[0]),
                    ASHLAR_EINVAL, "loss_scale");
    }
    const ashlar_optimizer_state now = state_now();
    CHECK(now.step == 0 && now.loss_scale == 32);
}

/* ---- arenas and devices ---- */

static bool open_whole_arena(unsigned regions) {
    return open_arena("memory=16MiB", all_cases, sizeof all_cases / sizeof all_cases[0], regions);
}

static ashlar_status create(void) {
    const ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_ADAMW);
    return ashlar_optimizer_create(arena, &config, streams[0], &optimizer);
}

CASE(an_arena_that_is_not_committed_is_refused) {
    const size_t elements = 5;
    REQUIRE(set_up("memory=16MiB") && ashlar_arena_create(&arena) == ASHLAR_OK);
    CHECK(ashlar_arena_add(arena, "a", ASHLAR_F32, 1, &elements, NULL) == ASHLAR_OK);
    CHECK_FAILS(create(), ASHLAR_EINVAL, "not committed");
    CHECK(optimizer == NULL);
    close_optimizer();
}

CASE(a_region_that_the_arena_lacks_is_added) {
    for (int region = 1; region < ASHLAR_REGION_COUNT; region++) {
        const unsigned without = ASHLAR_REGIONS_ALL & ~(1u << region);
        REQUIRE(open_whole_arena(without));
        CHECK(create() == ASHLAR_OK && ashlar_arena_get_info(arena).regions == ASHLAR_REGIONS_ALL);
        close_optimizer();
    }
    /* Without narrow tensors there is no master to lack. */
    REQUIRE(open_arena("memory=16MiB", all_cases, 3, ASHLAR_REGIONS_ALL));
    CHECK(create() == ASHLAR_OK);
}

CASE(parts_that_are_none_are_refused) {
    const ashlar_optimizer_call call = {.parts = 8, .gradient_scale = 1};
    REQUIRE(open_adamw());
    CHECK_FAILS(ashlar_optimizer_step_with(optimizer, &call, streams[0]), ASHLAR_EINVAL, "parts 8");
}

/* ---- rates step by step, and values that make none ---- */

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
    for (size_t i = 0; i < count; i++) {
        CHECK_NEAR(ashlar_schedule_rate(s, i + 1), want[i], 1e-17, 1e-15);
    }
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

/* `change` of a good schedule; NULL words: it is good still. */
static void check_changed(ashlar_schedule s, const char *words) {
    CHECK(isnan(ashlar_schedule_rate(&s, 1)) == (words != NULL));
    CHECK(words == NULL || strstr(ashlar_error_detail(), words) != NULL);
}

#define COSINE(field, value, words) \
    s = cosine();                   \
    s.field = value;                \
    check_changed(s, words)
#define STEP(field, value, words) \
    s = step();                   \
    s.field = value;              \
    check_changed(s, words)

CASE(schedules_outside_their_ranges_are_refused) {
    const double bad[] = {-1, 1.1, (double)NAN, 0, (double)INFINITY};
    ashlar_schedule s;
    for (size_t i = 0; i < 5; i++) {
        COSINE(rate, bad[i], i == 1 ? NULL : "rate");
        COSINE(floor, bad[i], i == 3 ? NULL : "schedule cosine");
        s.kind = ASHLAR_SCHEDULE_CONSTANT; /* which has none */
        check_changed(s, NULL);
        STEP(gamma, bad[i], i == 3 ? NULL : "schedule step");
    }
    COSINE(warmup_steps, 15, "14 steps with 15 of warm-up");
    COSINE(warmup_steps, 14, NULL);
    s.warmup_steps = s.total_steps = 0;
    check_changed(s, "at least 1 step");
    COSINE(floor, 1, NULL);
    STEP(step_size, 0, "every 0 steps");
    STEP(gamma, 1, NULL);
    STEP(kind, ASHLAR_SCHEDULE_COUNT, "kind 3");
    STEP(kind, (ashlar_schedule_kind)-1, "kind -1");
}

RUN_CASES()
