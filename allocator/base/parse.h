/*
 * parse.h - reading text: pieces of it, numbers, option lines and tables; alike in every locale
 * (internal).
 *
 * An ashlar__parse_ function succeeds only if the whole piece is a number: it sets *out and returns
 * true. Otherwise it returns false and leaves *out alone. Signs and blanks are refused.
 */
#ifndef ASHLAR_PARSE_H
#define ASHLAR_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

/* Part of a text. No 0 follows its last byte, and it owns nothing. */
typedef struct ashlar_piece {
    const char *text;
    size_t bytes;
} ashlar_piece;

enum {
    ASHLAR_NUMBER_BYTES = 32, /* room for what any ashlar__write_ function writes, and a 0 */
    ASHLAR_SHOWN_BYTES = 41,  /* room for what ashlar__piece_show() writes: 40 bytes and a 0 */
};

ashlar_piece ashlar__piece_of(const char *text);

bool ashlar__piece_is(ashlar_piece piece, const char *text);

/* Cut *rest at the first `mark`: return the part before the mark, and leave the part after it in
 * *rest. Without a mark, return all and leave nothing. */
ashlar_piece ashlar__piece_cut(ashlar_piece *rest, char mark);

/* The piece without the blanks, tabs and carriage returns around it. */
ashlar_piece ashlar__piece_trim(ashlar_piece piece);

/* Write the beginning of the piece to `shown`, for a message, with "?" for each byte that is not
 * printable ASCII. Returns `shown`. */
const char *ashlar__piece_show(ashlar_piece piece, char shown[static ASHLAR_SHOWN_BYTES]);

/* Read decimal digits. */
bool ashlar__parse_count(ashlar_piece piece, uint64_t *out);

/* Read a decimal number, perhaps with a point, and a unit B, KiB, MiB, GiB or TiB; a 0 needs no
 * unit. Parts of a byte are cut off; 1.5B is refused. */
bool ashlar__parse_bytes(ashlar_piece piece, uint64_t *out);

/* Read a decimal number, perhaps with an exponent: "0.9", "1", "25e-2". It must be finite as a
 * double, and have at most 60 characters. */
bool ashlar__parse_real(ashlar_piece piece, double *out);

/* strtod() in the "C" locale, whose decimal separator is a point. */
double ashlar__real_of(const char *text);

/* Write a number so that the matching ashlar__parse_ function reads the same value back. A real
 * that is negative or not finite, which ashlar__parse_real() refuses, is written too, for
 * messages. */
void ashlar__write_count(uint64_t value, char out[static ASHLAR_NUMBER_BYTES]);
void ashlar__write_bytes(uint64_t value, char out[static ASHLAR_NUMBER_BYTES]); /* with a unit */
void ashlar__write_real(double value, char out[static ASHLAR_NUMBER_BYTES]);

/* ---- a line of options, "key=value,key=value" ---- */

enum { ASHLAR_PAIRS_KEYS_MAX = 32 };

/* Set key `i` to `value`; return ashlar__pairs_refuse() if the value is bad. The first error ends
 * the reading. */
typedef ashlar_status (*ashlar_pairs_fn)(void *context, size_t i, ashlar_piece value);

typedef struct ashlar_pairs_format {
    const char *source;      /* for messages: where the line came from, such as "ASHLAR_SOFT" */
    const char *const *keys; /* [count] */
    size_t count;            /* 1 .. ASHLAR_PAIRS_KEYS_MAX */
    ashlar_pairs_fn set;
} ashlar_pairs_format;

/* Call `set` for each pair, in the order of the line. Errors: ASHLAR_EINVAL (an unknown key, or a
 * key given twice), and those of `set`. The pairs before the bad one stay set. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pairs_read(const ashlar_pairs_format *format,
                                                   const char *text, void *context);

/* Return ASHLAR_EINVAL with the detail "SOURCE: KEY=VALUE; give ALLOWED". */
ashlar_status ashlar__pairs_refuse(const char *source, const char *key, ashlar_piece value,
                                   const char *allowed);

/* ---- comma-separated tables ---- */

enum { ASHLAR_CSV_COLUMNS_MAX = 8 };

/* The columns of one kind of table. The first line that is not blank names them, in any order;
 * unknown columns are ignored. Lines end with LF or CRLF; quotes have no meaning. */
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

/* Read the next line that is not blank. fields[c] is the field of column c, without the blanks
 * around it, empty if the line is too short; *count is the number of fields in the line. False: no
 * line is left. */
bool ashlar__csv_next(ashlar_csv *csv, ashlar_piece *fields, size_t *count);

/* Check that the line read last, which has `count` fields, has as many as the header.
 * Errors: ASHLAR_EFORMAT. */
ASHLAR_MUST_CHECK ashlar_status ashlar__csv_check(const ashlar_csv *csv, size_t count);

/* Return ASHLAR_EFORMAT with the detail "FILE:LINE: WHAT, not "FIELD"". */
ashlar_status ashlar__csv_fail(const ashlar_csv *csv, const char *what, ashlar_piece field);

#endif /* ASHLAR_PARSE_H */
