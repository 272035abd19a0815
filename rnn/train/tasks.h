/* tasks.h - the two tasks for the training loop, the character model on a text and the tagger on
 * sentences, and their tests on what was held out (internal). */
#ifndef ASHLAR_TASKS_H
#define ASHLAR_TASKS_H

#include "rnn/data/corpus.h"
#include "rnn/data/tagger_corpus.h"
#include "rnn/model/model.h"
#include "rnn/model/tagger.h"
#include "rnn/train/train.h"

/* Make the task of training a character model on a text. Its batch sampler is ready; open() builds
 * its model. Ownership: *out is the caller's until a trainer takes it; the corpus must outlive it.
 * Errors: those of ashlar__batcher_create(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__task_text_create(const ashlar_corpus *corpus,
                                                         const ashlar_train_config *config,
                                                         ashlar_task **out);

/* The model of an open task that ashlar__task_text_create() made. The task owns it. */
ashlar_model *ashlar__task_text_model(ashlar_task *task);

/* How well a model knows text that it was not trained on; all 0 if there is none. */
typedef struct ashlar_text_evaluation {
    size_t records;
    uint64_t bytes;            /* of the records */
    uint64_t symbols;          /* predicted ones: the bytes, and the end of each record */
    double loss;               /* mean, nats per symbol */
    double bits_per_byte;      /* bits of all symbols, for each of `bytes` */
    uint64_t management_calls; /* driver calls other than copies, launches and waits */
} ashlar_text_evaluation;

/* Compute the loss on the records that config->held_out leaves out, without dropout, on the
 * trainer's plans. Call it after the trainer's run. The task keeps the result for the report.
 * Stream: waits for it. Errors: those of ashlar__model_step(); ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__task_text_evaluate(ashlar_trainer *trainer,
                                                           ashlar_text_evaluation *out);

/* The options that only a tagger has; those of every model are in ashlar_train_config. */
typedef struct ashlar_task_tagger_config {
    size_t character_embedding; /* width of a character's vector */
    size_t character_hidden;    /* width of the characters' layer, of each direction */
    size_t label_embedding;     /* width of the vector of a fed-back label; 0: no feedback */
    bool is_unidirectional;     /* both layers read forward only */
} ashlar_task_tagger_config;

/* Make the task of training a tagger. Its batch sampler is ready; open() builds its model. Of
 * `config` it reads layers, hidden, embedding (of words), cell, projection, dropout, batch and
 * seed. The sizes of a step's buffers depend only on the words in the batch's longest sentence and
 * on the corpus's longest word, so a dry run can take the same buffers. With label feedback the
 * number of allocations grows with the length, so one plan cannot serve all lengths.
 *
 * Ownership: *out is the caller's until a trainer takes it; the corpus must outlive it.
 * Errors:    ASHLAR_EOVERFLOW (too large a batch), those of ashlar__batch_sampler_create(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__task_tagger_create(const ashlar_tagger_corpus *corpus,
                                                           const ashlar_train_config *config,
                                                           const ashlar_task_tagger_config *tags,
                                                           ashlar_task **out);

/* How well a tagger labels held-out sentences; all 0 if there are none. */
typedef struct ashlar_tagger_evaluation {
    size_t words;
    size_t right;              /* words whose predicted label is the one in the corpus */
    double loss;               /* mean, nats per word */
    uint64_t management_calls; /* driver calls other than copies, launches and waits */
} ashlar_tagger_evaluation;

/* Predict the labels of all held-out sentences, on the trainer's plans. Call it after the trainer's
 * run. The task keeps the result for the report. Stream: waits for it. Errors: those of
 * ashlar__tagger_predict(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__task_tagger_evaluate(ashlar_trainer *trainer,
                                                             ashlar_tagger_evaluation *out);

/* Estimate the memory that an open task needs. Errors: those of ashlar__tagger_estimate_make(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__task_tagger_estimate(ashlar_task *task,
                                                             ashlar_tagger_estimate *out);

#endif /* ASHLAR_TASKS_H */
