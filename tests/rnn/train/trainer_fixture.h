/*
 * trainer_fixture.h - the trainer of a case, and what it shows and reports, for tests.
 */
#ifndef ASHLAR_TRAINER_FIXTURE_H
#define ASHLAR_TRAINER_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include "rnn/train/train.h"

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

#endif /* ASHLAR_TRAINER_FIXTURE_H */
