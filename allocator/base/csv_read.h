/*
 * csv_read.h - reading comma-separated tables whose first line names the columns (internal).
 *
 * The first line that is not blank names the columns, in any order; unknown columns are ignored.
 * Lines end with LF or CRLF; commas separate fields; quotes have no meaning. Every piece that the
 * reader returns points into the caller's text and leaves out the blanks around it.
 */
#ifndef ASHLAR_CSV_READ_H
#define ASHLAR_CSV_READ_H

#include <ashlar/status.h>

#include "allocator/base/parse.h"

enum { ASHLAR_CSV_COLUMNS_MAX = 8 };

/* The columns of one kind of table. */
typedef struct ashlar_csv_format {
    const char *const *columns; /* [count]; a header must have each exactly once */
    size_t count;               /* 1 .. ASHLAR_CSV_COLUMNS_MAX */
    const char *const *refused; /* columns to refuse, since they would change the meaning of the
                                   others; ends with NULL; NULL: none */
    const char *begins;         /* for messages: the required form of the header */
} ashlar_csv_format;

typedef struct ashlar_csv {
    const ashlar_csv_format *format;
    const char *name;                      /* the file's name, for messages */
    ashlar_piece rest;                     /* what has not been read yet */
    size_t line;                           /* number of the line read last */
    size_t places[ASHLAR_CSV_COLUMNS_MAX]; /* [column]: its field's index in a row, from 0 */
    size_t field_count;                    /* fields in the header */
} ashlar_csv;

/*
 * Read the header. A copy of *csv can read on independently from the same place.
 *
 * Ownership: name, text and format must outlive *csv, which owns nothing.
 * Errors:    ASHLAR_EFORMAT; the detail begins with FILE:LINE: and names the column.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__csv_begin(ashlar_csv *csv, const ashlar_csv_format *format,
                                                  const char *name, const char *text, size_t bytes);

/* Read the next line that is not blank. fields[c] is the field of column c, empty if the line is
 * too short; *count is the number of fields in the line. False: no line is left. */
bool ashlar__csv_next(ashlar_csv *csv, ashlar_piece *fields, size_t *count);

/* Check that the line read last, which has `count` fields, has as many as the header.
 * Errors: ASHLAR_EFORMAT. */
ASHLAR_MUST_CHECK ashlar_status ashlar__csv_check(const ashlar_csv *csv, size_t count);

/* ASHLAR_EFORMAT: "FILE:LINE: WHAT, not "FIELD"". */
ashlar_status ashlar__csv_fail(const ashlar_csv *csv, const char *what, ashlar_piece field);

#endif /* ASHLAR_CSV_READ_H */
