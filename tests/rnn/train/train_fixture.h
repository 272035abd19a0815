/*
 * train_fixture.h - a text, made here, and a small training on it, for tests.
 *
 * A case begins with open_text(spec); close_text() runs at its end and checks that the device has
 * its memory back.
 */
#ifndef ASHLAR_TRAIN_FIXTURE_H
#define ASHLAR_TRAIN_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include <stdlib.h>
#include <unistd.h>

#include "rnn/train/tasks.h"

enum { RECORDS = 60, MAX_LENGTH = 32, BATCH = 4 };

static ashlar_corpus *corpus;
static char folder[64];

static inline ashlar_train_config small_config(size_t steps) {
    ashlar_train_config config = {.layers = 2,
                                  .hidden = 16,
                                  .embedding = 8,
                                  .batch = BATCH,
                                  .max_length = MAX_LENGTH,
                                  .steps = steps,
                                  .seed = 5};
    ashlar_optimizer_defaults(ASHLAR_OPTIMIZER_ADAMW, &config.optimizer);
    config.optimizer.learning_rate = 0.01;
    config.optimizer.clip_norm = 1;
    config.schedule.rate = config.optimizer.learning_rate;
    return config;
}

/* Records of different lengths, some of them longer than MAX_LENGTH. */
static inline void write_text(const char *path) {
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    for (int i = 0; file != NULL && i < RECORDS; i++) {
        for (int j = 0; j <= i % 7; j++) {
            fprintf(file, "stone %d; ", (i * 31 + j) % 97);
        }
        fputs("end\n%\n", file);
    }
    CHECK(file != NULL && fclose(file) == 0);
}

static inline void close_text(void) {
    ashlar__corpus_destroy(corpus);
    (void)rmdir(folder);
    tear_down_device();
}

static inline bool open_text(const char *spec) {
    char path[96];
    (void)snprintf(folder, sizeof folder, "/tmp/ashlar-train-XXXXXX");
    if (!set_up_device(spec) || mkdtemp(folder) == NULL) {
        return false;
    }
    (void)snprintf(path, sizeof path, "%s/text", folder);
    write_text(path);
    const ashlar_status status = ashlar__corpus_open(&(const char *){path}, 1, &corpus);
    (void)unlink(path);
    return status == ASHLAR_OK && check_at_end(close_text);
}

enum { STEPS_MAX = 64 };

/* What was shown, step by step. */
typedef struct shown {
    ashlar_train_progress steps[STEPS_MAX];
    size_t count;
} shown;

static inline void show(void *context, const ashlar_train_progress *progress) {
    shown *s = context;
    if (s->count < STEPS_MAX) {
        s->steps[s->count++] = *progress;
    }
}

/* A trainer of the text. */
static inline ashlar_status open_trainer(const ashlar_train_config *config,
                                         ashlar_trainer **trainer) {
    ashlar_task *task = NULL;
    const ashlar_status status = ashlar__task_text_create(corpus, config, &task);
    return status == ASHLAR_OK ? ashlar__trainer_create(device, task, config, trainer) : status;
}

static inline ashlar_model *model_of(ashlar_trainer *trainer) {
    return ashlar__task_text_model(ashlar__trainer_task(trainer));
}

/* One training, from nothing to its report. */
static inline ashlar_status train(const ashlar_train_config *config, shown *seen,
                           ashlar_train_report *report) {
    ashlar_trainer *trainer = NULL;
    *seen = (shown){0};
    ashlar_status status = open_trainer(config, &trainer);
    if (status == ASHLAR_OK) {
        status = ashlar__trainer_run(trainer, show, seen, report);
    }
    ashlar__trainer_destroy(trainer);
    return status;
}

#endif /* ASHLAR_TRAIN_FIXTURE_H */
