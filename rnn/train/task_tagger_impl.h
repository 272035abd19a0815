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
    ashlar_tagger *tagger;
    double *host;    /* head.host: one loss, then both buffers' batches, then labels */
    double *loss;    /* of a prediction; the second block, behind that of both buffers' batches */
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

/* List the held-out sentences, or all others. */
void ashlar__task_tagger_list(const ashlar_tagger_task *tags, bool held_out,
                              ashlar_batch_sampler_item *items);

/* (task_tagger_evaluate.c) Add the results of the last evaluation. */
void ashlar__task_tagger_put_results(const ashlar_task *task, ashlar_json_writer *writer);

#endif /* ASHLAR_TASK_TAGGER_IMPL_H */
