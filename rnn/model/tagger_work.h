/*
 * tagger_work.h - what a step of the tagger queues in each phase, on buffers it has (internal).
 */
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
    int32_t *labels;                           /* host memory, ASHLAR_TAGGER_PREDICT */
    ashlar_tagger_arrays arrays;               /* the batch in device memory */
    size_t token;                              /* t of the loop over tokens */
    size_t active;                             /* sentences that have such a token */
    void *buffers[ASHLAR_TAGGER_BUFFER_COUNT]; /* NULL where not taken yet, or given back */
} ashlar_tagger_work;

/* One of the step's buffers. */
#define ASHLAR_TAGGER_BUFFER(work, name) ((work)->buffers[ASHLAR_TAGGER_BUFFER_##name])

/* T * B */
static inline size_t ashlar__tagger_words(const ashlar_tagger_work *work) {
    return work->batch->shape.steps * work->batch->shape.batch;
}

/* Element `at` of a buffer. */
static inline void *ashlar__tagger_element(const ashlar_tagger_work *work, void *buffer,
                                           size_t at) {
    return (char *)buffer + at * ashlar_dtype_bytes(work->tagger->config.dtype);
}

/*
 * Queue the work of a phase, but for TOKEN's loop. Not for dry runs. Errors: those of
 * ashlar_launch() and ashlar_rnn_forward().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_queue(const ashlar_tagger_work *work,
                                                     ashlar_tagger_phase phase);

/* Queue linear layer, loss and way back for token work->token of every sentence that has it. */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_queue_token(const ashlar_tagger_work *work);

#endif /* ASHLAR_TAGGER_WORK_H */
