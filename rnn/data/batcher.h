/* batcher.h - an endless, seeded series of batches of byte sequences (internal).
 *
 * Symbols are bytes. Byte 0, which is never in text, marks begin and end, so a record of n bytes
 * becomes the symbols 0, r1 .. rn, 0. Its sequence has n+1 time steps: the inputs are the first n+1
 * symbols, the targets the last n+1. A sequence longer than max_steps is cut into pieces of
 * max_steps (the last may be shorter); nothing is lost, since each piece's first input is the last
 * target of the piece before. With a stride below max_steps the pieces overlap, as a sliding
 * window: each begins `stride` steps after the previous one, and the last ends at the end of its
 * sequence.
 *
 *     epoch    a seeded permutation of all pieces; epochs follow each other without a break
 *     window   the next `window` * `batch` pieces of an epoch, sorted by length, cut into batches,
 *              and handed out in seeded random order
 *
 * So lengths are similar within a batch, but differ from batch to batch.
 *
 * Threads: one at a time per batcher. */
#ifndef ASHLAR_BATCHER_H
#define ASHLAR_BATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

#include "allocator/base/random.h"
#include "rnn/data/corpus.h"

enum {
    ASHLAR_BATCHER_MARK = 0,      /* the symbol before and after a record */
    ASHLAR_BATCHER_SYMBOLS = 256, /* size of the vocabulary */
    ASHLAR_BATCHER_WINDOW = 16,   /* the usual number of batches per window */
};

typedef struct ashlar_batcher ashlar_batcher;

typedef struct ashlar_batcher_config {
    size_t batch;     /* B, sequences per batch, 1.. */
    size_t max_steps; /* the most steps of a piece, 1.. */
    size_t window;    /* batches per window, 1..; 0: ASHLAR_BATCHER_WINDOW */
    uint64_t seed;
    size_t stride; /* steps from the start of a piece to the start of the next, 1 .. max_steps;
                      0 stands for max_steps, so that pieces do not overlap */
    size_t held_out;     /* n >= 2: leave out the last of every n records; 0: take all */
    bool is_of_held_out; /* take only the records that held_out leaves out, sorted; no _next() */
} ashlar_batcher_config;

/* Whether a record is held out: the last of every `held_out` records, so never the first. */
static inline bool ashlar__batcher_is_held_out(size_t held_out, size_t record) {
    return held_out > 0 && record % held_out == held_out - 1;
}

/* Time steps first .. first + steps - 1 of a record's sequence. */
typedef struct ashlar_text_piece {
    size_t record, first, steps;
    size_t order; /* among pieces of one length */
} ashlar_text_piece;

/* A batch: its pieces, longest first. */
typedef struct ashlar_batch {
    const ashlar_text_piece *pieces; /* [count], the batcher's, valid until it draws again */
    size_t count;                    /* B; from ashlar__batcher_get() perhaps less */
    size_t steps;                    /* T, of the longest piece; more if the batch is padded */
    size_t tokens;                   /* sum of the pieces' steps */
    double epoch;                    /* epochs handed out so far, this batch included */
} ashlar_batch;

/* Cut the corpus into pieces. Ownership: the caller owns *out until
 * ashlar__batcher_destroy(); the corpus must outlive it. Errors: ASHLAR_EINVAL (batch or max_steps
 * is 0, a stride above max_steps), ASHLAR_EOVERFLOW (more than 2^31-1 elements in a batch),
 * ASHLAR_EHOSTMEM. Cost: host memory O(pieces + window * batch), all of it taken here. */
ASHLAR_MUST_CHECK ashlar_status ashlar__batcher_create(const ashlar_corpus *corpus,
                                                       const ashlar_batcher_config *config,
                                                       ashlar_batcher **out);

void ashlar__batcher_destroy(ashlar_batcher *batcher); /* NULL is allowed */

/* Steps of the longest piece, the most that a batch can have; <= config.max_steps. */
size_t ashlar__batcher_max_steps(const ashlar_batcher *batcher);

/* Number of pieces: the length of an epoch. */
size_t ashlar__batcher_piece_count(const ashlar_batcher *batcher);

/* Draw the next batch; if there are fewer pieces than sequences, it has pieces more than once.
 * _skip: draw batches, and drop them. */
ashlar_batch ashlar__batcher_next(ashlar_batcher *batcher);
void ashlar__batcher_skip(ashlar_batcher *batcher, uint64_t batches);

/* A batch of B pieces of `steps` steps each, for a warm-up: past a record's end they are padding.
 * The draw is not changed. */
ashlar_batch ashlar__batcher_dummy(ashlar_batcher *batcher, size_t steps);

/* The state of the random generator. Batchers of the same pieces that have the same state draw the
 * same batches from here on. */
ashlar_random ashlar__batcher_random(const ashlar_batcher *batcher);

/* With is_of_held_out: the pieces from number `first` on, B or as many as are left; epoch is 0. */
ashlar_batch ashlar__batcher_get(const ashlar_batcher *batcher, size_t first);

/* ---- batch split ---- */

/* How a batch is split into windows, each contiguous in memory.
 *
 * A batch of T time steps and B sequences is split three times:
 *
 *     shards        S, for as many processes, of which one takes some: shard s has the sequences
 *                   s, s + S, s + 2S, ... of the batch, which is sorted by length
 *     micro-batches of a shard: as many consecutive sequences of it each, run one after the other
 *                   in one step; in all N, of C sequences
 *     parts         of K time steps, with one update of the weights for each (truncated
 *                   back-propagation through time); parts = ceil(T / K)
 *
 * A window is one micro-batch of one part. The image of what one process takes of a batch, in host
 * memory as in device memory, is
 *
 *     inputs    int32 [N][T, C]            the rows of a window are adjacent
 *     targets   int32 [N][T, C]
 *     lengths   int32 [parts][N][C]        within each part: 0 .. the part's steps
 *
 * On the host a second copy of the lengths follows, with 1 in place of each 0, since a model
 * accepts no sequence of 0 steps. A sequence that has ended thus runs one step over padding in each
 * part, without a gradient.
 *
 * The sequences of a micro-batch have similar lengths, and the RNN skips the steps after the
 * longest. */

typedef struct ashlar_batch_split_config {
    size_t batch;              /* B */
    size_t shards, first, own; /* S, and those that are taken: `own` from `first` on; 0, 0, 0: all
                                * as one */
    size_t pieces;             /* micro-batches of a shard; S * pieces must divide B; 0: 1 */
    size_t part;               /* K; 0 stands for T */
} ashlar_batch_split_config;

/* The sizes of a batch's pieces. Offsets in an image and its size are counted in int32s. */
typedef struct ashlar_batch_split {
    ashlar_batch_split_config config; /* without zeros for shards, own and pieces */
    size_t steps; /* T */
    size_t count; /* C */
    size_t micro; /* N */
    size_t part;  /* K, <= T */
    size_t parts;
    size_t image;  /* size of the image: inputs, targets and lengths */
    size_t extra;  /* size of the second copy of the lengths, which begins at offset `image` */
} ashlar_batch_split;

typedef struct ashlar_batch_window {
    size_t steps;
    size_t inputs, targets, lengths, host_lengths; /* offsets in the image; host_lengths has no 0 */
} ashlar_batch_window;

/* Requires steps >= 1, config->batch >= 1, no overflow of their product. Sizes never fall as steps
 * grow. */
ashlar_batch_split ashlar__batch_split_make(const ashlar_batch_split_config *config, size_t steps);

/* Write a batch's image and the second copy of the lengths: split->image + split->extra int32s.
 * Padding is 0, as is the length of a sequence that the batch lacks. Requires split->steps ==
 * batch->steps. */
void ashlar__batch_split_fill(const ashlar_batch_split *split, const ashlar_corpus *corpus,
                              const ashlar_batch *batch, int32_t *image);

/* Where a micro-batch (0 .. N-1) of a part (0 .. parts-1) lies in the image. */
ashlar_batch_window ashlar__batch_split_window(const ashlar_batch_split *split, size_t micro,
                                               size_t part);

/* The number of tokens in a part of a batch, of all shards. */
size_t ashlar__batch_split_tokens(const ashlar_batch_split *split, size_t part,
                                  const ashlar_batch *batch);

#endif /* ASHLAR_BATCHER_H */
