/* parse.c - cutting and trimming pieces of text; reading and writing decimal numbers. */
#include "allocator/base/parse.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"

/* Unit i is 2^(10 i) bytes. */
static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
enum { UNIT_COUNT = sizeof units / sizeof units[0], UNIT_SHIFT = 10 };
_Static_assert((UNIT_COUNT - 1) * UNIT_SHIFT < 64, "the largest unit fits in 64 bits");
_Static_assert(ASHLAR_NUMBER_BYTES >= sizeof "18446744073709551615TiB", "room for every size");
_Static_assert(ASHLAR_NUMBER_BYTES >= sizeof "2.2250738585072014e-308", "and every fraction");

#define DIGITS "0123456789"

/* ---- pieces ---- */

ashlar_piece ashlar__piece_of(const char *text) {
    return (ashlar_piece){text, strlen(text)};
}

bool ashlar__piece_is(ashlar_piece piece, const char *text) {
    return piece.bytes == strlen(text) && memcmp(piece.text, text, piece.bytes) == 0;
}

ashlar_piece ashlar__piece_cut(ashlar_piece *rest, char mark) {
    const char *end = memchr(rest->text, mark, rest->bytes);
    const size_t bytes = end == NULL ? rest->bytes : (size_t)(end - rest->text);
    const size_t used = end == NULL ? bytes : bytes + 1;
    const ashlar_piece front = {rest->text, bytes};
    ASHLAR_CHECK2(used <= rest->bytes);
    *rest = (ashlar_piece){rest->text + used, rest->bytes - used};
    return front;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

ashlar_piece ashlar__piece_trim(ashlar_piece p) {
    while (p.bytes > 0 && is_blank(p.text[0])) {
        p.text++;
        p.bytes--;
    }
    while (p.bytes > 0 && is_blank(p.text[p.bytes - 1])) {
        p.bytes--;
    }
    return p;
}

const char *ashlar__piece_show(ashlar_piece piece, char shown[static ASHLAR_SHOWN_BYTES]) {
    const size_t bytes =
        piece.bytes < ASHLAR_SHOWN_BYTES - 1 ? piece.bytes : ASHLAR_SHOWN_BYTES - 1;
    for (size_t i = 0; i < bytes; i++) {
        const char c = piece.text[i];
        shown[i] = c >= ' ' && c <= '~' ? c : '?';
    }
    shown[bytes] = '\0';
    return shown;
}

/* ---- whole numbers ---- */

/* Read the digits at the front of the piece; *rest is the part after them. False: there are none,
 * or the number needs more than 64 bits. */
static bool parse_digits(ashlar_piece piece, uint64_t *out, ashlar_piece *rest) {
    uint64_t sum = 0;
    size_t i = 0;
    for (; i < piece.bytes && piece.text[i] >= '0' && piece.text[i] <= '9'; i++) {
        const uint64_t digit = (uint64_t)(piece.text[i] - '0');
        if (sum > (UINT64_MAX - digit) / 10) {
            return false;
        }
        sum = sum * 10 + digit;
    }
    ASHLAR_CHECK2(i <= piece.bytes);
    *out = sum;
    *rest = (ashlar_piece){piece.text + i, piece.bytes - i};
    return i > 0;
}

bool ashlar__parse_count(ashlar_piece piece, uint64_t *out) {
    uint64_t value;
    ashlar_piece rest;
    if (!parse_digits(piece, &value, &rest) || rest.bytes != 0) {
        return false;
    }
    *out = value;
    return true;
}

bool ashlar__parse_bytes(ashlar_piece piece, uint64_t *out) {
    uint64_t value;
    ashlar_piece unit;
    if (!parse_digits(piece, &value, &unit)) {
        return false;
    }
    if (value == 0 && unit.bytes == 0) {
        *out = 0;
        return true;
    }
    for (unsigned i = 0; i < UNIT_COUNT; i++) {
        if (ashlar__piece_is(unit, units[i]) && value <= UINT64_MAX >> UNIT_SHIFT * i) {
            *out = value << UNIT_SHIFT * i;
            return true;
        }
    }
    return false;
}

void ashlar__write_count(uint64_t value, char out[static ASHLAR_NUMBER_BYTES]) {
    (void)snprintf(out, ASHLAR_NUMBER_BYTES, "%" PRIu64, value);
}

void ashlar__write_bytes(uint64_t value, char out[static ASHLAR_NUMBER_BYTES]) {
    unsigned i = 0;
    while (i + 1 < UNIT_COUNT && value % (1u << UNIT_SHIFT) == 0) {
        value >>= UNIT_SHIFT;
        i++;
    }
    (void)snprintf(out, ASHLAR_NUMBER_BYTES, "%" PRIu64 "%s", value, value == 0 ? "" : units[i]);
}

/* ---- fractions ---- */

/* Let this thread use the "C" locale, whose decimal separator is a point. Returns the locale to
 * restore. Making the "C" locale takes no memory and cannot fail. */
static locale_t enter_c_locale(void) {
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

/* Whether the text is DIGITS [. DIGITS] [e [+-] DIGITS]. The check is needed because strtod() also
 * accepts blanks, signs, 0x, "inf" and "nan". */
static bool is_real(const char *text) {
    size_t count = strspn(text, DIGITS);
    text += count;
    if (count > 0 && *text == '.') {
        count = strspn(++text, DIGITS);
        text += count;
    }
    if (count > 0 && (*text == 'e' || *text == 'E')) {
        text += text[1] == '+' || text[1] == '-' ? 2 : 1;
        count = strspn(text, DIGITS);
        text += count;
    }
    return count > 0 && *text == '\0';
}

bool ashlar__parse_real(ashlar_piece piece, double *out) {
    char copy[61]; /* strtod() needs a 0 at the end */
    if (piece.bytes >= sizeof copy) {
        return false;
    }
    memcpy(copy, piece.text, piece.bytes);
    copy[piece.bytes] = '\0';
    if (!is_real(copy)) {
        return false;
    }
    const locale_t before = enter_c_locale();
    const double value = strtod(copy, NULL);
    (void)uselocale(before);
    ASHLAR_CHECK2(value >= 0); /* is_real() refuses signs and "nan" */
    if (!isfinite(value)) {
        return false;
    }
    *out = value;
    return true;
}

void ashlar__write_real(double value, char out[static ASHLAR_NUMBER_BYTES]) {
    const locale_t before = enter_c_locale();
    (void)snprintf(out, ASHLAR_NUMBER_BYTES, "%.15g", value); /* 0.1, not 0.10000000000000001 */
    if (strtod(out, NULL) != value) {
        (void)snprintf(out, ASHLAR_NUMBER_BYTES, "%.17g", value);
        ASHLAR_CHECK2(!isfinite(value) || strtod(out, NULL) == value); /* 17 digits are enough */
    }
    (void)uselocale(before);
}
