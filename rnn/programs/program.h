/*
 * program.h - what every program does around its own work: start, failures, device, end (internal).
 */
#ifndef ASHLAR_PROGRAM_H
#define ASHLAR_PROGRAM_H

#include <stdbool.h>

#include "rnn/model/model.h"

/* Exit statuses besides 0. */
enum {
    ASHLAR_EXIT_FAILED = 1,
    ASHLAR_EXIT_USAGE = 2, /* an option or an environment value */
};

/*
 * Call this before anything else. It makes sure that descriptors 0 to 2 are open, and turns a write
 * to a closed pipe into an error instead of the program's end.
 */
void ashlar__program_init(void);

/* Print "PROGRAM: DETAIL" of the last failure as one line on stderr, and return `exit_status`. */
int ashlar__program_fail(const char *program, int exit_status);

/* Call this last: returns `exit_status`; a failure, told on stderr, if standard output was lost. */
int ashlar__program_finish(const char *program, int exit_status);

/* Fail now if `path` (NULL: none) could not be written later. Errors: of ashlar__file_create(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__program_check_writable(const char *path);

/* Whether two paths lead to the same file, or would. */
bool ashlar__program_is_same_file(const char *a, const char *b);

/*
 * Open the device `name` (NULL: the environment's). If "auto" finds a CUDA device on which this
 * build or the installed libraries cannot compute, take the software device and say so on stderr.
 * Returns 0, or on failure prints it and returns the exit status.
 */
int ashlar__program_open_device(const char *program, const char *name, ashlar_device **out);

/* For ashlar_allocator_set_report(): damage and leaks, printed on stderr. */
void ashlar__program_print_report(const char *line, void *unused);

#endif /* ASHLAR_PROGRAM_H */
