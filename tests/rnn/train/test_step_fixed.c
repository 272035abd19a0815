/*
 * test_step_fixed.c - padded steps, queued call by call or launched as one graph: the same bits,
 * three calls of the driver; what has changed since a capture is queued, and named; which graphs
 * are kept.
 */
#include "tests/rnn/train/train_fixture.h"

#include "allocator/base/host.h"
#include "rnn/train/train_impl.h"
#include "tests/check.h"

enum { STEPS = 24, PLANTED_AT = 8 };

static shown runs[2];
static ashlar_train_report reports[2];

static ashlar_train_config padded_config(void) {
    ashlar_train_config config = small_config(STEPS);
    config.buckets = 4;
    config.pads = true;
    return config;
}

static void check_same_losses(void) {
    CHECK(runs[0].count == STEPS && runs[1].count == STEPS);
    for (size_t i = 0; i < STEPS; i++) {
        CHECK(runs[0].steps[i].loss_step == runs[1].steps[i].loss_step);
        CHECK(runs[0].steps[i].length == runs[1].steps[i].length);
    }
}

/* Train by calls, then by graphs, with a change planted by `show`. */
static void train_twice(const ashlar_train_config *config, ashlar_train_show_fn plant) {
    for (size_t i = 0; i < 2; i++) {
        ashlar_train_config one = *config;
        one.graphs = i == 1;
        runs[i] = (shown){0};
        REQUIRE(open_trainer(&one) == ASHLAR_OK);
        CHECK(ashlar__trainer_run(trainer, plant, &runs[i], &reports[i]) == ASHLAR_OK);
        /* The copy is over, the step waits for it, the step is over. */
        CHECK(i == 1 || trainer->event_calls == 3 * (uint64_t)STEPS);
        close_trainer();
    }
    check_same_losses();
}

static void check_all_launched(const ashlar_train_config *config) {
    train_twice(config, show);
    const ashlar_graph_report *g = &reports[1].graphs;
    CHECK(g->launched == STEPS && g->eager == 0 && g->refused == 0 && g->note[0] == '\0');
    CHECK(reports[1].calls_per_step <= 3 && reports[1].training.management == 0);
    CHECK(reports[1].step_memory.misses == 0 && reports[1].weights_contiguous);
    CHECK(reports[0].graphs.eager == STEPS && reports[0].graphs.captured == 0);
    CHECK(reports[0].calls_per_step > 10);
}

CASE_WITH(a_launched_step_has_the_bits_of_one_that_is_queued, open_text("memory=256MiB")) {
    static const struct {
        ashlar_rnn_cell cell;
        size_t projection, accumulate, bptt, recompute;
        double dropout, loss_scale;
    } rows[] = {
        {.cell = ASHLAR_RNN_LSTM},
        {.cell = ASHLAR_RNN_GRU},
        {.cell = ASHLAR_RNN_TANH},
        {.cell = ASHLAR_RNN_RELU},
        {.projection = 4},
        {.dropout = 0.4},
        {.accumulate = 2},
        {.recompute = 5},
        {.bptt = 9},
        {.loss_scale = 256},
        {.accumulate = 2, .bptt = 9, .recompute = 4, .dropout = 0.2, .loss_scale = 64},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ashlar_train_config config = padded_config();
        config.cell = rows[i].cell;
        config.projection = rows[i].projection;
        config.accumulate = rows[i].accumulate;
        config.bptt = rows[i].bptt;
        config.recompute = rows[i].recompute;
        config.dropout = rows[i].dropout;
        config.optimizer.loss_scale = rows[i].loss_scale;
        check_all_launched(&config);
    }
}

/* What goes by device memory here goes by arguments there. */
CASE_WITH(without_padding_they_are_those_of_every_training, open_text("memory=256MiB")) {
    ashlar_train_config config = padded_config();
    config.buckets = MAX_LENGTH;
    config.dropout = 0.3;
    config.accumulate = 2;
    config.schedule = (ashlar_schedule){.kind = ASHLAR_SCHEDULE_COSINE,
                                        .rate = config.schedule.rate,
                                        .warmup_steps = 4,
                                        .total_steps = STEPS};
    config.graphs = true;
    CHECK(train(&config, &runs[1], &reports[1]) == ASHLAR_OK);
    CHECK(reports[1].graphs.launched == STEPS);
    config.graphs = false;
    config.pads = false;
    CHECK(train(&config, &runs[0], &reports[0]) == ASHLAR_OK);
    check_same_losses();
}

CASE(any_order_that_the_events_allow_gives_the_same_losses) {
    for (size_t bptt = 0; bptt < 20; bptt += 9) {
        ashlar_train_config config = padded_config();
        config.bptt = bptt;
        REQUIRE(open_text("memory=256MiB"));
        CHECK(train(&config, &runs[0], &reports[0]) == ASHLAR_OK);
        close_text();
        for (int seed = 1; seed <= 6; seed++) {
            config.graphs = seed % 3 != 0;
            REQUIRE(open_text(drawn_order("memory=256MiB", seed)));
            CHECK(train(&config, &runs[1], &reports[1]) == ASHLAR_OK);
            check_same_losses();
            close_text();
        }
    }
}

/* A batch is drawn ahead; the file has the position before it. */
CASE_WITH(a_file_saved_on_the_way_goes_on_as_the_training_did, open_text("memory=256MiB")) {
    enum { SAVED = 20 };
    char path[96];
    ashlar_train_config config = padded_config();
    (void)snprintf(path, sizeof path, "%s/saved", folder);
    config.graphs = true;
    config.save_file = path;
    config.save_every = SAVED;
    CHECK(train(&config, &runs[0], &reports[0]) == ASHLAR_OK);
    config.save_every = 0;
    config.resume_file = path;
    CHECK(train(&config, &runs[1], &reports[1]) == ASHLAR_OK);
    CHECK(reports[0].graphs.launched == STEPS && reports[1].graphs.launched == STEPS - SAVED);
    REQUIRE(runs[1].count == STEPS - SAVED);
    for (size_t i = SAVED; i < STEPS; i++) {
        CHECK(runs[1].steps[i - SAVED].loss_step == runs[0].steps[i].loss_step);
    }
    (void)unlink(path);
}

/* ---- what has changed ---- */

static void (*planted)(void); /* called once PLANTED_AT steps have been shown */
static void *extra;           /* a block that it needs until the end */

static void show_and_plant(void *context, const ashlar_train_progress *progress) {
    show(context, progress);
    if (progress->step == PLANTED_AT) {
        planted();
    }
    if (progress->step == STEPS) {
        CHECK(ashlar_free(trainer->allocator, extra) == ASHLAR_OK);
        extra = NULL;
    }
}

/* Keep the block that each step begins with: the steps after it get other addresses. */
static void plant_thief(void) {
    const uint64_t key = ashlar__trainer_key(trainer, 1);
    CHECK(ashlar_step_begin(trainer->allocator, trainer->stream, key) == ASHLAR_OK);
    CHECK(ashlar_alloc_tagged(trainer->allocator, 4096, ASHLAR_TAG_ACTIVATIONS, trainer->stream,
                              &extra) == ASHLAR_OK);
    CHECK(ashlar_step_end(trainer->allocator) == ASHLAR_OK);
}

CASE_WITH(other_addresses_are_no_reason_to_go_wrong, open_text("memory=256MiB")) {
    ashlar_train_config config = padded_config();
    config.buckets = 1;
    planted = plant_thief;
    train_twice(&config, show_and_plant);
    CHECK(reports[1].graphs.refused > 0 && reports[1].graphs.eager > 0);
    CHECK_HAS(reports[1].graphs.note, "changed since the capture: the addresses that the plan gives");
}

CASE_WITH(without_a_plan_steps_are_queued, open_text("memory=256MiB")) {
    ashlar_train_config config = padded_config();
    config.without_plan = true;
    train_twice(&config, show);
    CHECK(reports[1].graphs.launched == 0 && reports[1].graphs.eager == STEPS);
    CHECK_HAS(reports[1].graphs.note, "there is no plan");
}

/* ---- failures ---- */

/* In the place of the driver's: the first captures fail. */
static ashlar_driver_table real;
static size_t failures_left;

static cu_result fail_at_first(cu_stream stream, unsigned int mode) {
    return failures_left > 0 && failures_left-- > 0 ? CU_NOT_SUPPORTED
                                                    : real.stream_begin_capture(stream, mode);
}

CASE_WITH(a_step_that_cannot_be_captured_is_queued, open_text("memory=256MiB")) {
    ashlar_train_config config = padded_config();
    real = driver->table;
    driver->table.stream_begin_capture = fail_at_first;
    failures_left = 4; /* two of the four lengths */
    train_twice(&config, show);
    driver->table = real;
    const ashlar_graph_report *g = &reports[1].graphs;
    CHECK(g->refused == 4 && g->captured == 4);
    CHECK(g->launched > 0 && g->eager > 0 && g->launched + g->eager == STEPS);
    CHECK_HAS(g->note, "a step cannot be captured: cuStreamBeginCapture");
}

/* A software device that cannot queue all of a graph is lost, as a GPU would be: not here. */
static cu_result launch_whole(cu_graph_exec exec, cu_stream stream) {
    ashlar__host_fail_at(0);
    return real.graph_launch(exec, stream);
}

/* Whichever allocation fails, the training fails, or its steps are queued, or nobody needed it. */
CASE_WITH(a_lack_of_host_memory_is_an_error_or_a_step_that_is_queued, open_text("memory=256MiB")) {
    ashlar_train_config config = padded_config();
    size_t refused = 0;
    config.steps = 2;
    config.graphs = true;
    real = driver->table;
    driver->table.graph_launch = launch_whole;
    for (unsigned long n = 1; n < 1500; n += 1 + n / 16) {
        reports[1] = (ashlar_train_report){0};
        ashlar__host_fail_at(n);
        const ashlar_status status = train(&config, &runs[1], &reports[1]);
        ashlar__host_fail_at(0);
        const ashlar_graph_report *g = &reports[1].graphs;
        CHECK(status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM || g->launched + g->eager == 2);
        refused += g->refused > 0;
    }
    driver->table = real;
    CHECK(refused > 0);
}

RUN_CASES()
