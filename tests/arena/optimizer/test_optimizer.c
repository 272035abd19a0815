/*
 * test_optimizer.c - every optimizer over every type and option against the formulas of
 * optimizer.h, evaluated in double precision.
 */
#include "tests/arena/optimizer/optimizer_fixture.h"

#include <float.h>

#include "arena/optimizer/optimizer_impl.h"

static reference r; /* too large for a stack */

static void check_steps_scaled(const ashlar_optimizer_config *config, int count,
                               double gradient_scale) {
    const double rate = config->learning_rate;
    REQUIRE(open_optimizer(config));
    reference_open(&r, config);
    for (int step = 1; step <= count; step++) {
        image before;
        draw(ASHLAR_REGION_GRADIENTS, 10u + (unsigned)step, 1);
        take_image(&before);
        CHECK(ashlar_optimizer_step(optimizer, rate / step, gradient_scale, streams[0]) ==
              ASHLAR_OK);
        wait_for(streams[0]);
        reference_step(&r, config, rate / step, gradient_scale);
        check_equal(&r);
        check_padding();
        CHECK(memcmp(before.bytes[ASHLAR_REGION_GRADIENTS],
                     ashlar_arena_region(arena, ASHLAR_REGION_GRADIENTS),
                     ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_GRADIENTS]) == 0);
        free_image(&before);
        CHECK_ZU(state_now().step, (size_t)step);
    }
    const ashlar_optimizer_state state = state_now();
    CHECK(state.skipped == 0 && state.is_skipped == 0);
    close_optimizer();
}

static void check_steps(const ashlar_optimizer_config *config, int count) {
    check_steps_scaled(config, count, 1);
}

CASE(steps_follow_the_formulas) {
    for (int kind = 0; kind < ASHLAR_OPTIMIZER_COUNT; kind++) {
        const ashlar_optimizer_config config = defaults((ashlar_optimizer_kind)kind);
        check_steps(&config, 4);
    }
}

/* Values far from the defaults, so that each one shows. */
static ashlar_optimizer_config unusual(ashlar_optimizer_kind kind) {
    ashlar_optimizer_config config = defaults(kind);
    config.learning_rate = 0.05;
    config.epsilon = 0.25;
    config.weight_decay = 0.5;
    config.beta1 = 0.7;
    config.beta2 = 0.8;
    config.smoothing = 0.6;
    config.rate_decay = 0.5;
    return config;
}

static ashlar_status step_at(const double *rate, double most) {
    const ashlar_optimizer_call call = {
        .learning_rate = most, .rate_at = rate, .gradient_scale = 1};
    return ashlar_optimizer_step_with(optimizer, &call, streams[0]);
}

/* Queued once, a step can run again with another rate. */
CASE(a_rate_in_device_memory_is_read_when_the_step_runs) {
    const ashlar_optimizer_config config = adamw();
    void *rate = NULL;
    REQUIRE(open_optimizer(&config));
    CHECK(ashlar_alloc(allocator, sizeof(double), streams[0], &rate) == ASHLAR_OK);
    reference_open(&r, &config);
    for (int step = 1; step <= 3; step++) {
        draw(ASHLAR_REGION_GRADIENTS, 10u + (unsigned)step, 1);
        *(double *)rate = 0.5 / step; /* the device is the CPU, and idle */
        CHECK(step_at(rate, 0.5) == ASHLAR_OK);
        wait_for(streams[0]);
        reference_step(&r, &config, 0.5 / step, 1);
        check_equal(&r);
    }
    CHECK(step_at(rate, -1) == ASHLAR_EINVAL);
    CHECK(ashlar_free(allocator, rate) == ASHLAR_OK);
    close_optimizer();
}

CASE(every_value_counts) {
    for (int kind = 0; kind < ASHLAR_OPTIMIZER_COUNT; kind++) {
        const ashlar_optimizer_config config = unusual((ashlar_optimizer_kind)kind);
        check_steps(&config, 4);
    }
    ashlar_optimizer_config config = unusual(ASHLAR_OPTIMIZER_ADAM);
    config.beta1 = config.beta2 = 0;
    check_steps(&config, 3);
}

/* The gradients' norm is about 47 throughout; of narrow ones it is that after scaling. */
CASE(momentum_clipping_and_scales_count) {
    static const struct {
        ashlar_optimizer_kind kind;
        double momentum, dampening, clip_norm, loss_scale, gradient_scale;
        bool nesterov;
    } rows[] = {
        {ASHLAR_OPTIMIZER_SGD, .momentum = 0.9},
        {ASHLAR_OPTIMIZER_SGD, .momentum = 0.9, .nesterov = true},
        {ASHLAR_OPTIMIZER_SGD, .momentum = 0.9, .dampening = 0.25}, /* not in the first step */
        {ASHLAR_OPTIMIZER_RMSPROP, .momentum = 0.8},
        {ASHLAR_OPTIMIZER_SGD, .clip_norm = 3},
        {ASHLAR_OPTIMIZER_ADAM, .clip_norm = 3},
        {ASHLAR_OPTIMIZER_ADAGRAD, .clip_norm = 3},
        {ASHLAR_OPTIMIZER_RMSPROP, .clip_norm = 3},
        {ASHLAR_OPTIMIZER_ADAMW, .clip_norm = 46},
        {ASHLAR_OPTIMIZER_ADAMW, .clip_norm = 48},
        {ASHLAR_OPTIMIZER_ADAMW, .gradient_scale = 0.125},
        {ASHLAR_OPTIMIZER_ADAMW, .clip_norm = 3, .gradient_scale = 0.125}, /* of 6 */
        {ASHLAR_OPTIMIZER_ADAMW, .loss_scale = 64},
        {ASHLAR_OPTIMIZER_ADAMW, .loss_scale = 64, .clip_norm = 0.5}, /* of 47 / 64 */
        {ASHLAR_OPTIMIZER_ADAMW, .loss_scale = 64, .clip_norm = 0.5, .gradient_scale = 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ashlar_optimizer_config config = unusual(rows[i].kind);
        config.momentum = rows[i].momentum;
        config.nesterov = rows[i].nesterov;
        config.dampening = rows[i].dampening;
        config.clip_norm = rows[i].clip_norm;
        config.loss_scale = rows[i].loss_scale;
        check_steps_scaled(&config, i < 4 ? 4 : 2,
                           rows[i].gradient_scale > 0 ? rows[i].gradient_scale : 1);
    }
}

static _Alignas(ASHLAR_ARENA_ALIGN) unsigned char lent[2][1 << 16];

static void lend(void) {
    memset(lent, 0, sizeof lent);
    CHECK(ashlar_arena_lend(arena, ASHLAR_REGION_PARAMETERS, lent[0], sizeof lent[0]) == ASHLAR_OK);
    CHECK(ashlar_arena_lend(arena, ASHLAR_REGION_MOMENT1, lent[1], sizeof lent[1]) == ASHLAR_OK);
}

CASE(a_step_updates_memory_of_the_programs) {
    const ashlar_optimizer_config config = unusual(ASHLAR_OPTIMIZER_ADAMW);
    before_commit = lend;
    check_steps(&config, 4);
    before_commit = NULL;
    CHECK(lent[0][0] != 0 && lent[1][0] != 0);
}

CASE(the_defaults_are_those_of_pytorch) {
    const double rates[] = {1e-3, 1e-3, 1e-3, 1e-2, 1e-2, 1e-3};
    const double decays[] = {0, 0, 0.01, 0, 0, 0.1};
    for (int kind = 0; kind < ASHLAR_OPTIMIZER_COUNT; kind++) {
        const ashlar_optimizer_config c = defaults((ashlar_optimizer_kind)kind);
        CHECK((int)c.kind == kind && check_config(&c) == ASHLAR_OK);
        CHECK(c.learning_rate == rates[kind]);
        CHECK(c.epsilon == (kind == ASHLAR_OPTIMIZER_ADAGRAD ? 1e-10 : 1e-8));
        CHECK(c.weight_decay == decays[kind]);
        CHECK(c.beta1 == 0.9 && c.beta2 == 0.999 && c.smoothing == 0.99);
        CHECK(c.momentum == (kind == ASHLAR_OPTIMIZER_MUON ? 0.95 : 0) && c.dampening == 0);
        CHECK(c.nesterov == (kind == ASHLAR_OPTIMIZER_MUON) && c.rate_decay == 0);
        CHECK(c.ns[0] == 3.4445 && c.ns[1] == -4.775 && c.ns[2] == 2.0315 && c.ns_steps == 5);
        CHECK(c.ns_epsilon == 1e-7 && c.muon_scale == ASHLAR_MUON_SCALE_ORIGINAL);
        CHECK(c.clip_norm == 0 && c.loss_scale == 0);
        CHECK(c.scale_growth == 2 && c.scale_backoff == 0.5 && c.scale_interval == 2000);
    }
}

CASE(only_moments_that_are_used_are_added) {
    const unsigned least =
        1u << ASHLAR_REGION_PARAMETERS | 1u << ASHLAR_REGION_GRADIENTS | 1u << ASHLAR_REGION_MASTER;
    const unsigned first = 1u << ASHLAR_REGION_MOMENT1, second = 1u << ASHLAR_REGION_MOMENT2;
    const unsigned plain[] = {0, first | second, first | second, second, second, first | second};
    const unsigned with_momentum[] = {first,  first | second, first | second,
                                      second, first | second, first | second};
    for (int kind = 0; kind < ASHLAR_OPTIMIZER_COUNT; kind++) {
        ashlar_optimizer_config config = defaults((ashlar_optimizer_kind)kind);
        REQUIRE(open_optimizer(&config));
        CHECK(ashlar_arena_get_info(arena).regions == (least | plain[kind]));
        close_optimizer();
        config.momentum = 0.5;
        REQUIRE(open_optimizer(&config));
        CHECK(ashlar_arena_get_info(arena).regions == (least | with_momentum[kind]));
        close_optimizer();
    }
}

/* Huge and tiny gradients together with the smallest epsilon and the largest rate there may be. */
CASE(padding_survives_extreme_values) {
    for (int kind = 0; kind < ASHLAR_OPTIMIZER_COUNT; kind++) {
        ashlar_optimizer_config config = defaults((ashlar_optimizer_kind)kind);
        config.learning_rate = (double)FLT_MAX / 32;
        config.epsilon = (double)FLT_TRUE_MIN;
        config.weight_decay = 1;
        REQUIRE(open_optimizer(&config));
        draw(ASHLAR_REGION_PARAMETERS, 1, 0);
        put(ASHLAR_REGION_GRADIENTS, 1, 0, (double)FLT_MAX);
        put(ASHLAR_REGION_GRADIENTS, 1, 1, (double)FLT_TRUE_MIN);
        CHECK(ashlar_optimizer_step(optimizer, config.learning_rate, 1, streams[0]) == ASHLAR_OK);
        wait_for(streams[0]);
        check_padding();
        CHECK(get(ASHLAR_REGION_PARAMETERS, 1, 2) == 0); /* a gradient of 0 moves nothing */
        close_optimizer();
    }
}

/* ---- what the program leaves out ---- */

CASE(a_field_that_is_given_is_kept_and_one_that_is_not_has_its_default) {
#define FIELD(name) offsetof(ashlar_optimizer_config, name)
    static const size_t fields[] = {FIELD(learning_rate), FIELD(beta1),        FIELD(beta2),
                                    FIELD(smoothing),     FIELD(epsilon),      FIELD(weight_decay),
                                    FIELD(scale_growth),  FIELD(scale_backoff)};
    for (int kind = 0; kind < ASHLAR_OPTIMIZER_COUNT; kind++) {
        ashlar_optimizer_config want = defaults((ashlar_optimizer_kind)kind);
        ashlar_optimizer_config given = {.kind = (ashlar_optimizer_kind)kind}, taken;
        want.learning_rate = given.learning_rate = 0.125;
        given.scale_interval = 7;
        REQUIRE(ashlar__optimizer_take(&taken, &given) == ASHLAR_OK);
        for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
            CHECK(memcmp((char *)&taken + fields[i], (char *)&want + fields[i], 8) == 0);
        }
        CHECK(taken.is_complete && taken.scale_interval == 7);
        given.learning_rate = -0.125; /* no default stands for what is wrong */
        CHECK_FAILS(ashlar__optimizer_take(&taken, &given), ASHLAR_EINVAL, "learning_rate");
    }
}

RUN_CASES()
