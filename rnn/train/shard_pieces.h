/* shard_pieces.h - sends gradients to the other ranks as soon as backward is done with them, while
 * backward goes on with others (internal).
 *
 * A piece is a run of tensors that are reported together and lie side by side. The pieces of a step
 * and their order follow from the model alone, so all ranks send the same pieces. Every rank gets
 * the sums of a whole piece or, where the optimizer is divided (state_shards.h), only the sums of
 * what lies in the rank's own part. */
#ifndef ASHLAR_SHARD_PIECES_H
#define ASHLAR_SHARD_PIECES_H

#include "rnn/train/train.h"

typedef struct ashlar_shard_tensor {
    bool joins;     /* the next tensor follows in memory, with only padding between them */
    bool is_sent;   /* in this step */
    size_t reports; /* how often it was reported in this step */
} ashlar_shard_tensor;

typedef struct ashlar_shard_pieces {
    ashlar_shard_tensor *tensors; /* [tensors of the arena]; NULL: one rank */
    size_t levels;                /* how many partial sums to add to each piece before sending it */
    size_t *ends;                 /* [ranks] where each rank's part of a divided optimizer ends, in
                                   * the storage layout; NULL: the optimizer is whole */
} ashlar_shard_pieces;

ASHLAR_MUST_CHECK ashlar_status ashlar__shard_pieces_open(ashlar_trainer *trainer);
void ashlar__shard_pieces_close(ashlar_trainer *trainer); /* allowed in every state */

/* _begin: from here on the gradients of the rank's last shard are sent when they are reported, with
 * the first `levels` partial sums added. On a CUDA device it comes only after that shard.
 * _end: send what was not reported, and queue a wait for everything that was sent. */
void ashlar__shard_pieces_begin(ashlar_trainer *trainer, size_t levels);
ASHLAR_MUST_CHECK ashlar_status ashlar__shard_pieces_end(ashlar_trainer *trainer);

#endif /* ASHLAR_SHARD_PIECES_H */
