/* compare.h - runs the first steps of a training again, once in each way to take memory (internal).
 */
#ifndef ASHLAR_COMPARE_H
#define ASHLAR_COMPARE_H

#include "rnn/train/train.h"

typedef enum ashlar_compare_way {
    ASHLAR_COMPARE_DRIVER,    /* a call of the driver for each buffer taken and each given back */
    ASHLAR_COMPARE_CACHE,     /* blocks are kept for the next steps */
    ASHLAR_COMPARE_WARMUP,    /* the same after a warm-up at the longest sequences */
    ASHLAR_COMPARE_PLAN,      /* the warm-up, and plans of the steps */
    ASHLAR_COMPARE_RECOMPUTE, /* plans, and chunks of which the forward pass runs twice */
    ASHLAR_COMPARE_COUNT
} ashlar_compare_way;

enum { ASHLAR_COMPARE_STEPS = 6 };

/* How a way did. The host waits when it is a step ahead of the device, so its times are the
 * device's, except for the first and the last step. */
typedef struct ashlar_compare_row {
    bool has_run;
    char why_not[160];
    size_t steps;
    uint64_t calls[ASHLAR_COMPARE_STEPS]; /* of the driver for memory, in each step */
    double ms[ASHLAR_COMPARE_STEPS];      /* of each step on the host */
    double loss;                          /* of all steps */
    uint64_t taken_peak_bytes;            /* the most that was taken from the device at a time */
} ashlar_compare_row;

/* Makes a task like the training's for another configuration; the caller owns *out. */
typedef ashlar_status (*ashlar_compare_task_fn)(void *context, const ashlar_train_config *config,
                                                ashlar_task **out);

/* Run the first steps of `config` in each way, from new weights, each with an allocator of its own.
 * No file is written. A way that fails, for want of memory for instance, has a row that says why.
 * Stops early, with rows that have not run, when *config->stop is not 0. */
void ashlar__compare(ashlar_device *device, const ashlar_train_config *config,
                     ashlar_compare_task_fn make_task, void *context,
                     ashlar_compare_row rows[static ASHLAR_COMPARE_COUNT]);

#endif /* ASHLAR_COMPARE_H */
