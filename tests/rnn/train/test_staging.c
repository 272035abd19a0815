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

CASE(any_order_that_the_events_allow_gives_the_same_losses) {
    for (size_t bptt = 0; bptt < 20; bptt += 9) {
        for (size_t i = 0; i <= SEEDS; i++) {
            ashlar_train_config config = small_config(STEPS);
            config.bptt = bptt;
            REQUIRE(open_text(i == 0 ? "memory=256MiB" : ADVERSARIAL[i - 1]));
            CHECK(train(&config, &runs[i == 0 ? 0 : 1], &report) == ASHLAR_OK);
            close_text();
            for (size_t k = 0; k < STEPS && i > 0; k++) {
                CHECK(runs[1].steps[k].loss_step == runs[0].steps[k].loss_step);
            }
        }
    }
}

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
    /* The warm-up's upload, then draw and queue; no stream is waited for by the host. */
    CHECK(strcmp(log_text, "UUWUWSUWSUWSUWSS") == 0);
    CHECK(steps_stream != copies_stream);
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
