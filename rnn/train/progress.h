/*
 * progress.h - how far the training is: a bar on a terminal, plain lines elsewhere (internal).
 */
#ifndef ASHLAR_PROGRESS_H
#define ASHLAR_PROGRESS_H

#include <stdbool.h>
#include <stdio.h>

#include "rnn/train/train.h"

typedef struct ashlar_progress {
    FILE *out;
    bool is_terminal;
    double shown_at; /* seconds of the last line */
} ashlar_progress;

void ashlar__progress_init(ashlar_progress *progress, FILE *out);

/* For ashlar__trainer_run(); `context` is an ashlar_progress. */
void ashlar__progress_show(void *context, const ashlar_train_progress *now);

#endif /* ASHLAR_PROGRESS_H */
