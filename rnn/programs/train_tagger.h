/*
 * train_tagger.h - what ashlar-train does only for a tagger: defaults, options, messages
 * (internal).
 */
#ifndef ASHLAR_TRAIN_TAGGER_H
#define ASHLAR_TRAIN_TAGGER_H

#include <stdio.h>

#include "rnn/programs/options.h"
#include "rnn/train/tasks.h"

/* Its part of the command line. */
typedef struct ashlar_train_tagger_options {
    ashlar_task_tagger_config tags;
    ashlar_tagger_corpus_config corpus; /* but for max_words, which is --max-length */
    size_t label_embedding;             /* of fed labels */
    bool feeds_labels;
    bool is_bidirectional; /* asked for, though it is the default */
} ashlar_train_tagger_options;

enum { ASHLAR_TRAIN_TAGGER_OPTION_COUNT = 9 };

/* Set the defaults of these options and a tagger's own of the shared ones. */
void ashlar__train_tagger_set_defaults(ashlar_train_config *train,
                                       ashlar_train_tagger_options *options);

/* The options for a table of the command line, each with "tagger:" in its help. */
void ashlar__train_tagger_list_options(ashlar_train_tagger_options *options,
                                       ashlar_option list[static ASHLAR_TRAIN_TAGGER_OPTION_COUNT]);

/* Errors: ASHLAR_EINVAL (options that exclude each other, or leave nothing to train on). */
ASHLAR_MUST_CHECK ashlar_status
ashlar__train_tagger_check_options(const ashlar_train_tagger_options *options);

/*
 * Read column files and make a task of them.
 *
 * train    with label feedback, buckets of 1 become one for each number of words
 * corpus   the caller's, to destroy after the task; also after a failure, then perhaps NULL
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
