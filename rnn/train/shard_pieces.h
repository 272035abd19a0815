/* shard_pieces.h - sends gradients to the other ranks as soon as backward is done with them, while
 * it goes on (internal).
 *
 * A piece is a run of tensors that are reported together and lie side by side. The pieces of a step
 * and their order follow from the model alone, so all ranks send the same. Every rank gets the sums
 * of a piece, or, where the optimizer is divided, of what the piece has of its part. */
#ifndef ASHLAR_SHARD_PIECES_H
#define ASHLAR_SHARD_PIECES_H

#include "rnn/train/train.h"

typedef struct ashlar_shard_tensor {
    bool joins;     /* the next one lies behind it with nothing but padding between */
    bool is_sent;   /* in this step */
    size_t reports; /* in this step */
} ashlar_shard_tensor;

typedef struct ashlar_shard_pieces {
    ashlar_shard_tensor *tensors; /* [of the arena]; NULL: one rank */
    size_t levels;                /* sums of the rank's other shards to add to each piece */
    size_t *ends;                 /* [of ranks] where parts of a divided optimizer end, in the
                                   * storage layout; NULL: it is whole */
} ashlar_shard_pieces;

ASHLAR_MUST_CHECK ashlar_status ashlar__shard_pieces_open(ashlar_trainer *trainer);
void ashlar__shard_pieces_close(ashlar_trainer *trainer); /* allowed in every state */

/* Between these two the rank's last shard runs. The second sends what was not reported, and queues
 * a wait for all. The first `levels` partial sums are added to what is sent. */
void ashlar__shard_pieces_begin(ashlar_trainer *trainer, size_t levels);
ASHLAR_MUST_CHECK ashlar_status ashlar__shard_pieces_end(ashlar_trainer *trainer);

#endif /* ASHLAR_SHARD_PIECES_H */
