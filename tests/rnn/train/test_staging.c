/*
 * test_staging.c - batches go to the device one step ahead, on a stream of their own: in any order
 * of execution that the events allow, and only because they are there.
 */
#include "tests/rnn/train/train_fixture.h"

#include "rnn/train/prefetch.h"

enum { STEPS = 20 };

static const char *const ADVERSARIAL[] = {
    "memory=256MiB,mode=adversarial,seed=1", "memory=256MiB,mode=adversarial,seed=2",
    "memory=256MiB,mode=adversarial,seed=3", "memory=256MiB,mode=adversarial,seed=4"};
enum { SEEDS = 4 };

static shown runs[2];

static ashlar_train_config config_of(size_t bptt) {
    ashlar_train_config config = small_config(STEPS);
    config.bptt = bptt;
    return config;
}

/* What breaks the order, put into the driver's table; NULL: nothing. */
typedef void breaker(void);

static ashlar_driver_table real;

/* Whether STEPS steps have the losses of the eager order. A failure is another course too. */
static bool is_same_course(const char *spec, breaker *breaks, size_t bptt) {
    const ashlar_train_config config = config_of(bptt);
    if (!open_text(spec)) {
        return false;
    }
    real = driver->table;
    if (breaks != NULL) {
        breaks();
    }
    const ashlar_status status = train(&config, &runs[1], &report);
    driver->table = real;
    close_text();
    if (status != ASHLAR_OK) {
        CHECK(breaks != NULL && status == ASHLAR_EFORMAT);
        return false;
    }
    bool is_same = true;
    for (size_t i = 0; i < STEPS; i++) {
        is_same = is_same && runs[1].steps[i].loss_step == runs[0].steps[i].loss_step;
    }
    return is_same;
}

static void run_eager(size_t bptt) {
    const ashlar_train_config config = config_of(bptt);
    REQUIRE(open_text("memory=256MiB"));
    CHECK(train(&config, &runs[0], &report) == ASHLAR_OK);
}

CASE(any_order_that_the_events_allow_gives_the_same_losses) {
    for (size_t bptt = 0; bptt < 20; bptt += 9) {
        run_eager(bptt);
        for (size_t seed = 0; seed < SEEDS; seed++) {
            CHECK(is_same_course(ADVERSARIAL[seed], NULL, bptt));
        }
    }
}

/* ---- without one of them ---- */

static cu_result wait_for_nothing(cu_stream stream, cu_event event, unsigned int flags) {
    (void)stream, (void)event, (void)flags;
    return CU_SUCCESS;
}

static void break_the_wait_for_the_upload(void) {
    driver->table.stream_wait_event = wait_for_nothing;
}

static cu_result do_not_wait(cu_event event) {
    (void)event;
    return CU_SUCCESS;
}

static void break_the_wait_for_the_step(void) {
    driver->table.event_synchronize = do_not_wait;
}

static cu_result record_nothing(cu_event event, cu_stream stream) {
    (void)event, (void)stream;
    return CU_SUCCESS;
}

static void break_the_records(void) {
    driver->table.event_record = record_nothing;
}

static void check_is_caught(breaker *breaks) {
    size_t caught = 0;
    run_eager(0);
    for (size_t seed = 0; seed < SEEDS; seed++) {
        caught += is_same_course(ADVERSARIAL[seed], breaks, 0) ? 0 : 1;
    }
    CHECK(caught > 0);
}

/* Then steps are run on a batch that has not come, or on the next one. */
CASE(a_step_that_does_not_wait_for_its_batch_is_caught) {
    check_is_caught(break_the_wait_for_the_upload);
}

/* Then results are read that have not come, and slots drawn into that are in use. */
CASE(a_host_that_does_not_wait_for_steps_is_caught) {
    check_is_caught(break_the_wait_for_the_step);
}

CASE(events_that_are_not_recorded_are_caught) {
    check_is_caught(break_the_records);
}

/* ---- how it goes ---- */

/* What is done to the driver, in its order: U upload, W wait on a stream, S wait on the host. */
static char log_text[16 * STEPS];
static size_t log_count;
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
    /* The warm-up's upload, then draw and queue; no stream is waited for by the host. */
    CHECK(strcmp(log_text, "UUWUWSUWSUWSUWSS") == 0);
    CHECK(steps_stream != copies_stream);
}

/* Before a step is saved, nothing of the next one is drawn: its place would be in the file. */
CASE_WITH(a_step_that_is_saved_is_waited_for, open_text("memory=256MiB")) {
    static char path[96];
    ashlar_train_config config = small_config(5);
    (void)snprintf(path, sizeof path, "%s/training", folder);
    config.save_file = path;
    config.save_every = 2;
    real = driver->table;
    REQUIRE(open_trainer(&config) == ASHLAR_OK);
    log_count = 0;
    watch();
    driver->table.stream_synchronize = real.stream_synchronize; /* a save waits */
    runs[0].count = 0;
    CHECK(ashlar__trainer_run(trainer, show, &runs[0], &report) == ASHLAR_OK);
    driver->table = real;
    CHECK(strcmp(log_text, "UUWUWSSUWUWSSUWS") == 0);
    CHECK_ZU(runs[0].count, 5);
    close_trainer();
    (void)unlink(path);
}

/* A training that ends amid queued work: page-locked memory is not taken from under it. */
CASE(an_end_amid_queued_work_waits_for_it) {
    for (uint64_t n = 1; n < 12; n++) {
        ashlar_train_config config = small_config(6);
        REQUIRE(open_text(ADVERSARIAL[n % SEEDS]));
        REQUIRE(open_trainer(&config) == ASHLAR_OK);
        DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_event_record, n, CU_UNKNOWN,
                        CHECK(ashlar__trainer_run(trainer, NULL, NULL, &report) == ASHLAR_EDRIVER));
        close_trainer();
        close_text();
        CHECK(CALLS(mem_free_host) == CALLS(mem_host_alloc));
    }
}

RUN_CASES()
