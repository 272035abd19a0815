/*
 * train_tagger.h - what ashlar-train does for a tagger that it does not do for a text: defaults and
 * options, and what it prints (internal).
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

/* The defaults, of these options and of those that a tagger shares. */
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
 * train    its buckets are set to one for each number of words, where labels are fed and it was 1
 * corpus   the caller's, after the task has gone; also after a failure, then perhaps NULL
 *
 * Errors: those of ashlar__tagger_corpus_open() and ashlar__task_tagger_create().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_tagger_open(
    const ashlar_option_list *files, const ashlar_train_tagger_options *options,
    ashlar_train_config *train, ashlar_tagger_corpus **corpus, ashlar_task **task);

void ashlar__train_tagger_print_start(FILE *out, const ashlar_tagger_corpus *corpus,
                                      const ashlar_train_config *train);

/* What the evaluation said, and what memory was needed. Errors: ASHLAR_EOVERFLOW. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_tagger_print_end(FILE *out, ashlar_task *task,
                                                               const ashlar_tagger_evaluation *test,
                                                               const ashlar_train_report *report);

#endif /* ASHLAR_TRAIN_TAGGER_H */
