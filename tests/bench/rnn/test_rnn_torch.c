/*
 * test_rnn_torch.c - the process that stands for PyTorch in `ashlar-bench rnn`, by a python3 of the
 * test's own, and by PyTorch where it is.
 */
#include "bench/rnn/bench_rnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"

static const ashlar_rnn_config LSTM = {
    .cell = ASHLAR_RNN_LSTM, .input = 5, .hidden = 8, .layers = 2, .directions = 1};
static const int32_t LENGTHS[] = {6, 4};

static char folder[] = "/tmp/ashlar-torch-XXXXXX";
static char script[64], asked[64], path[4096];
static ashlar_rnn_torch *torch;

static void stop(void) {
    ashlar__rnn_torch_stop(torch);
    torch = NULL;
    (void)unlink(asked);
    (void)unlink(script);
    (void)rmdir(folder);
    memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
    (void)setenv("PATH", path, 1);
}

/* Begin with a python3 that runs these lines of a shell. */
static bool start(const char *lines) {
    char first[sizeof folder + sizeof path];
    FILE *file;
    snprintf(path, sizeof path, "%s", getenv("PATH"));
    if (mkdtemp(folder) == NULL) {
        return false;
    }
    check_at_end(stop);
    snprintf(script, sizeof script, "%s/python3", folder);
    snprintf(asked, sizeof asked, "%s/asked", folder);
    snprintf(first, sizeof first, "%s:%s", folder, path);
    file = fopen(script, "w");
    if (file == NULL) {
        return false;
    }
    fprintf(file, "#!/bin/sh\nasked=%s\n%s", asked, lines);
    return fclose(file) == 0 && chmod(script, 0700) == 0 && setenv("PATH", first, 1) == 0 &&
           ashlar__rnn_torch_start(3, &torch) == ASHLAR_OK;
}

/* Whether the process was asked this, as its first question. */
static bool was_asked(const char *question) {
    char line[256] = "";
    FILE *file = fopen(asked, "r");
    const bool is_read = file != NULL && fgets(line, sizeof line, file) != NULL;
    if (file != NULL) {
        (void)fclose(file);
    }
    return is_read && strcmp(line, question) == 0;
}

CASE(a_network_is_made_and_its_steps_are_timed_by_the_process) {
    bool is_made = false;
    double forward_s = 0, backward_s = 0;
    REQUIRE(start("echo \"PyTorch of $3 threads\"\n"
                  "read -r line && echo \"$line\" >$asked && echo oneDNN\n"
                  "while read -r line; do echo 0.25 0.5; done\n"));
    REQUIRE(torch != NULL);
    CHECK_HAS(ashlar__rnn_torch_name(), "PyTorch of 3 threads");
    CHECK(ashlar__rnn_torch_make(torch, &LSTM, 6, 2, LENGTHS, false, &is_made) == ASHLAR_OK);
    CHECK(is_made);
    for (int i = 0; i < 2; i++) {
        CHECK(ashlar__rnn_torch_step(torch, &forward_s, &backward_s) == ASHLAR_OK);
        CHECK(forward_s == 0.25 && backward_s == 0.5);
    }
    CHECK(was_asked("case lstm 6 2 5 8 2 1 0 6 4\n"));
}

CASE(a_process_that_ends_is_an_error_and_no_signal) {
    bool is_made = true;
    double forward_s, backward_s;
    REQUIRE(start("echo PyTorch\nread -r line && echo oneDNN\n"));
    REQUIRE(torch != NULL);
    CHECK(ashlar__rnn_torch_make(torch, &LSTM, 6, 2, LENGTHS, true, &is_made) == ASHLAR_OK);
    for (int i = 0; i < 2; i++) {
        CHECK(ashlar__rnn_torch_step(torch, &forward_s, &backward_s) == ASHLAR_EIO);
        CHECK_HAS(ashlar_error_detail(), "PyTorch");
    }
}

CASE(pytorch_itself_answers) {
    bool is_made = false;
    double forward_s = 0, backward_s = 0;
    REQUIRE(ashlar__rnn_torch_start(1, &torch) == ASHLAR_OK);
    SKIP_IF(torch == NULL, "python3 has no PyTorch");
    for (int i = 0; i < 2; i++) {
        const bool is_inference = i == 1;
        CHECK(ashlar__rnn_torch_make(torch, &LSTM, 6, 2, LENGTHS, is_inference, &is_made) ==
              ASHLAR_OK);
        CHECK(is_made);
        CHECK(ashlar__rnn_torch_step(torch, &forward_s, &backward_s) == ASHLAR_OK);
        CHECK(forward_s > 0 && backward_s >= 0);
    }
    ashlar__rnn_torch_stop(torch);
    torch = NULL;
}

RUN_CASES()
