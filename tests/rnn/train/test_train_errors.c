/*
 * test_train_errors.c - the training loop from below: what it gives to the driver, and what it says
 * when something goes wrong.
 */
#include "tests/rnn/train/train_fixture.h"

#include <time.h>

/* ---- what goes wrong while it runs ---- */

static void spoil_the_third_step(void *context, const ashlar_train_progress *progress) {
    static ashlar_rnn_backend backend;
    backend = ashlar__rnn_backend_cpu;
    backend.queue = spoil;
    if (progress->step == 1) { /* step 2 is queued already */
        model_of(context)->rnn->backend = &backend;
    }
}

/* The loss of that step is a number still. */
CASE_WITH(gradients_that_are_no_numbers_are_an_error, open_text("memory=256MiB")) {
    const ashlar_train_config config = small_config(5);
    REQUIRE(open_trainer(&config) == ASHLAR_OK);
    CHECK_FAILS(ashlar__trainer_run(trainer, spoil_the_third_step, trainer, &report),
                ASHLAR_EFORMAT, "step 3:");
}

CASE_WITH(with_loss_scaling_such_steps_are_skipped, open_text("memory=256MiB")) {
    ashlar_train_config config = small_config(5);
    config.optimizer.loss_scale = 1024;
    REQUIRE(open_trainer(&config) == ASHLAR_OK);
    CHECK(ashlar__trainer_run(trainer, spoil_the_third_step, trainer, &report) == ASHLAR_OK);
    CHECK(report.steps_skipped == 3); /* from the third on */
    CHECK(*ashlar__trainer_task(trainer)->loss_scale == 1024 / 8);
}

static void move_a_view(void *context, const ashlar_train_progress *progress) {
    ashlar_model *model = model_of(context);
    if (progress->step == progress->steps) {
        model->parameters.bias = model->parameters.weight;
    }
}

CASE_WITH(a_weight_that_left_the_arena_is_reported, open_text("memory=256MiB")) {
    const ashlar_train_config config = small_config(3);
    REQUIRE(open_trainer(&config) == ASHLAR_OK);
    CHECK(ashlar__trainer_run(trainer, move_a_view, trainer, &report) == ASHLAR_OK);
    CHECK(!report.weights_contiguous);
}

/* ---- what cannot be ---- */

CASE(a_learning_rate_that_diverges_is_an_error) {
    ashlar_train_config config = small_config(40);
    config.schedule.rate = 1e30;
    report = (ashlar_train_report){.steps = 77};
    REQUIRE(open_text("memory=256MiB"));
    CHECK(train_once(&config) == ASHLAR_EFORMAT);
    /* Which step it is depends on the order in which the BLAS adds. */
    CHECK_HAS(ashlar_error_detail(), ": the training diverges; ");
    CHECK_HAS(ashlar_error_detail(), ", after a loss of ");
    CHECK_HAS(ashlar_error_detail(), "--learning-rate");
    CHECK(seen.count >= 1 && seen.count < 5); /* the steps before were good ones */
    CHECK_ZU(report.steps, 77);
}

typedef struct climb {
    size_t told, at, since; /* how often, at which step the last time */
    double start, loss;
} climb;

static void note_climb(void *context, const ashlar_train_progress *progress) {
    climb *c = context;
    if (progress->above_since != 0) {
        *c = (climb){c->told + 1, progress->step, progress->above_since, progress->start,
                     progress->loss};
    }
}

/* A loss that stays above its start, though it is a number, is told once, after so many steps. */
CASE(a_loss_that_stays_above_its_start_is_told) {
    ashlar_train_config config = small_config(2 * ASHLAR_TRAIN_ABOVE + 20);
    climb c = {0};
    config.schedule.rate = 50;
    REQUIRE(open_text("memory=256MiB"));
    REQUIRE(open_trainer(&config) == ASHLAR_OK);
    CHECK(ashlar__trainer_run(trainer, note_climb, &c, &report) == ASHLAR_OK);
    CHECK_ZU(c.told, 1);
    CHECK(c.since >= 2 && c.at == c.since + ASHLAR_TRAIN_ABOVE - 1);
    CHECK_NEAR(c.start, report.loss_first, 0, 0);
    CHECK(c.loss > c.start);
}

CASE_WITH(bad_configurations_are_refused, open_text("memory=256MiB")) {
    report = (ashlar_train_report){.steps = 77};
    for (int i = 0; i < 6; i++) {
        ashlar_train_config config = small_config(3);
        size_t *const fields[] = {&config.layers, &config.hidden, &config.embedding, &config.batch,
                                  &config.max_length};
        if (i < 5) {
            *fields[i] = 0;
        } else {
            config.optimizer.beta1 = 2;
        }
        CHECK(train_once(&config) == ASHLAR_EINVAL);
        CHECK(seen.count == 0 && report.steps == 77);
    }
    ashlar_train_config config = small_config(3);
    config.hidden = 4000;
    CHECK(train_once(&config) == ASHLAR_ENOMEM);
}

/*
 * Without an explosion of cases: the n-th call, n growing faster and faster. A call that fails
 * where nothing depends on it may pass without a word.
 */
static size_t count_failures(bool of_driver, uint64_t calls) {
    const ashlar_train_config config = small_config(3);
    size_t failures = 0;
    for (uint64_t n = 1; n <= calls; n += 1 + n / 24) {
        report = (ashlar_train_report){.steps = 77};
        if (!open_text("memory=256MiB")) {
            return 0;
        }
        if (of_driver) {
            ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_ctx_push_current, n, CU_UNKNOWN);
        } else {
            ashlar__host_fail_at(n);
        }
        const ashlar_status status = train_once(&config);
        ashlar__host_fail_at(0);
        ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS);
        CHECK(report.steps == (status == ASHLAR_OK ? 3 : 77));
        CHECK(seen.count == 3 || status != ASHLAR_OK);
        CHECK(status == ASHLAR_OK || status == ASHLAR_EDRIVER ||
              (!of_driver && (status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM)));
        failures += status != ASHLAR_OK;
        close_text();
    }
    return failures;
}

CASE(failures_at_many_points_leave_nothing_behind) {
    CHECK(count_failures(false, 120) > 40);
    CHECK(count_failures(true, 60) > 20);
}

CASE(each_call_of_a_step_may_fail) {
    /* The device's own page-locked memory, its events and their five records come first; without
     * them copies wait. */
    static const struct {
        int fn;
        uint64_t first, count;
    } calls[] = {{ASHLAR_DRIVER_FN_launch_host_func, 1, 8 + 9},
                 {ASHLAR_DRIVER_FN_memcpy_htod_async, 1, 3 + 1 + 2 + 1},
                 {ASHLAR_DRIVER_FN_memcpy_dtoh_async, 1, 2},
                 {ASHLAR_DRIVER_FN_memset_d8_async, 1, 4 + 2 + 2},
                 {ASHLAR_DRIVER_FN_stream_synchronize, 1, 1},
                 {ASHLAR_DRIVER_FN_stream_create, 1, 2},
                 {ASHLAR_DRIVER_FN_mem_host_alloc, 1 + 1, 2},
                 {ASHLAR_DRIVER_FN_event_create, 8 + 1, 4},
                 {ASHLAR_DRIVER_FN_event_record, 5 + 1, 2},
                 {ASHLAR_DRIVER_FN_stream_wait_event, 1, 1},
                 {ASHLAR_DRIVER_FN_event_synchronize, 1, 1}};
    const ashlar_train_config config = small_config(1);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        uint64_t n = calls[i].first;
        for (ashlar_status status = ASHLAR_EDRIVER; status != ASHLAR_OK && n < 500; n++) {
            REQUIRE(open_text("memory=256MiB"));
            DRIVER_FAILS_AT(calls[i].fn, n, CU_UNKNOWN, status = train_once(&config));
            CHECK(status == ASHLAR_OK || status == ASHLAR_EDRIVER);
            close_text();
        }
        CHECK_ZU(n - 1 - calls[i].first, calls[i].count);
    }
}

RUN_CASES()
