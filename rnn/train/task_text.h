/* task_text.h - the struct of the character model's task, shared by task_text.c (training) and
 * text_test.c (the test on held-out records) (internal). */
#ifndef ASHLAR_TASK_TEXT_H
#define ASHLAR_TASK_TEXT_H

#include "rnn/data/batcher.h"
#include "rnn/train/shards.h"
#include "rnn/train/tasks.h"

/* A batch on its way to a step. */
typedef struct ashlar_text_buffer {
    ashlar_batch_split split;
    int32_t *host;   /* page-locked: the image and the second copy of the lengths (batch_split.h) */
    int32_t *device; /* the image, in device memory */
    size_t *tokens;  /* [max_parts] of each part, on all ranks */
} ashlar_text_buffer;

/* Indices of head.blocks. BUFFERS: both buffers; CARRIED: if a batch has several parts, two sets of
 * states for each micro-batch. */
enum { ASHLAR_TEXT_BUFFERS, ASHLAR_TEXT_CARRIED };

typedef struct ashlar_text_task {
    ashlar_task head;
    ashlar_train_config config;
    const ashlar_corpus *corpus;
    ashlar_batcher *batcher;
    ashlar_batch_split_config split;
    int32_t *drawn;     /* the batcher writes here: inputs, targets, lengths */
    ashlar_batch batch; /* its pointers lead into `drawn` */
    ashlar_shards shards;
    ashlar_batch own; /* the columns of this rank's shards, shard by shard; the same memory as
                       * `batch` if the batch is not divided */
    size_t own_batch; /* sequences in `own` */
    ashlar_model *model;
    size_t state_bytes;  /* of one set of states */
    size_t buffer_words; /* of the largest batch, with the second copy of its lengths */
    ashlar_text_buffer buffers[ASHLAR_TASK_BUFFERS];
    ashlar_text_evaluation test; /* zeros until there is one */
} ashlar_text_task;

static inline ashlar_text_task *ashlar__text_of(const ashlar_task *task) {
    return (ashlar_text_task *)(uintptr_t)task; /* its first member */
}

/* What a micro-batch of a part works on, in a buffer that is filled. */
ashlar_model_window ashlar__text_window(const ashlar_text_task *task,
                                        const ashlar_text_buffer *buffer, size_t micro,
                                        size_t part);

/* Fill buffer `index` with the batch in task->own, of `steps` time steps. */
void ashlar__text_fill_own(ashlar_text_task *task, size_t index, size_t steps);

#endif /* ASHLAR_TASK_TEXT_H */
