/*
 * train_command.h - the command line of ashlar-train: its options, their defaults, and which of
 * them exclude each other (internal).
 */
#ifndef ASHLAR_TRAIN_COMMAND_H
#define ASHLAR_TRAIN_COMMAND_H

#include "rnn/programs/options.h"
#include "rnn/programs/train_tagger.h"
#include "rnn/train/train.h"

typedef struct ashlar_train_rule {
    const char *optimizer; /* as ashlar_optimizer_name() has it */
    const char *schedule;  /* as ASHLAR_SCHEDULE_MAP has it */
    size_t warmup_steps;
    double floor;     /* cosine */
    size_t step_size; /* step */
    double gamma;     /* step */
} ashlar_train_rule;

/*
 * Apply the rule to `config`, whose other values are complete. Errors: ASHLAR_EINVAL, naming the
 * option.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_rule_apply(const ashlar_train_rule *rule,
                                                         ashlar_train_config *config);

typedef struct ashlar_train_command {
    ashlar_option_list data;
    const char *model;
    bool is_tagger; /* which the model is */
    ashlar_train_config train;
    ashlar_train_tagger_options tags;
    ashlar_train_rule rule;
    const char *cell;
    const char *dtype;
    const char *recompute;
    const char *device;
    const char *json;
    const char *losses;
    const char *snapshot;
    bool wants_map;
    bool wants_memory;
    size_t sample_bytes;
    size_t threads;
    bool is_quiet;
    bool wants_help;
} ashlar_train_command;

/*
 * Read the command line; options not given have their defaults. Texts point into argv.
 *
 * Errors: ASHLAR_EINVAL, naming the option. With --help, combinations are not checked.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_command_read(int argc, char **argv,
                                                           ashlar_train_command *out);

/* Print the options of a model, with `program` as its name. */
void ashlar__train_command_print_help(FILE *out, const char *program, bool is_tagger);

/* Check that every output can be written, before hours of training. Errors: those of
 * ashlar__program_check_writable(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_command_check_writable(const ashlar_train_command *c);

#endif /* ASHLAR_TRAIN_COMMAND_H */
