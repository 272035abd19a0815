/* program.h - how every program starts, reports failures, opens its device and ends (internal). */
#ifndef ASHLAR_PROGRAM_H
#define ASHLAR_PROGRAM_H

#include <stdbool.h>

#include "allocator/base/json.h"
#include <ashlar/arena.h>
#include "rnn/programs/options.h"

/* Write a page for a browser, tools/viewer.html with the finished document inside, which stays the
 * caller's. After an error the file is as it was. Errors: ASHLAR_EIO, ASHLAR_EHOSTMEM,
 * ASHLAR_EINVAL (not a regular file). */
ASHLAR_MUST_CHECK ashlar_status ashlar__page_write(const char *path, ashlar_json_writer *document);

/* Exit statuses besides 0. */
enum {
    ASHLAR_EXIT_FAILED = 1,
    ASHLAR_EXIT_USAGE = 2, /* a wrong option or environment variable, or anything else that fails
                              with ASHLAR_EINVAL */
};

/* Call this before anything else. It makes sure that descriptors 0 to 2 are open, and ignores
 * SIGPIPE, so that a write to a closed pipe is an error and does not kill the program. */
void ashlar__program_init(void);

/* The exit status for `status`, which is not ASHLAR_OK: one rule for all programs. */
int ashlar__program_exit_status(ashlar_status status);

/* Print "PROGRAM: DETAIL" of the last failure as one line on stderr. Returns its exit status. */
int ashlar__program_fail(const char *program, ashlar_status status);

/* Call this last. Returns `exit_status`. If that is 0 but text for `stdout` could not be written,
 * says so on stderr, and returns ASHLAR_EXIT_FAILED. */
int ashlar__program_finish(const char *program, int exit_status);

/* Fail now if `path` could not be written later. NULL is allowed. Errors: those of
 * ashlar__file_create(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__program_check_writable(const char *path);

/* The same for a JSON report, whose path may be a pipe, or "-" for standard output: then all that
 * is printed to `stdout` from here on goes to standard error (file.h). */
ASHLAR_MUST_CHECK ashlar_status ashlar__program_check_report(const char *path);

/* Whether two paths lead to the same file; if one does not exist, whether they are equal. */
bool ashlar__program_is_same_file(const char *a, const char *b);

/* Open the device `name` (NULL: the one that ASHLAR_DEVICE names). If "auto" finds a CUDA device on
 * which this build or the installed libraries cannot compute, open the software device instead and
 * say so on stderr.
 * Returns 0; on failure prints the detail and returns the exit status. */
int ashlar__program_open_device(const char *program, const char *name, ashlar_device **out);

/* ---- weights that another program, or another training, wrote (weights_file.c) ---- */

/* Read the words of --map: OLD=NEW for a tensor's name in the file and in the model, or for the
 * beginning of names if OLD ends in a dot or is empty; NEW "-" leaves it out. *out is valid until
 * the next call. Errors: ASHLAR_EINVAL. */
ASHLAR_MUST_CHECK ashlar_status ashlar__weights_map(const ashlar_option_list *words,
                                                    ashlar_load_options *out);

/* Fill what fits of an arena on which no work is queued, and print what did not. Errors: those of
 * ashlar_checkpoint_load(); ASHLAR_EFORMAT (nothing fits). */
ASHLAR_MUST_CHECK ashlar_status ashlar__weights_init(const char *path,
                                                     const ashlar_option_list *map, bool is_quiet,
                                                     ashlar_arena *arena);

/* For ashlar_allocator_set_report(): print a report of damage or leaks on stderr. */
void ashlar__program_print_report(const char *line, void *unused);

#endif /* ASHLAR_PROGRAM_H */
