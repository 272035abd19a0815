/* progress.h - a training's progress: a bar as wide as the terminal, plain lines elsewhere
 * (internal). */
#ifndef ASHLAR_PROGRESS_H
#define ASHLAR_PROGRESS_H

#include <stdbool.h>
#include <stdio.h>

#include "rnn/train/train.h"

typedef struct ashlar_progress {
    FILE *out;
    bool is_terminal;
    double shown_at; /* when the last line was shown, in seconds */
} ashlar_progress;

void ashlar__progress_init(ashlar_progress *progress, FILE *out);

/* For ashlar__trainer_run(); `context` is an ashlar_progress. */
void ashlar__progress_show(void *context, const ashlar_train_progress *now);

#endif /* ASHLAR_PROGRESS_H */
