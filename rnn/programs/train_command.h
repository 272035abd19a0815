/* train_command.h - the command line of ashlar-train: its options, their defaults, and which of
 * them exclude each other (internal). */
#ifndef ASHLAR_TRAIN_COMMAND_H
#define ASHLAR_TRAIN_COMMAND_H

#include <stddef.h>

#include "rnn/programs/options.h"
#include "rnn/train/tasks.h"

/* ---- resumed options ---- */

/*
 * The options of a saved training, for one that resumes it (internal).
 */

enum { ASHLAR_RESUMED_OPTIONS_MAX = 40, ASHLAR_RESUMED_OPTION_BYTES = 80 };

/* Words for ashlar__options_parse(): "--hidden=256". */
typedef struct ashlar_resumed_options {
    char words[ASHLAR_RESUMED_OPTIONS_MAX][ASHLAR_RESUMED_OPTION_BYTES];
    size_t count;
} ashlar_resumed_options;

typedef struct ashlar_train_rule {
    const char *optimizer; /* a name that ashlar_optimizer_name() returns */
    const char *schedule;  /* a name in ASHLAR_SCHEDULE_MAP */
    size_t warmup_steps;
    double floor;     /* of schedule "cosine" */
    size_t step_size; /* of schedule "step" */
    double gamma;     /* of schedule "step" */
} ashlar_train_rule;

/* Apply the rule to `config`, in which all other values must be set. Errors: ASHLAR_EINVAL; the
 * detail names the option. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_rule_apply(const ashlar_train_rule *rule,
                                                         ashlar_train_config *config);

/* The options that only a tagger has. */
typedef struct ashlar_train_tagger_options {
    ashlar_task_tagger_config tags;
    ashlar_tagger_corpus_config corpus; /* max_words is not used: --max-length sets it */
    size_t label_embedding;             /* width of a fed-back label's vector */
    bool feeds_labels;
    bool is_bidirectional; /* whether --bidirectional, the default, was given */
} ashlar_train_tagger_options;

typedef struct ashlar_train_command {
    ashlar_option_list data;
    const char *model;
    bool is_tagger; /* `model` is "tagger" */
    ashlar_train_config train;
    ashlar_train_tagger_options tags;
    ashlar_train_rule rule;
    const char *cell;
    const char *dtype;
    const char *algorithm;
    const char *html; /* NULL: no page is wanted */
    const char *recompute;
    const char *device;
    const char *json;
    const char *fit;  /* --fit as text; NULL: train */
    size_t fit_bytes; /* the same size in bytes */
    const char *vary;
    const char *losses;
    const char *snapshot;
    bool verifies;
    bool wants_map;
    bool wants_memory;
    size_t sample_bytes;
    size_t held_out; /* goes to `train` and to `tags` */
    size_t threads;
    size_t max_graphs; /* with wants_graphs */
    bool wants_graphs;
    bool is_reproducible;
    size_t timeout_s; /* for which ranks wait for each other */
    bool is_quiet;
    bool is_stopped; /* not an option: a signal ended the training */
    bool wants_help;
} ashlar_train_command;

/* Answer --version and --completion (options_answer.c). True: one was given, and that is all. */
bool ashlar__train_command_answer(const char *program, int argc, char **argv);

/* Read the command line. Options that are not given get their defaults. Texts in *out point into
 * `argv`. Errors: ASHLAR_EINVAL; the detail names the option. With --help, combinations are not
 * checked. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_command_read(int argc, char **argv,
                                                           ashlar_train_command *out);

/* Print the help for one of the two models; `program` is the program's name. */
void ashlar__train_command_print_help(FILE *out, const char *program, bool is_tagger);

/* Check that every output can be written, before hours of training. Errors: those of
 * ashlar__program_check_writable(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_command_check_writable(const ashlar_train_command *c);

#endif /* ASHLAR_TRAIN_COMMAND_H */
