/*
 * rows.h - rows of results whose columns a form describes: prints them as a table, writes them as
 * JSON, and compares them with targets (internal).
 */
#ifndef ASHLAR_ROWS_H
#define ASHLAR_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <ashlar/status.h>

#include "allocator/base/json.h"

enum { ASHLAR_ROWS_COLUMNS_MAX = 24 };

/* The contents of a column. A NaN means "not known": "-" in the table, null in the JSON. */
typedef enum ashlar_rows_kind {
    ASHLAR_ROWS_TEXT,
    ASHLAR_ROWS_NUMBER,
    ASHLAR_ROWS_OPTIONAL, /* a number that the JSON leaves out if it is not known */
    ASHLAR_ROWS_BOOL,     /* left out likewise; in the JSON, 0 is false, any other number true */
} ashlar_rows_kind;

typedef struct ashlar_rows_column {
    const char *key;     /* of the member in the JSON; NULL: no member */
    const char *heading; /* in the table; NULL: no column */
    ashlar_rows_kind kind;
    int width, digits; /* in the table; digits after the point */
    double scale;      /* the table's number / the JSON's; 0: the same number */
} ashlar_rows_column;

/* A bound on a subject's figure, or on its ratio to the same figure of another subject. */
typedef struct ashlar_rows_target {
    const char *what;
    const char *subject; /* NULL: any */
    size_t column;
    double limit;
    bool is_at_least;     /* else at most */
    const char *base;     /* NULL: the figure itself counts */
    size_t threads;       /* of the row; 0: any */
    const char *names[2]; /* the row's first two texts must be these; NULL: any */
    const char *except;   /* neither of the two may be this; NULL: no exception */
} ashlar_rows_target;

/*
 * The columns before `subject` are a row's label; a number there is a number of threads. Rows with
 * the same label are compared with each other.
 */
typedef struct ashlar_rows_form {
    const ashlar_rows_column *columns;
    size_t column_count; /* 1 .. ASHLAR_ROWS_COLUMNS_MAX */
    size_t subject;      /* the column with a row's subject */
    const ashlar_rows_target *targets;
    size_t target_count;
} ashlar_rows_form;

typedef union ashlar_rows_cell {
    const char *text; /* not copied: it must outlive the rows */
    double number;
} ashlar_rows_cell;

typedef struct ashlar_row {
    ashlar_rows_cell cells[ASHLAR_ROWS_COLUMNS_MAX]; /* by column */
} ashlar_row;

/* Zeros with a form mean no rows. The caller ends the struct with ashlar__rows_finish(). */
typedef struct ashlar_rows {
    const ashlar_rows_form *form;
    ashlar_row *items;
    size_t count, capacity;
    void (*on_print)(void *context); /* called when rows are complete and printed; may be NULL */
    void *context;
} ashlar_rows;

/* Append a copy of the row. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rows_add(ashlar_rows *rows, const ashlar_row *row);
void ashlar__rows_finish(ashlar_rows *rows);

/* The row of another subject with the same label, on `threads` threads (0: on the same number).
 * NULL: there is none. */
const ashlar_row *ashlar__rows_find(const ashlar_rows *rows, const ashlar_row *like,
                                    const char *subject, size_t threads);

/* In rows from `first` on, set `column` to the ratio of column `of` to that of subject `base`. */
void ashlar__rows_fill_ratios(ashlar_rows *rows, size_t first, size_t column, size_t of,
                              const char *base);

/* Print the table's head, its rows from index `first` on, or each target that can be judged. */
void ashlar__rows_print_head(FILE *out, const ashlar_rows *rows);
void ashlar__rows_print(FILE *out, const ashlar_rows *rows, size_t first);
void ashlar__rows_print_targets(FILE *out, const ashlar_rows *rows);

/* Put one row's members into the object that is open, or all rows as an array of objects. */
void ashlar__rows_put_members(ashlar_json_writer *w, const ashlar_rows_form *form,
                              const ashlar_row *row);
void ashlar__rows_put(ashlar_json_writer *w, const ashlar_rows *rows);

#endif /* ASHLAR_ROWS_H */
