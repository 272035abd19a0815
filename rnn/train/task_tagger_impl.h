/* task_tagger_impl.h - the inside of the tagger's task, for its two files (internal). */
#ifndef ASHLAR_TASK_TAGGER_IMPL_H
#define ASHLAR_TASK_TAGGER_IMPL_H

#include "rnn/train/tasks.h"

typedef struct ashlar_tagger_task {
    ashlar_task head;
    ashlar_train_config config;
    ashlar_task_tagger_config tags;
    const ashlar_tagger_corpus *corpus;
    ashlar_tagger_counts counts; /* the corpus's */
    uint64_t checksum;           /* of the corpus; valid if has_checksum */
    bool has_checksum;
    ashlar_batch_sampler *batch_sampler; /* of the sentences to train on */
    ashlar_allocator *allocator;
    ashlar_tagger *tagger;
    double *host;    /* page-locked: one loss, then both buffers' batches, then labels */
    int32_t *device; /* both buffers' batches in device memory */
    double *loss;    /* of a prediction, in device memory */
    int32_t *labels; /* in `host`: [T, B] of the largest batch */
    ashlar_tagger_batch buffers[ASHLAR_TASK_BUFFERS];
    ashlar_tagger_evaluation test; /* the last evaluation */
    size_t needed_bytes;           /* from the estimate; 0 before the first test */
} ashlar_tagger_task;

ashlar_tagger_task *ashlar__task_tagger_of(ashlar_task *task);

/* The shape for which a step on `length` words takes its buffers. */
ashlar_tagger_shape ashlar__task_tagger_shape(const ashlar_tagger_task *tags, size_t length);

ASHLAR_MUST_CHECK ashlar_status ashlar__task_tagger_upload(ashlar_task *task, size_t buffer,
                                                           ashlar_stream stream);

/* (task_tagger_evaluate.c) Add the results of the last evaluation. */
void ashlar__task_tagger_put_results(const ashlar_task *task, ashlar_json_writer *writer);

#endif /* ASHLAR_TASK_TAGGER_IMPL_H */
