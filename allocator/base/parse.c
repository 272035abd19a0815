/* parse.c - pieces of text, decimal numbers, option lines, tables. */
#include "allocator/base/parse.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

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

/* Read the digits behind a point, as parts of 10^digits; *rest without a point is the piece. */
static bool parse_fraction(ashlar_piece piece, double *out, ashlar_piece *rest) {
    uint64_t parts;
    *out = 0;
    *rest = piece;
    if (piece.bytes == 0 || piece.text[0] != '.') {
        return true;
    }
    if (!parse_digits((ashlar_piece){piece.text + 1, piece.bytes - 1}, &parts, rest)) {
        return false;
    }
    *out = (double)parts;
    for (const char *digit = piece.text + 1; digit < rest->text; digit++) {
        *out /= 10;
    }
    return true;
}

bool ashlar__parse_bytes(ashlar_piece piece, uint64_t *out) {
    uint64_t value;
    double fraction;
    ashlar_piece unit;
    if (!parse_digits(piece, &value, &unit)) {
        return false;
    }
    if (value == 0 && unit.bytes == 0) {
        *out = 0;
        return true;
    }
    if (!parse_fraction(unit, &fraction, &unit)) {
        return false;
    }
    for (unsigned i = 0; i < UNIT_COUNT; i++) {
        const double unit_bytes = (double)(UINT64_C(1) << UNIT_SHIFT * i);
        const bool is_whole = i > 0 ? fraction < 1 : fraction == 0;
        if (ashlar__piece_is(unit, units[i]) && is_whole && value <= UINT64_MAX >> UNIT_SHIFT * i) {
            *out = (value << UNIT_SHIFT * i) + (uint64_t)(fraction * unit_bytes);
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

double ashlar__real_of(const char *text) {
    const locale_t before = enter_c_locale();
    const double value = strtod(text, NULL);
    (void)uselocale(before);
    return value;
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
    const double value = ashlar__real_of(copy);
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
        ASHLAR_CHECK2(!isfinite(value) || strtod(out, NULL) == value); /* 17 digits suffice */
    }
    (void)uselocale(before);
}

/* ---- option lines ---- */

_Static_assert(ASHLAR_PAIRS_KEYS_MAX <= 32, "a bit of *seen for each key");

ashlar_status ashlar__pairs_refuse(const char *source, const char *key, ashlar_piece value,
                                   const char *allowed) {
    char shown[ASHLAR_SHOWN_BYTES];
    return ashlar__fail(ASHLAR_EINVAL, "%s: %s=%s; give %s", source, key,
                        ashlar__piece_show(value, shown), allowed);
}

static ashlar_status fail_key(const ashlar_pairs_format *f, ashlar_piece key, ashlar_piece value) {
    enum { KEY_BYTES = 16 }; /* room for an average key and ", " */
    char keys[ASHLAR_PAIRS_KEYS_MAX * KEY_BYTES] = "";
    char shown_key[ASHLAR_SHOWN_BYTES], shown[ASHLAR_SHOWN_BYTES];
    for (size_t i = 0, at = 0; i < f->count; i++) {
        at += (size_t)snprintf(keys + at, sizeof keys - at, "%s%s", i == 0 ? "" : ", ", f->keys[i]);
        ASHLAR_ASSERT(at < sizeof keys); /* else the list of keys was cut short */
    }
    return ashlar__fail(ASHLAR_EINVAL,
                        "%s: unknown key \"%s\" (value \"%s\"); give key=value, separated by "
                        "commas; the keys are %s",
                        f->source, ashlar__piece_show(key, shown_key),
                        ashlar__piece_show(value, shown), keys);
}

/* Read one "key=value". Bit i of *seen: key i has been given. */
static ashlar_status read_pair(const ashlar_pairs_format *f, ashlar_piece pair, uint32_t *seen,
                               void *context) {
    ashlar_piece value = pair;
    const ashlar_piece key = ashlar__piece_cut(&value, '=');
    size_t i = 0;
    while (i < f->count && !ashlar__piece_is(key, f->keys[i])) {
        i++;
    }
    if (i == f->count) {
        return fail_key(f, key, value);
    }
    if ((*seen & UINT32_C(1) << i) != 0) {
        return ashlar__pairs_refuse(f->source, f->keys[i], value, "each key once");
    }
    *seen |= UINT32_C(1) << i;
    return f->set(context, i, value);
}

ashlar_status ashlar__pairs_read(const ashlar_pairs_format *format, const char *text,
                                 void *context) {
    uint32_t seen = 0;
    ashlar_piece rest = ashlar__piece_of(text);
    ASHLAR_ASSERT(format->count <= ASHLAR_PAIRS_KEYS_MAX);
    ASHLAR_CHECK2(format->count > 0 && format->set != NULL);
    for (bool is_last = rest.bytes == 0; !is_last;) {
        is_last = memchr(rest.text, ',', rest.bytes) == NULL;
        const ashlar_piece pair = ashlar__piece_cut(&rest, ',');
        ASHLAR_TRY(read_pair(format, pair, &seen, context));
    }
    return ASHLAR_OK;
}

/* ---- tables ---- */

ashlar_status ashlar__csv_fail(const ashlar_csv *csv, const char *what, ashlar_piece field) {
    char shown[ASHLAR_SHOWN_BYTES];
    ASHLAR_CHECK2(csv->line > 0); /* lines are numbered from 1: at least one has been read */
    return ashlar__fail(ASHLAR_EFORMAT, "%s:%zu: %s, not \"%s\"", csv->name, csv->line, what,
                        ashlar__piece_show(field, shown));
}

/* The next line that is not blank; false at the end. */
static bool next_line(ashlar_csv *csv, ashlar_piece *line) {
    while (csv->rest.bytes > 0) {
        *line = ashlar__piece_trim(ashlar__piece_cut(&csv->rest, '\n'));
        csv->line++;
        if (line->bytes > 0) {
            return true;
        }
    }
    return false;
}

/* Cut the next field off *line. *is_last: whether it was the last one. */
static ashlar_piece next_field(ashlar_piece *line, bool *is_last) {
    ASHLAR_CHECK2(line->text != NULL);
    *is_last = memchr(line->text, ',', line->bytes) == NULL;
    return ashlar__piece_trim(ashlar__piece_cut(line, ','));
}

static ashlar_status note_column(ashlar_csv *csv, ashlar_piece name) {
    const ashlar_csv_format *f = csv->format;
    for (size_t i = 0; f->refused != NULL && f->refused[i] != NULL; i++) {
        if (ashlar__piece_is(name, f->refused[i])) {
            return ashlar__fail(ASHLAR_EFORMAT,
                                "%s:%zu: a column %s is not supported; take it out if every row "
                                "can do without it",
                                csv->name, csv->line, f->refused[i]);
        }
    }
    for (size_t c = 0; c < f->count; c++) {
        if (ashlar__piece_is(name, f->columns[c])) {
            if (csv->places[c] != SIZE_MAX) {
                return ashlar__csv_fail(csv, "each column has to be there once", name);
            }
            csv->places[c] = csv->field_count;
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__csv_begin(ashlar_csv *csv, const ashlar_csv_format *format, const char *name,
                                const char *text, size_t bytes) {
    static const char mark[] = "\xef\xbb\xbf"; /* U+FEFF: some editors begin a file with it */
    const size_t skipped = bytes >= 3 && memcmp(text, mark, 3) == 0 ? 3 : 0;
    ashlar_piece line = {"", 0};
    ASHLAR_CHECK2(format->count >= 1 && format->count <= ASHLAR_CSV_COLUMNS_MAX);
    *csv = (ashlar_csv){.format = format, .name = name, .rest = {text + skipped, bytes - skipped}};
    for (size_t c = 0; c < format->count; c++) {
        csv->places[c] = SIZE_MAX;
    }
    if (!next_line(csv, &line)) {
        return ashlar__fail(ASHLAR_EFORMAT, "%s: empty; %s", name, format->begins);
    }
    for (bool is_last = false; !is_last; csv->field_count++) {
        ASHLAR_TRY(note_column(csv, next_field(&line, &is_last)));
    }
    for (size_t c = 0; c < format->count; c++) {
        if (csv->places[c] == SIZE_MAX) {
            return ashlar__fail(ASHLAR_EFORMAT, "%s:%zu: no column %s; %s", name, csv->line,
                                format->columns[c], format->begins);
        }
        ASHLAR_CHECK2(csv->places[c] < csv->field_count);
    }
    return ASHLAR_OK;
}

bool ashlar__csv_next(ashlar_csv *csv, ashlar_piece *fields, size_t *count) {
    ashlar_piece line;
    ASHLAR_CHECK2(csv->field_count > 0); /* ashlar__csv_begin() has succeeded */
    if (!next_line(csv, &line)) {
        return false;
    }
    *count = 0;
    for (size_t c = 0; c < csv->format->count; c++) {
        fields[c] = (ashlar_piece){"", 0};
    }
    for (bool is_last = false; !is_last; (*count)++) {
        const ashlar_piece field = next_field(&line, &is_last);
        for (size_t c = 0; c < csv->format->count; c++) {
            if (csv->places[c] == *count) {
                fields[c] = field;
            }
        }
    }
    return true;
}

ashlar_status ashlar__csv_check(const ashlar_csv *csv, size_t count) {
    return count == csv->field_count
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EFORMAT, "%s:%zu: %zu fields where the header has %zu",
                              csv->name, csv->line, count, csv->field_count);
}
