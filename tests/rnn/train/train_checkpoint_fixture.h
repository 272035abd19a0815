/*
 * train_checkpoint_fixture.h - trainings that are saved in files, for tests.
 *
 * A case begins with open_case(spec); close_case() runs at its end.
 */
#ifndef ASHLAR_TRAIN_CHECKPOINT_FIXTURE_H
#define ASHLAR_TRAIN_CHECKPOINT_FIXTURE_H

#include "tests/rnn/train/train_fixture.h"

#include <ashlar/arena.h>

#include "rnn/layer/backend.h"

enum { STEPS = 40, ODD_BATCH = 7 };

static char path[96], other_path[96];

/* With a batch that divides neither the epoch nor the window. */
static inline ashlar_train_config config_of(size_t steps) {
    ashlar_train_config config = small_config(steps);
    config.batch = ODD_BATCH;
    return config;
}

static inline void close_case(void) {
    (void)unlink(path);
    (void)unlink(other_path);
    close_text();
}

static inline bool open_case(const char *spec) {
    const bool is_open = open_text(spec);
    (void)snprintf(path, sizeof path, "%s/training", folder);
    (void)snprintf(other_path, sizeof other_path, "%s/other", folder);
    return is_open && check_at_end(close_case);
}

/* ---- gradients that are no numbers, in steps 3, 4 and 25 of a case that wants them ---- */

static bool has_spoilt_steps;

static inline void show_and_spoil(void *context, const ashlar_train_progress *progress) {
    static ashlar_rnn_backend spoiling;
    const size_t next = progress->step + 2; /* the one after it is queued already */
    const bool is_spoilt = has_spoilt_steps && (next == 3 || next == 4 || next == 25);
    spoiling = ashlar__rnn_backend_cpu;
    spoiling.queue = spoil;
    rnn_of(trainer)->backend = is_spoilt ? &spoiling : &ashlar__rnn_backend_cpu;
    show(context, progress);
}

/* Train, and save the end. */
static inline ashlar_status train_and_save(const ashlar_train_config *config, const char *to,
                                           shown *all, ashlar_train_report *out) {
    *all = (shown){0};
    ashlar_status status = open_trainer(config);
    if (status == ASHLAR_OK) {
        status = ashlar__trainer_run(trainer, show_and_spoil, all, out);
    }
    if (status == ASHLAR_OK) {
        status = ashlar__trainer_save(trainer, to);
    }
    close_trainer();
    return status;
}

#endif /* ASHLAR_TRAIN_CHECKPOINT_FIXTURE_H */
