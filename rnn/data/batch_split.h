/* batch_split.h - how a batch is split into windows, each contiguous in memory (internal).
 *
 * A batch of T time steps and B sequences is split three times:
 *
 *     N micro-batches   of B/N sequences, run one after the other in one step
 *     parts             of K time steps, with one update of the weights for each (truncated
 *                       back-propagation through time); parts = ceil(T / K)
 *     chunks            of C time steps, into which a part is split because only one chunk is in
 *                       memory at a time; chunks = ceil(K / C)
 *
 * A window is one micro-batch of one part. The image of a whole batch, in host memory as in device
 * memory, is
 *
 *     inputs    int32 [N][T, B/N]                     the rows of a window are adjacent
 *     targets   int32 [N][T, B/N]
 *     lengths   int32 [parts][N][chunks][B/N]         within each chunk: 0 .. the chunk's steps
 *
 * On the host a second copy of the lengths follows, with 1 in place of each 0, since the RNN
 * accepts no sequence of 0 steps. A sequence that has ended thus runs one step over padding in each
 * chunk, without a gradient.
 *
 * A micro-batch is B/N consecutive sequences, not every N-th: a batch is sorted by length, so these
 * have similar lengths, and the RNN skips the steps after the longest. */
#ifndef ASHLAR_BATCH_SPLIT_H
#define ASHLAR_BATCH_SPLIT_H

#include "rnn/data/batcher.h"

typedef struct ashlar_batch_split_config {
    size_t batch; /* B */
    size_t micro; /* N, which must divide B; 0 stands for 1 */
    size_t part;  /* K; 0 stands for T */
    size_t chunk; /* C; 0 stands for K */
} ashlar_batch_split_config;

/* The sizes of a batch's pieces. Offsets in an image and its size are counted in int32s. */
typedef struct ashlar_batch_split {
    size_t steps; /* T */
    size_t count; /* B/N */
    size_t micro; /* N */
    size_t part;  /* K, <= T */
    size_t chunk; /* C, <= K */
    size_t parts;
    size_t chunks; /* in a part of K steps */
    size_t image;  /* size of the image: inputs, targets and lengths */
    size_t extra;  /* size of the second copy of the lengths, which begins at offset `image` */
} ashlar_batch_split;

typedef struct ashlar_batch_window {
    size_t steps;
    size_t inputs, targets, lengths, rnn_lengths; /* offsets in the image */
} ashlar_batch_window;

/* Requires steps >= 1, config->batch >= 1, no overflow of their product. Sizes never fall as steps
 * grow. */
ashlar_batch_split ashlar__batch_split_make(const ashlar_batch_split_config *config, size_t steps);

/* Write a batch's image and the second copy of the lengths: split->image + split->extra int32s. */
void ashlar__batch_split_fill(const ashlar_batch_split *split, const ashlar_batch *batch,
                              int32_t *image);

/* Where a micro-batch (0 .. N-1) of a part (0 .. parts-1) lies in the image. */
ashlar_batch_window ashlar__batch_split_window(const ashlar_batch_split *split, size_t micro,
                                               size_t part);

/* The number of tokens in a part of `batch` sequences of these lengths. If the split has fewer
 * sequences, the result still counts the tokens of all. */
size_t ashlar__batch_split_tokens(const ashlar_batch_split *split, size_t part,
                                  const int32_t *lengths, size_t batch);

/* Copy shards first .. first + count - 1 of a batch of `batch` sequences, one shard after another:
 * their columns of inputs and targets, and their lengths. The batch has `all` equal shards. Shard s
 * has the sequences s, s + all, s + 2 all, ...: still longest first. */
void ashlar__batch_take_shards(const ashlar_batch *from, size_t batch, size_t all, size_t first,
                               size_t count, ashlar_batch *to);

#endif /* ASHLAR_BATCH_SPLIT_H */
