/*
 * results.h - reads the raw results of ashlar-bench: makes a table of one figure (a line for each
 * workload, a column for each subject), a chart of it, and a page about a folder of results
 * (internal).
 */
#ifndef ASHLAR_RESULTS_H
#define ASHLAR_RESULTS_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/status.h>

#include "allocator/base/json.h"

enum {
    ASHLAR_RESULTS_LINES_MAX = 128,
    ASHLAR_RESULTS_SUBJECTS_MAX = 16,
    ASHLAR_RESULTS_LABEL_BYTES = 64,
    ASHLAR_RESULTS_NAME_BYTES = 32,
};

/* A table of one figure. Lines and subjects are in the order in which the rows first name them. */
typedef struct ashlar_results {
    size_t line_count, subject_count;
    char labels[ASHLAR_RESULTS_LINES_MAX][ASHLAR_RESULTS_LABEL_BYTES];
    char subjects[ASHLAR_RESULTS_SUBJECTS_MAX][ASHLAR_RESULTS_NAME_BYTES];
    double figures[ASHLAR_RESULTS_LINES_MAX][ASHLAR_RESULTS_SUBJECTS_MAX]; /* 0: not known */
    /* The spread, low <= figure <= high. Both are the figure where the rows have no spread. */
    double low[ASHLAR_RESULTS_LINES_MAX][ASHLAR_RESULTS_SUBJECTS_MAX];
    double high[ASHLAR_RESULTS_LINES_MAX][ASHLAR_RESULTS_SUBJECTS_MAX];
} ashlar_results;

/*
 * Read a group's document: an array of rows, or an object whose member "rows" is one.
 *
 * figure   the key of the figure; a value that is not a number above 0 counts as not known. Its
 *          spread has the keys FIGURE_low and FIGURE_high
 *
 * A row's label is made of its members before "subject": strings, and the number of threads. The
 * bytes of "one_size" are shown in KiB or MiB. Two rows may not have the same label and subject.
 *
 * Errors: ASHLAR_EFORMAT (no such rows, two of the same label and subject, too many for the table;
 *         the detail names the row).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__results_read(const ashlar_json *document,
                                                     const char *figure, ashlar_results *out);

/* The index of the subject called `name`; results->subject_count: there is none. */
size_t ashlar__results_find_subject(const ashlar_results *results, const char *name);

/* Whether the spreads of two subjects' figures overlap: then neither is better than the other. */
bool ashlar__results_are_even(const ashlar_results *results, size_t line, size_t a, size_t b);

/* What a chart shows: each figure over that of the subject `base` in the same line. */
typedef struct ashlar_chart {
    const ashlar_results *results;
    size_t base;       /* results->subject_count: there is none, and no figure to draw */
    const char *title; /* what was measured */
    const char *where; /* the device and the machine */
    const char *what;  /* the figure, for which less is better */
    const char *unit;  /* of the figure; may be "" */
} ashlar_chart;

/*
 * Write a chart as an SVG, which names the base's own figures beside the lines. Bytes of names and
 * texts that are not ASCII become question marks. A line without a figure of the base says so.
 *
 * path    replaced on success; unchanged on failure
 *
 * Errors: ASHLAR_EINVAL (the base has no figure above 0), ASHLAR_EIO, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__chart_write(const ashlar_chart *chart, const char *path);

/*
 * Read those files of the folder that exist: machine.json, GROUP.json, GROUP.txt (the printed
 * table, for the targets missed) and ran.txt (what was run, one line each). Write GROUP.svg and
 * README.md, which lists the losses before the tables: each figure that is worse than another
 * subject's by more than the spread, and each target missed. If machine.json names a software
 * device, the subject "driver" is shown as "software device". The same files always produce the
 * same output.
 *
 * Errors: ASHLAR_EIO (the folder has no group's results, or cannot be written), ASHLAR_EFORMAT (a
 *         file is not a result), ASHLAR_EHOSTMEM. Files written before the failure stay.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__results_page_write(const char *folder);

#endif /* ASHLAR_RESULTS_H */
