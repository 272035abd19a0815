/* train_impl.h - the struct of a trainer, its batches, and what the files that work on it share:
 * train.c (creation, warm-up, report), train_loop.c (step after step), train_step.c (what a step
 * queues), batches.c, shards.c (sums over ranks), train_checkpoint.c (files) and others (internal).
 */
#ifndef ASHLAR_TRAIN_IMPL_H
#define ASHLAR_TRAIN_IMPL_H

#include "rnn/train/train.h"

#include <ashlar/plan.h>

#include "rnn/data/batcher.h"

/* ---- a step ----
 *
 * Batches alternate between two buffers, in page-locked and in device memory, and so do the steps'
 * outcomes. The next batch is drawn before a step is queued; the step itself copies that batch to
 * the device, on the stream of copies beside the step's own work. The host is at most one step
 * ahead:
 *
 *     host      draw s+1 | queue s | wait for s-1 | draw s+2 | queue s+1 | ...
 *     steps                ` s: forward, backward, update, outcome      ` s+1
 *     copies               ` batch s+1                                  ` batch s+2
 *
 * The calls of a step usually depend on its batch and its number: the batch's length gives the
 * sizes, its tokens the weight of each position's loss, the step's number the learning rate and the
 * seed. Where batches are padded to the longest length of their range, they depend on that and on
 * the buffer alone: the rest is read from device memory (ashlar_step_values), and the copy has the
 * size of the largest batch. So a step can be captured once (--graphs), and is then three driver
 * calls: the launch, an event behind it, and the host's wait for the event of the step before.
 *
 * Nothing is launched that has changed. All that the calls depend on is fixed for a trainer's life,
 * but for the addresses of a step's blocks. So each launch is part of a step of the allocator, in
 * which the step's dry run takes all blocks anew. If their addresses are not those of the capture,
 * the graph is dropped, the step is queued call by call, and the report says so; the next step of
 * that length is captured anew. Steps that cannot be captured at all stay eager. All padded lengths
 * are captured in the warm-up. */

/* ---- shards: how a batch is divided among ranks, whose gradients become one sum ----
 *
 *     shard s of S        sequences s, s + S, s + 2S, ... of the batch, which is sorted by length:
 *                         so shards take equally long
 *     rank r of W         shards r S/W .. (r + 1) S/W - 1, one after the other
 *
 * Every rank draws the whole batch, and knows the weight of a token in all of it; so a shard's
 * gradients are its share of the batch's, and shares are only added up. Dropout drops, for each
 * sequence, what it would drop in the whole batch.
 *
 * Usually S = W, and MPI or NCCL adds up the ranks' shares in its own order. With a fixed number of
 * shards (--reproducible) S is a power of two, and the shares are added up as a binary tree over
 * the shards: first those of a rank, then those of neighbouring ranks, which is the upper part of
 * the same tree. What a shard computes does not depend on W, nor does the tree: 1, 2, 4, ... S
 * ranks get the same bits.
 *
 * With c = S/W shards of its own a rank holds the sums of at most log2(c) subtrees. */

enum { ASHLAR_SHARDS_MOST = 8, ASHLAR_SHARDS_LEVELS = 3 };
_Static_assert(ASHLAR_SHARDS_MOST == 1 << ASHLAR_SHARDS_LEVELS, "a level for each bit");

/* The split of batches, and this rank's shards of them, that a configuration asks for; `part` is
 * left at 0. */
ashlar_batch_split_config ashlar__shards_of(const ashlar_train_config *config);

/* Whether steps must be queued by ashlar__shard_sums_queue(). */
static inline bool ashlar__shards_are_used(const ashlar_train_config *config) {
    return config->ranks != NULL || config->shards > 0;
}

/* ---- batches, on their way from the corpus to the model (batches.c) ----
 *
 *     next      drawn into page-locked memory, one of two buffers    on the host
 *     upload    copied to that buffer's device memory                on the stream of copies
 *     get       one micro-batch of one part, for a walk of the model
 *
 * Most batches have one part. Truncated back-propagation splits a batch into several, each with its
 * own update of the weights. A batch is drawn when that of the buffer before has been copied, and
 * copied when all work on that one has run. */

/* FLIGHTS: steps whose batches the host may ask about: one that is waited for, one queued, one
 * drawn. */
enum { ASHLAR_BATCHES_BUFFERS = 2, ASHLAR_TRAIN_FLIGHTS = 3 };

/* A batch that was drawn. */
typedef struct ashlar_drawn_batch {
    size_t length;          /* of its longest sequence, 1 .. max_length */
    size_t tokens;          /* of all parts */
    size_t parts;           /* 1 .. max_parts */
    size_t *part_tokens;    /* [max_parts] of each part, on all ranks */
    double epoch;           /* epochs handed out so far, this batch included */
    ashlar_random position; /* of the batcher's generator, after it */
} ashlar_drawn_batch;

/* What differs from step to step besides the batch, where batches are padded: read in device memory
 * by calls that are the same for every step. It lies behind the batch, and is copied with it. */
typedef struct ashlar_step_values {
    double rate;      /* the learning rate */
    uint64_t seed;    /* added to the seeds of parts */
    double weights[]; /* [max_parts] 1 / the part's tokens */
} ashlar_step_values;

typedef struct ashlar_batches_buffer {
    ashlar_batch_split split;
    int32_t *host;   /* page-locked: the image and the second copy of the lengths (batcher.h) */
    int32_t *device; /* the image, in device memory */
    size_t *tokens;  /* [max_parts] of each part, on all ranks */
    ashlar_step_values *values;          /* in `host`; NULL unless batches are padded */
    const ashlar_step_values *values_at; /* in `device` */
} ashlar_batches_buffer;

typedef struct ashlar_batches {
    const ashlar_corpus *corpus;
    ashlar_batcher *batcher;
    ashlar_batch_split_config split;
    size_t micro, count;    /* this rank's micro-batches, and the sequences of each */
    size_t chunk;           /* time steps of a chunk; 0: no chunks */
    size_t memory;          /* bytes that a walk may work in; 0: nothing is said */
    size_t max_length;      /* of a batch, in time steps */
    size_t max_part_length; /* of a part; lengths up to this are warmed up */
    size_t max_parts;
    size_t ranges;  /* of a part's lengths; 0: one */
    size_t *padded; /* [max_length + 1] the end of a length's range; NULL: batches are not padded */
    ashlar_drawn_batch drawn[ASHLAR_TRAIN_FLIGHTS]; /* of step s, at s % ASHLAR_TRAIN_FLIGHTS */
    ashlar_batches_buffer buffers[ASHLAR_BATCHES_BUFFERS]; /* at s % ASHLAR_BATCHES_BUFFERS */
    /* The rest: from ashlar__batches_take() on */
    size_t buffer_bytes;  /* of the largest batch, with all that lies behind it */
    size_t carried_bytes; /* of one set of states; 0: every batch has one part */
    void *host, *device;
    char *carried; /* device: two sets for each micro-batch */
} ashlar_batches;

/* _init: cut the corpus into pieces, and choose how batches are split and padded. _take: take the
 * buffers' memory, and that of the states between parts, of `carried_bytes` for a set of a
 * micro-batch. _finish gives all back, in any state; no work may be running, and the allocator is
 * NULL where none was made. Errors: those of ashlar__batcher_create(), ashlar__shards_check() and
 * the allocator. */
ASHLAR_MUST_CHECK ashlar_status ashlar__batches_init(ashlar_batches *batches,
                                                     const ashlar_corpus *corpus,
                                                     const ashlar_train_config *config);
ASHLAR_MUST_CHECK ashlar_status ashlar__batches_take(ashlar_batches *batches,
                                                     ashlar_allocator *allocator,
                                                     size_t carried_bytes, ashlar_stream stream);
void ashlar__batches_finish(ashlar_batches *batches, ashlar_allocator *allocator);

/* Cut the parts into chunks of the usual length. */
void ashlar__batches_cut(ashlar_batches *batches);

/* Draw the batch of a step into the step's buffer. */
const ashlar_drawn_batch *ashlar__batches_next(ashlar_batches *batches, size_t step);

/* Put a batch into a buffer: one of the held-out text; for the warm-up one of equal lengths. */
void ashlar__batches_fill(ashlar_batches *batches, size_t buffer,
                          const ashlar_batch_split_config *split, const ashlar_batch *batch);
void ashlar__batches_make_dummy(ashlar_batches *batches, size_t buffer, size_t length);

ASHLAR_MUST_CHECK ashlar_status ashlar__batches_upload(const ashlar_batches *batches,
                                                       ashlar_device *device, size_t buffer,
                                                       ashlar_stream stream);

/* Time steps of a part, 1 .. max_part_length. */
size_t ashlar__batches_length(const ashlar_batches *batches, size_t buffer, size_t part);

/* A micro-batch of a part, as a walk takes it: the tokens, the lengths, the states before and after
 * it, and the weight of each position if the part's loss is a mean over more than these. The caller
 * sets the rest. */
typedef struct ashlar_batch_part {
    ashlar_model_batch batch; /* its inputs are those below */
    const void *inputs[ASHLAR_TEXT_INPUT_COUNT];
} ashlar_batch_part;

void ashlar__batches_get(const ashlar_batches *batches, size_t buffer, size_t micro, size_t part,
                         ashlar_batch_part *out);

/* A batch of a part's shape, for ashlar_model_dry_run() and ashlar_model_get_need(). */
ashlar_model_batch ashlar__batches_shape(const ashlar_batches *batches, size_t length);

/* ---- the trainer ---- */

/* A captured step of a padded length, on one of the buffers. */
typedef struct ashlar_step_graph {
    ashlar_graph *graph; /* NULL: the step is not captured, or cannot be */
    bool is_tried;
    uint64_t address_sum; /* of the blocks that the plan gave */
} ashlar_step_graph;

/* What it takes to add up gradients and losses. Zeros unless shards are used. */
typedef struct ashlar_shard_sums {
    const ashlar_collectives *collectives; /* NULL: one rank */
    ashlar_reducer *reducer;               /* likewise */
    void *partial[ASHLAR_SHARDS_LEVELS];   /* sums of subtrees, each like the gradient region */
    double *losses;                        /* [count + 1] in device memory: each shard's loss; then
                                            * [0]: their sum, [1]: the ranks' votes for an end */
    ashlar_ops *ops, *ops_of_losses;       /* of the gradients' type, and of F64 */
    bool is_cuda;
    uint64_t facts; /* a checksum of what must be equal on all ranks */
} ashlar_shard_sums;

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
    ashlar_train_report report; /* of what has run so far */
    ashlar_driver_counts last;  /* at the end of the last phase */
    ashlar_batches batches;
    ashlar_allocator *allocator;
    ashlar_stream stream;
    ashlar_model *model;
    ashlar_arena *arena; /* the model's */
    size_t shard;        /* which of this rank's shards a step computes, 0.. */
    bool drops_alone;    /* dropout sees this rank's sequences alone, with the rank's own seeds */
    uint64_t address_sum; /* of the addresses of blocks that walks and dry runs got */
    size_t longest_part;  /* of the steps so far */
    size_t least_bytes;   /* in which it would train, with --memory */
    char data[128]; /* what tells the text from others (train_checkpoint.c); "": not asked for */
    ashlar_stream copies;
    ashlar_event forked, joined; /* the copy of the next batch may begin; it is over */
    ashlar_event done[ASHLAR_BATCHES_BUFFERS]; /* the step on the buffer has run */
    uint64_t event_calls;        /* so far, that record an event or let a stream wait for one */
    uint64_t event_calls_before; /* at the end of the last phase */
    ashlar_step_graph *graphs;   /* [(max_length + 1) * buffers]; NULL: steps are not captured */
    ashlar_warmup_options warmup; /* maps lengths to step keys */
    ashlar_optimizer *optimizer;
    double *votes;  /* device, as in the outcome; the losses follow it */
    double *losses; /* device, [max_parts] */
    void *outcomes; /* the ashlar_train_outcome of each buffer, outcome_bytes apart */
    size_t outcome_bytes;
    ashlar_shard_sums sums;      /* zeros unless a batch is divided */
    bool *seen_lengths;          /* [batches.max_length + 1] */
    ashlar_train_state state;    /* after the last step that was waited for */
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

static inline size_t ashlar__train_buffer(size_t step) {
    return step % ASHLAR_BATCHES_BUFFERS;
}

/* The batch of a step, until that of step + 3 is drawn. */
static inline const ashlar_drawn_batch *ashlar__train_drawn(const ashlar_trainer *t, size_t step) {
    return &t->batches.drawn[step % ASHLAR_TRAIN_FLIGHTS];
}

/* _open: set up for steps, with an open model. _close waits for queued work, whose failures are not
 * reported, and is allowed in every state. Errors: those of the functions it calls. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_open_steps(ashlar_trainer *trainer);
void ashlar__train_close_steps(ashlar_trainer *trainer);

/* After the warm-up: capture steps, and put the first batch of those on the device. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_begin_steps(ashlar_trainer *trainer, bool is_planned);

/* Draw a step's batch, where steps are captured the next one's, and queue the step. The host must
 * have waited for step - 2. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_queue(ashlar_trainer *trainer, size_t step);

/* Queue forward and backward of a part of t->shard: add gradients, times the loss scale, to the
 * arena's gradient region, and its share of the mean loss to *loss in device memory. Parts are
 * queued in order; the weights change between them. Where batches are padded, the calls and their
 * arguments depend only on the padded shape and the buffer.
 *
 * seed   for random draws such as dropout; not 0 */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_walk(ashlar_trainer *trainer, size_t buffer,
                                                   size_t part, uint64_t seed, double *loss);

/* Take and give back the blocks of such walks on all of this rank's shards. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_take_blocks(ashlar_trainer *trainer, ashlar_walk walk,
                                                          size_t length);

/* Bytes of the block that a walk takes over a part of `count` sequences of `length`. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_block_bytes(const ashlar_trainer *trainer,
                                                          size_t length, size_t count, size_t chunk,
                                                          uint64_t *bytes);

/* _open: set up for an open model with its weights; every rank then has rank 0's weights. _close is
 * allowed in every state. Errors: those of the functions it calls; ASHLAR_ENOTSUP (on a CUDA device
 * a fixed number of shards together with dropout, which cuDNN draws for a batch as a whole). */
ASHLAR_MUST_CHECK ashlar_status ashlar__shard_sums_open(ashlar_trainer *trainer);
void ashlar__shard_sums_close(ashlar_trainer *trainer);

/* Queue forward and backward of a part on all of this rank's shards, and the sums over all ranks.
 * Every rank then has the loss and the gradients of the whole batch. Gradients must be 0 before.
 *
 * number   of the update, the same on all ranks, 1..; 0: in the warm-up, without other ranks */
ASHLAR_MUST_CHECK ashlar_status ashlar__shard_sums_queue(ashlar_trainer *trainer, uint64_t number,
                                                         size_t buffer, size_t part, uint64_t seed,
                                                         double *loss);

/* For ashlar_allocator_warmup(): take and give back the blocks of a step. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_dry_run(void *trainer, size_t length);

/* Run the remaining steps, and fill in the report's fields about them. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_loop(ashlar_trainer *trainer,
                                                   ashlar_train_show_fn show, void *context);

/* A training's file (train_checkpoint.c) is a checkpoint of the model's arena with the optimizer's
 * state. Its metadata has two kinds of keys, all under "ashlar.":
 *
 *     must be the same   the options of model and batches, the data, the optimizer, the seed
 *     progress           step and optimizer_state (ashlar_training_save()), recent (losses), and
 *                        the position of the batcher
 *
 * Real numbers are written so that reading them restores every bit. */

/* A checksum of what must be the same, for ranks to compare. */
uint64_t ashlar__train_checkpoint_facts(ashlar_trainer *trainer);

/* Read everything back: the arena, the optimizer, the position of the batcher (which must
 * be new), trainer->state. Waits for the stream.
 *
 * Errors: ASHLAR_EINVAL (the file has at least as many steps as the configuration asks for),
 *         ASHLAR_EFORMAT (the file is of another configuration, data or version, or holds no
 *         training; the detail says which), and those of ashlar_checkpoint_open() and
 *         ashlar_training_load(). After an error the state is unchanged, but the others may not be.
 * Cost:   skips the batches that were drawn before the file was saved, some microseconds each. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_checkpoint_load(const char *path,
                                                              ashlar_trainer *trainer);

#endif /* ASHLAR_TRAIN_IMPL_H */
