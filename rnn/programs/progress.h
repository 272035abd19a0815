/* progress.h - a training's progress: a bar as wide as the terminal, plain lines elsewhere
 * (internal). */
#ifndef ASHLAR_PROGRESS_H
#define ASHLAR_PROGRESS_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

#include "rnn/train/train.h"

/* ---- interrupt ---- */

/*
 * Takes SIGINT and SIGTERM as requests to end soon, with everything kept (internal).
 */

/* Catch SIGINT and SIGTERM, except where the caller had them ignored. Returns a pointer to the
 * number of the signal that came; 0: none yet. The second signal ends the process at once. */
const volatile sig_atomic_t *ashlar__interrupt_catch(void);

/* Set a line to write at the first signal; it must outlive the program's run. For one of several
 * ranks: the launcher may end it while it waits for a rank that has died. */
void ashlar__interrupt_announce(const char *line);

/* The exit status after a signal: that of a process that the signal had killed. */
int ashlar__interrupt_exit_status(void);

/* "SIGINT" or "SIGTERM". */
const char *ashlar__interrupt_name(void);

typedef struct ashlar_progress {
    FILE *out;
    bool is_terminal;
    double shown_at; /* when the last line was shown, in seconds */
} ashlar_progress;

void ashlar__progress_init(ashlar_progress *progress, FILE *out);

/* For ashlar__trainer_run(); `context` is an ashlar_progress. */
void ashlar__progress_show(void *context, const ashlar_train_progress *now);

#endif /* ASHLAR_PROGRESS_H */
