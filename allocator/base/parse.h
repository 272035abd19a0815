/*
 * parse.h - pieces of text, and numbers in them that are the same in every locale (internal).
 *
 * Each ashlar__parse_ function takes the whole piece or nothing: it writes *out and returns true,
 * or returns false and leaves *out alone. Signs and blanks are refused.
 */
#ifndef ASHLAR_PARSE_H
#define ASHLAR_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A piece of a text; it is not terminated. */
typedef struct ashlar_piece {
    const char *text;
    size_t bytes;
} ashlar_piece;

enum {
    ASHLAR_NUMBER_BYTES = 32, /* of every number that is written here, its end included */
    ASHLAR_SHOWN_BYTES = 41,
};

ashlar_piece ashlar__piece_of(const char *text);

bool ashlar__piece_is(ashlar_piece piece, const char *text);

/* Cut *rest at the first `mark`: return what is before it, leave in *rest what is after it. */
ashlar_piece ashlar__piece_cut(ashlar_piece *rest, char mark);

/* The piece without the blanks, tabs and carriage returns around it. */
ashlar_piece ashlar__piece_trim(ashlar_piece piece);

/* The beginning of the piece for a message, as printable ASCII. Returns `shown`. */
const char *ashlar__piece_show(ashlar_piece piece, char shown[static ASHLAR_SHOWN_BYTES]);

/* Decimal digits. */
bool ashlar__parse_count(ashlar_piece piece, uint64_t *out);

/* Decimal digits with a unit B, KiB, MiB, GiB or TiB; "0" needs none. */
bool ashlar__parse_bytes(ashlar_piece piece, uint64_t *out);

/* A decimal number, also with an exponent: "0.9", "1", "25e-2". Finite, at most 60 characters. */
bool ashlar__parse_real(ashlar_piece piece, double *out);

/* Write a number so that the functions above read the same value back. A real that they refuse, one
 * below 0 or not finite, is written too, for messages. */
void ashlar__write_count(uint64_t value, char out[static ASHLAR_NUMBER_BYTES]);
void ashlar__write_bytes(uint64_t value, char out[static ASHLAR_NUMBER_BYTES]); /* with a unit */
void ashlar__write_real(double value, char out[static ASHLAR_NUMBER_BYTES]);

#endif /* ASHLAR_PARSE_H */
