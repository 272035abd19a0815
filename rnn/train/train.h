/* train.h - the training of the character model on a text, from a corpus to a trained model and a
 * report (internal). */
#ifndef ASHLAR_TRAIN_H
#define ASHLAR_TRAIN_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include <ashlar/allocator.h>
#include <ashlar/model.h>
#include <ashlar/optimizer.h>
#include <ashlar/plan.h>
#include <ashlar/reduce.h>
#include <ashlar/rnn.h>

#include "rnn/data/corpus.h"
#include "rnn/model/text_sampler.h"

/* ---- leak monitor (leak_monitor.c) ---- */

/*
 * The memory of a tag that is held from step to step. Read it at the same point of every step,
 * after the warm-up: what a training holds there stays the same, but for leaks.
 *
 * Steps are looked at in windows of ASHLAR_GROWTH_WINDOW. A window *rises* if the least that it
 * held is above the least of every window before, by at least half of what it varied itself. A tag
 * *grows* once ASHLAR_GROWTH_RISES windows have risen without one in between that was as low as
 * before the first: so a block leaked in every n-th step is found when five or six are. Growth ends
 * when the tag is back at the level where it began, or has not risen for 16 steps longer than it
 * rose.
 */
enum { ASHLAR_GROWTH_WINDOW = 4, ASHLAR_GROWTH_RISES = 5 };

typedef struct ashlar_tag_growth {
    uint64_t first_bytes;  /* held at the first reading */
    uint64_t held_bytes;   /* held at the last reading */
    bool is_growing;       /* false: the fields below are 0 */
    uint64_t since_step;   /* the first step above the level that the growth began from */
    uint64_t growth_bytes; /* held_bytes - that level */
    struct {
        unsigned filled, windows, rises;  /* steps of this window; whole windows, at most 1 */
        uint64_t least, least_step, most; /* of this window */
        uint64_t crest;                   /* the largest `least` of a window */
        uint64_t level, level_step;       /* before the first rise */
        uint64_t rise_step;               /* the end of the last window that rose */
    } watch;
} ashlar_tag_growth;

/* Add the reading of a step, whose number is larger than that of the last one, to zeroed structures
 * or to those of that reading. Returns the bit 1 << tag for each tag that is newly found to grow.
 * Calls neither allocator nor driver. */
unsigned ashlar__growth_add(ashlar_tag_growth tags[ASHLAR_TAG_COUNT], uint64_t step,
                            const ashlar_stats *stats);

/* A training's configuration. The first group is of the model and its batches. */
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
    bool recomputes_auto; /* chunks of about 2 * sqrt(steps of a part) */
    bool has_memory;      /* the training takes at most `memory` bytes of the device, 0: all that it
                           * has. If it needs more, it is cut into chunks, too, and what has no room
                           * goes to the host or is computed again */
    size_t memory;

    ashlar_ranks *ranks; /* processes that train together; NULL: this one alone */
    size_t shards;       /* S of train_impl.h, added up as a tree; 0: one for each rank */

    size_t steps;
    ashlar_optimizer_config optimizer;
    bool without_bias_decay;  /* weight decay applies to matrices only */
    ashlar_schedule schedule; /* of the learning rate */
    uint64_t seed;
    size_t buckets;          /* ranges of lengths, with plans of their own; 0: one */
    bool without_plan;       /* steps allocate from the heap instead of from plans */
    bool pads;               /* pad batches to the longest length of their range: see train_impl.h;
                              * `buckets` 0 then means ASHLAR_STEP_BUCKETS */
    bool graphs;             /* capture steps; batches are padded even without `pads` */
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
    return config->pads || config->graphs;
}

/* What a step held, and how long it took. */
typedef struct ashlar_train_held {
    uint64_t live_bytes; /* at its peak, with what lasts, such as the weights */
    uint64_t reserved_bytes;
    double seconds;        /* on the host, from the step before until this one was queued */
} ashlar_train_held;

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
    ashlar_train_held held;
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
    bool is_steady;               /* no step takes memory after the warm-up (plan.h) ... */
    const char *unsteady_because; /* ... or why that was not proven; NULL if is_steady */
    uint64_t plan_count;     /* plans, one for each range of lengths, which share their memory */
    uint64_t reserved_bytes; /* the plans' memory; without plans, what is reserved beside weights
                              * and other blocks that outlive a step */
    uint64_t bound_bytes;    /* the most that is live at once; with plans, in multiples of 512 B */
    uint64_t plan_bytes;
    double gap;      /* plan_bytes / bound_bytes - 1 */
    uint64_t hits;   /* requests served from the plan */
    uint64_t misses; /* planned requests that the plan could not serve */
    uint64_t steps_replayed;
} ashlar_step_memory;

enum { ASHLAR_STEP_BUCKETS = 16, ASHLAR_GRAPH_NOTE_BYTES = 200 };

/* How padded steps were queued (train_impl.h). */
typedef struct ashlar_graph_report {
    uint64_t launched; /* steps that were one launch */
    uint64_t eager;    /* steps that were queued call by call */
    uint64_t captured; /* graphs made */
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

/* What an option saves, given as the memory that a step would need without the option. */
typedef struct ashlar_train_saving {
    const char *option; /* its name on the command line, without dashes */
    size_t value;       /* the option's value */
    uint64_t bytes;     /* what a step takes without it */
} ashlar_train_saving;

enum { ASHLAR_TRAIN_SAVINGS_MAX = 3 };

/* How well a model knows text that it was not trained on; all 0 if there is none. */
typedef struct ashlar_evaluation {
    size_t records;
    uint64_t bytes;            /* of the records */
    uint64_t symbols;          /* predicted ones: the bytes, and the end of each record */
    double loss;               /* mean, nats per symbol */
    double bits_per_byte;      /* bits of all symbols, for each of `bytes` */
    uint64_t management_calls; /* driver calls other than copies, launches and waits */
} ashlar_evaluation;

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
    uint64_t tokens;         /* that were trained on, without padding */
    double epochs;
    uint64_t steps_skipped; /* by loss scaling, because a gradient was not finite */
    double loss_first;      /* of this run's first step */
    double loss_last;       /* mean of the last ASHLAR_TRAIN_RECENT steps, weighted by tokens; may
                               include steps before this run */
    double seconds;
    double sums_before; /* ashlar_ranks_get_info().seconds when the first step began */
    double tokens_per_s;
    ashlar_phase_calls setup, warmup, training;
    double calls_per_step; /* all of `training`, on average */
    ashlar_graph_report graphs;
    ashlar_step_memory step_memory;
    size_t bptt, recompute; /* the options as they were used; 0: not */
    ashlar_model_tiers tiers; /* of the longest part; least_bytes: of the whole training */
    size_t state_bytes;       /* moments and masters on the host */
    ashlar_train_saving savings[ASHLAR_TRAIN_SAVINGS_MAX];
    size_t savings_count;
    ashlar_stats stats;                         /* at the end of training */
    ashlar_tag_growth growth[ASHLAR_TAG_COUNT]; /* since the warm-up */
    const ashlar_train_rank *ranks;             /* [rank_count], the caller's; 0: no other ranks */
    size_t rank_count;
    bool weights_contiguous;                    /* ashlar_arena_check() succeeded at the end */
    bool is_tf32;                               /* the layers' F32 were multiplied in TF32 */
} ashlar_train_report;

enum { ASHLAR_TRAIN_RECENT = 10 };

/* A number of shards that does not depend on the ranks (train_impl.h): the largest power of two, at
 * most 8, that divides batches of `batch` sequences into equal shards, each of `accumulate` equal
 * micro-batches. _check: whether batches can be divided as the configuration asks. Errors:
 * ASHLAR_EINVAL; the detail says which option to change. */
size_t ashlar__shards_choose(size_t batch, size_t accumulate);
ASHLAR_MUST_CHECK ashlar_status ashlar__shards_check(const ashlar_train_config *config);

typedef struct ashlar_trainer ashlar_trainer;

/* Set everything up: batches, model, weights, page-locked memory. Runs no step.
 *
 * config->steps counts from the beginning of the training, also if a file is resumed. After
 * resuming, each step's loss equals that of an uninterrupted run to the last bit, if the processor
 * is of the same kind; the number of threads may differ. With dropout on a CUDA device that holds
 * only if the uninterrupted run was saved at that step, too: cuDNN's random sequence begins anew
 * after each save.
 *
 * Ownership: *out is the caller's; the device and the corpus must outlive it.
 * Errors:    ASHLAR_EINVAL (config), and those of the functions it calls. */
ASHLAR_MUST_CHECK ashlar_status ashlar__trainer_create(ashlar_device *device,
                                                       const ashlar_corpus *corpus,
                                                       const ashlar_train_config *config,
                                                       ashlar_trainer **out);
void ashlar__trainer_destroy(ashlar_trainer *trainer); /* NULL is allowed */

/* Warm up with dry runs alone, in config->measured, as a run would; then destroy the trainer.
 * Errors: those of ashlar_allocator_warmup(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__trainer_measure(ashlar_trainer *trainer);

/* What becomes of what the longest step keeps, in a given memory; least_bytes is that of the whole
 * training, 0 without, and the time is that of an update, too. *state_bytes: of moments and masters
 * that are on the host. Errors: those of ashlar_model_get_tiers(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__trainer_tiers(const ashlar_trainer *trainer,
                                                      ashlar_model_tiers *out, size_t *state_bytes);

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

/* "sgd" and so on, as files and reports name it. Requires a valid kind. */
const char *ashlar__train_optimizer_name(ashlar_optimizer_kind kind);

/* Write the training's state after its last step to a file for config->resume_file. Requires that a
 * step has run. Waits for the stream. Errors: those of ashlar_training_save(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__trainer_save(ashlar_trainer *trainer, const char *path);

/* Compute the loss on the records that config->held_out leaves out, without dropout, on the
 * trainer's plans. Call it after the run. Stream: waits for it. Errors: those of
 * ashlar_model_run(); ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__trainer_evaluate(ashlar_trainer *trainer,
                                                         ashlar_evaluation *out);

/* The model; the trainer owns it. A sampler may use it after the run. */
ashlar_sampled_model ashlar__trainer_model(const ashlar_trainer *trainer);

/* A batch of the shape of the longest part so far, for ashlar_model_list_buffers(). */
ashlar_model_batch ashlar__trainer_longest(const ashlar_trainer *trainer);

/* The key of the plan for steps of `length`, for ashlar_step_begin(). Valid after a run. */
uint64_t ashlar__trainer_key(const ashlar_trainer *trainer, size_t length);

/* ---- train verify ---- */

/* What was compared, if all of it agrees. */
typedef struct ashlar_verification {
    size_t tensors;
    double loss;  /* of the first part, on the CPU, nats per symbol */
    double worst; /* the largest difference found, as a fraction of the allowed one: below 1 */
} ashlar_verification;

/* Compute the first part of a training's first batch, on a device and on the CPU, from the same
 * weights, and compare the loss and every tensor's gradient. One of these differs if one of its
 * elements is not finite, or is off by 1e-3 (F64: 1e-9) or more of its largest absolute value on
 * the CPU, which counts as 1e-3 at least. Dropout, which differs between devices, is left out, as
 * are other ranks.
 *
 * Errors: ASHLAR_EDRIVER: they differ; the detail names the loss, or the first tensor in the
 * arena's order, with the element that is furthest off. ASHLAR_EINVAL (a software device),
 *         ASHLAR_ENOTSUP (a type that the CPU cannot compute in), and those of the functions that
 * it calls. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_verify(ashlar_device *device,
                                                     const ashlar_corpus *corpus,
                                                     const ashlar_train_config *config,
                                                     ashlar_verification *out);

#endif /* ASHLAR_TRAIN_H */
