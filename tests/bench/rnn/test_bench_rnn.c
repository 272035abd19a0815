/*
 * test_bench_rnn.c - the benchmark of RNN steps runs what it says. No timing is judged.
 */
#include "bench/rnn/bench_rnn.h"

#include "tests/allocator/core/allocator_fixture.h"

#include "arena/compute/workers.h"

static const ashlar_rnn_case SMALL = {
    .name = "small",
    .steps = 6,
    .batch = 4,
    .config = {.input = 5, .hidden = 8, .layers = 2, .dtype = ASHLAR_F32},
    .is_varied = true,
};

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

RUN_CASES_AFTER(ashlar__workers_set_count(2))
