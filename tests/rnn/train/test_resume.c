/*
 * test_resume.c - a training that goes on with a file: each loss as if it had not stopped.
 */
#include "tests/rnn/train/train_checkpoint_fixture.h"

#include <sys/stat.h>

static bool are_files_same(const char *a, const char *b) {
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    bool is_same = x != NULL && y != NULL;
    size_t bytes = 0;
    for (int one = 0; is_same && one != EOF; bytes++) {
        one = fgetc(x);
        is_same = one == fgetc(y);
    }
    if (x != NULL) {
        (void)fclose(x);
    }
    if (y != NULL) {
        (void)fclose(y);
    }
    return is_same && bytes > 1000;
}

/* All but the times: to the last bit. */
static bool is_same_step(const ashlar_train_progress *a, const ashlar_train_progress *b) {
    return a->step == b->step && a->steps == b->steps && a->loss == b->loss &&
           a->loss_step == b->loss_step && a->epoch == b->epoch && a->length == b->length;
}

/* Steps `first` .. of a run in one go, against those of a run that was resumed. */
static void check_tail(const shown *whole, const shown *tail, size_t first) {
    CHECK_ZU(tail->count, STEPS - first);
    for (size_t i = 0; i < tail->count; i++) {
        CHECK(is_same_step(&tail->steps[i], &whole->steps[first + i]));
        CHECK_ZU(tail->steps[i].resumed, first);
    }
}

/* A training of STEPS steps in one go, and one in two parts. */
static void check_resume_of(const char *spec, ashlar_train_config config, size_t first) {
    static shown whole, head, tail;
    ashlar_train_config begin = config;
    begin.steps = first;
    REQUIRE(open_case(spec));
    REQUIRE(train_and_save(&config, other_path, &whole, &report) == ASHLAR_OK);
    CHECK(whole.steps[0].epoch < 1 && report.epochs > 2 && report.sequences % ODD_BATCH != 0);
    CHECK_ZU(report.steps_skipped, has_spoilt_steps ? 3 : 0);
    REQUIRE(train_and_save(&begin, path, &head, &report) == ASHLAR_OK);
    for (size_t i = 0; i < first; i++) {
        CHECK(head.steps[i].loss_step == whole.steps[i].loss_step);
    }
    config.resume_file = path;
    REQUIRE(train_and_save(&config, path, &tail, &report) == ASHLAR_OK); /* over its beginning */
    check_tail(&whole, &tail, first);
    CHECK(are_files_same(path, other_path)); /* weights, moments, place, recent losses */
    CHECK_ZU(report.steps, STEPS - first);
    CHECK_ZU(report.resumed, first);
    CHECK(report.loss_first == whole.steps[first].loss_step);
    CHECK(report.loss_last == whole.steps[STEPS - 1].loss);
    CHECK(report.epochs == whole.steps[STEPS - 1].epoch);
    CHECK_ZU(report.steps_skipped, has_spoilt_steps ? 1 : 0);
    close_case();
}

static void check_resume(const char *spec, size_t first) {
    check_resume_of(spec, config_of(STEPS), first);
}

/* The first, those around a window's end, and the last but one. */
CASE(wherever_it_was_interrupted) {
    static const size_t firsts[] = {1, 9, 15, 16, 17, 20, 39};
    for (size_t i = 0; i < sizeof firsts / sizeof firsts[0]; i++) {
        check_resume(i == 5 ? "memory=256MiB,mode=adversarial,seed=11" : "memory=256MiB",
                     firsts[i]);
    }
}

/* Moments in other places, rates of other courses. */
CASE(with_every_optimizer_and_schedule) {
    for (int i = 0; i < ASHLAR_OPTIMIZER_COUNT * ASHLAR_SCHEDULE_COUNT;
         i += CHECK_SANITIZED(1, 4)) {
        ashlar_train_config config = config_of(STEPS);
        config.optimizer =
            (ashlar_optimizer_config){.kind = (ashlar_optimizer_kind)(i % ASHLAR_OPTIMIZER_COUNT),
                                      .learning_rate = 0.01,
                                      .momentum = i % 2 == 0 ? 0.9 : 0};
        CHECK(ashlar_optimizer_complete(&config.optimizer) == ASHLAR_OK);
        config.schedule =
            (ashlar_schedule){.kind = (ashlar_schedule_kind)(i % ASHLAR_SCHEDULE_COUNT),
                              .rate = 0.01,
                              .warmup_steps = 5,
                              .total_steps = STEPS,
                              .floor = 0.1,
                              .step_size = 7,
                              .gamma = 0.7};
        check_resume_of("memory=256MiB", config, 20);
    }
}

/* The scale has changed, up and down, on both sides of the interruption, and its next change is due
 * in so many good steps. */
CASE(with_loss_scaling_that_skips_steps) {
    ashlar_train_config config = config_of(STEPS);
    config.optimizer.loss_scale = 1024;
    config.optimizer.scale_interval = 6;
    has_spoilt_steps = true;
    check_resume_of("memory=256MiB", config, 20);
    has_spoilt_steps = false;
}

/* ---- while it runs ---- */

/* What is under the name after each step. */
typedef struct watch {
    shown seen;
    ino_t files[STEPS_MAX];
} watch;

static void look(void *context, const ashlar_train_progress *progress) {
    watch *w = context;
    struct stat info = {.st_ino = 0};
    (void)stat(path, &info);
    w->files[w->seen.count] = info.st_ino;
    show(&w->seen, progress);
}

CASE_WITH(every_so_many_steps_the_training_is_saved, open_case("memory=256MiB")) {
    static watch watched;
    static shown tail;
    ashlar_train_config config = config_of(STEPS);
    config.save_file = path;
    config.save_every = 10;
    REQUIRE(open_trainer(&config) == ASHLAR_OK);
    CHECK(ashlar__trainer_run(trainer, look, &watched, &report) == ASHLAR_OK);
    close_trainer();
    for (size_t i = 1; i < STEPS; i++) { /* a save comes after the step was shown */
        CHECK((watched.files[i] != watched.files[i - 1]) == (i % 10 == 0));
    }
    CHECK_ZU(report.training.management, 0); /* saving asks the driver for no memory */
    config.save_file = NULL; /* the end was left to the caller: the file is of step 30 */
    config.resume_file = path;
    REQUIRE(train_and_save(&config, other_path, &tail, &report) == ASHLAR_OK);
    check_tail(&watched.seen, &tail, 30);
}

CASE_WITH(a_save_that_fails_ends_the_training, open_case("memory=256MiB")) {
    ashlar_train_config config = config_of(9);
    config.save_file = "/nowhere/at/all";
    config.save_every = 4;
    CHECK_FAILS(train_and_save(&config, path, &seen, &report), ASHLAR_EIO, "/nowhere/at/all");
    CHECK_ZU(seen.count, 4);
    config.save_every = 0; /* not at all */
    CHECK(train_and_save(&config, path, &seen, &report) == ASHLAR_OK);
    config.save_every = 4; /* nowhere */
    config.save_file = NULL;
    CHECK(train_and_save(&config, path, &seen, &report) == ASHLAR_OK);
}

RUN_CASES()
