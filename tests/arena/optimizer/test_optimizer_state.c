/*
 * test_optimizer_state.c - what an optimizer keeps: skipped steps and the loss scale;
 * and a step in parts.
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
            reference_step(&r, &opened, 0.05, 1);
            check_equal(&r);
        }
        const ashlar_optimizer_state state = state_now();
        CHECK_ZU(state.step, (size_t)turn / 2);
        CHECK_ZU(state.skipped, (size_t)(turn + 1) / 2);
        CHECK(state.is_skipped == is_bad);
    }
}

static bool gradients_are_zero(void) {
    const unsigned char *bytes = ashlar_arena_region(arena, ASHLAR_REGION_GRADIENTS);
    size_t left = ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_GRADIENTS];
    while (left > 0 && bytes[left - 1] == 0) {
        left--;
    }
    return left == 0;
}

/* In each kind of step: with matrices, skipped, of frozen tensors. */
CASE(a_step_zeroes_gradients_if_asked) {
    for (int kind = 0; kind < ASHLAR_OPTIMIZER_COUNT; kind++) {
        for (int is_bad = 0; is_bad < 2; is_bad++) {
            const ashlar_optimizer_call call = {
                .learning_rate = 0.05, .gradient_scale = 1, .zero_gradients = true};
            const ashlar_optimizer_config config = defaults((ashlar_optimizer_kind)kind);
            REQUIRE(open_optimizer(&config));
            reference_open(&r, &config);
            draw(ASHLAR_REGION_GRADIENTS, 2, 1);
            if (is_bad) {
                put(ASHLAR_REGION_GRADIENTS, 0, 0, (double)NAN);
            } else {
                reference_step(&r, &config, 0.05, 1);
            }
            CHECK(ashlar_optimizer_step_with(optimizer, &call, streams[0]) == ASHLAR_OK);
            wait_for(streams[0]);
            CHECK(gradients_are_zero());
            CHECK_ZU(state_now().is_skipped, (size_t)is_bad);
            if (!is_bad) {
                check_equal(&r);
            }
            close_optimizer();
        }
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
        CHECK(*ashlar_optimizer_get_info(optimizer).loss_scale == scale);
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

/* ---- a step in parts, over any ranges of the arena ---- */

static reference r; /* too large for a stack */

/* The sum over several ranges: each adds to those before it. */
static void sum_of_ranges(const size_t *ends, size_t count) {
    for (size_t i = 0, begin = 0; i < count; begin = ends[i++]) {
        CHECK(sum_range(begin, ends[i] - begin) == ASHLAR_OK);
    }
}

static void step_in_ranges(const size_t *ends, size_t count, unsigned gradients) {
    draw(ASHLAR_REGION_GRADIENTS, gradients, 1);
    sum_of_ranges(ends, count);
    CHECK(decide(1) == ASHLAR_OK);
    for (size_t i = count; i-- > 0;) {
        const size_t begin = i == 0 ? 0 : ends[i - 1];
        CHECK(update_range(begin, ends[i] - begin, 0.05) == ASHLAR_OK);
    }
    wait_for(streams[0]);
}

/* Parts that follow each other may be one call. */
CASE(a_decision_and_an_update_in_one_call_end_a_step) {
    const ashlar_optimizer_config config = adamw();
    REQUIRE(open_optimizer(&config));
    const size_t bytes = ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_PARAMETERS];
    const ashlar_optimizer_call call = {.parts = ASHLAR_OPTIMIZER_DECIDE | ASHLAR_OPTIMIZER_UPDATE,
                                        .learning_rate = 0.05,
                                        .gradient_scale = 1,
                                        .bytes = bytes};
    reference_open(&r, &config);
    draw(ASHLAR_REGION_GRADIENTS, 1, 1);
    CHECK(sum_range(0, bytes) == ASHLAR_OK);
    CHECK(ashlar_optimizer_step_with(optimizer, &call, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    reference_step(&r, &config, 0.05, 1);
    check_equal(&r);
}

static void check_ranges(const size_t *ends, size_t count) {
    ashlar_optimizer_config config = adamw();
    REQUIRE(open_optimizer(&config));
    REQUIRE(ends[count - 1] == ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_PARAMETERS]);
    reference_open(&r, &config);
    for (int turn = 1; turn <= 2; turn++) {
        step_in_ranges(ends, count, (unsigned)turn);
        reference_step(&r, &config, 0.05, 1);
        check_equal(&r);
        check_padding();
    }
    close_optimizer();
}

static size_t arena_bytes(void) {
    const ashlar_optimizer_config config = adamw();
    size_t bytes = 0;
    CHECK(open_optimizer(&config));
    bytes = ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_PARAMETERS];
    close_optimizer();
    return bytes;
}

CASE(a_step_in_ranges_is_a_step) {
    const size_t all = arena_bytes();
    enum { LINES_MAX = 200 };
    REQUIRE(all / ASHLAR_ARENA_ALIGN < LINES_MAX);
    size_t ends[LINES_MAX];
    for (size_t lines = 1; lines < LINES_MAX; lines = lines * 3 + 1) {
        size_t count = 0;
        for (size_t end = lines * ASHLAR_ARENA_ALIGN; end < all;
             end += lines * ASHLAR_ARENA_ALIGN) {
            ends[count++] = end;
        }
        ends[count++] = all;
        check_ranges(ends, count);
    }
}

CASE(a_range_without_tensors_that_count_adds_nothing) {
    static const tensor_case tensors[] = {{"a", ASHLAR_F32, 64, {0}},
                                          {"ice", ASHLAR_F32, 128, {.is_frozen = true}},
                                          {"b", ASHLAR_F32, 64, {0}}};
    const ashlar_optimizer_config config = adamw();
    REQUIRE(open_optimizer_of("memory=16MiB", tensors, 3, &config));
    draw(ASHLAR_REGION_GRADIENTS, 1, 1);
    const size_t ranges[][2] = {{256, 512}, {256, 256}, {512, 256}, {0, 0}, {256, 0}, {1024, 0}};
    *ashlar_optimizer_get_info(optimizer).sum = 5; /* of a step before: the first sum forgets it */
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        CHECK(sum_range(ranges[i][0], ranges[i][1]) == ASHLAR_OK);
        wait_for(streams[0]);
        CHECK(*ashlar_optimizer_get_info(optimizer).sum == 0);
    }
    double b = 0;
    for (size_t i = 0; i < 64; i++) {
        b += pow(get(ASHLAR_REGION_GRADIENTS, 2, i), 2);
    }
    CHECK(sum_range(512, 512) == ASHLAR_OK);
    wait_for(streams[0]);
    CHECK_NEAR(*ashlar_optimizer_get_info(optimizer).sum, b, 0, 1e-14);
}

/* Whole numbers, whose squares have an exact sum. */
static double draw_whole_gradients(unsigned seed) {
    double sum = 0;
    for (size_t t = 0; t < case_count; t++) {
        for (size_t i = 0; i < cases[t].elements; i++) {
            const double value = (double)((i * 7 + t + seed) % 17) - 8;
            put(ASHLAR_REGION_GRADIENTS, t, i, value);
            sum += cases[t].options.is_frozen ? 0 : value * value;
        }
    }
    return sum;
}

/* A step that was given up leaves sums behind: those of the state that is put back do not count. */
CASE(a_state_that_is_put_back_begins_the_sum_anew) {
    const ashlar_optimizer_config config = adamw();
    REQUIRE(open_optimizer(&config));
    const size_t all = ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_PARAMETERS];
    const ashlar_optimizer_state state = state_now();
    const double sum = draw_whole_gradients(1);
    CHECK(sum_range(0, 512) == ASHLAR_OK);
    CHECK(ashlar_optimizer_copy_state_to_device(optimizer, &state, NULL, streams[0]) == ASHLAR_OK);
    CHECK(sum_range(0, all) == ASHLAR_OK);
    wait_for(streams[0]);
    CHECK(*ashlar_optimizer_get_info(optimizer).sum == sum);
}

RUN_CASES()
