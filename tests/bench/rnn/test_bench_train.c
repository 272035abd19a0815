/*
 * test_bench_train.c - the benchmark of whole training steps: what each subject trains, beside a
 * python3 that answers as PyTorch would, and PyTorch itself where it is. No timing is judged.
 */
#include "bench/rnn/bench_train.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/allocator/core/allocator_fixture.h"
#include "tests/text.h"

#include "arena/compute/workers.h"
#include "bench/rnn/train_setup.h"

enum { STEPS = 4, LINES = 90 };

static const ashlar_train_case SMALL = {"small", ASHLAR_RNN_GRU, 12, 3, 4, 8, 2};

static char folder[] = "/tmp/ashlar-train-XXXXXX";
static char text_path[64], script[64], path[4096];
static ashlar_corpus *corpus;
static ashlar_rnn_torch *torch;
static ashlar_train_setup setup;
static double numbers[4][STEPS];
static ashlar_train_result ours = {.losses = numbers[0], .ends = numbers[1]};
static ashlar_train_result theirs = {.losses = numbers[2], .ends = numbers[3]};

static void stop(void) {
    ashlar__train_setup_finish(&setup);
    ashlar__rnn_torch_stop(torch);
    ashlar__corpus_destroy(corpus);
    torch = NULL;
    corpus = NULL;
    (void)unlink(text_path);
    (void)unlink(script);
    (void)rmdir(folder);
    memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
    if (path[0] != '\0') {
        (void)setenv("PATH", path, 1);
    }
}

/* Sentences of many lengths, so that batches have padding. */
static bool begin(void) {
    if (!(mkdtemp(folder) != NULL)) {
        return false;
    }
    check_at_end(stop);
    snprintf(text_path, sizeof text_path, "%s/text", folder);
    snprintf(script, sizeof script, "%s/python3", folder);
    FILE *file = fopen(text_path, "w");
    if (!(file != NULL)) {
        return false;
    }
    for (int i = 0; i < LINES; i++) {
        fprintf(file, "%.*s\n\n", 3 + i % 17, "the sun rises in the east");
    }
    if (!(fclose(file) == 0)) {
        return false;
    }
    const char *const paths[] = {text_path};
    return ashlar__corpus_open(paths, 1, &corpus) == ASHLAR_OK && set_up("memory=1GiB");
}

/* Let python3 be these lines of a shell. */
static bool stand_in(const char *lines) {
    char first[sizeof folder + sizeof path];
    FILE *file = fopen(script, "w");
    if (!(file != NULL)) {
        return false;
    }
    fprintf(file, "#!/bin/sh\n%s", lines);
    snprintf(path, sizeof path, "%s", getenv("PATH"));
    snprintf(first, sizeof first, "%s:%s", folder, path);
    return fclose(file) == 0 && chmod(script, 0700) == 0 && setenv("PATH", first, 1) == 0 &&
           ashlar__rnn_torch_start(1, &torch) == ASHLAR_OK;
}

static ashlar_status open_setup(void) {
    return ashlar__train_setup_init(&setup, device, corpus, torch, &SMALL, STEPS, false);
}

CASE(a_training_begins_anew_and_its_losses_fall) {
    double first[STEPS];
    REQUIRE(begin() && open_setup() == ASHLAR_OK);
    REQUIRE(ashlar__train_setup_run(&setup, false, STEPS, 0, &ours) == ASHLAR_OK);
    CHECK_ZU(ours.count, STEPS);
    CHECK_NEAR(ours.losses[0], log(256), 0, 0.3);
    CHECK(ours.losses[STEPS - 1] < ours.losses[0]);
    CHECK(ours.seconds > 0 && ours.ends[0] > 0 && ours.ends[STEPS - 1] <= ours.seconds);
    memcpy(first, ours.losses, sizeof first);
    REQUIRE(ashlar__train_setup_run(&setup, false, STEPS - 1, 0, &ours) == ASHLAR_OK);
    CHECK_ZU(ours.count, STEPS - 1);
    CHECK(memcmp(first, ours.losses, (STEPS - 1) * sizeof first[0]) == 0);
    for (size_t i = 0; i < STEPS; i++) {
        CHECK(setup.tokens[i] >= 3 && setup.tokens[i] <= 3 * 12);
    }
}

CASE(a_training_ends_when_its_seconds_have_passed) {
    REQUIRE(begin() && open_setup() == ASHLAR_OK);
    REQUIRE(ashlar__train_setup_run(&setup, false, STEPS, 1e-9, &ours) == ASHLAR_OK);
    CHECK(ours.count >= 1 && ours.count < STEPS);
}

/* The stand-in skips what is sent: 4 floats' width and so on are PyTorch's to understand. */
CASE(what_the_process_answers_is_the_result) {
    REQUIRE(begin() &&
            stand_in("echo 'PyTorch of none'; echo 'its way'\n"
                     "echo '2.5 2'; echo '5.5 1.25'; echo '5.25 2.5'; cat >/dev/null\n"));
    REQUIRE(torch != NULL && open_setup() == ASHLAR_OK);
    CHECK_HAS(setup.way, "its way");
    REQUIRE(ashlar__train_setup_run(&setup, true, STEPS, 2, &theirs) == ASHLAR_OK);
    CHECK_ZU(theirs.count, 2);
    CHECK(theirs.seconds == 2.5 && theirs.losses[1] == 5.25 && theirs.ends[0] == 1.25);
}

CASE(answers_that_are_none_are_errors) {
    REQUIRE(begin() && stand_in("echo 'PyTorch of none'; echo 'its way'\n"
                                "echo '2.5 9'; echo '1.5 1'; echo soon; cat >/dev/null\n"));
    REQUIRE(torch != NULL && open_setup() == ASHLAR_OK);
    CHECK(ashlar__train_setup_run(&setup, true, STEPS, 0, &theirs) == ASHLAR_EIO);
    CHECK_HAS(ashlar_error_detail(), "2.5 9"); /* more steps than there are */
    CHECK(ashlar__train_setup_run(&setup, true, STEPS, 0, &theirs) == ASHLAR_EIO);
    CHECK_HAS(ashlar_error_detail(), "soon");
}

/* The same numbers, so that a difference is one of work. */
CASE(pytorch_trains_the_same) {
    REQUIRE(begin() && ashlar__rnn_torch_start(1, &torch) == ASHLAR_OK);
    SKIP_IF(torch == NULL, "python3 has no PyTorch");
    REQUIRE(open_setup() == ASHLAR_OK);
    REQUIRE(ashlar__train_setup_run(&setup, false, STEPS, 0, &ours) == ASHLAR_OK);
    for (int i = 0; i < 2; i++) {
        REQUIRE(ashlar__train_setup_run(&setup, true, STEPS, 0, &theirs) == ASHLAR_OK);
        CHECK_ZU(theirs.count, STEPS);
        for (size_t k = 0; k < STEPS; k++) {
            CHECK_NEAR(theirs.losses[k], ours.losses[k], 0, 1e-5);
        }
    }
}

/* ---- rows ---- */

static ashlar_rows rows;

static void forget(void) {
    ashlar__rows_finish(&rows);
}

CASE(rows_name_the_peer_or_say_that_there_is_none) {
    REQUIRE(begin());
    const ashlar_bench_request request = {
        .is_smoke = true,
        .trains = true,
        .threads = 2,
        .out = nowhere(),
        .device = "soft",
        .data = {.items = {text_path}, .count = 1},
        .workloads = {.items = {"gru_T64_B16_E64_H256_L2"}, .count = 1},
        .subjects = {.items = {"ashlar"}, .count = 1}};
    (void)check_at_end(forget);
    rows.form = ashlar__benchmark_rnn_train.form;
    CHECK(ashlar__benchmark_check(&ashlar__benchmark_rnn_train, &request) == ASHLAR_OK);
    REQUIRE(ashlar__benchmark_rnn_train.run(&request, device, &rows, NULL) == ASHLAR_OK);
    REQUIRE(rows.count == 1);
    const ashlar_rows_cell *cells = rows.items[0].cells;
    CHECK(cells[ASHLAR_TRAIN_ROW_TOKENS_PER_S].number > 0);
    CHECK(cells[ASHLAR_TRAIN_ROW_MS_STEP].number > 0);
    CHECK(isnan(cells[ASHLAR_TRAIN_ROW_OVER_TORCH].number));
    CHECK(isnan(cells[ASHLAR_TRAIN_ROW_LOSS].number));
    CHECK_HAS(cells[ASHLAR_TRAIN_ROW_PEER].text, "none: ");
}

CASE(without_a_text_nothing_is_trained) {
    const ashlar_bench_request request = {.is_smoke = true, .out = nowhere(), .device = "soft"};
    REQUIRE(set_up("memory=1GiB"));
    rows.form = ashlar__benchmark_rnn_train.form;
    CHECK(ashlar__benchmark_rnn_train.run(&request, device, &rows, NULL) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "--data");
}

RUN_CASES_AFTER(ashlar__workers_set_count(2))
