/*
 * test_bench_rnn.c - the benchmark of RNN steps runs what it says, and how its results are told.
 * No timing is judged.
 */
#include "bench/rnn/bench_rnn.h"

#include "tests/allocator/core/allocator_fixture.h"

#include <stdlib.h>

#include "tests/allocator/base/file_fixture.h"
#include "allocator/base/json.h"
#include "arena/compute/workers.h"

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
    REQUIRE(count >= 7 && count * ASHLAR_RNN_SUBJECT_COUNT <= ASHLAR_RNN_RESULTS_MAX);
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
    REQUIRE(ashlar__rnn_setup_init(&setup, device, &SMALL) == ASHLAR_OK);
    const size_t elements = ashlar_rnn_layout_of(setup.rnn)->elements;
    REQUIRE(elements <= 2048);
    ashlar_stats before, after;
    ashlar_allocator_get_stats(setup.allocator, &before);
    for (unsigned i = 0; i < ASHLAR_RNN_SUBJECT_COUNT; i++) {
        const ashlar_rnn_subject subject = (ashlar_rnn_subject)i;
        ashlar_rnn_times times = {.forward_s = -1, .backward_s = -1};
        if (subject == ASHLAR_RNN_SUBJECT_ONEDNN) {
            continue; /* it computes padding, too: test_rnn_onednn.c */
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

CASE_WITH(onednn_takes_part_where_it_can, set_up("memory=1GiB")) {
    ashlar_rnn_setup setup = {0};
    ashlar_rnn_case one = SMALL;
    ashlar_rnn_times times;
    REQUIRE(ashlar__rnn_setup_init(&setup, device, &one) == ASHLAR_OK);
    CHECK(ashlar__rnn_setup_has(&setup, ASHLAR_RNN_SUBJECT_ONEDNN) ==
          (ashlar__onednn_name() != NULL));
    if (ashlar__onednn_name() != NULL) {
        CHECK(ashlar__rnn_setup_run(&setup, ASHLAR_RNN_SUBJECT_ONEDNN, &times) == ASHLAR_OK);
        CHECK(((const float *)setup.dweights)[0] != 0);
    }
    ashlar__rnn_setup_finish(&setup);
    one.config.cell = ASHLAR_RNN_TANH;
    REQUIRE(ashlar__rnn_setup_init(&setup, device, &one) == ASHLAR_OK);
    CHECK(!ashlar__rnn_setup_has(&setup, ASHLAR_RNN_SUBJECT_ONEDNN));
    ashlar__rnn_setup_finish(&setup);
}

CASE(inference_has_no_backward) {
    ashlar_rnn_setup setup = {0};
    ashlar_rnn_case one = SMALL;
    ashlar_rnn_times times = {.backward_s = -1};
    one.is_inference = true;
    REQUIRE(set_up("memory=1GiB"));
    REQUIRE(ashlar__rnn_setup_init(&setup, device, &one) == ASHLAR_OK);
    CHECK(setup.bytes[ASHLAR_RNN_RESERVE] == 0 && setup.bytes[ASHLAR_RNN_DX] == 0);
    CHECK(ashlar__rnn_setup_run(&setup, ASHLAR_RNN_SUBJECT_ASHLAR, &times) == ASHLAR_OK);
    CHECK(times.backward_s == 0 && times.forward_s >= 0);
    CHECK(((const float *)setup.dweights)[0] == 0);
    ashlar__rnn_setup_finish(&setup);
}

CASE_WITH(without_memory_a_step_fails_and_keeps_nothing, set_up("memory=1GiB")) {
    ashlar_rnn_setup setup = {0};
    ashlar_rnn_times times;
    ashlar_stats before, after;
    REQUIRE(ashlar__rnn_setup_init(&setup, device, &SMALL) == ASHLAR_OK);
    ashlar_allocator_get_stats(setup.allocator, &before);
    setup.bytes[ASHLAR_RNN_WORK] = (size_t)1 << 40; /* after two that there is memory for */
    CHECK(ashlar__rnn_setup_run(&setup, ASHLAR_RNN_SUBJECT_ASHLAR, &times) == ASHLAR_ENOMEM);
    CHECK(ashlar__rnn_setup_run(&setup, ASHLAR_RNN_SUBJECT_DRIVER_EACH_STEP, &times) ==
          ASHLAR_ENOMEM);
    ashlar_allocator_get_stats(setup.allocator, &after);
    CHECK_ZU(after.live_blocks, before.live_blocks);
    ashlar__rnn_setup_finish(&setup);
}

/* What the allocator keeps for speed only may be missing. */
CASE_WITH(without_host_memory_no_stage_is_set_up, set_up("memory=1GiB")) {
    size_t refused = 0;
    for (size_t n = 1; n <= 40; n++) {
        ashlar_rnn_setup setup = {0};
        HOST_FAILS_AT(n, refused += ashlar__rnn_setup_init(&setup, device, &SMALL) != ASHLAR_OK);
        ashlar__rnn_setup_finish(&setup);
    }
    CHECK(refused >= 4 && refused < 30); /* a stream, an allocator, lengths, an RNN at least */
}

CASE(only_known_names_are_taken) {
    static const char *const good[] = {"lstm_T64_B32_H256_L2", "static_buffer"};
    static const char *const bad[] = {"", "lstm", "ashlars"};
    for (size_t i = 0; i < 3; i++) {
        ashlar_bench_rnn_config config = {.wanted = {.items = {bad[i]}, .count = 1}};
        CHECK(ashlar__bench_rnn_check(&config) == ASHLAR_EINVAL);
        config = (ashlar_bench_rnn_config){.subjects = {.items = {bad[i]}, .count = 1}};
        CHECK(ashlar__bench_rnn_check(&config) == ASHLAR_EINVAL);
    }
    const ashlar_bench_rnn_config config = {.wanted = {.items = {good[0]}, .count = 1},
                                            .subjects = {.items = {good[1]}, .count = 1}};
    CHECK(ashlar__bench_rnn_check(&config) == ASHLAR_OK);
}

/* ---- results ---- */

static ashlar_rnn_results some_results(void) {
    return (ashlar_rnn_results){
        .threads = 2,
        .count = 2,
        .items = {{.case_name = "a",
                   .subject = ASHLAR_RNN_SUBJECT_ASHLAR,
                   .ms_forward = 1,
                   .ms_backward = 3,
                   .ms_step = 4,
                   .over_static = 1.005,
                   .over_onednn = 1.25,
                   .product_share = 0.75},
                  {.case_name = "b",
                   .subject = ASHLAR_RNN_SUBJECT_ONEDNN,
                   .is_inference = true,
                   .ms_forward = 8,
                   .ms_step = 8,
                   .over_onednn = 1}},
    };
}

static const char *text_of(void (*print)(FILE *, const ashlar_rnn_results *),
                           const ashlar_rnn_results *results) {
    static char text[4096];
    FILE *file = tmpfile();
    if (file == NULL) {
        return "no temporary file";
    }
    print(file, results);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    return text;
}

static void print_all(FILE *out, const ashlar_rnn_results *results) {
    ashlar__rnn_results_print(out, results, 0);
}

CASE(the_table_has_ratios_where_they_are_known) {
    const ashlar_rnn_results results = some_results();
    const char *text = text_of(print_all, &results);
    CHECK_HAS(text, "  1.000     3.000     4.000     250.0    1.005    1.250      75 %\n");
    CHECK_HAS(text, "  8.000     0.000     8.000     125.0        -    1.000         -\n");
}

CASE(targets_are_judged_of_ours_only) {
    const ashlar_rnn_results results = some_results();
    const char *text = text_of(ashlar__rnn_results_print_targets, &results);
    CHECK_HAS(text, "met      a                              ashlar / static_buffer   1.005");
    CHECK_HAS(text, "NOT MET  a                              ashlar / onednn          1.250");
    CHECK(strstr(text, " b ") == NULL);
}

static double number_of(const ashlar_json *row, const char *key) {
    const ashlar_json *value = ashlar__json_member(row, key);
    return value != NULL && value->kind == ASHLAR_JSON_NUMBER ? value->number : -1;
}

CASE(rows_are_written_with_null_for_what_is_not_known) {
    const ashlar_rnn_results results = some_results();
    unsigned char bytes[FILE_MAX_BYTES];
    ashlar_json *document = NULL;
    REQUIRE(ashlar__rnn_results_write(path, &results) == ASHLAR_OK);
    const size_t count = read_bytes(bytes);
    REQUIRE(ashlar__json_parse((const char *)bytes, count, &document) == ASHLAR_OK);
    CHECK(ashlar__json_member(document, "processor")->kind == ASHLAR_JSON_STRING);
    CHECK(ashlar__json_member(document, "products")->kind == ASHLAR_JSON_STRING);
    CHECK(number_of(document, "threads") == 2);
    const ashlar_json *rows = ashlar__json_member(document, "rows");
    REQUIRE(rows != NULL && rows->count == 2);
    CHECK(number_of(rows->item, "ms_backward") == 3 && number_of(rows->item, "ms_step") == 4);
    CHECK(number_of(rows->item, "steps_per_s") == 250);
    CHECK(number_of(rows->item, "over_onednn") == 1.25);
    CHECK(number_of(rows->item, "product_share") == 0.75);
    static const char *const unknown[] = {"ms_backward", "over_static", "product_share"};
    for (size_t i = 0; i < 3; i++) {
        CHECK(ashlar__json_member(rows->item->next, unknown[i])->kind == ASHLAR_JSON_NULL);
    }
    CHECK(number_of(rows->item->next, "ms_forward") == 8);
    ashlar__json_free(document);
}

int main(void) {
    if (!make_folder()) {
        return 1;
    }
    ashlar__workers_set_count(2);
    check_run_cases();
    remove_folder();
    return check_report();
}
