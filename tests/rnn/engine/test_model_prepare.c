/* test_model_prepare.c - walks with prepared weights: the bits of walks without, step by step too;
 * how long the copies are read, and their memory. */
#include "tests/rnn/engine/engine_fixture.h"

enum { T = 6, B = 3, I = 7, H = 33, OUT = 5, OUT_BYTES = T * B * OUT * sizeof(double) };

static ashlar_model_batch batch; /* of T steps */
static double *y;                /* its output, [T, B, OUT] */
static void *states[2];

static bool open_kind(ashlar_rnn_cell cell, size_t directions) {
    static void *outputs[1];
    const ashlar_rnn_config config = {
        .hidden = H, .layers = 2, .directions = directions, .cell = cell, .dropout = 0.3};
    ashlar_model_need need;
    if (!open_model("memory=64MiB", 5)) {
        return false;
    }
    ashlar_tensor *x = ashlar_model_input(model, "x", ASHLAR_AXIS_TIME, I);
    ashlar_tensor *targets = ashlar_model_input(model, "targets", ASHLAR_AXIS_TIME, OUT);
    (void)ashlar_model_input(model, "room for states", ASHLAR_AXIS_TIME, I * H);
    x = ashlar_model_rnn(model, "rnn", x, &config, NULL).y;
    x = ashlar_model_linear(model, "linear", x, OUT, true);
    ashlar_model_loss(model, ASHLAR_LOSS_SQUARED, x, targets, NULL);
    ashlar_model_output(model, x);
    CHECK(commit(5) == ASHLAR_OK);
    batch = draw_batch(T, B, false);
    batch.outputs = outputs;
    outputs[0] = y = drawn.gradients[1];
    states[0] = drawn.inputs[2];
    states[1] = drawn.gradients[2];
    CHECK(ashlar_model_get_need(model, ASHLAR_WALK_PREDICT, &batch, &need) == ASHLAR_OK);
    CHECK(need.carried_bytes <= T * B * I * H * sizeof(double));
    return true;
}

static bool open_lstm(void) {
    return open_kind(ASHLAR_RNN_LSTM, 1);
}

/* All steps at once, without and with prepared weights: the same bits. */
static void check_whole(double *want) {
    go(ASHLAR_WALK_PREDICT, &batch);
    memcpy(want, y, OUT_BYTES);
    CHECK(ashlar_model_prepare(model, false, streams[0]) == ASHLAR_OK);
    memset(y, 0, OUT_BYTES);
    go(ASHLAR_WALK_PREDICT, &batch);
    CHECK(memcmp(want, y, OUT_BYTES) == 0);
}

/* ---- the same outputs ---- */

CASE(a_walk_of_one_step_after_the_other_is_one_of_all) {
    for (int cell = 0; cell < ASHLAR_RNN_CELL_COUNT; cell++) {
        double want[T * B * OUT];
        REQUIRE(open_kind((ashlar_rnn_cell)cell, 1));
        check_whole(want);
        for (size_t t = 0; t < T; t++) {
            ashlar_model_batch step = batch;
            step.steps = 1;
            step.inputs = (const void *[]){(double *)drawn.inputs[0] + t * B * I, NULL, NULL};
            step.outputs = (void *[]){y + t * B * OUT};
            step.before = t == 0 ? NULL : states[t % 2];
            step.after = states[(t + 1) % 2];
            memset(y + t * B * OUT, 0, B * OUT * sizeof *y);
            go(ASHLAR_WALK_PREDICT, &step);
        }
        CHECK(memcmp(want, y, OUT_BYTES) == 0);
        close_model();
    }
}

CASE(two_directions_are_prepared_too) {
    double want[T * B * OUT];
    REQUIRE(open_kind(ASHLAR_RNN_GRU, 2));
    check_whole(want);
}

/* ---- how long the copies are read ---- */

static void change_weights(void) {
    for (size_t i = 0; i < region_count(); i++) {
        region(ASHLAR_REGION_PARAMETERS)[i] *= 1.5;
    }
}

CASE_WITH(other_weights_are_read_when_they_are_prepared, open_lstm()) {
    double want[T * B * OUT];
    check_whole(want);
    change_weights(); /* but for the biases of the linear layer, all has been copied */
    CHECK(ashlar_model_prepare(model, false, streams[0]) == ASHLAR_OK);
    go(ASHLAR_WALK_PREDICT, &batch);
    CHECK(memcmp(want, y, OUT_BYTES) != 0);
    memcpy(want, y, OUT_BYTES);
    go(ASHLAR_WALK_TRAIN, &batch); /* gives the copies back */
    go(ASHLAR_WALK_PREDICT, &batch);
    CHECK(memcmp(want, y, OUT_BYTES) == 0);
}

CASE_WITH(a_training_gives_the_copies_back, open_lstm()) {
    double want[T * B * OUT], changed[T * B * OUT];
    const uint64_t live = stats_now().live_blocks;
    check_whole(want);
    CHECK_ZU(stats_now().live_blocks, live + 1);
    go(ASHLAR_WALK_TEST, &batch);
    CHECK_ZU(stats_now().live_blocks, live + 1);
    go(ASHLAR_WALK_TRAIN, &batch);
    CHECK_ZU(stats_now().live_blocks, live);
    change_weights();
    go(ASHLAR_WALK_PREDICT, &batch);
    memcpy(changed, y, OUT_BYTES);
    CHECK(memcmp(want, changed, OUT_BYTES) != 0);
    CHECK(ashlar_model_prepare(model, false, streams[0]) == ASHLAR_OK);
    go(ASHLAR_WALK_PREDICT, &batch);
    CHECK(memcmp(changed, y, OUT_BYTES) == 0);
    CHECK(ashlar_model_init(model, ASHLAR_INIT_PYTORCH, 5, streams[0]) == ASHLAR_OK);
    CHECK_ZU(stats_now().live_blocks, live);
    go(ASHLAR_WALK_PREDICT, &batch);
    CHECK(memcmp(want, y, OUT_BYTES) == 0);
}

/* ---- failures ---- */

CASE_WITH(a_preparation_that_fails_leaves_the_weights, open_lstm()) {
    double want[T * B * OUT];
    const uint64_t live = stats_now().live_blocks;
    go(ASHLAR_WALK_PREDICT, &batch);
    memcpy(want, y, OUT_BYTES);
    for (uint64_t n = 1; n <= 2; n++) { /* the stack's, and the linear layer's */
        ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_launch_host_func, n, CU_UNKNOWN);
        CHECK(ashlar_model_prepare(model, false, streams[0]) == ASHLAR_EDRIVER);
        CHECK_ZU(stats_now().live_blocks, live);
    }
    go(ASHLAR_WALK_PREDICT, &batch);
    CHECK(memcmp(want, y, OUT_BYTES) == 0);
}

CASE_WITH(a_model_without_an_arena_is_refused, set_up("memory=64MiB")) {
    ashlar_model *m = NULL;
    REQUIRE(ashlar_model_create(allocator, ASHLAR_F32, &m) == ASHLAR_OK);
    CHECK_FAILS(ashlar_model_prepare(m, false, NULL), ASHLAR_EINVAL, "not committed");
    ashlar_model_destroy(m);
}

RUN_CASES()
