/* tagger_work.h - the work that a step of the tagger queues in each phase, on buffers it already
 * has (internal). */
#ifndef ASHLAR_TAGGER_WORK_H
#define ASHLAR_TAGGER_WORK_H

#include "rnn/model/tagger.h"

#include "allocator/base/error.h"

typedef enum ashlar_tagger_kind {
    ASHLAR_TAGGER_TRAIN,
    ASHLAR_TAGGER_PREDICT, /* take all buffers, queue forward only */
    ASHLAR_TAGGER_DRY_RUN, /* take all buffers, queue nothing */
} ashlar_tagger_kind;

typedef struct ashlar_tagger_work {
    const ashlar_tagger *tagger;
    const ashlar_tagger_batch *batch;
    ashlar_tagger_kind kind;
    double weight;                             /* of each word's loss */
    double *loss;                              /* device memory */
    int32_t *labels;                           /* host memory; only for ASHLAR_TAGGER_PREDICT */
    ashlar_tagger_arrays arrays;               /* the batch in device memory */
    size_t token;                              /* that phase TOKEN works on, 0 .. T-1 */
    size_t active;                             /* sentences that have it; if is_fixed(): all */
    void *buffers[ASHLAR_TAGGER_BUFFER_COUNT]; /* NULL while not held */
} ashlar_tagger_work;

/* One of the step's buffers. */
#define ASHLAR_TAGGER_BUFFER(work, name) ((work)->buffers[ASHLAR_TAGGER_BUFFER_##name])

/* Whether the calls may depend on nothing but the batch's shape. */
static inline bool ashlar__tagger_is_fixed(const ashlar_tagger_work *work) {
    return work->kind == ASHLAR_TAGGER_TRAIN && work->tagger->weight_at != NULL;
}

/* T * B */
static inline size_t ashlar__tagger_words(const ashlar_tagger_work *work) {
    return work->batch->shape.steps * work->batch->shape.batch;
}

/* The address of element `at` of a buffer. */
static inline void *ashlar__tagger_element(const ashlar_tagger_work *work, void *buffer,
                                           size_t at) {
    return (char *)buffer + at * ashlar_dtype_bytes(work->tagger->config.dtype);
}

/* Queue the work of a phase; for TOKEN only what follows its last token. Not for dry runs. Errors:
 * those of ashlar_launch() and ashlar_rnn_forward(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_queue(const ashlar_tagger_work *work,
                                                     ashlar_tagger_phase phase);

/* Queue the linear layer, the loss and, in training, backward through both, for token work->token
 * of the first work->active sentences. */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_queue_token(const ashlar_tagger_work *work);

#endif /* ASHLAR_TAGGER_WORK_H */
