/* train.h - the training loop, from a task to a trained model and a report (internal). */
#ifndef ASHLAR_TRAIN_H
#define ASHLAR_TRAIN_H

#include <signal.h>

#include <ashlar/optimizer.h>
#include <ashlar/reduce.h>
#include <ashlar/rnn.h>
#include <ashlar/plan.h>

#include "rnn/train/leak_monitor.h"
#include "rnn/train/task.h"

/* ---- train buckets ---- */

/*
 * The ranges of lengths that share a plan, and how their steps ran (internal).
 */

typedef struct ashlar_train_bucket {
    ashlar_warmup_bucket warm; /* `steps` and calls: of the training, after the warm-up */
    uint64_t launched;         /* of these steps, those that were one launch */
} ashlar_train_bucket;

typedef struct ashlar_train_buckets {
    ashlar_train_bucket *list; /* [count], by length */
    size_t count;
} ashlar_train_buckets;

/* Count a step of this length that was one launch. */
void ashlar__train_buckets_launched(const ashlar_train_buckets *buckets, size_t length);

/* A training's configuration. Only the task reads the first group: the model and its batches. */
typedef struct ashlar_train_config {
    size_t layers, hidden, embedding;
    ashlar_rnn_cell cell;
    size_t projection; /* outputs of a projected layer; 0: no projection */
    double dropout;
    ashlar_dtype dtype;   /* of weights and activations; F16 and BF16 weights have F32 masters */
    ashlar_rnn_algorithm algorithm; /* of cuDNN */
    bool allows_tf32;               /* cuDNN multiplies F32 in TF32 */
    size_t batch;         /* sequences per step */
    size_t max_length;    /* time steps of the longest sequence; longer ones are cut to pieces */
    size_t held_out;      /* the last of every held_out records is not trained on; 0: all are */
    size_t stride;        /* time steps from one piece's start to the next's; 0: max_length */
    size_t accumulate;    /* micro-batches into which a batch is split; 0 and 1: not split */
    size_t bptt;          /* time steps of a part, after which the weights are updated; 0: all */
    size_t recompute;     /* time steps of a chunk, whose forward pass runs twice; 0: no chunks */
    bool recomputes_auto; /* the task chooses chunks of about 2 * sqrt(steps of a part) */

    ashlar_ranks *ranks; /* processes that train together; NULL: this one alone */
    size_t shards;       /* S of shards.h, added up as a tree; 0: one for each rank */

    size_t steps;
    ashlar_optimizer_config optimizer;
    bool without_bias_decay;  /* weight decay applies to matrices only */
    ashlar_schedule schedule; /* of the learning rate */
    uint64_t seed;
    size_t buckets;          /* ranges of lengths, with plans of their own; 0: one */
    bool without_plan;       /* steps allocate from the heap instead of from plans */
    bool pads;               /* pad batches to the longest length of their range: see step_fixed.h;
                              * `buckets` 0 then means ASHLAR_STEP_BUCKETS */
    size_t graphs;           /* the most captured steps that are kept; 0: no step is captured. If
                              * it is not 0, batches are padded even without `pads` */
    bool without_warmup;     /* take the memory when a step asks for it, as most trainings do; then
                              * there is no plan either. Not for padded batches */
    const ashlar_buffer_hooks *hooks; /* of the steps' buffers; NULL: the allocator's functions */
    const char *resume_file; /* the training to resume; NULL: begin a new one */
    const char *save_file;   /* written every `save_every` steps; NULL: never */
    size_t save_every;       /* steps; 0: never */
    const volatile sig_atomic_t *stop; /* not 0: train no step beyond the next; NULL: never */
    ashlar_allocator
        *measured; /* the caller's allocator, for ashlar__trainer_measure(): nothing is
                    * computed, nor are weights drawn. NULL: the trainer makes its own */
    ashlar_report_fn
        report; /* receives the allocator's reports of damage and leaks; NULL: not reported */
} ashlar_train_config;

/* Whether batches are padded. */
static inline bool ashlar__train_pads(const ashlar_train_config *config) {
    return config->pads || config->graphs > 0;
}

/* One step's figures, for a display of progress. */
typedef struct ashlar_train_progress {
    size_t step, steps; /* this step, counted from 1, and the number of all steps */
    size_t resumed;     /* steps that were done before this run */
    double loss;        /* mean of the recent steps, nats per symbol */
    double loss_step;   /* loss of this step, nats per symbol */
    double epoch;
    size_t length; /* T of this step */
    double tokens_per_s;
    double seconds; /* since the first step */
    unsigned found; /* bits 1 << tag of the tags that were newly found to grow from step to step */
    const ashlar_tag_growth *growth; /* [ASHLAR_TAG_COUNT], valid during the call */
    double start;       /* the loss that the training began with, or was resumed with */
    size_t above_since; /* 0, but in one report: when `loss` has been above the start for
                         * ASHLAR_TRAIN_ABOVE steps, the first of these steps */
} ashlar_train_progress;

/* The process's driver calls in one phase; choosing a context is not counted. */
typedef struct ashlar_phase_calls {
    uint64_t management; /* memory, streams, events, attributes: none should follow the warm-up */
    uint64_t work;       /* copies, fills, launches */
    uint64_t wait;       /* waits of the host for the device */
} ashlar_phase_calls;

/* The driver calls since *last, which becomes the present counts. */
ashlar_phase_calls ashlar__phase_calls(ashlar_device *device, ashlar_driver_counts *last);

/* The memory that a step takes and gives back, without the weights, which outlive it. Fields about
 * plans are 0 if there is no plan. Counts leave out the warm-up. */
typedef struct ashlar_step_memory {
    bool is_planned;
    bool is_steady;               /* no step takes memory after the warm-up (warmup.h) ... */
    const char *unsteady_because; /* ... or why that was not proven; NULL if is_steady */
    uint64_t plan_count;     /* plans, one for each range of lengths, which share their memory */
    uint64_t reserved_bytes; /* the plans' memory; without plans, all but that of lasting blocks */
    uint64_t bound_bytes;    /* the most that is live at once; with plans, in multiples of 512 B */
    uint64_t plan_bytes;
    double gap;      /* plan_bytes / bound_bytes - 1 */
    uint64_t hits;   /* requests served from the plan */
    uint64_t misses; /* planned requests that the plan could not serve */
    uint64_t steps_replayed;
} ashlar_step_memory;

enum { ASHLAR_STEP_BUCKETS = 16, ASHLAR_GRAPH_NOTE_BYTES = 200 };

/* How padded steps were queued (step_fixed.h). */
typedef struct ashlar_graph_report {
    uint64_t launched; /* steps that were one launch */
    uint64_t eager;    /* steps that were queued call by call */
    uint64_t captured; /* graphs made, ... */
    uint64_t evicted;  /* ... and destroyed for others */
    uint64_t refused;  /* times that a step was not launched, or not captured, though wanted */
    char note[ASHLAR_GRAPH_NOTE_BYTES]; /* why, the last time; "": never */
} ashlar_graph_report;

/* What one of several ranks reports. Only doubles, so that one sum over the ranks brings the
 * reports of all of them together. */
typedef struct ashlar_train_rank {
    double management_calls; /* of the driver, in training */
    double seconds;
    double sum_seconds;     /* in collectives, waits for other ranks included */
    double live_peak_bytes; /* of device memory */
} ashlar_train_rank;

typedef struct ashlar_train_report {
    ashlar_device_info device;
    size_t steps;            /* steps of this run; counts and times below are also of this run */
    bool is_stopped;         /* config->stop ended the run before its last step */
    size_t resumed;          /* steps done before this run, as the resumed file says */
    size_t parameters;       /* elements, without padding */
    size_t batch;            /* sequences per step */
    size_t max_length;       /* time steps of the longest sequence */
    size_t warmed_length;    /* time steps of the longest part; the warm-up ran this length ... */
    size_t warmed_count;     /* ... and others, so many in all, ... */
    size_t warmed_least;     /* down to this one */
    size_t lengths_distinct; /* how many different T the steps had */
    size_t sequences;        /* sequences per epoch */
    const char *unit;        /* what a token is called; NULL: "symbol" */
    uint64_t tokens;         /* that were trained on, without padding */
    double epochs;
    uint64_t steps_skipped; /* by loss scaling, because a gradient was not finite */
    double loss_first;      /* of this run's first step */
    double loss_last;       /* mean of the last ASHLAR_TRAIN_RECENT steps, weighted by tokens; may
                               include steps before this run */
    double seconds;
    double sums_before; /* ashlar_ranks_seconds() when the first step began */
    double tokens_per_s;
    ashlar_phase_calls setup, warmup, training;
    double calls_per_step; /* all of `training`, on average */
    ashlar_graph_report graphs;
    ashlar_step_memory step_memory;
    ashlar_train_buckets buckets; /* the trainer owns the list */
    uint64_t step_bytes; /* peak of the largest step, computed from its shape */
    ashlar_task_saving savings[ASHLAR_TASK_SAVINGS_MAX];
    size_t savings_count;
    ashlar_stats stats;                         /* at the end of training */
    ashlar_tag_growth growth[ASHLAR_TAG_COUNT]; /* since the warm-up */
    const ashlar_train_rank *ranks;             /* [rank_count], the caller's; 0: no other ranks */
    size_t rank_count;
    bool weights_contiguous;                    /* ashlar_arena_check() succeeded at the end */
    bool is_tf32;                               /* the layers' F32 were multiplied in TF32 */
} ashlar_train_report;

enum { ASHLAR_TRAIN_RECENT = 10, ASHLAR_TRAIN_ABOVE = 50 };

typedef struct ashlar_trainer ashlar_trainer;

/* Set everything up and open the task: model, weights, page-locked memory. Runs no step.
 *
 * config->steps counts from the beginning of the training, also if a file is resumed. After
 * resuming, each step's loss equals that of an uninterrupted run to the last bit, if the processor
 * is of the same kind; the number of threads may differ. With dropout on a CUDA device that holds
 * only if the uninterrupted run was saved at that step, too: cuDNN's random sequence begins anew
 * after each save.
 *
 * Ownership: *out is the caller's; the device must outlive it. The trainer takes the task and
 *            destroys it, also if this call fails.
 * Errors:    ASHLAR_EINVAL (config), and those of the functions it calls. */
ASHLAR_MUST_CHECK ashlar_status ashlar__trainer_create(ashlar_device *device, ashlar_task *task,
                                                       const ashlar_train_config *config,
                                                       ashlar_trainer **out);
void ashlar__trainer_destroy(ashlar_trainer *trainer); /* NULL is allowed */

/* Warm up with dry runs alone, in config->measured, as a run would; then destroy the trainer.
 * Errors: those of ashlar_allocator_warmup(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__trainer_measure(ashlar_trainer *trainer);

/* Warm up, seal, and train. Once per trainer. If *config->stop is not 0 on any rank, all ranks end
 * after the same step, as if it had been the last one; at least one step is run.
 *
 * show   called with `context` for every step, after the next step is queued; NULL: not wanted
 *
 * Errors: those of the functions it calls; ASHLAR_EFORMAT (the loss is no longer finite). */
typedef void (*ashlar_train_show_fn)(void *context, const ashlar_train_progress *progress);
ASHLAR_MUST_CHECK ashlar_status ashlar__trainer_run(ashlar_trainer *trainer,
                                                    ashlar_train_show_fn show, void *context,
                                                    ashlar_train_report *report);

/* Write the training's state after its last step to a file for config->resume_file. Requires that a
 * step has run. Errors: those of ashlar__train_checkpoint_save(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__trainer_save(ashlar_trainer *trainer, const char *path);

ashlar_task *ashlar__trainer_task(ashlar_trainer *trainer);
ashlar_allocator *ashlar__trainer_allocator(ashlar_trainer *trainer);

/* The key of the plan for steps of `length`, for ashlar_step_begin(). Valid after a run. */
uint64_t ashlar__trainer_key(const ashlar_trainer *trainer, size_t length);

#endif /* ASHLAR_TRAIN_H */
