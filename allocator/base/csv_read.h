/*
 * csv_read.h - a table in lines of text: its columns by name, its fields by column (internal).
 *
 * The first line that is not blank names the columns, in any order; unknown ones are ignored. Lines
 * end with LF or CRLF, fields at commas; nothing is quoted. Every piece points into the caller's
 * text, without the blanks around it.
 */
#ifndef ASHLAR_CSV_READ_H
#define ASHLAR_CSV_READ_H

#include <ashlar/status.h>

#include "allocator/base/parse.h"

enum { ASHLAR_CSV_COLUMNS_MAX = 8 };

/* What a kind of table has. */
typedef struct ashlar_csv_format {
    const char *const *columns; /* [count], each there once */
    size_t count;               /* 1 .. ASHLAR_CSV_COLUMNS_MAX */
    const char *const *refused; /* columns that would change the others; ends with NULL */
    const char *begins;         /* for messages: how such a table begins */
} ashlar_csv_format;

typedef struct ashlar_csv {
    const ashlar_csv_format *format;
    const char *name;                      /* of the file, for messages */
    ashlar_piece rest;                     /* what has not been read yet */
    size_t line;                           /* number of the line read last */
    size_t places[ASHLAR_CSV_COLUMNS_MAX]; /* by column: its field's number in a row, from 0 */
    size_t field_count;                    /* of the header */
} ashlar_csv;

/*
 * Read the header. A copy of a reader reads on from the same place.
 *
 * Ownership: name, text and format must outlive the reader, which has nothing to give back.
 * Errors:    ASHLAR_EFORMAT; the detail begins with FILE:LINE: and names the column.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__csv_begin(ashlar_csv *csv, const ashlar_csv_format *format,
                                                  const char *name, const char *text, size_t bytes);

/* Read the next line that is not blank: its fields by column, empty where the line is too short for
 * one, and in *count how many it has. False at the end. */
bool ashlar__csv_next(ashlar_csv *csv, ashlar_piece *fields, size_t *count);

/* Check that a line with `count` fields has as many as the header. Errors: ASHLAR_EFORMAT. */
ASHLAR_MUST_CHECK ashlar_status ashlar__csv_check(const ashlar_csv *csv, size_t count);

/* ASHLAR_EFORMAT: "FILE:LINE: WHAT, not "FIELD"". */
ashlar_status ashlar__csv_fail(const ashlar_csv *csv, const char *what, ashlar_piece field);

#endif /* ASHLAR_CSV_READ_H */
