/*
 * trainer_fixture.h - the trainer of a case, and what it shows and reports, for tests.
 */
#ifndef ASHLAR_TRAINER_FIXTURE_H
#define ASHLAR_TRAINER_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include "rnn/train/tasks.h"

enum { STEPS_MAX = 200 };

/* What was shown, step by step. */
typedef struct shown {
    ashlar_train_progress steps[STEPS_MAX];
    size_t count;
} shown;

static shown seen;
static ashlar_train_report report;
static ashlar_trainer *trainer;

static inline void show(void *context, const ashlar_train_progress *progress) {
    shown *s = context;
    if (s->count < STEPS_MAX) {
        s->steps[s->count++] = *progress;
    }
}

static inline void close_trainer(void) {
    check_forget(close_trainer);
    ashlar__trainer_destroy(trainer);
    trainer = NULL;
}

/* A trainer of a task, which it takes over, in the place of the one before; NULL where it fails. */
static inline ashlar_status open_trainer_of(ashlar_task *task, const ashlar_train_config *config) {
    close_trainer();
    const ashlar_status status = ashlar__trainer_create(device, task, config, &trainer);
    CHECK((status == ASHLAR_OK) == (trainer != NULL));
    (void)check_at_end(close_trainer);
    return status;
}

#endif /* ASHLAR_TRAINER_FIXTURE_H */
