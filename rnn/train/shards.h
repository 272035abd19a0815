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

#include "rnn/train/batches.h"

/* What it takes to add up gradients and losses. Zeros unless shards are used. */
typedef struct ashlar_shard_sums {
    const ashlar_collectives *collectives; /* NULL: one rank */
    ashlar_reducer *reducer;               /* likewise */
    void *partial[ASHLAR_SHARDS_LEVELS];   /* sums of subtrees, each like the gradient region */
    double *losses;                        /* [count + 1] in device memory: each shard's loss; then
                                            * [0]: their sum, [1]: the ranks' votes for an end */
    ashlar_ops *ops, *ops_of_losses;       /* of the gradients' type, and of F64 */
    bool is_cuda;
    uint64_t facts;                        /* a checksum of what must be equal on all ranks */
} ashlar_shard_sums;

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

#endif /* ASHLAR_SHARDS_H */
