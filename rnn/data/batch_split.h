/*
 * batch_split.h - how a batch is split into windows, each contiguous in memory (internal).
 *
 * A batch of T time steps and B sequences is split three times:
 *
 *     N micro-batches   of B/N sequences, run one after the other in one step
 *     parts             of K time steps, each an update of the weights (truncated
 *                       back-propagation through time); parts = ceil(T / K)
 *     chunks            of a part, of C time steps: what is in memory at once; chunks = ceil(K / C)
 *
 * A window is a micro-batch of a part. Its image, in host and in device memory alike, is
 *
 *     inputs    int32 [N][T, B/N]                     rows of a window follow each other
 *     targets   int32 [N][T, B/N]
 *     lengths   int32 [parts][N][chunks][B/N]         of each chunk: 0 .. its steps
 *
 * and on the host, behind it, the lengths once more with 1 for each 0: an RNN takes no sequence of
 * 0 steps, so one that has ended takes one step over padding in each chunk, without a gradient.
 *
 * A micro-batch is a run of neighbours, not every N-th sequence: a batch is sorted by length, so
 * neighbours have similar lengths, and the RNN skips the steps after the longest of them.
 */
#ifndef ASHLAR_BATCH_SPLIT_H
#define ASHLAR_BATCH_SPLIT_H

#include "rnn/data/batcher.h"

typedef struct ashlar_batch_split_config {
    size_t batch; /* B */
    size_t micro; /* N, which divides B; 0: 1 */
    size_t part;  /* K; 0: T */
    size_t chunk; /* C; 0: K */
} ashlar_batch_split_config;

/* The sizes of one batch's pieces. Offsets and sizes of an image count int32s. */
typedef struct ashlar_batch_split {
    size_t steps; /* T */
    size_t count; /* B/N */
    size_t micro; /* N */
    size_t part;  /* K, <= T */
    size_t chunk; /* C, <= K */
    size_t parts;
    size_t chunks; /* of the longest part */
    size_t image;  /* inputs, targets and lengths */
    size_t extra;  /* the lengths once more, at offset `image` */
} ashlar_batch_split;

typedef struct ashlar_batch_window {
    size_t steps;
    size_t inputs, targets, lengths, rnn_lengths; /* offsets */
} ashlar_batch_window;

/* Requires steps, config->batch >= 1, and that T * B does not overflow. No size shrinks as steps
 * grow. */
ashlar_batch_split ashlar__batch_split_make(const ashlar_batch_split_config *config, size_t steps);

/* Write the image of a batch, [split->image + split->extra]. */
void ashlar__batch_split_fill(const ashlar_batch_split *split, const ashlar_batch *batch,
                              int32_t *image);

/* Where a micro-batch (0 .. N-1) of a part (0 .. parts-1) lies in the image. */
ashlar_batch_window ashlar__batch_split_window(const ashlar_batch_split *split, size_t micro,
                                               size_t part);

/* Tokens of a part, over all micro-batches. */
size_t ashlar__batch_split_tokens(const ashlar_batch_split *split, const int32_t *image,
                                  size_t part);

#endif /* ASHLAR_BATCH_SPLIT_H */
