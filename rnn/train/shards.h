/* shards.h - how a batch is divided among ranks, and how their gradients become one sum (internal).
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
 * With c = S/W shards of its own a rank holds the sums of at most log2(c) subtrees. Shard i,
 * counted from 0, completes as many subtrees as i has ones at its end. */
#ifndef ASHLAR_SHARDS_H
#define ASHLAR_SHARDS_H

#include <ashlar/model.h>

#include "rnn/train/train.h"

enum { ASHLAR_SHARDS_MOST = 8, ASHLAR_SHARDS_LEVELS = 3 };
_Static_assert(ASHLAR_SHARDS_MOST == 1 << ASHLAR_SHARDS_LEVELS, "a level for each bit");

typedef struct ashlar_shards {
    size_t all;   /* S */
    size_t first; /* the first of this rank's */
    size_t count; /* of this rank's: S/W */
} ashlar_shards;

/* The division that a configuration asks for. */
ashlar_shards ashlar__shards_of(const ashlar_train_config *config);

/* Whether steps must be queued by ashlar__shard_sums_queue(). */
static inline bool ashlar__shards_are_used(const ashlar_train_config *config) {
    return config->ranks != NULL || config->shards > 0;
}

/* A number of shards that does not depend on the ranks: the largest power of two, at most
 * ASHLAR_SHARDS_MOST, that divides batches of `batch` sequences into equal shards, each of
 * `accumulate` equal micro-batches. */
size_t ashlar__shards_choose(size_t batch, size_t accumulate);

/* Check that batches can be divided as the configuration asks. Errors: ASHLAR_EINVAL; the detail
 * says which option to change. */
ASHLAR_MUST_CHECK ashlar_status ashlar__shards_check(const ashlar_train_config *config);

/* What it needs to add up on a CUDA device; zeros where there is nothing to add. */
typedef struct ashlar_shard_adds {
    ashlar_ops *ops[ASHLAR_DTYPE_COUNT]; /* NULL: nothing to add has that type */
    void *ones;                          /* in device memory: 1 in each type, 8 bytes apart */
} ashlar_shard_adds;

/* What it takes to add up gradients and losses. Zeros unless shards are used. */
typedef struct ashlar_shard_sums {
    const ashlar_collectives *collectives; /* NULL: one rank */
    ashlar_reducer *reducer;               /* likewise */
    void *partial[ASHLAR_SHARDS_LEVELS];   /* sums of subtrees, each like the gradient region */
    double *losses;                        /* [count + 1] in device memory: each shard's loss; then
                                            * [0]: their sum, [1]: the ranks' votes for an end */
    ashlar_shard_adds adds;
    bool is_cuda;
    uint64_t facts;                        /* a checksum of what must be equal on all ranks */
} ashlar_shard_sums;

/* _open: set up for an open task with its weights; every rank then has rank 0's weights. _close is
 * allowed in every state. Errors: those of the functions it calls; ASHLAR_ENOTSUP (on a CUDA device
 * a fixed number of shards together with dropout, which cuDNN draws for a batch as a whole). */
ASHLAR_MUST_CHECK ashlar_status ashlar__shard_sums_open(ashlar_trainer *trainer);
void ashlar__shard_sums_close(ashlar_trainer *trainer);

/* Queue forward and backward of a part on all of this rank's shards, and the sums over all ranks.
 * Every rank then has the loss and the gradients of the whole batch. Gradients must be 0 before.
 *
 * number   of the update, the same on all ranks */
ASHLAR_MUST_CHECK ashlar_status ashlar__shard_sums_queue(ashlar_trainer *trainer, uint64_t number,
                                                         size_t buffer, size_t part, uint64_t seed,
                                                         double *loss);

/* For the warm-up: the same without other ranks. */
ASHLAR_MUST_CHECK ashlar_status ashlar__shard_sums_queue_alone(ashlar_trainer *trainer,
                                                               size_t buffer, size_t part,
                                                               uint64_t seed, double *loss);

#endif /* ASHLAR_SHARDS_H */
