/*
 * task_tags_impl.h - the inside of the tagger's task, for its two files (internal).
 */
#ifndef ASHLAR_TASK_TAGS_IMPL_H
#define ASHLAR_TASK_TAGS_IMPL_H

#include "rnn/train/task_tags.h"

typedef struct ashlar_tags_task {
    ashlar_task head;
    ashlar_train_config config;
    ashlar_tags_config tags;
    const ashlar_tag_corpus *corpus;
    ashlar_tag_counts counts; /* the corpus's */
    uint64_t data_sum;        /* of the corpus, where has_data_sum */
    bool has_data_sum;
    ashlar_supply *supply;    /* of the sentences to train on */
    ashlar_allocator *allocator;
    ashlar_tagger *tagger;
    double *host;    /* page-locked: a loss, the slots' batches, labels */
    int32_t *device; /* of both slots */
    double *loss;    /* device memory, of a prediction */
    int32_t *labels; /* in `host`: [T, B] of the largest batch */
    ashlar_tag_batch slots[ASHLAR_TASK_SLOTS];
    ashlar_tags_test test; /* the newest */
    size_t needed_bytes;   /* the account's; 0 before the first test */
} ashlar_tags_task;

ashlar_tags_task *ashlar_tags_of(ashlar_task *task);

/* The shape that the buffers of a step of that length are taken for. */
ashlar_tag_shape ashlar_tags_shape(const ashlar_tags_task *tags, size_t length);

ASHLAR_MUST_CHECK ashlar_status ashlar_tags_upload(ashlar_task *task, size_t slot,
                                                   ashlar_stream stream);

/* (task_tags_test.c) What the test found. */
void ashlar_tags_put_results(const ashlar_task *task, ashlar_json_writer *writer);

#endif /* ASHLAR_TASK_TAGS_IMPL_H */
