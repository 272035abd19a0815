/*
 * test_optimizer_errors.c - what an optimizer refuses, and calls that fail.
 */
#include "tests/arena/optimizer/optimizer_fixture.h"

#include <float.h>

/* ---- values ---- */

/* Each value in a field's place, for kinds that use it; the others do not look at it. */
static void check_field(size_t field, const char *name, unsigned kinds, const double *bad,
                        size_t bad_count, const double *good, size_t good_count) {
    for (int kind = 0; kind < ASHLAR_OPTIMIZER_COUNT; kind++) {
        const bool is_used = (kinds >> kind & 1) != 0;
        ashlar_optimizer_config config = defaults((ashlar_optimizer_kind)kind);
        for (size_t i = 0; i < bad_count; i++) {
            memcpy((char *)&config + field, &bad[i], sizeof bad[i]);
            CHECK(ashlar_optimizer_check(&config) == (is_used ? ASHLAR_EINVAL : ASHLAR_OK));
            if (is_used) {
                CHECK_HAS(ashlar_error_detail(), name);
                CHECK_HAS(ashlar_error_detail(),
                          ashlar_optimizer_name((ashlar_optimizer_kind)kind));
            }
        }
        for (size_t i = 0; i < good_count; i++) {
            memcpy((char *)&config + field, &good[i], sizeof good[i]);
            CHECK(ashlar_optimizer_check(&config) == ASHLAR_OK);
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
    ALL = SGD | ADAMS | ADAGRAD | RMSPROP,
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
    FIELD(beta1, ADAMS, not_fractions, fractions);
    FIELD(beta2, ADAMS, not_fractions, fractions);
    FIELD(momentum, SGD | RMSPROP, not_fractions, fractions);
    FIELD(dampening, SGD, not_parts, passes);
    FIELD(smoothing, RMSPROP, not_parts, passes);
    FIELD(rate_decay, ADAGRAD, ((const double[]){-1, nan, inf}), decays);
    FIELD(loss_scale, ALL, not_scales, scales);
}

CASE(nesterov_needs_momentum_and_no_dampening) {
    ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_SGD);
    config.nesterov = true;
    CHECK_FAILS(ashlar_optimizer_check(&config), ASHLAR_EINVAL, "nesterov with momentum");
    config.momentum = 0.9;
    CHECK(ashlar_optimizer_check(&config) == ASHLAR_OK);
    config.dampening = 0.1;
    CHECK_FAILS(ashlar_optimizer_check(&config), ASHLAR_EINVAL, "nesterov with dampening");
    config.kind = ASHLAR_OPTIMIZER_ADAM;
    CHECK(ashlar_optimizer_check(&config) == ASHLAR_OK);
}

CASE(values_of_loss_scaling_count_when_it_is_on) {
    const double nan = (double)NAN;
    for (int is_on = 0; is_on < 2; is_on++) {
        const ashlar_status want = is_on ? ASHLAR_EINVAL : ASHLAR_OK;
        ashlar_optimizer_config fine = defaults(ASHLAR_OPTIMIZER_SGD);
        fine.loss_scale = is_on;
        CHECK(ashlar_optimizer_check(&fine) == ASHLAR_OK);
        const double growths[] = {0.5, nan, (double)INFINITY}, backoffs[] = {0, 1, -1, nan};
        for (size_t i = 0; i < 3; i++) {
            ashlar_optimizer_config config = fine;
            config.scale_growth = growths[i];
            CHECK(ashlar_optimizer_check(&config) == want);
        }
        for (size_t i = 0; i < 4; i++) {
            ashlar_optimizer_config config = fine;
            config.scale_backoff = backoffs[i];
            CHECK(ashlar_optimizer_check(&config) == want);
        }
        fine.scale_interval = 0;
        CHECK(ashlar_optimizer_check(&fine) == want);
    }
}

CASE(a_kind_that_is_none_is_refused) {
    ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_SGD);
    config.kind = ASHLAR_OPTIMIZER_COUNT;
    CHECK_FAILS(ashlar_optimizer_check(&config), ASHLAR_EINVAL, "kind 5");
    config.kind = (ashlar_optimizer_kind)-1;
    CHECK(ashlar_optimizer_check(&config) == ASHLAR_EINVAL);
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
        CHECK(ashlar_optimizer_update(optimizer, 0, 256, rates[i], streams[0]) == ASHLAR_EINVAL);
        CHECK_FAILS(ashlar_optimizer_step(optimizer, 0.1, scales[i], streams[0]), ASHLAR_EINVAL,
                    "gradient_scale");
        CHECK(ashlar_optimizer_decide(optimizer, scales[i], streams[0]) == ASHLAR_EINVAL);
    }
    check_nothing_happened(&before);
    free_image(&before);
}

/* The rate times the largest scale, 3 here, and times the weight decay. */
CASE(rates_that_options_make_too_large_are_refused) {
    ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_SGD);
    REQUIRE(open_optimizer(&config));
    const double most = (double)FLT_MAX / 3;
    CHECK(ashlar_optimizer_update(optimizer, 0, 0, 0.99 * most, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_optimizer_update(optimizer, 0, 0, 1.01 * most, streams[0]) == ASHLAR_EINVAL);
    close_optimizer();
    config.kind = ASHLAR_OPTIMIZER_ADAM; /* whose first rate is divided by 1 - beta1 */
    REQUIRE(open_optimizer(&config));
    CHECK(ashlar_optimizer_update(optimizer, 0, 0, 0.09 * most, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_optimizer_update(optimizer, 0, 0, 0.11 * most, streams[0]) == ASHLAR_EINVAL);
    close_optimizer();
    config.kind = ASHLAR_OPTIMIZER_SGD;
    config.weight_decay = 2;
    REQUIRE(open_optimizer(&config));
    CHECK(ashlar_optimizer_update(optimizer, 0, 0, 0.49 * most, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_optimizer_update(optimizer, 0, 0, 0.51 * most, streams[0]) == ASHLAR_EINVAL);
}

CASE_WITH(ranges_that_are_none_are_refused, open_kind(ASHLAR_OPTIMIZER_ADAMW)) {
    const size_t all = ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS);
    const size_t ranges[][2] = {{128, 256}, {0, 128},       {0, all + 256},
                                {all, 256}, {all + 256, 0}, {256, SIZE_MAX - 255}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const size_t offset = ranges[i][0], bytes = ranges[i][1];
        CHECK_FAILS(ashlar_optimizer_sum(optimizer, offset, bytes, streams[0]), ASHLAR_EINVAL,
                    "multiples of 256");
        CHECK(ashlar_optimizer_update(optimizer, offset, bytes, 0.1, streams[0]) == ASHLAR_EINVAL);
    }
    CHECK(ashlar_optimizer_sum(optimizer, all, 0, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_optimizer_sum(optimizer, 0, all, streams[0]) == ASHLAR_OK);
}

CASE(states_with_a_bad_loss_scale_are_refused) {
    const double scales[] = {-1, (double)NAN, (double)INFINITY, 1e39, 1e-50};
    ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_ADAMW);
    config.loss_scale = 32;
    REQUIRE(open_optimizer(&config));
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        const ashlar_optimizer_state state = {.step = 9, .loss_scale = scales[i]};
        CHECK_FAILS(ashlar_optimizer_copy_state_to_device(optimizer, &state, streams[0]),
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

CASE(arenas_that_lack_a_region_are_refused) {
    for (int region = 1; region < ASHLAR_REGION_COUNT; region++) {
        const unsigned without = ASHLAR_REGIONS_ALL & ~(1u << region);
        REQUIRE(open_whole_arena(without));
        CHECK_FAILS(create(), ASHLAR_EINVAL, ashlar_region_text((ashlar_region)region));
        CHECK_HAS(ashlar_error_detail(), "ashlar_optimizer_regions()");
        CHECK(ashlar_arena_extend(arena, streams[0], 1u << region) == ASHLAR_OK);
        CHECK(create() == ASHLAR_OK);
        close_optimizer();
    }
    /* Without narrow tensors there is no master to lack. */
    REQUIRE(open_arena("memory=16MiB", all_cases, 3, ASHLAR_REGIONS_ALL));
    CHECK(create() == ASHLAR_OK);
}

/* A device of the other kind, as far as one can tell from outside. */
CASE_WITH(a_cuda_device_without_kernels_is_not_supported, open_whole_arena(ASHLAR_REGIONS_ALL)) {
    device->info.kind = ASHLAR_DEVICE_CUDA;
    CHECK(create() == ASHLAR_ENOTSUP);
    CHECK(optimizer == NULL);
    device->info.kind = ASHLAR_DEVICE_SOFT;
}

/* ---- failures ---- */

/* Every host allocation, driver call and device allocation of create. */
CASE(failures_of_create_leave_nothing_behind) {
    for (int way = 0; way < 2; way++) {
        ashlar_status status = ASHLAR_EDRIVER;
        unsigned n = 1;
        for (; status != ASHLAR_OK && n < 30; n++) {
            REQUIRE(open_whole_arena(ASHLAR_REGIONS_ALL));
            if (way == 0) {
                ashlar__host_fail_at(n);
            } else {
                ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_memcpy_htod_async, n, CU_UNKNOWN);
            }
            status = create();
            ashlar__host_fail_at(0);
            ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS);
            /* The software driver's own want of host memory is one of the device. */
            CHECK(status == ASHLAR_OK || status == (way == 1 ? ASHLAR_EDRIVER
                                                    : n <= 4 ? ASHLAR_EHOSTMEM
                                                             : ASHLAR_ENOMEM));
            CHECK((optimizer != NULL) == (status == ASHLAR_OK));
            close_optimizer();
        }
        CHECK(n - 2 >= (way == 0 ? 4u : 2u) && n < 30);
    }
}

CASE_WITH(launches_that_fail_are_reported, open_kind(ASHLAR_OPTIMIZER_ADAMW)) {
    image before;
    draw(ASHLAR_REGION_GRADIENTS, 1, 1);
    take_image(&before);
    for (int call = 0; call < 4; call++) {
        for (int way = 0; way < 2; way++) {
            if (way == 0) {
                ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_launch_host_func, 1, CU_UNKNOWN);
            } else {
                ashlar__host_fail_at(1);
            }
            const ashlar_status status =
                call == 0   ? ashlar_optimizer_step(optimizer, 0.1, 1, streams[0])
                : call == 1 ? ashlar_optimizer_sum(optimizer, 0, 256, streams[0])
                : call == 2 ? ashlar_optimizer_decide(optimizer, 1, streams[0])
                            : ashlar_optimizer_update(optimizer, 0, 256, 0.1, streams[0]);
            CHECK(status == (way == 0 ? ASHLAR_EDRIVER : ASHLAR_EHOSTMEM));
            ashlar__host_fail_at(0);
        }
    }
    check_nothing_happened(&before);
    ashlar_optimizer_state state = {.step = 3, .loss_scale = 1};
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_memcpy_dtoh_async, 1, CU_UNKNOWN);
    CHECK(ashlar_optimizer_copy_state_to_host(optimizer, &state, streams[0]) == ASHLAR_EDRIVER);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_memcpy_htod_async, 1, CU_UNKNOWN);
    CHECK(ashlar_optimizer_copy_state_to_device(optimizer, &state, streams[0]) == ASHLAR_EDRIVER);
    check_nothing_happened(&before);
    free_image(&before);
}

RUN_CASES()
