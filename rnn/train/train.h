/*
 * train.h - the training loop, from a task to a trained model and a report (internal).
 */
#ifndef ASHLAR_TRAIN_H
#define ASHLAR_TRAIN_H

#include <ashlar/leak_monitor.h>
#include <ashlar/optimizer.h>
#include <ashlar/rnn_layout.h>
#include <ashlar/schedule.h>

#include "rnn/train/task.h"

/* What a training is to be: first the model and its batches, of which only the task reads. */
typedef struct ashlar_train_config {
    size_t layers, hidden, embedding;
    ashlar_rnn_cell cell;
    size_t projection; /* 0: none */
    double dropout;
    ashlar_dtype dtype; /* of weights and activations; what is narrow has F32 masters */
    size_t batch;       /* sequences per step */
    size_t max_length;  /* longest sequence in time steps; longer ones are cut into pieces */
    size_t stride; /* time steps from one such piece's beginning to the next one's; 0: max_length */
    size_t accumulate; /* micro-batches that a step's batch is worked off in; 0 and 1: at once */
    size_t bptt;      /* time steps of a part that gradients do not leave, each an update; 0: all */
    size_t recompute; /* time steps of a chunk that is run once more for its gradients; 0: not so */
    bool recomputes_auto; /* recompute is about twice the root of what it cuts */

    size_t steps;
    ashlar_optimizer_config optimizer;
    bool without_bias_decay;  /* weight decay is for matrices only */
    ashlar_schedule schedule; /* whose rate is each step's learning rate */
    uint64_t seed;
    size_t buckets;          /* ranges of lengths with a plan each; 0 and 1: one plan */
    bool without_plan;       /* steps are served by the allocator's ordinary path */
    const char *plan_file;   /* where the plans are kept; NULL: nowhere */
    const char *resume_file; /* a training to go on with; NULL: begin anew */
    const char *save_file;   /* written every `save_every` steps; NULL or 0: not */
    size_t save_every;
    ashlar_report_fn report; /* is told of the allocator's damage and leaks; NULL: nobody is */
} ashlar_train_config;

/* What one step was, for whoever shows progress. */
typedef struct ashlar_train_progress {
    size_t step, steps; /* this one, from 1; of so many */
    size_t resumed;     /* steps that were done before this run */
    double loss;        /* mean of the recent steps, nats per symbol */
    double loss_step;   /* of this one */
    double epoch;
    size_t length; /* T of this step */
    double tokens_per_s;
    double seconds; /* since the first step */
    unsigned found; /* a bit 1 << tag for each tag that is now known to grow from step to step */
    const ashlar_tag_growth *growth; /* [ASHLAR_TAG_COUNT], until the call returns */
} ashlar_train_progress;

/* What the process asked of the driver in one phase; choosing a context is not counted. */
typedef struct ashlar_phase_calls {
    uint64_t management; /* memory, streams, events, attributes: what a warm-up is to end */
    uint64_t work;       /* copies, fills, launches */
    uint64_t wait;       /* the host waited for the device */
} ashlar_phase_calls;

/*
 * The memory that a step takes beside what outlives it, such as weights, and its plan, of which
 * without one everything is 0. The counts are of the training steps, without the warm-up.
 */
typedef struct ashlar_step_memory {
    bool is_planned;
    uint64_t plan_count;     /* one for each range of lengths, in the same memory */
    uint64_t reserved_bytes; /* the plan's memory; without one, what no lasting block has */
    uint64_t bound_bytes;    /* the most that is live at once: with a plan, at 512 B granularity */
    uint64_t plan_bytes;
    double gap;      /* plan_bytes / bound_bytes - 1 */
    uint64_t hits;   /* requests served from the plan */
    uint64_t misses; /* and those that were to be, but were not */
    uint64_t steps_replayed;
} ashlar_step_memory;

typedef struct ashlar_train_report {
    ashlar_device_info device;
    size_t steps;            /* of this run, as all counts and times are */
    size_t resumed;          /* steps done before, if it went on with a file */
    size_t parameters;       /* elements, without padding */
    size_t batch;            /* sequences of a step */
    size_t max_length;       /* time steps of the longest sequence */
    size_t warmed_length;    /* of the longest part of one: what was warmed up */
    size_t lengths_distinct; /* different T among the steps */
    size_t sequences;        /* pieces that one epoch has */
    const char *unit;        /* what a token is; NULL: a "symbol" */
    uint64_t tokens;         /* trained on, padding left out */
    double epochs;
    uint64_t steps_skipped; /* by loss scaling */
    double loss_first;      /* of this run's first step */
    double loss_last;       /* mean of the last ASHLAR_TRAIN_RECENT steps, weighted by tokens, those
                               before the run too */
    double seconds;
    double tokens_per_s;
    ashlar_phase_calls setup, warmup, training;
    ashlar_step_memory step_memory;
    uint64_t step_bytes; /* of the largest step at its peak, computed from its shape */
    ashlar_task_saving savings[ASHLAR_TASK_SAVINGS_MAX];
    size_t savings_count;
    ashlar_stats stats;                         /* at the end of training */
    ashlar_tag_growth growth[ASHLAR_TAG_COUNT]; /* since the warm-up */
    bool weights_contiguous;                    /* ashlar_arena_check() */
} ashlar_train_report;

enum { ASHLAR_TRAIN_RECENT = 10 };

typedef struct ashlar_trainer ashlar_trainer;

/*
 * Set everything up, and open the task: model, weights, page-locked memory; no step yet.
 *
 * config->steps counts from the beginning of the training, also where a file is resumed. Then each
 * step's loss is, to the last bit, that of a run that was never interrupted, on a processor of the
 * same kind, with any number of threads.
 *
 * Ownership: *out is the caller's; the device must outlive it. The task is the trainer's from here
 *            on, and is destroyed with it, or if this fails.
 * Errors:    ASHLAR_EINVAL (config), and those of the parts.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__trainer_create(ashlar_device *device, ashlar_task *task,
                                                       const ashlar_train_config *config,
                                                       ashlar_trainer **out);
void ashlar__trainer_destroy(ashlar_trainer *trainer); /* NULL is allowed */

/*
 * Warm up, seal, and train. Once per trainer.
 *
 * show   called for every step with `context`, when the next one is queued already; NULL: not
 *        wanted
 *
 * Errors: those of the parts; ASHLAR_EFORMAT where the loss stops being a number.
 */
typedef void (*ashlar_train_show_fn)(void *context, const ashlar_train_progress *progress);
ASHLAR_MUST_CHECK ashlar_status ashlar__trainer_run(ashlar_trainer *trainer,
                                                    ashlar_train_show_fn show, void *context,
                                                    ashlar_train_report *report);

/*
 * Write the training as it is after its last step, for resume_file. Not before a first step.
 *
 * Errors: those of ashlar__train_checkpoint_save().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__trainer_save(ashlar_trainer *trainer, const char *path);

ashlar_task *ashlar__trainer_task(ashlar_trainer *trainer);
ashlar_allocator *ashlar__trainer_allocator(ashlar_trainer *trainer);

/* The key of the plan that steps of that length have, for ashlar_step_begin(). After a run. */
uint64_t ashlar__trainer_key(const ashlar_trainer *trainer, size_t length);

#endif /* ASHLAR_TRAIN_H */
