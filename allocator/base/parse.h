/*
 * parse.h - pieces of text, and reading and writing numbers, alike in every locale (internal).
 *
 * An ashlar__parse_ function succeeds only if the whole piece is a number: it sets *out and returns
 * true. Otherwise it returns false and leaves *out alone. Signs and blanks are refused.
 */
#ifndef ASHLAR_PARSE_H
#define ASHLAR_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Decimal digits. */
bool ashlar__parse_count(ashlar_piece piece, uint64_t *out);

/* Decimal digits, followed by a unit B, KiB, MiB, GiB or TiB; a 0 needs no unit. */
bool ashlar__parse_bytes(ashlar_piece piece, uint64_t *out);

/* A decimal number, perhaps with an exponent: "0.9", "1", "25e-2". It must be finite, and have at
 * most 60 characters. */
bool ashlar__parse_real(ashlar_piece piece, double *out);

/* Write a number so that the matching ashlar__parse_ function reads the same value back. A real
 * that is negative or not finite, which ashlar__parse_real() refuses, is written too, for
 * messages. */
void ashlar__write_count(uint64_t value, char out[static ASHLAR_NUMBER_BYTES]);
void ashlar__write_bytes(uint64_t value, char out[static ASHLAR_NUMBER_BYTES]); /* with a unit */
void ashlar__write_real(double value, char out[static ASHLAR_NUMBER_BYTES]);

#endif /* ASHLAR_PARSE_H */
