/*
 * test_train_errors.c - the training loop from below: what it says when something goes wrong, and
 * batches that go to the device one step ahead, on a stream of their own.
 */
#include "tests/rnn/train/train_fixture.h"

#include "rnn/train/train_impl.h"

/* ---- what goes wrong while it runs ---- */

static void spoil_the_third_step(void *context, const ashlar_train_progress *progress) {
    static ashlar_rnn_backend backend;
    backend = ashlar__rnn_backend_cpu;
    backend.queue = spoil;
    if (progress->step == 1) { /* step 2 is queued already */
        rnn_of(context)->backend = &backend;
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
    CHECK(*ashlar_optimizer_get_info(trainer->optimizer).loss_scale == 1024 / 8);
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

/* ---- batches that go to the device one step ahead ---- */

enum { STEPS = 20 };

static const char *const ADVERSARIAL[] = {
    "memory=256MiB,mode=adversarial,seed=1", "memory=256MiB,mode=adversarial,seed=2",
    "memory=256MiB,mode=adversarial,seed=3", "memory=256MiB,mode=adversarial,seed=4"};
enum { SEEDS = 4 };

static shown runs[2];

/* ---- how it goes ---- */

/* What is done to the driver, in its order: U upload, W wait on a stream, S wait on the host. */
static char log_text[16 * STEPS];
static size_t log_count;
static ashlar_driver_table real;
static cu_stream steps_stream, copies_stream;

static void note(char what) {
    if (log_count + 1 < sizeof log_text) {
        log_text[log_count++] = what;
        log_text[log_count] = '\0';
    }
}

static cu_result note_upload(cu_ptr dst, const void *src, size_t bytes, cu_stream stream) {
    copies_stream = stream;
    note('U');
    return real.memcpy_htod_async(dst, src, bytes, stream);
}

static cu_result note_wait(cu_stream stream, cu_event event, unsigned int flags) {
    steps_stream = stream;
    note('W');
    return real.stream_wait_event(stream, event, flags);
}

static cu_result note_host_wait(cu_event event) {
    note('S');
    return real.event_synchronize(event);
}

static cu_result note_synchronize(cu_stream stream) {
    note('!');
    return real.stream_synchronize(stream);
}

static void watch(void) {
    driver->table.memcpy_htod_async = note_upload;
    driver->table.stream_wait_event = note_wait;
    driver->table.event_synchronize = note_host_wait;
    driver->table.stream_synchronize = note_synchronize;
}

/* A batch is uploaded while the step before it runs: before the host has waited for that one. */
CASE_WITH(the_host_is_one_step_behind, open_text("memory=256MiB")) {
    ashlar_train_config config = small_config(5);
    real = driver->table;
    REQUIRE(open_trainer(&config) == ASHLAR_OK);
    log_count = 0;
    watch();
    runs[0].count = 0;
    CHECK(ashlar__trainer_run(trainer, show, &runs[0], &report) == ASHLAR_OK);
    driver->table = real;
    /* The upload of the warm-up, which is waited for; then each step's. */
    CHECK(strcmp(log_text, "U!UWUWSUWSUWSUWSS") == 0);
    CHECK(steps_stream != copies_stream);
}

/* A training that ends amid queued work: page-locked memory is not taken from under it. */
CASE(an_end_amid_queued_work_waits_for_it) {
    for (uint64_t n = 1; n < 12; n++) {
        ashlar_train_config config = small_config(6);
        REQUIRE(open_text(ADVERSARIAL[n % SEEDS]));
        const uint64_t kept = CALLS(mem_host_alloc) - CALLS(mem_free_host);
        REQUIRE(open_trainer(&config) == ASHLAR_OK);
        DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_event_record, n, CU_UNKNOWN,
                        CHECK(ashlar__trainer_run(trainer, NULL, NULL, &report) == ASHLAR_EDRIVER));
        close_trainer();
        close_text();
        CHECK(CALLS(mem_host_alloc) - CALLS(mem_free_host) == kept);
    }
}

RUN_CASES()
