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

/* A training's configuration: first the model and its batches, which only the task reads. */
typedef struct ashlar_train_config {
    size_t layers, hidden, embedding;
    ashlar_rnn_cell cell;
    size_t projection; /* 0: none */
    double dropout;
    ashlar_dtype dtype; /* of weights and activations; what is narrow has F32 masters */
    size_t batch;       /* sequences per step */
    size_t max_length;  /* longest sequence in time steps; longer ones are cut into pieces */
    size_t stride;      /* time steps from one piece's beginning to the next one's; 0: max_length */
    size_t accumulate;  /* micro-batches that a step's batch is split into; 0 and 1: not split */
    size_t bptt;        /* time steps that gradients flow through, then an update; 0: all */
    size_t recompute; /* time steps of a chunk, which runs again for its gradients; 0: none does */
    bool recomputes_auto; /* recompute is about 2 * sqrt(steps of a part) */

    size_t steps;
    ashlar_optimizer_config optimizer;
    bool without_bias_decay;  /* weight decay is for matrices only */
    ashlar_schedule schedule; /* of the learning rate */
    uint64_t seed;
    size_t buckets;          /* ranges of lengths with a plan each; 0 and 1: one plan */
    bool without_plan;       /* steps allocate by the ordinary path */
    const char *plan_file;   /* where the plans are kept; NULL: nowhere */
    const char *resume_file; /* a training to go on with; NULL: begin anew */
    const char *save_file;   /* written every `save_every` steps; NULL or 0: not */
    size_t save_every;
    ashlar_report_fn
        report; /* receives the allocator's reports of damage and leaks; NULL: nobody does */
} ashlar_train_config;

/* One step's figures, for a display of progress. */
typedef struct ashlar_train_progress {
    size_t step, steps; /* this step, from 1; of how many */
    size_t resumed;     /* steps that were done before this run */
    double loss;        /* mean of the recent steps, nats per symbol */
    double loss_step;   /* of this one */
    double epoch;
    size_t length; /* T of this step */
    double tokens_per_s;
    double seconds; /* since the first step */
    unsigned found; /* bit 1 << tag for each tag newly found to grow from step to step */
    const ashlar_tag_growth *growth; /* [ASHLAR_TAG_COUNT], until the call returns */
} ashlar_train_progress;

/* The process's driver calls in one phase; choosing a context is not counted. */
typedef struct ashlar_phase_calls {
    uint64_t management; /* memory, streams, events, attributes: none should follow the warm-up */
    uint64_t work;       /* copies, fills, launches */
    uint64_t wait;       /* waits of the host for the device */
} ashlar_phase_calls;

/*
 * The memory of a step, without what outlives it such as weights; and its plan, all 0 without one.
 * Counts leave out the warm-up.
 */
typedef struct ashlar_step_memory {
    bool is_planned;
    uint64_t plan_count; /* one for each range of lengths, in the same memory */
    uint64_t
        reserved_bytes; /* the plan's memory; without a plan, all that no lasting block occupies */
    uint64_t bound_bytes; /* the most that is live at once; with a plan, in multiples of 512 B */
    uint64_t plan_bytes;
    double gap;      /* plan_bytes / bound_bytes - 1 */
    uint64_t hits;   /* requests served from the plan */
    uint64_t misses; /* planned requests that the plan could not serve */
    uint64_t steps_replayed;
} ashlar_step_memory;

typedef struct ashlar_train_report {
    ashlar_device_info device;
    size_t steps;            /* of this run, like all counts and times */
    size_t resumed;          /* steps done before, by the resumed file */
    size_t parameters;       /* elements, without padding */
    size_t batch;            /* sequences of a step */
    size_t max_length;       /* time steps of the longest sequence */
    size_t warmed_length;    /* time steps of the longest part, which was warmed up */
    size_t lengths_distinct; /* different T among the steps */
    size_t sequences;        /* pieces of an epoch */
    const char *unit;        /* what a token is called; NULL: "symbol" */
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
    uint64_t step_bytes; /* peak of the largest step, computed from its shape */
    ashlar_task_saving savings[ASHLAR_TASK_SAVINGS_MAX];
    size_t savings_count;
    ashlar_stats stats;                         /* at the end of training */
    ashlar_tag_growth growth[ASHLAR_TAG_COUNT]; /* since the warm-up */
    bool weights_contiguous;                    /* ashlar_arena_check() */
} ashlar_train_report;

enum { ASHLAR_TRAIN_RECENT = 10 };

typedef struct ashlar_trainer ashlar_trainer;

/*
 * Set everything up and open the task: model, weights, page-locked memory. Runs no step.
 *
 * config->steps counts from the beginning of the training, also where a file is resumed. On a
 * processor of the same kind, with any number of threads, each step's loss after resuming is that
 * of an uninterrupted run to the last bit.
 *
 * Ownership: *out is the caller's; the device must outlive it. The trainer takes the task and
 *            destroys it, also if this fails.
 * Errors:    ASHLAR_EINVAL (config), and those of the parts.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__trainer_create(ashlar_device *device, ashlar_task *task,
                                                       const ashlar_train_config *config,
                                                       ashlar_trainer **out);
void ashlar__trainer_destroy(ashlar_trainer *trainer); /* NULL is allowed */

/*
 * Warm up, seal, and train. Once per trainer.
 *
 * show   called for every step with `context`, after the next one has been queued; NULL: not wanted
 *
 * Errors: those of the parts; ASHLAR_EFORMAT where the loss is no longer a number.
 */
typedef void (*ashlar_train_show_fn)(void *context, const ashlar_train_progress *progress);
ASHLAR_MUST_CHECK ashlar_status ashlar__trainer_run(ashlar_trainer *trainer,
                                                    ashlar_train_show_fn show, void *context,
                                                    ashlar_train_report *report);

/*
 * Write the training as it is after its last step, for resume_file. Requires that a step has run.
 *
 * Errors: those of ashlar__train_checkpoint_save().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__trainer_save(ashlar_trainer *trainer, const char *path);

ashlar_task *ashlar__trainer_task(ashlar_trainer *trainer);
ashlar_allocator *ashlar__trainer_allocator(ashlar_trainer *trainer);

/* The key of the plan for steps of that length, for ashlar_step_begin(). After a run. */
uint64_t ashlar__trainer_key(const ashlar_trainer *trainer, size_t length);

#endif /* ASHLAR_TRAIN_H */
