/* train_impl.h - the struct of a trainer, and what the files of this folder that work on it share:
 * train.c (creation, warm-up, report), train_loop.c (steps), train_checkpoint.c (files) and others
 * (internal). */
#ifndef ASHLAR_TRAIN_IMPL_H
#define ASHLAR_TRAIN_IMPL_H

#include "rnn/train/train.h"

#include <ashlar/plan.h>

#include "rnn/train/batches.h"
#include "rnn/train/shards.h"
#include "rnn/train/step_fixed.h"

/* ---- drawing and copying the next batch while a step runs ----
 *
 * Step s uses buffer s % 2. While step s runs, the batch of step s + 1 is drawn into the other
 * buffer and copied to the device on a separate stream:
 *
 *     host          draw s | queue s | wait for s - 1 | draw s + 1 | queue s + 1 | wait for s ...
 *     copies        upload s .                         upload s + 1 .
 *     steps                 ` s                                      ` s + 1
 *
 * The stream of the steps waits for each upload by an event. Before the host draws into a buffer,
 * it waits by another event for the last step that used this buffer; so the host is at most one
 * step ahead. */

/* Steps whose batches the host may ask about: one that is waited for, one queued, one drawn. */
enum { ASHLAR_PREFETCH_FLIGHTS = 3 };

typedef struct ashlar_prefetch {
    ashlar_device *device;
    ashlar_batches *source;
    ashlar_stream stream; /* the steps' stream; the caller owns it */
    ashlar_stream copies;
    ashlar_event
        uploaded[ASHLAR_BATCHES_BUFFERS];      /* [i]: the batch in buffer i is in device memory */
    ashlar_event done[ASHLAR_BATCHES_BUFFERS]; /* [i]: the step on buffer i has run */
    ashlar_drawn_batch batches[ASHLAR_PREFETCH_FLIGHTS];
    size_t *part_tokens;  /* [flights][source->max_parts] */
    uint64_t event_calls; /* calls so far that record an event or let a stream wait for one */
} ashlar_prefetch;

/* Set up for steps that are queued on `stream`; nothing may use the buffers of `source` yet. Call
 * ashlar__prefetch_finish() even if it fails. Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_init(ashlar_prefetch *prefetch,
                                                      ashlar_device *device, ashlar_batches *source,
                                                      ashlar_stream stream);

/* Wait for all queued work, whose failures are not reported, and give back what _init took. A
 * zeroed struct is allowed. */
void ashlar__prefetch_finish(ashlar_prefetch *prefetch);

static inline size_t ashlar__prefetch_buffer(size_t step) {
    return step % ASHLAR_BATCHES_BUFFERS;
}

/* _batch: the batch drawn for a step. _tokens: the tokens of each of its parts. Both are valid
 * until the batch of step + 3 is drawn. */
static inline const ashlar_drawn_batch *ashlar__prefetch_batch(const ashlar_prefetch *prefetch,
                                                               size_t step) {
    return &prefetch->batches[step % ASHLAR_PREFETCH_FLIGHTS];
}
static inline const size_t *ashlar__prefetch_tokens(const ashlar_prefetch *prefetch, size_t step) {
    return prefetch->part_tokens + step % ASHLAR_PREFETCH_FLIGHTS * prefetch->source->max_parts;
}

/* Draw the batch of a step into its buffer. The host must have waited for step - 2. */
void ashlar__prefetch_take(ashlar_prefetch *prefetch, size_t step);

/* Mark the end of a step that is queued. */
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_end_step(ashlar_prefetch *prefetch, size_t step);

/* The progress of a training. */
typedef struct ashlar_train_state {
    uint64_t step;                      /* steps done */
    double nats[ASHLAR_TRAIN_RECENT];   /* loss * tokens of step s, at s % ASHLAR_TRAIN_RECENT */
    double tokens[ASHLAR_TRAIN_RECENT]; /* of the same steps; 0 if there were fewer steps */
    ashlar_optimizer_state optimizer;
} ashlar_train_state;

/* What the device writes back after a step, in page-locked memory; there is one for each buffer. */
typedef struct ashlar_train_outcome {
    ashlar_optimizer_state optimizer;
    double votes;    /* above 0: a rank votes for an end; 0 without ranks */
    double losses[]; /* [parts] */
} ashlar_train_outcome;

struct ashlar_trainer {
    ashlar_train_config config;
    ashlar_device *device;
    ashlar_driver_counts at_start;
    ashlar_batches batches;
    ashlar_allocator *allocator;
    ashlar_stream stream;
    ashlar_model *model;
    ashlar_arena *arena; /* the model's */
    size_t shard;        /* which of this rank's shards (shards.h) a step computes, 0.. */
    bool drops_alone;    /* dropout sees this rank's sequences alone, with the rank's own seeds */
    const ashlar_step_values
        *values[ASHLAR_BATCHES_BUFFERS]; /* in device memory; NULL unless padded */
    uint64_t address_sum; /* of the addresses of blocks that walks and dry runs got */
    size_t longest_part;  /* of the steps so far */
    char data[ASHLAR_BATCHES_DATA_BYTES]; /* ashlar__batches_describe(); "": not asked for yet */
    ashlar_prefetch prefetch;
    uint64_t event_calls_before;  /* prefetch.event_calls at the end of the last phase */
    ashlar_warmup_options warmup; /* maps lengths to step keys */
    size_t warmed_count, warmed_least; /* real steps of the warm-up; the shortest one */
    ashlar_warmup_range *buckets;      /* [bucket_count] */
    size_t bucket_count;
    ashlar_optimizer *optimizer;
    double *votes;  /* device, as in the outcome; the losses follow it */
    double *losses; /* device, [max_parts] */
    void *outcomes; /* the ashlar_train_outcome of each buffer, outcome_bytes apart */
    size_t outcome_bytes;
    ashlar_shard_sums sums;      /* zeros unless a batch is divided */
    ashlar_step_fixed fixed;     /* zeros unless batches are padded */
    bool *seen_lengths;          /* [batches.max_length + 1] */
    ashlar_train_state state;    /* after the last step that was waited for */
    ashlar_leak_monitor *growth; /* watches the memory held between steps */
};

/* Differences between the seeds of steps and of parts. Odd, so that 2^64 steps have different
 * seeds; large, so that trainings with neighbouring seeds share none. */
#define ASHLAR_STEP_STRIDE UINT64_C(0x9e3779b97f4a7c15)
#define ASHLAR_PART_STRIDE UINT64_C(0xc2b2ae3d27d4eb4f)

static inline uint64_t ashlar__train_seed(const ashlar_trainer *t, size_t step) {
    return t->config.seed + step * ASHLAR_STEP_STRIDE;
}

/* Whether this process was asked to stop. */
static inline bool ashlar__train_must_stop(const ashlar_trainer *t) {
    return t->config.stop != NULL && *t->config.stop != 0;
}

static inline ashlar_train_outcome *ashlar__train_outcome_of(const ashlar_trainer *t,
                                                             size_t buffer) {
    return (ashlar_train_outcome *)(void *)((char *)t->outcomes + buffer * t->outcome_bytes);
}

/* Zero the gradients, and before the first part the votes and losses too: a step adds to all. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_clear_sums(ashlar_trainer *trainer, size_t part,
                                                         size_t parts);

/* Begin the allocator's step of a part. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_begin_part(ashlar_trainer *trainer, size_t buffer,
                                                         size_t part);

/* Queue all parts of a step, and the copy of its results to its buffer's outcome. Of a padded step
 * only the buffer counts: the calls are those of every step on this buffer. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_queue_parts(ashlar_trainer *trainer, size_t step,
                                                          size_t parts);

/* Queue forward and backward of a part of t->shard: add gradients, times the loss scale, to the
 * arena's gradient region, and its share of the mean loss to *loss in device memory. Parts are
 * queued in order; the weights change between them. With t->values, the calls and their arguments
 * depend only on the batch's padded shape and its buffer.
 *
 * seed   for random draws such as dropout; not 0 */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_walk(ashlar_trainer *trainer, size_t buffer,
                                                   size_t part, uint64_t seed, double *loss);

/* Take and give back the blocks of such walks on all of this rank's shards. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_take_blocks(ashlar_trainer *trainer, ashlar_walk walk,
                                                          size_t length);

/* Bytes of the block that a walk over a part of `length` takes. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_block_bytes(const ashlar_trainer *trainer,
                                                          size_t length, uint64_t *bytes);

/* Fill in the report's step_bytes and savings. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_get_savings(const ashlar_trainer *trainer,
                                                          ashlar_train_report *report);

/* For ashlar_allocator_warmup(): take and give back the blocks of a step. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_dry_run(void *trainer, size_t length);

/* Run the remaining steps for ashlar__trainer_run(), and fill in the report's fields about them. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_loop(ashlar_trainer *trainer,
                                                   ashlar_train_show_fn show, void *context,
                                                   ashlar_train_report *report);

/* A training's file (train_checkpoint.c) is a checkpoint of the model's arena with the optimizer's
 * state. Its metadata has two kinds of keys, all under "ashlar.":
 *
 *     must be the same   the options of model and batches, the data, the optimizer, the seed
 *     progress           step and optimizer_state (ashlar_training_save()), recent (losses), and
 *                        the position of the batch sampler
 *
 * Real numbers are written so that reading them restores every bit. */

/* A checksum of what must be the same, for ranks to compare. */
uint64_t ashlar__train_checkpoint_facts(ashlar_trainer *trainer);

/* Write everything. Waits for the stream. Errors: those of ashlar_training_save(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_checkpoint_save(const char *path,
                                                              ashlar_trainer *trainer);

/* Read everything back: the arena, the optimizer, the position of the batch sampler (which must be
 * new), trainer->state. Waits for the stream.
 *
 * Errors: ASHLAR_EINVAL (the file has at least as many steps as the configuration asks for),
 *         ASHLAR_EFORMAT (the file is of another configuration, data or version, or holds no
 *         training; the detail says which), and those of ashlar_checkpoint_open() and
 *         ashlar_training_load(). After an error the state is unchanged, but the others may not be.
 * Cost:   skips the batches that were drawn before the file was saved, some microseconds each. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_checkpoint_load(const char *path,
                                                              ashlar_trainer *trainer);

#endif /* ASHLAR_TRAIN_IMPL_H */
