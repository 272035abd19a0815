/*
 * test_optimizer_state.c - what an optimizer keeps: skipped steps, the loss scale, and a
 * resumed training.
 */
#include "tests/arena/optimizer/optimizer_fixture.h"

static reference r; /* too large for a stack */

static void step(unsigned gradients) {
    draw(ASHLAR_REGION_GRADIENTS, gradients, 1);
    CHECK(ashlar_optimizer_step(optimizer, 0.05, 1, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
}

/* ---- skipped steps ---- */

/* One bad value in tensor `t`. */
static void check_skip(const ashlar_optimizer_config *config, size_t t, double bad) {
    image before;
    REQUIRE(open_optimizer(config));
    step(2);
    draw(ASHLAR_REGION_GRADIENTS, 3, 1);
    put(ASHLAR_REGION_GRADIENTS, t, cases[t].elements - 1, bad);
    take_image(&before);
    CHECK(ashlar_optimizer_step(optimizer, 0.05, 1, streams[0]) == ASHLAR_OK);
    const ashlar_optimizer_state state = state_now();
    CHECK(is_image(&before));
    CHECK(!isfinite(state.norm));
    CHECK(state.step == 1 && state.skipped == 1 && state.is_skipped == 1);
    CHECK(state.loss_scale == 1 && state.good_steps == 0);
    free_image(&before);
    close_optimizer();
}

CASE(a_gradient_that_is_not_finite_changes_nothing) {
    const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (int kind = 0; kind < ASHLAR_OPTIMIZER_COUNT; kind++) {
        ashlar_optimizer_config config = defaults((ashlar_optimizer_kind)kind);
        config.momentum = kind == ASHLAR_OPTIMIZER_SGD ? 0.5 : 0;
        check_skip(&config, 3, bad[kind % 3]);
    }
    const ashlar_optimizer_config config = adamw();
    for (size_t t = 0; t < sizeof all_cases / sizeof all_cases[0]; t++) {
        if (!all_cases[t].options.is_frozen) {
            check_skip(&config, t, bad[t % 3]);
        }
    }
}

CASE_WITH(a_frozen_gradient_that_is_not_finite_does_not_count, open_adamw()) {
    reference_open(&r, &opened);
    draw(ASHLAR_REGION_GRADIENTS, 2, 1);
    put(ASHLAR_REGION_GRADIENTS, 7, 0, (double)NAN);
    put(ASHLAR_REGION_GRADIENTS, 10, 8, (double)INFINITY);
    CHECK(ashlar_optimizer_step(optimizer, 0.05, 1, streams[0]) == ASHLAR_OK);
    reference_step(&r, &opened, 1, 0.05, 1);
    wait_for(streams[0]);
    check_equal(&r);
}

/* As if the skipped one had not been: also where it was the very first. */
CASE_WITH(steps_go_on_after_a_skipped_one, open_adamw()) {
    reference_open(&r, &opened);
    for (int turn = 1; turn <= 6; turn++) {
        draw(ASHLAR_REGION_GRADIENTS, (unsigned)turn, 1);
        const bool is_bad = turn % 2 == 1;
        if (is_bad) {
            put(ASHLAR_REGION_GRADIENTS, 0, 0, (double)NAN);
        }
        CHECK(ashlar_optimizer_step(optimizer, 0.05, 1, streams[0]) == ASHLAR_OK);
        wait_for(streams[0]);
        if (!is_bad) {
            reference_step(&r, &opened, turn / 2, 0.05, 1);
            check_equal(&r);
        }
        const ashlar_optimizer_state state = state_now();
        CHECK_ZU(state.step, (size_t)turn / 2);
        CHECK_ZU(state.skipped, (size_t)(turn + 1) / 2);
        CHECK(state.is_skipped == is_bad);
    }
}

/* ---- the loss scale ---- */

static ashlar_optimizer_config scaled(double scale) {
    ashlar_optimizer_config config = adamw();
    config.loss_scale = scale;
    config.scale_interval = 3;
    return config;
}

CASE(the_loss_scale_grows_and_shrinks_as_gradscaler_has_it) {
    const ashlar_optimizer_config config = scaled(8);
    const char *const course = "ggggbgggbbggbgggggg"; /* good and bad steps */
    double scale = 8;
    unsigned good = 0;
    REQUIRE(open_optimizer(&config));
    for (size_t i = 0; course[i] != '\0'; i++) {
        CHECK(*ashlar_optimizer_loss_scale_address(optimizer) == scale);
        draw(ASHLAR_REGION_GRADIENTS, (unsigned)i, 1);
        if (course[i] == 'b') {
            put(ASHLAR_REGION_GRADIENTS, 0, 0, (double)INFINITY);
            scale /= 2;
            good = 0;
        } else if (++good == 3) {
            scale *= 2;
            good = 0;
        }
        CHECK(ashlar_optimizer_step(optimizer, 0.05, 1, streams[0]) == ASHLAR_OK);
        const ashlar_optimizer_state state = state_now();
        CHECK(state.loss_scale == scale);
        CHECK_ZU(state.good_steps, good);
    }
}

CASE(the_loss_scale_stays_within_what_fp32_can_hold) {
    ashlar_optimizer_config config = scaled(0x1p127);
    config.scale_interval = 1;
    REQUIRE(open_optimizer(&config));
    step(1);
    CHECK(state_now().loss_scale == 0x1p127);
    CHECK_ZU(state_now().good_steps, 0);
    close_optimizer();
    config.loss_scale = 0x1p-126;
    REQUIRE(open_optimizer(&config));
    draw(ASHLAR_REGION_GRADIENTS, 1, 1);
    put(ASHLAR_REGION_GRADIENTS, 0, 0, (double)NAN);
    CHECK(ashlar_optimizer_step(optimizer, 0.05, 1, streams[0]) == ASHLAR_OK);
    CHECK(state_now().loss_scale == 0x1p-126);
}

/* ---- resume ---- */

static void copy_all_state(const image *from) {
    for (int i = 0; i < ASHLAR_REGION_COUNT; i++) {
        if (from->bytes[i] != NULL) {
            memcpy(ashlar_arena_region(arena, (ashlar_region)i), from->bytes[i],
                   ashlar_arena_region_bytes(arena, (ashlar_region)i));
        }
    }
}

static void check_resume(const ashlar_optimizer_config *config) {
    image halfway, end;
    REQUIRE(open_optimizer(config));
    step(1);
    draw(ASHLAR_REGION_GRADIENTS, 2, 1);
    put(ASHLAR_REGION_GRADIENTS, 0, 0, (double)NAN);
    CHECK(ashlar_optimizer_step(optimizer, 0.05, 1, streams[0]) == ASHLAR_OK);
    step(3);
    const ashlar_optimizer_state state = state_now();
    take_image(&halfway);
    for (unsigned i = 4; i < 8; i++) {
        step(i);
    }
    const ashlar_optimizer_state last = state_now();
    take_image(&end);
    close_optimizer();

    REQUIRE(open_optimizer(config));
    copy_all_state(&halfway);
    CHECK(ashlar_optimizer_copy_state_to_device(optimizer, &state, streams[0]) == ASHLAR_OK);
    for (unsigned i = 4; i < 8; i++) {
        step(i);
    }
    const ashlar_optimizer_state now = state_now();
    CHECK(memcmp(&now, &last, sizeof now) == 0);
    CHECK(is_image(&end));
    close_optimizer();
    free_image(&halfway);
    free_image(&end);
}

CASE(a_resumed_training_goes_on_to_the_last_bit) {
    for (int kind = 0; kind < ASHLAR_OPTIMIZER_COUNT; kind++) {
        ashlar_optimizer_config config = defaults((ashlar_optimizer_kind)kind);
        config.momentum = 0.5;
        config.rate_decay = 0.1;
        config.loss_scale = kind % 2 == 0 ? 16 : 0;
        config.scale_interval = 2;
        check_resume(&config);
    }
}

RUN_CASES()
