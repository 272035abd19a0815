/* train_impl.h - the inside of a trainer, for train.c (creation, warm-up, phases, report) and
 * train_loop.c (the steps) (internal). */
#ifndef ASHLAR_TRAIN_IMPL_H
#define ASHLAR_TRAIN_IMPL_H

#include "rnn/train/train.h"

#include <ashlar/warmup.h>

#include "rnn/train/prefetch.h"
#include "rnn/train/train_checkpoint.h"

/* What the device writes back after a step, in page-locked memory; there is one for each buffer. */
typedef struct ashlar_train_outcome {
    ashlar_optimizer_state optimizer;
    double losses[]; /* [parts] */
} ashlar_train_outcome;

struct ashlar_trainer {
    ashlar_train_config config;
    ashlar_device *device;
    ashlar_driver_counts at_start;
    ashlar_task *task;
    ashlar_allocator *allocator;
    ashlar_stream stream;
    ashlar_prefetch prefetch;
    uint64_t event_calls_before;  /* prefetch.event_calls at the end of the last phase */
    ashlar_warmup_options warmup; /* maps lengths to step keys */
    ashlar_optimizer *optimizer;
    double *losses; /* device, [max_parts] */
    void *outcomes; /* the ashlar_train_outcome of each buffer, outcome_bytes apart */
    size_t outcome_bytes;
    bool *seen_lengths;          /* [task->max_length + 1] */
    ashlar_train_state state;    /* after the last step that was waited for */
    ashlar_leak_monitor *growth; /* watches the memory held between steps */
};

/* For ashlar_allocator_warmup(): forward and backward of a dummy batch, without an update. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_warm_step(void *trainer, size_t length);
ASHLAR_MUST_CHECK ashlar_status ashlar__train_dry_run(void *trainer, size_t length);

/* Run the remaining steps for ashlar__trainer_run(), and fill in the report's fields about them. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_loop(ashlar_trainer *trainer,
                                                   ashlar_train_show_fn show, void *context,
                                                   ashlar_train_report *report);

#endif /* ASHLAR_TRAIN_IMPL_H */
