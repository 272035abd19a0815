/* options.h - reads a program's command line by a table of its options (internal). */
#ifndef ASHLAR_OPTIONS_H
#define ASHLAR_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <ashlar/base.h>

typedef enum ashlar_option_kind {
    ASHLAR_OPTION_COUNT,  /* size_t or uint64_t, min .. max; any if max is 0 */
    ASHLAR_OPTION_REAL,   /* double, min .. max */
    ASHLAR_OPTION_CHOICE, /* an enum from 0; the help lists its names in their order */
    ASHLAR_OPTION_TEXT,   /* const char *, not empty */
    ASHLAR_OPTION_LIST,   /* ashlar_option_list: may be given several times */
    ASHLAR_OPTION_FLAG,   /* bool */
} ashlar_option_kind;

enum { ASHLAR_OPTION_LIST_MAX = 64 };

typedef struct ashlar_option_list {
    const char *items[ASHLAR_OPTION_LIST_MAX];
    size_t count;
} ashlar_option_list;

typedef struct ashlar_option {
    const char *name;     /* without the dashes */
    const char *argument; /* name of the option's value in the help; NULL for a flag */
    ashlar_option_kind kind;
    void *value;     /* of the kind's type; holds the default until parsed */
    double min, max; /* range of a COUNT's or REAL's value */
    const char *help;
} ashlar_option;

/* Read the command line into the options' values. Both "--name value" and "--name=value" are
 * accepted.
 *
 * Errors: ASHLAR_EINVAL (an unknown option, a missing or bad value, a word that is no option);
 *         the detail names the word and what is allowed. Values of options before that word may
 *         have changed. */
ASHLAR_MUST_CHECK ashlar_status ashlar__options_parse(const ashlar_option *options, size_t count,
                                                      int argc, char **argv);

/* The same for a program that takes files: `words` gets those that are neither options nor values,
 * and must have room for argc. */
ASHLAR_MUST_CHECK ashlar_status ashlar__options_parse_words(const ashlar_option *options,
                                                            size_t count, int argc, char **argv,
                                                            char **words);

/* The value of the last "--name value" or "--name=value", for an option that must be known before
 * ashlar__options_parse() is called. "" if `--name` is the last word, NULL if it is not given. */
const char *ashlar__options_given(const char *name, int argc, char **argv);

/* Answer --help, -h, --version and --completion, by printing to stdout. --help prints `usage`, a
 * line for each option with its present value as the default, and `notes`. --completion prints a
 * bash script that completes FILE and PATH with existing files, and NAME with the names that the
 * option's help lists: all of it, or what is behind ": ", with commas in between. True: one of
 * these was given. Call this before the options are parsed. */
bool ashlar__options_answer(const char *program, const char *usage, const char *notes,
                            const ashlar_option *options, size_t count, int argc, char **argv);

/* The part of --help that is about options. */
void ashlar__options_print(FILE *out, const ashlar_option *options, size_t count);

#endif /* ASHLAR_OPTIONS_H */
