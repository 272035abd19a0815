/* test_model_prepare.c - walks with prepared weights: the bits of walks without, step by step too;
 * how long the copies are read, and their memory. */
#include "tests/allocator/core/allocator_fixture.h"

#include <string.h>

#include <ashlar/model.h>

enum { T = 6, B = 3, I = 7, H = 33, OUT = 5 };

static ashlar_model *model;

static struct {
    float x[T][B][I], y[T][B][OUT], targets[T][B][OUT];
    double loss;
} * on; /* device memory, which the test may read when no work is queued */

static void *states[2];

static void close_model(void) {
    wait_for(streams[1]);
    for (size_t i = 0; i < 2; i++) {
        CHECK(ashlar_free(allocator, states[i]) == ASHLAR_OK);
    }
    CHECK(ashlar_free(allocator, on) == ASHLAR_OK);
    ashlar_model_destroy(model);
    CHECK_ZU(stats_now().live_blocks, 0);
    tear_down();
}

static ashlar_model_batch batch_of(size_t steps) {
    static const void *inputs[2];
    static void *outputs[1];
    inputs[0] = on->x;
    inputs[1] = on->targets;
    outputs[0] = on->y;
    return (ashlar_model_batch){
        .batch = B, .steps = steps, .inputs = inputs, .outputs = outputs, .loss = &on->loss};
}

static bool open_kind(ashlar_rnn_cell cell, size_t directions) {
    const ashlar_rnn_config config = {
        .hidden = H, .layers = 2, .directions = directions, .cell = cell, .dropout = 0.3};
    if (!set_up("memory=64MiB") ||
        ashlar_model_create(allocator, ASHLAR_F32, &model) != ASHLAR_OK) {
        return false;
    }
    ashlar_tensor *x = ashlar_model_input(model, "x", ASHLAR_AXIS_TIME, I);
    ashlar_tensor *targets = ashlar_model_input(model, "targets", ASHLAR_AXIS_TIME, OUT);
    ashlar_tensor *y = ashlar_model_rnn(model, "rnn", x, &config, NULL).y;
    y = ashlar_model_linear(model, "linear", y, OUT, true);
    ashlar_model_loss(model, ASHLAR_LOSS_SQUARED, y, targets, NULL);
    ashlar_model_output(model, y);
    CHECK(ashlar_model_commit(model, ASHLAR_REGIONS_ALL, streams[1]) == ASHLAR_OK);
    CHECK(ashlar_model_init(model, ASHLAR_INIT_PYTORCH, 5, streams[1]) == ASHLAR_OK);
    on = (void *)take(sizeof *on, streams[1]);
    memset(on, 0, sizeof *on);
    for (size_t i = 0; i < T * B * I; i++) {
        ((float *)on->x)[i] = (float)(i * 7 % 11) / 11 - 0.4F;
    }
    ashlar_model_need need;
    const ashlar_model_batch batch = batch_of(T);
    CHECK(ashlar_model_get_need(model, ASHLAR_WALK_PREDICT, &batch, &need) == ASHLAR_OK);
    states[0] = take(need.carried_bytes, streams[1]);
    states[1] = take(need.carried_bytes, streams[1]);
    return check_at_end(close_model);
}

static bool open_lstm(void) {
    return open_kind(ASHLAR_RNN_LSTM, 1);
}

static void run(ashlar_walk walk, size_t steps) {
    const ashlar_model_batch batch = batch_of(steps);
    CHECK(ashlar_model_run(model, walk, &batch, streams[1]) == ASHLAR_OK);
    wait_for(streams[1]);
}

/* All steps at once, without and with prepared weights: the same bits. */
static void check_whole(float want[T][B][OUT]) {
    run(ASHLAR_WALK_PREDICT, T);
    memcpy(want, on->y, sizeof on->y);
    CHECK(ashlar_model_prepare(model, false, streams[1]) == ASHLAR_OK);
    memset(on->y, 0, sizeof on->y);
    run(ASHLAR_WALK_PREDICT, T);
    CHECK(memcmp(want, on->y, sizeof on->y) == 0);
}

/* ---- the same outputs ---- */

CASE(a_walk_of_one_step_after_the_other_is_one_of_all) {
    for (int cell = 0; cell < ASHLAR_RNN_CELL_COUNT; cell++) {
        float want[T][B][OUT];
        REQUIRE(open_kind((ashlar_rnn_cell)cell, 1));
        check_whole(want);
        for (size_t t = 0; t < T; t++) {
            ashlar_model_batch batch = batch_of(1);
            batch.inputs = (const void *[]){on->x[t], NULL};
            batch.outputs = (void *[]){on->y[t]};
            batch.before = t == 0 ? NULL : states[t % 2];
            batch.after = states[(t + 1) % 2];
            memset(on->y[t], 0, sizeof on->y[t]);
            CHECK(ashlar_model_run(model, ASHLAR_WALK_PREDICT, &batch, streams[1]) == ASHLAR_OK);
            wait_for(streams[1]);
        }
        CHECK(memcmp(want, on->y, sizeof on->y) == 0);
        close_model();
    }
}

CASE(two_directions_are_prepared_too) {
    float want[T][B][OUT];
    REQUIRE(open_kind(ASHLAR_RNN_GRU, 2));
    check_whole(want);
}

/* ---- how long the copies are read ---- */

static void change_weights(void) {
    ashlar_arena *arena = ashlar_model_arena(model);
    float *weights = ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS);
    for (size_t i = 0;
         i < ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_PARAMETERS] / sizeof *weights;
         i++) {
        weights[i] *= 1.5F;
    }
}

CASE_WITH(other_weights_are_read_when_they_are_prepared, open_lstm()) {
    float want[T][B][OUT];
    check_whole(want);
    change_weights(); /* but for the biases of the linear layer, all has been copied */
    CHECK(ashlar_model_prepare(model, false, streams[1]) == ASHLAR_OK);
    run(ASHLAR_WALK_PREDICT, T);
    CHECK(memcmp(want, on->y, sizeof on->y) != 0);
}

CASE_WITH(a_training_gives_the_copies_back, open_lstm()) {
    float want[T][B][OUT], changed[T][B][OUT];
    const uint64_t live = stats_now().live_blocks;
    check_whole(want);
    CHECK_ZU(stats_now().live_blocks, live + 1);
    run(ASHLAR_WALK_TEST, T);
    CHECK_ZU(stats_now().live_blocks, live + 1);
    run(ASHLAR_WALK_TRAIN, T);
    CHECK_ZU(stats_now().live_blocks, live);
    change_weights();
    run(ASHLAR_WALK_PREDICT, T);
    memcpy(changed, on->y, sizeof changed);
    CHECK(memcmp(want, changed, sizeof want) != 0);
    CHECK(ashlar_model_prepare(model, false, streams[1]) == ASHLAR_OK);
    run(ASHLAR_WALK_PREDICT, T);
    CHECK(memcmp(changed, on->y, sizeof changed) == 0);
    CHECK(ashlar_model_init(model, ASHLAR_INIT_PYTORCH, 5, streams[1]) == ASHLAR_OK);
    CHECK_ZU(stats_now().live_blocks, live);
    run(ASHLAR_WALK_PREDICT, T);
    CHECK(memcmp(want, on->y, sizeof want) == 0);
}

/* ---- failures ---- */

CASE_WITH(a_preparation_that_fails_leaves_the_weights, open_lstm()) {
    float want[T][B][OUT];
    const uint64_t live = stats_now().live_blocks;
    run(ASHLAR_WALK_PREDICT, T);
    memcpy(want, on->y, sizeof want);
    for (uint64_t n = 1; n <= 2; n++) { /* the stack's, and the linear layer's */
        ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_launch_host_func, n, CU_UNKNOWN);
        CHECK(ashlar_model_prepare(model, false, streams[1]) == ASHLAR_EDRIVER);
        CHECK_ZU(stats_now().live_blocks, live);
    }
    run(ASHLAR_WALK_PREDICT, T);
    CHECK(memcmp(want, on->y, sizeof want) == 0);
}

CASE_WITH(a_model_without_an_arena_is_refused, set_up("memory=64MiB")) {
    ashlar_model *m = NULL;
    REQUIRE(ashlar_model_create(allocator, ASHLAR_F32, &m) == ASHLAR_OK);
    CHECK_FAILS(ashlar_model_prepare(m, false, NULL), ASHLAR_EINVAL, "not committed");
    ashlar_model_destroy(m);
}

RUN_CASES()
