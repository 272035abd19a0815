/*
 * task_text.h - the character model on a text, as a task for the training loop (internal).
 */
#ifndef ASHLAR_TASK_TEXT_H
#define ASHLAR_TASK_TEXT_H

#include "rnn/data/corpus.h"
#include "rnn/model/model.h"
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

#endif /* ASHLAR_TASK_TEXT_H */
