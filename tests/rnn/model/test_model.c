/*
 * test_model.c - one step of the whole model: its numbers against a reference in double precision.
 */
#include "tests/rnn/model/model_reference.h"

static const int32_t LENGTHS[] = {5, 2, 6, 1};

/* ---- numbers ---- */

static const double absolute = 2e-6, relative = 2e-4; /* sums of fp32 over at most 20 steps */

static void check_gradients(const double *want) {
    for (size_t i = 0; i < region_count(); i++) {
        CHECK_NEAR((double)region_of(ASHLAR_REGION_GRADIENTS)[i], want[i], absolute, relative);
    }
}

static void check_against_reference(size_t steps, size_t count, const int32_t *lengths) {
    made_batch made;
    reference r;
    REQUIRE(open_usual_model());
    make_batch(&made, steps, count, lengths);
    open_reference(&r);
    run_step(&made);
    run_reference(&r, &made);
    CHECK_NEAR(results->loss, r.loss, 0, 1e-5);
    check_gradients(r.gradients);
    close_reference(&r);
    close_model();
}

CASE(loss_and_gradients_are_those_of_the_reference) {
    check_against_reference(6, 4, LENGTHS);
    check_against_reference(1, 1, (int32_t[]){1});
    check_against_reference(20, 2, (int32_t[]){20, 20});
    check_against_reference(9, 3, (int32_t[]){1, 1, 1}); /* no sequence reaches T */
    check_against_reference(2, 16, (int32_t[]){1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2});
}

CASE(so_they_are_with_every_cell) {
    for (int i = 0; i < 2 * ASHLAR_RNN_CELL_COUNT; i++) {
        model_config.cell = (ashlar_rnn_cell)(i % ASHLAR_RNN_CELL_COUNT);
        model_config.projection = model_config.cell == ASHLAR_RNN_LSTM ? 7 : 0;
        model_config.dropout = i < ASHLAR_RNN_CELL_COUNT ? 0 : 0.3;
        check_against_reference(6, 4, LENGTHS);
    }
}

CASE_WITH(gradients_are_overwritten_and_other_regions_left_alone, open_usual_model()) {
    made_batch made;
    const size_t bytes = ashlar_arena_region_bytes(model->arena, ASHLAR_REGION_PARAMETERS);
    make_batch(&made, 6, 4, LENGTHS);
    run_step(&made);
    char *first = malloc(2 * bytes), *parameters = first + bytes;
    memcpy(first, region_of(ASHLAR_REGION_GRADIENTS), bytes);
    memcpy(parameters, region_of(ASHLAR_REGION_PARAMETERS), bytes);
    memset(region_of(ASHLAR_REGION_GRADIENTS), 0xff, bytes); /* NaN */
    memset(region_of(ASHLAR_REGION_MOMENT1), 0xff, bytes);
    memset(region_of(ASHLAR_REGION_MOMENT2), 0xff, bytes);
    run_step(&made);
    CHECK(memcmp(first, region_of(ASHLAR_REGION_GRADIENTS), bytes) == 0);
    CHECK(memcmp(parameters, region_of(ASHLAR_REGION_PARAMETERS), bytes) == 0);
    CHECK(ashlar_arena_check(model->arena) == ASHLAR_OK);
    free(first);
}

/* Leftovers in every buffer, sizes beyond what is needed, work delayed: the same bits. */
CASE(sizes_and_order_of_execution_do_not_change_a_bit) {
    static const char *const specs[] = {"memory=64MiB", "memory=64MiB,mode=adversarial,seed=1",
                                        "memory=64MiB,mode=adversarial,seed=2"};
    enum { LARGEST = 65536 };
    static char first[LARGEST];
    double loss = 0;
    made_batch made;
    make_batch(&made, 6, 4, LENGTHS);
    for (size_t i = 0; i < 3; i++) {
        REQUIRE(open_model(specs[i], ASHLAR_REGIONS_ALL));
        const size_t bytes = ashlar_arena_region_bytes(model->arena, ASHLAR_REGION_PARAMETERS);
        REQUIRE(bytes <= LARGEST);
        ashlar_step_sizes sizes;
        CHECK(ashlar__model_sizes(model, 20, 4, &sizes) == ASHLAR_OK);
        unsigned char *dirty = take((size_t)1 << 20, streams[1]);
        CHECK(ashlar_fill(device, dirty, 0xff, (size_t)1 << 20, streams[1]) == ASHLAR_OK);
        give(dirty);
        CHECK(queue_step_sized(&made, &sizes) == ASHLAR_OK);
        wait_for(streams[1]);
        if (i == 0) {
            loss = results->loss;
            memcpy(first, region_of(ASHLAR_REGION_GRADIENTS), bytes);
        }
        CHECK(results->loss == loss);
        CHECK(memcmp(first, region_of(ASHLAR_REGION_GRADIENTS), bytes) == 0);
        run_step(&made);
        CHECK(results->loss == loss);
        CHECK(memcmp(first, region_of(ASHLAR_REGION_GRADIENTS), bytes) == 0);
        close_model();
    }
}

/* Host memory that is not page-locked is the caller's again when the call returns. */
CASE(the_batch_is_read_before_the_call_returns) {
    made_batch made;
    REQUIRE(open_model("memory=64MiB,mode=adversarial,seed=1", ASHLAR_REGIONS_ALL));
    make_batch(&made, 6, 4, LENGTHS);
    run_step(&made);
    const double loss = results->loss;
    results->loss = -1;
    CHECK(queue_step(&made) == ASHLAR_OK);
    CHECK(results->loss == -1); /* nothing has run yet */
    memset(&made, 0x7f, sizeof made);
    wait_for(streams[1]);
    CHECK(results->loss == loss);
}

RUN_CASES_AFTER(check_each = usual_model)
