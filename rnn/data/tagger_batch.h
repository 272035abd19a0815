/* tagger_batch.h - padded batches of tagged sentences (internal).
 *
 * B sentences of up to T words of up to C characters; time comes first, as in rnn.h. A whole
 * batch is one block of int32s, so that one copy brings it to the device:
 *
 *     words       [T, B]      padding is 0
 *     targets     [T, B]      padding is 0
 *     lengths     [B]         words of each sentence, 1..T, longest first
 *     present     [T, B]      1 if a sentence has a word here, else 0: row t is the `lengths` of
 *                             operations on step t alone
 *     char_counts [T*B]       characters of each word, 1..C; padding has 1 character, number 0
 *     characters  [C, T*B]    padding is 0
 *
 * Threads: any, on distinct batches. */
#ifndef ASHLAR_TAGGER_BATCH_H
#define ASHLAR_TAGGER_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

#include "rnn/data/batch_sampler.h"
#include "rnn/data/tagger_corpus.h"

typedef struct ashlar_tagger_shape {
    size_t steps; /* T */
    size_t batch; /* B */
    size_t width; /* C */
} ashlar_tagger_shape;

/* The parts of a batch, on the host or on a device. */
typedef struct ashlar_tagger_arrays {
    int32_t *words, *targets, *lengths, *present, *char_counts, *characters;
} ashlar_tagger_arrays;

typedef struct ashlar_tagger_batch {
    int32_t *data;   /* the caller's; room for ashlar__tagger_batch_bytes() of the largest shape */
    int32_t *device; /* device memory of the same size, to which the caller copies the block */
    ashlar_tagger_shape shape;
    size_t tokens; /* sum of the lengths */
} ashlar_tagger_batch;

/* Bytes of a batch's block. Errors: ASHLAR_EINVAL (a size is 0), ASHLAR_EOVERFLOW (2^31 or more
 * int32s). */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_batch_bytes(const ashlar_tagger_shape *shape,
                                                           size_t *bytes);

/* Where the parts of a block at `data` lie. Requires a shape that
 * ashlar__tagger_batch_bytes() accepts. */
ashlar_tagger_arrays ashlar__tagger_batch_arrays(const ashlar_tagger_shape *shape, int32_t *data);

/* Fill batch->data with sentences of the corpus, and set its shape and tokens.
 *
 * items   [count], sentences' numbers and lengths, longest first; count is 1 or more */
void ashlar__tagger_batch_fill(ashlar_tagger_batch *batch, const ashlar_tagger_corpus *corpus,
                               const ashlar_batch_sampler_item *items, size_t count);

/* Like ashlar__tagger_batch_fill(), but padded to at least `steps` words and `width` characters. */
void ashlar__tagger_batch_fill_padded(ashlar_tagger_batch *batch,
                                      const ashlar_tagger_corpus *corpus,
                                      const ashlar_batch_sampler_item *items, size_t count,
                                      size_t steps, size_t width);

/* Make the batch the largest of this shape: every sentence has T words, every word C characters. */
void ashlar__tagger_batch_fill_largest(ashlar_tagger_batch *batch,
                                       const ashlar_tagger_shape *shape);

#endif /* ASHLAR_TAGGER_BATCH_H */
