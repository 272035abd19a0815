/* train_program.h - the parts of ashlar-train and ashlar-sample (internal). */
#ifndef ASHLAR_TRAIN_PROGRAM_H
#define ASHLAR_TRAIN_PROGRAM_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <ashlar/reduce.h>

#include "allocator/base/json.h"
#include "rnn/model/text_sampler.h"
#include "rnn/programs/options.h"
#include "rnn/train/train.h"

/* ---- the command line ---- */

/* What --vary names. */
typedef enum ashlar_vary {
    ASHLAR_VARY_BATCH,
    ASHLAR_VARY_LENGTH,
    ASHLAR_VARY_HIDDEN,
    ASHLAR_VARY_COUNT
} ashlar_vary;

typedef struct ashlar_train_command {
    ashlar_option_list data;
    ashlar_train_config train;
    const char *html; /* NULL: no page is wanted */
    const char *recompute, *memory; /* memory NULL: not given */
    const char *device;
    const char *json;
    const char *fit;  /* --fit as text; NULL: train */
    size_t fit_bytes; /* the same size in bytes */
    ashlar_vary vary;
    const char *losses;
    const char *init;       /* a file of weights to begin with; NULL: draw all of them */
    ashlar_option_list map; /* of the names in it */
    const char *snapshot;
    bool verifies;
    size_t sample_bytes;
    size_t threads;
    bool is_reproducible;
    size_t timeout_s; /* how long ranks wait for each other */
    bool is_quiet;
    bool is_stopped; /* no option, but a result: a signal ended the training */
} ashlar_train_command;

/* Answer --help, --version and --completion. True: one was given, and the program has no more to
 * do.
 */
bool ashlar__train_command_answer(const char *program, int argc, char **argv);

/* Read the command line. Options that are not given get their defaults. Texts in *out point into
 * `argv`. Errors: ASHLAR_EINVAL; the detail names the option. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_command_read(int argc, char **argv,
                                                           ashlar_train_command *out);

/* Check that every output can be written, before hours of training. Errors: those of
 * ashlar__program_check_writable(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_command_check_writable(const ashlar_train_command *c);

/* ---- text that a model writes ---- */

typedef struct ashlar_text_config {
    ashlar_text_sampler_config sampler;
    const char *prime; /* [prime_bytes], text to begin with: the model reads it first */
    size_t prime_bytes;
    size_t bytes; /* how many to write after the prime, in each of sampler.count texts; the mark
                   * between records counts as one */
} ashlar_text_config;

/* Time and memory of writing texts, counted from the moment when the model has read the prime. */
typedef struct ashlar_text_report {
    size_t bytes; /* written since the start, in all texts */
    double seconds;
    ashlar_stats start, end;
    ashlar_phase_calls calls; /* since the start */
} ashlar_text_report;

/* Write the prime and the symbols that the model draws after it; the mark between records becomes a
 * line "%". A terminal gets no control characters except tabs and line ends. Several texts are
 * drawn together, kept in host memory, and written one after the other with a line "%" in between;
 * each begins with the prime and is the same as if it were drawn alone.
 *
 * report   NULL: not wanted; written only on success
 *
 * Errors: those of the sampler; ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW (several texts); ASHLAR_EIO
 * (`out` cannot be written; its error flag is set). */
ASHLAR_MUST_CHECK ashlar_status ashlar__text_write(const ashlar_sampled_model *model, FILE *out,
                                                   const ashlar_text_config *config,
                                                   ashlar_text_report *report);

/* Write a report on a text by `model` to a file, as one JSON object. After an error the file is as
 * it was. Errors: ASHLAR_EIO, ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__text_report_write(const char *path,
                                                          const ashlar_sampled_model *model,
                                                          const ashlar_text_config *config,
                                                          const ashlar_text_report *report);

/* ---- progress and signals ---- */

/* Catch SIGINT and SIGTERM, except where the caller had them ignored. Returns a pointer to the
 * number of the signal that came; 0: none yet. The second signal ends the process at once. */
const volatile sig_atomic_t *ashlar__interrupt_catch(void);

/* Set a line to write at the first signal; the text must live until the program ends. A rank uses
 * it, since its launcher may end it while it waits for another rank that has died. */
void ashlar__interrupt_announce(const char *line);

/* The signal that ended the training. If only another rank got it, SIGTERM, which launchers send.
 */
int ashlar__interrupt_number(void);

typedef struct ashlar_progress {
    FILE *out;
    bool is_terminal;
    double shown_at; /* when the last line was shown, in seconds */
} ashlar_progress;

void ashlar__progress_init(ashlar_progress *progress, FILE *out);

/* For ashlar__trainer_run(); `context` is an ashlar_progress. */
void ashlar__progress_show(void *context, const ashlar_train_progress *now);

/* ---- one of several processes ---- */

/* Call ashlar_ranks_open(), with a time limit: it waits in MPI's start-up for all ranks, and cannot
 * be told to give up. If they have not joined in time, print a line and end the process with
 * ASHLAR_EXIT_FAILED; launchers then end the other ranks. Rank 0 gives up first; ranks that are
 * still there some seconds later do so, too.
 *
 * program      its name, for the line
 * timeout_ms   0: the default of ashlar_ranks_open()
 *
 * Errors: those of ashlar_ranks_open(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_start(const char *program, uint32_t timeout_ms,
                                                    ashlar_ranks **out);

/* Join the processes that a launcher has started with this one; if there are none, only work out
 * --reproducible. Sets c->train.ranks and c->train.shards, and removes all outputs from the command
 * on ranks above 0. The processes of a machine divide its threads, unless their number was given.
 * If the device is "cuda", each gets the CUDA device that has its number on the machine. A rank
 * that SIGTERM ends says so.
 *
 * Errors: those of ashlar__ranks_start() and ashlar__shards_check(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_ranks_open(ashlar_train_command *c, int argc,
                                                         char **argv);

/* After a training: collect each rank's figures in report->ranks, which are valid until
 * ashlar__train_ranks_close(). Every rank must call it; without ranks it does nothing. Errors:
 * those of the collective operations; ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_ranks_gather(const ashlar_train_command *c,
                                                           ashlar_train_report *report);

/* Leave the other ranks; if `exit_status` is not 0, end them, too. Returns `exit_status`. */
int ashlar__train_ranks_close(ashlar_train_command *c, int exit_status);

/* As ashlar__program_fail(), but silent if another rank reports the failure. */
int ashlar__train_ranks_fail(const ashlar_train_command *c, const char *program,
                             ashlar_status status);

/* ---- the report ---- */

/* Add a member of the value's type to an open JSON object. */
#define ASHLAR_JSON_ADD(writer, key, value) \
    _Generic((value), uint64_t: ashlar__json_add_uint64, double: ashlar__json_add_double,       \
             bool: ashlar__json_add_bool, char *: ashlar__json_add_string,                      \
             const char *: ashlar__json_add_string)(writer, key, value)
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "one type is for both");

void ashlar__report_print(FILE *out, const ashlar_train_report *report,
                          const ashlar_evaluation *test);

/* Add a description of the device to an open JSON object. */
void ashlar__report_put_device(ashlar_json_writer *writer, const ashlar_device_info *device);

/* Begin a JSON document with the report and the options. The caller may add members, then closes
 * it. */
void ashlar__report_put(ashlar_json_writer *writer, const ashlar_train_config *config,
                        const ashlar_train_report *report, const ashlar_evaluation *test);

/* If the memory of a tag keeps growing, print since which step and by how much; else nothing. */
void ashlar__report_print_growth(FILE *out, ashlar_tag tag, const ashlar_tag_growth *growth);

/* ---- the page of --html ---- */

/* A step as the page shows it: loss in nats per symbol. */
typedef struct ashlar_page_step {
    size_t step;
    double loss;   /* of this step's batch */
    double recent; /* mean over the last few steps */
    ashlar_train_held held;
} ashlar_page_step;

/* Begin one with only `command` set, and end it. */
typedef struct ashlar_train_page {
    const ashlar_train_command *command; /* rank 0 alone has outputs in it */
    ashlar_page_step *steps;
    size_t step_count, step_capacity;
} ashlar_train_page;

void ashlar__train_page_end(ashlar_train_page *page);

/* With --html, note a step. If there is no host memory for it, the page lacks the step. */
void ashlar__train_page_note(ashlar_train_page *page, const ashlar_train_progress *now);

/* Write the report for --json, and with --html the page. Errors: those of
 * ashlar__json_writer_save() and ashlar__page_write(); ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_page_write(ashlar_train_page *page,
                                                         ashlar_trainer *trainer,
                                                         const ashlar_train_report *report,
                                                         const ashlar_evaluation *test);

/* ---- --fit ---- */

typedef struct ashlar_train_fitted {
    const char *option; /* the option that was varied, without dashes */
    size_t value;       /* the largest value with which the training runs */
    size_t next;        /* the next larger value, with which it does not; 0: there is none */
    size_t need_bytes;  /* the device memory for `value`: with 2 MiB less it does not run */
    size_t trials;
    ashlar_model_tiers tiers; /* with --memory, of `value` on a device of command->fit_bytes */
    size_t state_bytes;       /* likewise: of moments and masters, on the host */
    double cudnn_bytes; /* a bound on the workspace that cuDNN would use instead of the CPU's */
} ashlar_train_fitted;

/*
 * Find the largest batch, length or width (command->vary says which) with which the training runs
 * on a device of command->fit_bytes, by dry warm-ups on a software device that this opens. No
 * device may be open. Errors: ASHLAR_ENOMEM (not even the smallest value runs), ASHLAR_EINVAL, and
 * those of the data.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_fit_find(const ashlar_train_command *command,
                                                       ashlar_train_fitted *out);

/* Call ashlar__train_fit_find(), print what it found, and write that to command->json. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_fit(const ashlar_train_command *command);

/*
 * After a training failed for lack of memory, and its device was closed: add to the error's detail
 * what the training needs, and what it needs with --recompute auto. Returns ASHLAR_ENOMEM.
 */
ashlar_status ashlar__train_fit_explain(const ashlar_train_command *command);

#endif /* ASHLAR_TRAIN_PROGRAM_H */
