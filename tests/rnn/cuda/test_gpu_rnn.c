/*
 * test_gpu_rnn.c - the RNN of a CUDA device against the CPU's: every cell, bias mode, direction,
 * projection, with variable lengths and states. Exits with 77 where there is no GPU.
 *
 * It also runs on the fake driver with the fake cuDNN, which computes as the CPU: then what is
 * tested is what goes to cuDNN, and this test itself.
 */
#include "tests/rnn/cuda/gpu_rnn_fixture.h"

/* Twice: weight gradients accumulate. */
static void check_training(const shape *s, const kind *k, ashlar_dtype dtype) {
    const ashlar_rnn_config config = config_of(s, k, dtype);
    REQUIRE(open_pair(s, k, dtype, &config, true));
    for (int i = 0; i < 2; i++) {
        run_training(&near);
        REQUIRE(run_far(&far, true) == ASHLAR_OK);
    }
    compare_forward(&far);
    compare_backward(&far);
}

static void all_kinds_and_shapes(ashlar_dtype dtype) {
    for (size_t s = 0; s < SHAPE_COUNT; s++) {
        for (size_t i = 0; i < KIND_COUNT; i++) {
            const kind k = undropped(i);
            check_training(&SHAPES[s], &k, dtype);
        }
    }
}

CASE(training_in_float_is_that_of_the_cpu) {
    all_kinds_and_shapes(ASHLAR_F32);
}

CASE(training_in_double_is_that_of_the_cpu) {
    all_kinds_and_shapes(ASHLAR_F64);
}

CASE(inference_is_that_of_the_cpu) {
    for (size_t s = 0; s < SHAPE_COUNT; s++) {
        for (size_t i = 0; i < KIND_COUNT; i++) {
            const kind k = undropped(i);
            const ashlar_rnn_config config = config_of(&SHAPES[s], &k, ASHLAR_F32);
            REQUIRE(open_pair(&SHAPES[s], &k, ASHLAR_F32, &config, false));
            run_forward(&near);
            CHECK(run_far(&far, false) == ASHLAR_OK);
            compare_forward(&far);
        }
    }
}

CASE(what_is_not_wanted_or_not_given_changes_nothing_else) {
    for (size_t i = 0; i < KIND_COUNT; i++) {
        const kind k = undropped(i);
        const ashlar_rnn_config config = config_of(&SHAPES[5], &k, ASHLAR_F32);
        REQUIRE(open_pair(&SHAPES[5], &k, ASHLAR_F32, &config, true));
        near.args.b.dy = far.all.dy = NULL;
        near.args.b.dcy = far.all.dcy = NULL;
        near.args.b.cx = far.all.cx = NULL;
        near.args.b.dx = far.all.dx = NULL;
        near.args.b.hy = far.all.hy = NULL;
        near.args.b.dcx = far.all.dcx = NULL;
        run_training(&near);
        CHECK(run_far(&far, true) == ASHLAR_OK);
        compare(&far, "y", far.all.y, near.args.b.y, near.y_count);
        compare(&far, "dhx", far.all.dhx, near.args.b.dhx, near.state_count);
        compare(&far, "dweights", far.all.dweights, near.args.b.dweights, near.layout.elements);
    }
}

/* cuDNN may refuse a persistent algorithm for its sizes. */
CASE(persistent_algorithms_compute_the_same) {
    for (int algorithm = 1; algorithm < ASHLAR_RNN_ALGORITHM_COUNT; algorithm++) {
        for (int cell = 0; cell < ASHLAR_RNN_CELL_COUNT; cell++) {
            const shape s = {1, 6, 4, 64, 64, {6, 6, 6, 6}, true};
            const kind k = {.cell = (ashlar_rnn_cell)cell, .directions = 1};
            ashlar_rnn_config config = config_of(&s, &k, ASHLAR_F32);
            config.algorithm = (ashlar_rnn_algorithm)algorithm;
            close_pair();
            REQUIRE(check_at_end(close_pair) && open_problem(&near, &s, &k, ASHLAR_F32, true));
            lessen_weights(&near);
            if (open_gpu_copy(&far, &near, &config, true)) {
                const ashlar_status status = run_far(&far, true);
                CHECK(status == ASHLAR_OK || (status == ASHLAR_ENOTSUP && !gpu_is_fake()));
                if (status == ASHLAR_OK) {
                    run_training(&near);
                    compare_forward(&far);
                    compare_backward(&far);
                }
            } else {
                CHECK(!gpu_is_fake());
            }
        }
    }
}

/* The CPU computes in float what the GPU does in 16 bits: rough, but a wrong formula is rougher. */
CASE(narrow_types_and_tf32_are_near_to_float) {
    static const struct {
        ashlar_dtype dtype;
        ashlar_rnn_math math;
        double atol, rtol;
    } types[] = {{ASHLAR_F16, ASHLAR_RNN_MATH_FMA, 2e-2, 2e-2},
                 {ASHLAR_BF16, ASHLAR_RNN_MATH_FMA, 1.5e-1, 1e-1},
                 {ASHLAR_F32, ASHLAR_RNN_MATH_TF32, 2e-2, 2e-2}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        for (size_t n = 0; n < KIND_COUNT; n++) {
            const kind k = undropped(n);
            ashlar_rnn_config config = config_of(&SHAPES[5], &k, types[i].dtype);
            config.math = types[i].math;
            REQUIRE(open_pair(&SHAPES[5], &k, ASHLAR_F32, &config, true));
            far.atol = types[i].atol;
            far.rtol = types[i].rtol;
            run_training(&near);
            CHECK(run_far(&far, true) == ASHLAR_OK);
            compare_forward(&far);
            compare_backward(&far);
        }
    }
}

/* Which outputs are dropped is cuDNN's own; that some are, others doubled, and states go on. */
CASE(dropout_changes_training_and_not_inference) {
    const shape s = {2, 8, 4, 16, 32, {8, 8, 8, 8}, false};
    const kind k = {.cell = ASHLAR_RNN_LSTM, .directions = 1, .dropout = 0.5};
    const ashlar_rnn_config config = config_of(&s, &k, ASHLAR_F32);
    REQUIRE(open_pair(&s, &k, ASHLAR_F32, &config, true));
    void *outputs[3] = {NULL};
    const size_t bytes = near.y_count * far.item;
    for (int i = 0; i < 3; i++) { /* two trainings, one inference */
        void *reserve = far.all.reserve;
        far.all.reserve = i < 2 ? reserve : NULL;
        CHECK(ashlar_rnn_forward(far.rnn, &far.batch, &far.all, gpu_stream) == ASHLAR_OK);
        far.all.reserve = reserve;
        outputs[i] = gpu_fetch(far.all.y, bytes);
    }
    CHECK(memcmp(outputs[0], outputs[1], bytes) != 0);
    CHECK(memcmp(outputs[0], outputs[2], bytes) != 0);
}

RUN_RNN_CASES_ON_GPU()
