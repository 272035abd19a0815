/*
 * results.h - the rows that a group of ashlar-bench has written, read again: one figure of theirs
 * as a table of what was measured by who did it (internal).
 */
#ifndef ASHLAR_RESULTS_H
#define ASHLAR_RESULTS_H

#include <ashlar/status.h>

#include "allocator/base/json.h"

enum {
    ASHLAR_RESULTS_LINES_MAX = 128,
    ASHLAR_RESULTS_SUBJECTS_MAX = 16,
    ASHLAR_RESULTS_LABEL_BYTES = 64,
    ASHLAR_RESULTS_NAME_BYTES = 32,
};

/* In the order of the rows. */
typedef struct ashlar_results {
    size_t line_count, subject_count;
    char labels[ASHLAR_RESULTS_LINES_MAX][ASHLAR_RESULTS_LABEL_BYTES];
    char subjects[ASHLAR_RESULTS_SUBJECTS_MAX][ASHLAR_RESULTS_NAME_BYTES];
    double figures[ASHLAR_RESULTS_LINES_MAX][ASHLAR_RESULTS_SUBJECTS_MAX]; /* 0: not known */
} ashlar_results;

/*
 * Read a group's document: an array of rows, or an object whose member "rows" is one.
 *
 * figure   the key of the figure; what is no number above 0 is not known
 *
 * A row's label is made of its members up to "subject": words, numbers of threads. Two rows of one
 * label and subject are an error.
 *
 * Errors: ASHLAR_EFORMAT (not such rows; too many for the table; the detail says which).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__results_read(const ashlar_json *document,
                                                     const char *figure, ashlar_results *out);

/* The subject's place; subject_count: it is not there. */
size_t ashlar__results_find_subject(const ashlar_results *results, const char *name);

#endif /* ASHLAR_RESULTS_H */
