/* batches.h - the batches of a training, on their way from the corpus to the model (internal).
 *
 *     next      drawn into page-locked memory, one of two buffers    on the host
 *     upload    copied to that buffer's device memory                on any stream, even if the
 *                                                                    steps run on another
 *     get       one micro-batch of one part, for a walk of the model
 *
 * Most batches have one part. Truncated back-propagation splits a batch into several, each with its
 * own update of the weights.
 *
 * The steps order the uses of a buffer (train_impl.h): a batch is drawn when that of the buffer
 * before has been copied, and copied when all work on that one has run. */
#ifndef ASHLAR_BATCHES_H
#define ASHLAR_BATCHES_H

#include "rnn/data/batcher.h"
#include "rnn/model/text_model.h"
#include "rnn/train/train.h"

/* ---- shards: how a batch is divided among ranks (train_impl.h) ---- */

enum { ASHLAR_SHARDS_MOST = 8, ASHLAR_SHARDS_LEVELS = 3 };
_Static_assert(ASHLAR_SHARDS_MOST == 1 << ASHLAR_SHARDS_LEVELS, "a level for each bit");

/* The split of batches, and this rank's shards of them, that a configuration asks for; `part` is
 * left at 0. */
ashlar_batch_split_config ashlar__shards_of(const ashlar_train_config *config);

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

/* ---- batches ---- */

enum { ASHLAR_BATCHES_BUFFERS = 2 };

/* A batch that was drawn. */
typedef struct ashlar_drawn_batch {
    size_t length;          /* of its longest sequence, 1 .. max_length */
    size_t tokens;          /* of all parts */
    size_t parts;           /* 1 .. max_parts */
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
    size_t micro, count;             /* this rank's micro-batches, and the sequences of each */
    size_t chunk;                    /* time steps of a chunk; 0: no chunks */
    size_t max_length;               /* of a batch, in time steps */
    size_t max_part_length;          /* of a part; lengths up to this are warmed up */
    size_t max_parts;
    size_t *padded; /* [max_length + 1] what batches of a length are padded to; NULL: to nothing */
    int32_t *words;
    ashlar_batch drawn; /* the last batch, of all ranks; its pointers lead into `words` */
    ashlar_batches_buffer buffers[ASHLAR_BATCHES_BUFFERS];
    /* The rest: from ashlar__batches_take() on */
    size_t buffer_bytes;  /* of the largest batch, with all that lies behind it */
    size_t carried_bytes; /* of one set of states; 0: every batch has one part */
    void *host, *device;
    char *carried; /* device: two sets for each micro-batch */
} ashlar_batches;

/* Cut the corpus into pieces, and choose how batches are split. Call _finish even after a failure.
 * The corpus must outlive it. Errors: those of ashlar__batcher_create() and of
 * ashlar__shards_check(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__batches_init(ashlar_batches *batches,
                                                     const ashlar_corpus *corpus,
                                                     const ashlar_train_config *config);
void ashlar__batches_finish(ashlar_batches *batches); /* a zeroed struct is allowed */

/* Pad batches to the longest length of their range, of so many ranges of a part's lengths. Call it
 * before ashlar__batches_take(). Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__batches_pad(ashlar_batches *batches, size_t ranges);

/* Take the buffers' memory, and that of the states between parts. _give is allowed in every state;
 * no work may be running.
 *
 * carried_bytes   of a set of states of a micro-batch */
ASHLAR_MUST_CHECK ashlar_status ashlar__batches_take(ashlar_batches *batches,
                                                     ashlar_allocator *allocator,
                                                     size_t carried_bytes, ashlar_stream stream);
void ashlar__batches_give(ashlar_batches *batches, ashlar_allocator *allocator);

/* Draw the next batch into a buffer. */
ashlar_drawn_batch ashlar__batches_next(ashlar_batches *batches, size_t buffer);

/* Make a batch for the warm-up: all its sequences have `length` time steps. */
void ashlar__batches_make_dummy(ashlar_batches *batches, size_t buffer, size_t length);

/* Put batches->drawn into a buffer. */
void ashlar__batches_fill(ashlar_batches *batches, size_t buffer,
                          const ashlar_batch_split_config *split);

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

/* Print sizes and a checksum of the text: a training is resumed only on the same text. */
enum { ASHLAR_BATCHES_DATA_BYTES = 128 };
void ashlar__batches_describe(const ashlar_batches *batches,
                              char text[static ASHLAR_BATCHES_DATA_BYTES]);

#endif /* ASHLAR_BATCHES_H */
