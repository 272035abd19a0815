/*
 * tasks.h - the two tasks for the training loop: the character model on a text, and the tagger on
 * sentences, with how well it labels those that were held out (internal).
 */
#ifndef ASHLAR_TASKS_H
#define ASHLAR_TASKS_H

#include "rnn/data/corpus.h"
#include "rnn/data/tagger_corpus.h"
#include "rnn/model/model.h"
#include "rnn/model/tagger.h"
#include "rnn/train/train.h"

/*
 * A task of the configuration's model and batches; its batch sampler is ready, its model is not
 * built.
 *
 * Ownership: *out is the caller's, until a trainer has it; the corpus must outlive it.
 * Errors:    those of ashlar__batcher_create().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__task_text_create(const ashlar_corpus *corpus,
                                                         const ashlar_train_config *config,
                                                         ashlar_task **out);

/* The model of such a task, while it is open. */
ashlar_model *ashlar__task_text_model(ashlar_task *task);

/* What a tagger has beside what ashlar_train_config says of every model. */
typedef struct ashlar_task_tagger_config {
    size_t character_embedding; /* width of a character's vector */
    size_t character_hidden;    /* width of the characters' layer, of each direction */
    size_t label_embedding;     /* width of the vector of the label before; 0: it is not fed back */
    bool is_unidirectional;     /* both layers read forward only */
} ashlar_task_tagger_config;

/*
 * A task of the configurations' model and batches; its batch sampler is ready, its model is not
 * built. Of `config` it reads layers, hidden, embedding (of words), cell, projection, dropout,
 * batch and seed. Each step takes the buffers of its number of words and of the longest word there
 * is, so that it is what the dry run took. With labels fed back a step's allocations grow in number
 * with its words: then config->buckets is best max_length, a plan for each number.
 *
 * Ownership: *out is the caller's, until a trainer has it; the corpus must outlive it.
 * Errors:    ASHLAR_EOVERFLOW (a batch that is too large), those of ashlar__batch_sampler_create().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__task_tagger_create(const ashlar_tagger_corpus *corpus,
                                                           const ashlar_train_config *config,
                                                           const ashlar_task_tagger_config *tags,
                                                           ashlar_task **out);

/* How a training does on held-out sentences; all 0 where there are none. */
typedef struct ashlar_tagger_evaluation {
    size_t words;
    size_t right;              /* of them: the predicted label is the one there */
    double loss;               /* mean, nats per word */
    uint64_t management_calls; /* of the driver, beside copies, launches and waits */
} ashlar_tagger_evaluation;

/*
 * Predict the labels of all held-out sentences, on the plans of the trainer, after its run. The
 * task keeps the outcome, for its part of the report.
 *
 * Stream: waits for it.  Errors: those of ashlar__tagger_predict().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__task_tagger_evaluate(ashlar_trainer *trainer,
                                                             ashlar_tagger_evaluation *out);

/* What the largest step of an open task needs. Errors: those of ashlar__tagger_estimate_make(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__task_tagger_estimate(ashlar_task *task,
                                                             ashlar_tagger_estimate *out);

#endif /* ASHLAR_TASKS_H */
