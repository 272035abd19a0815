/*
 * results.h - the raw results of ashlar-bench, read again: one figure as a table of what was
 * measured by who did it, a chart of that table, and a page about a folder of them (internal).
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

/* Lines and subjects in the order of the rows. */
typedef struct ashlar_results {
    size_t line_count, subject_count;
    char labels[ASHLAR_RESULTS_LINES_MAX][ASHLAR_RESULTS_LABEL_BYTES];
    char subjects[ASHLAR_RESULTS_SUBJECTS_MAX][ASHLAR_RESULTS_NAME_BYTES];
    double figures[ASHLAR_RESULTS_LINES_MAX][ASHLAR_RESULTS_SUBJECTS_MAX]; /* 0: not known */
} ashlar_results;

/*
 * Read a group's document: an array of rows, or an object whose member "rows" is one.
 *
 * figure   the key of the figure; a value that is no number above 0 is not known
 *
 * A row's label is made of its members before "subject": texts, and the number of threads. Two rows
 * with the same label and subject are an error.
 *
 * Errors: ASHLAR_EFORMAT (not such rows; too many for the table; the detail says which).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__results_read(const ashlar_json *document,
                                                     const char *figure, ashlar_results *out);

/* The subject's index; subject_count: it is not there. */
size_t ashlar__results_find_subject(const ashlar_results *results, const char *name);

/*
 * Write the chart. Texts are ASCII: any other byte of theirs becomes a question mark.
 *
 * title, unit   of the figures
 * path          is replaced as a whole, or on failure left as it was
 *
 * Errors: ASHLAR_EINVAL (no figure above 0), ASHLAR_EIO, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__chart_write(const ashlar_results *results,
                                                    const char *title, const char *unit,
                                                    const char *path);

/*
 * Read machine.json, GROUP.json, GROUP.txt (the printed table, for the targets missed) and ran.txt
 * (what else was run, a line each), where they exist. Write GROUP.svg and README.md, which says
 * first where we lose: each figure that is worse than another allocator's, and each target missed.
 * The same files make the same bytes.
 *
 * Errors: ASHLAR_EIO (no group's results in the folder, or it cannot be written),
 *         ASHLAR_EFORMAT (a file that is no result), ASHLAR_EHOSTMEM. What was written before
 *         stays.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__results_page_write(const char *folder);

#endif /* ASHLAR_RESULTS_H */
