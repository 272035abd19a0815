/* train_tagger.h - the parts of ashlar-train that only a tagger uses: defaults, options, messages
 * (internal). */
#ifndef ASHLAR_TRAIN_TAGGER_H
#define ASHLAR_TRAIN_TAGGER_H

#include <stdio.h>

#include "rnn/programs/options.h"
#include "rnn/train/tasks.h"

/* The options that only a tagger has. */
typedef struct ashlar_train_tagger_options {
    ashlar_task_tagger_config tags;
    ashlar_tagger_corpus_config corpus; /* max_words is not used: --max-length sets it */
    size_t label_embedding;             /* width of a fed-back label's vector */
    bool feeds_labels;
    bool is_bidirectional; /* whether --bidirectional, the default, was given */
} ashlar_train_tagger_options;

/* Set the defaults of these options, and a tagger's defaults of options that both models have. */
void ashlar__train_tagger_set_defaults(ashlar_train_config *train,
                                       ashlar_train_tagger_options *options);

/* Errors: ASHLAR_EINVAL (options that exclude each other, or leave nothing to train on). */
ASHLAR_MUST_CHECK ashlar_status
ashlar__train_tagger_check_options(const ashlar_train_tagger_options *options);

/*
 * Read column files and make a task of them.
 *
 * train    with label feedback, `buckets` 1 becomes one bucket for each sentence length
 * corpus   the caller's, to be destroyed after the task, and after a failure too (it may be NULL)
 *
 * Errors: those of ashlar__tagger_corpus_open() and ashlar__task_tagger_create().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_tagger_open(
    const ashlar_option_list *files, const ashlar_train_tagger_options *options,
    ashlar_train_config *train, ashlar_tagger_corpus **corpus, ashlar_task **task);

void ashlar__train_tagger_print_start(FILE *out, const ashlar_tagger_corpus *corpus,
                                      const ashlar_train_config *train);

/* Print the estimate of memory and the evaluation. Errors: ASHLAR_EOVERFLOW. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_tagger_print_end(FILE *out, ashlar_task *task,
                                                               const ashlar_tagger_evaluation *test,
                                                               const ashlar_train_report *report);

#endif /* ASHLAR_TRAIN_TAGGER_H */
