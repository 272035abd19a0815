/*
 * test_bench_rnn.c - the benchmark of RNN steps runs what it says, and how its results are told.
 * No timing is judged.
 */
#include "bench/rnn/bench_rnn.h"

#include "tests/allocator/core/allocator_fixture.h"
#include "tests/text.h"

#include "arena/compute/workers.h"
#include "bench/rnn/roof.h"

static const ashlar_rnn_case SMALL = {
    .name = "small",
    .steps = 6,
    .batch = 4,
    .config = {.input = 5, .hidden = 8, .layers = 2, .dtype = ASHLAR_F32},
    .is_varied = true,
};

CASE(every_case_is_a_network_and_has_lengths) {
    size_t count, varied = 0, inference = 0, both = 0;
    const ashlar_rnn_case *cases = ashlar__rnn_cases(&count);
    REQUIRE(count >= 7);
    for (size_t i = 0; i < count; i++) {
        ashlar_rnn_layout layout;
        int32_t lengths[64];
        REQUIRE(cases[i].batch <= 64);
        CHECK(ashlar_rnn_layout_init(&layout, &cases[i].config) == ASHLAR_OK);
        ashlar__rnn_case_lengths(&cases[i], lengths);
        size_t shorter = 0;
        CHECK_ZU((size_t)lengths[0], cases[i].steps);
        for (size_t b = 0; b < cases[i].batch; b++) {
            CHECK((size_t)lengths[b] >= cases[i].steps / 4 && (size_t)lengths[b] <= cases[i].steps);
            shorter += (size_t)lengths[b] < cases[i].steps;
        }
        CHECK((shorter > cases[i].batch / 2) == cases[i].is_varied);
        CHECK(shorter == 0 || cases[i].is_varied);
        varied += cases[i].is_varied;
        inference += cases[i].is_inference;
        both += cases[i].config.directions == 2;
    }
    CHECK(varied > 0 && inference > 0 && both > 0);
}

/* Every subject leaves the same gradients, and none keeps a block. */
CASE_WITH(every_subject_runs_the_same_step, set_up("memory=1GiB")) {
    ashlar_rnn_setup setup = {0};
    float want[2048];
    REQUIRE(ashlar__rnn_setup_init(&setup, device, NULL, &SMALL) == ASHLAR_OK);
    const size_t elements = ashlar_rnn_layout_of(setup.rnn)->elements;
    REQUIRE(elements <= 2048);
    ashlar_stats before, after;
    ashlar_allocator_get_stats(setup.allocator, &before);
    for (unsigned i = 0; i < ASHLAR_RNN_SUBJECT_COUNT; i++) {
        const ashlar_rnn_subject subject = (ashlar_rnn_subject)i;
        ashlar_rnn_times times = {.forward_s = -1, .backward_s = -1};
        if (subject == ASHLAR_RNN_SUBJECT_TORCH) {
            continue; /* test_rnn_torch.c */
        }
        CHECK(ashlar__rnn_setup_has(&setup, subject));
        for (int k = 0; k < 2; k++) {
            CHECK(ashlar__rnn_setup_run(&setup, subject, &times) == ASHLAR_OK);
        }
        CHECK(times.forward_s >= 0 && times.backward_s >= 0);
        if (i == 0) {
            memcpy(want, setup.dweights, elements * sizeof(float));
        }
        CHECK(memcmp(want, setup.dweights, elements * sizeof(float)) == 0);
        CHECK(want[0] != 0);
    }
    ashlar_allocator_get_stats(setup.allocator, &after);
    CHECK_ZU(after.live_blocks, before.live_blocks);
    ashlar__rnn_setup_finish(&setup);
    ashlar__rnn_setup_finish(&setup); /* zeros */
}

CASE_WITH(inference_has_no_backward, set_up("memory=1GiB")) {
    ashlar_rnn_setup setup = {0};
    ashlar_rnn_case one = SMALL;
    ashlar_rnn_times times = {.backward_s = -1};
    one.is_inference = true;
    REQUIRE(ashlar__rnn_setup_init(&setup, device, NULL, &one) == ASHLAR_OK);
    CHECK(setup.bytes[ASHLAR_RNN_RESERVE] == 0 && setup.bytes[ASHLAR_RNN_DX] == 0);
    CHECK(ashlar__rnn_setup_run(&setup, ASHLAR_RNN_SUBJECT_ASHLAR, &times) == ASHLAR_OK);
    CHECK(times.backward_s == 0 && times.forward_s >= 0);
    CHECK(((const float *)setup.dweights)[0] == 0);
    ashlar__rnn_setup_finish(&setup);
}

static ashlar_bench_request request_of(const char *workload, const char *subject) {
    return (ashlar_bench_request){.is_smoke = true,
                                  .threads = 2,
                                  .out = nowhere(),
                                  .device = "soft",
                                  .workloads = {.items = {workload}, .count = 1},
                                  .subjects = {.items = {subject}, .count = subject != NULL}};
}

/* ---- results ---- */

static ashlar_rows rows;

static void forget(void) {
    ashlar__rows_finish(&rows);
}

static bool measures(const char *workload, const char *subject) {
    const ashlar_bench_request request = request_of(workload, subject);
    (void)check_at_end(forget);
    forget();
    rows.form = ashlar__benchmark_rnn.form;
    return set_up("memory=1GiB") &&
           ashlar__benchmark_rnn.run(&request, device, &rows, NULL) == ASHLAR_OK;
}

CASE(a_step_is_forward_and_backward_and_ratios_are_those_of_the_round) {
    REQUIRE(measures("lstm_T20_B8_H64_L2", NULL));
    const size_t last = rows.count - 1;
    REQUIRE(rows.count >= 3);
    for (size_t i = 0; i < rows.count; i++) {
        const ashlar_rows_cell *cells = rows.items[i].cells;
        const double ms = cells[ASHLAR_RNN_ROW_MS_STEP].number;
        CHECK_NEAR(cells[ASHLAR_RNN_ROW_MS_FORWARD].number +
                       cells[ASHLAR_RNN_ROW_MS_BACKWARD].number,
                   ms, 0, 1e-9);
        CHECK_NEAR(cells[ASHLAR_RNN_ROW_STEPS_PER_S].number * ms, 1000, 0, 1e-9);
        CHECK_NEAR(cells[ASHLAR_RNN_ROW_OVER_STATIC].number *
                       rows.items[last].cells[ASHLAR_RNN_ROW_MS_STEP].number,
                   ms, 0, 1e-9);
    }
}

static const char *judge(const char *subject, double over_static, double over_torch) {
    const ashlar_row row = {{
        [ASHLAR_RNN_ROW_CASE].text = "a",
        [ASHLAR_RNN_ROW_SUBJECT].text = subject,
        [ASHLAR_RNN_ROW_OVER_STATIC].number = over_static,
        [ASHLAR_RNN_ROW_OVER_TORCH].number = over_torch,
    }};
    rows.form = ashlar__benchmark_rnn.form;
    CHECK(ashlar__rows_add(&rows, &row) == ASHLAR_OK);
    ashlar__rows_print_targets(text_begin(), &rows);
    forget();
    return text_end();
}

CASE(targets_are_judged_of_ours_only) {
    const char *text = judge("ashlar", 1.005, 1.25);
    CHECK_HAS(text, "met      a                               ashlar / static_buffer  ");
    CHECK_HAS(text, "  1.005  (at most 1.01)\nNOT MET  a ");
    CHECK_HAS(text, "  1.250  (at most 1)\n");
    CHECK_HAS(judge("ashlar", 1.011, NAN), "NOT MET  a ");
    CHECK(strcmp(judge("torch", 2, 2), "") == 0);
}

RUN_CASES_AFTER(ashlar__workers_set_count(2))
