/* json_scan.c - reading a JSON text value by value, decoding strings in place. */
#include "allocator/base/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/parse.h"

_Static_assert(ASHLAR_JSON_NULL == 0, "a zeroed value is null until it is read");

static ashlar_status fail_at(size_t at, const char *what) {
    return ashlar__fail(ASHLAR_EFORMAT, "JSON, byte %zu: %s", at, what);
}

/* The next byte; at the end of the text 0, which no caller accepts. */
static char peek(const ashlar_json_scan *s) {
    ASHLAR_CHECK2(s->at <= s->bytes);
    return s->at < s->bytes ? s->text[s->at] : '\0';
}

static void skip_blanks(ashlar_json_scan *s) {
    while (s->at < s->bytes && memchr(" \t\n\r", s->text[s->at], 4) != NULL) {
        s->at++;
    }
}

/* --- strings -------------------------------------------------------------------------------- */

static bool scan_hex4(ashlar_json_scan *s, unsigned int *out) {
    unsigned int code = 0;
    for (int i = 0; i < 4; i++) {
        const char c = peek(s);
        if (c >= '0' && c <= '9') {
            code = code * 16 + (unsigned int)(c - '0');
        } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
            code = code * 16 + (unsigned int)((c | 0x20) - 'a') + 10;
        } else {
            return false;
        }
        s->at++;
    }
    *out = code;
    return true;
}

/* Append a character to the decoded string, which never outgrows the part that has been read. */
static void put_utf8(ashlar_json_scan *s, unsigned int code) {
    char *to = s->put;
    ASHLAR_CHECK2(code <= 0x10ffff && (code < 0xd800 || code >= 0xe000)); /* no surrogate */
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
    }
    if (code >= 0x80) {
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    s->put = to;
    ASHLAR_CHECK2(s->put <= s->text + s->at);
}

/* Read the rest of an escape "\u": one code unit or, with another \u, a pair of surrogates. */
static ashlar_status scan_unicode(ashlar_json_scan *s) {
    const size_t start = s->at;
    unsigned int code;
    if (!scan_hex4(s, &code)) {
        return fail_at(s->at, "\\u needs four hexadecimal digits");
    }
    if (code >= 0xd800 && code < 0xe000) {
        unsigned int low = 0;
        const bool second = code < 0xdc00 && s->bytes - s->at >= 6 && s->text[s->at] == '\\' &&
                            s->text[s->at + 1] == 'u';
        s->at += second ? 2 : 0;
        if (!second || !scan_hex4(s, &low) || low < 0xdc00 || low >= 0xe000) {
            return fail_at(start, "half of a surrogate pair");
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    put_utf8(s, code);
    return ASHLAR_OK;
}

/* Read the rest of an escape, after its backslash. */
static ashlar_status scan_escape(ashlar_json_scan *s) {
    static const char plain[] = "\"\"\\\\//b\bf\fn\nr\rt\t"; /* pairs: escape, its character */
    const char c = peek(s);
    if (c == 'u') {
        s->at++;
        return scan_unicode(s);
    }
    for (size_t i = 0; i + 1 < sizeof plain; i += 2) {
        if (plain[i] == c) {
            *s->put++ = plain[i + 1];
            s->at++;
            return ASHLAR_OK;
        }
    }
    return fail_at(s->at, "no such escape");
}

static ashlar_status scan_string(ashlar_json_scan *s, const char **text, size_t *count) {
    if (peek(s) != '"') {
        return fail_at(s->at, "expected a string");
    }
    const size_t open = s->at++;
    const char *start = s->put = s->text + s->at;
    while (s->at < s->bytes && s->text[s->at] != '"') {
        const char *next = s->text + s->at;
        if (*next == '\\') {
            s->at++;
            ASHLAR_TRY(scan_escape(s));
            continue;
        }
        const size_t length = ashlar__json_utf8_bytes(next, s->bytes - s->at);
        if (length == 0 || (unsigned char)*next < 0x20) {
            return fail_at(s->at, length == 0 ? "not UTF-8" : "a control character in a string");
        }
        ASHLAR_CHECK2(s->put <= next);
        memmove(s->put, next, length);
        s->put += length;
        s->at += length;
    }
    if (s->at == s->bytes) {
        return fail_at(open, "this string does not end");
    }
    *text = start;
    *count = (size_t)(s->put - start);
    *s->put = '\0'; /* at the closing quote's place, or before it */
    s->at++;
    return ASHLAR_OK;
}

/* --- numbers -------------------------------------------------------------------------------- */

static size_t skip_digits(ashlar_json_scan *s) {
    const size_t start = s->at;
    while (peek(s) >= '0' && peek(s) <= '9') {
        s->at++;
    }
    return s->at - start;
}

/* Skip a number. False: it is malformed, and s->at is the index of the wrong byte. */
static bool skip_number(ashlar_json_scan *s, bool *is_integer) {
    s->at += peek(s) == '-';
    if (peek(s) == '0') {
        s->at++; /* a digit after this 0 is not skipped: JSON has no number 012 */
    } else if (skip_digits(s) == 0) {
        return false;
    }
    *is_integer = true;
    if (peek(s) == '.') {
        *is_integer = false;
        s->at++;
        if (skip_digits(s) == 0) {
            return false;
        }
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        *is_integer = false;
        s->at++;
        s->at += peek(s) == '+' || peek(s) == '-';
        return skip_digits(s) > 0;
    }
    return true;
}

static ashlar_status scan_number(ashlar_json_scan *s, ashlar_json *value) {
    const size_t start = s->at;
    if (!skip_number(s, &value->is_integer)) {
        return fail_at(s->at, "expected a digit");
    }
    /* strtod() needs a 0 behind the number. */
    char *number = s->text + start;
    const char behind = s->text[s->at];
    s->text[s->at] = '\0';
    value->kind = ASHLAR_JSON_NUMBER;
    value->is_negative = number[0] == '-';
    value->number = ashlar__real_of(number);
    if (value->is_integer) {
        errno = 0;
        value->magnitude = strtoull(number + value->is_negative, NULL, 10);
        value->is_integer = errno == 0;
    }
    s->text[s->at] = behind;
    return isfinite(value->number) ? ASHLAR_OK : fail_at(start, "the number is beyond a double");
}

/* --- values --------------------------------------------------------------------------------- */

static bool skip_word(ashlar_json_scan *s, const char *word) {
    const size_t bytes = strlen(word);
    const bool is_there = s->bytes - s->at >= bytes && memcmp(s->text + s->at, word, bytes) == 0;
    s->at += is_there ? bytes : 0;
    return is_there;
}

static ashlar_status scan_word(ashlar_json_scan *s, ashlar_json *value) {
    if (skip_word(s, "null")) {
        return ASHLAR_OK; /* a zeroed value is null */
    }
    value->kind = ASHLAR_JSON_BOOL;
    value->boolean = skip_word(s, "true");
    return value->boolean || skip_word(s, "false") ? ASHLAR_OK : fail_at(s->at, "expected a value");
}

/* Read a whole value, or the opening bracket of an array or object. */
static ashlar_status scan_value(ashlar_json_scan *s, ashlar_json *value) {
    ASHLAR_CHECK2(s->depth <= ASHLAR_JSON_DEPTH);
    ASHLAR_CHECK2(value->kind == ASHLAR_JSON_NULL && value->item == NULL); /* still zeroed */
    skip_blanks(s);
    const char c = peek(s);
    if (c == '"') {
        value->kind = ASHLAR_JSON_STRING;
        return scan_string(s, &value->text, &value->count);
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        return scan_number(s, value);
    }
    if (c != '{' && c != '[') {
        return scan_word(s, value);
    }
    if (s->depth == ASHLAR_JSON_DEPTH) {
        return fail_at(s->at, "nested too deep");
    }
    s->at++;
    s->depth++;
    s->is_first = true;
    value->kind = c == '{' ? ASHLAR_JSON_OBJECT : ASHLAR_JSON_ARRAY;
    return ASHLAR_OK;
}

static ashlar_status scan_key(ashlar_json_scan *s, ashlar_json *item) {
    skip_blanks(s);
    ASHLAR_TRY(scan_string(s, &item->key, &item->key_bytes));
    skip_blanks(s);
    if (peek(s) != ':') {
        return fail_at(s->at, "expected ':' after a key");
    }
    s->at++;
    return ASHLAR_OK;
}

ashlar_status ashlar__json_scan_begin(ashlar_json_scan *scan, char *text, size_t bytes,
                                      ashlar_json *value) {
    *scan = (ashlar_json_scan){.text = text, .bytes = bytes};
    *value = (ashlar_json){.kind = ASHLAR_JSON_NULL};
    return scan_value(scan, value);
}

ashlar_status ashlar__json_scan_next(ashlar_json_scan *scan, ashlar_json_kind kind,
                                     ashlar_json *item, bool *is_there) {
    const bool is_object = kind == ASHLAR_JSON_OBJECT;
    ASHLAR_CHECK2(scan->depth > 0 && (is_object || kind == ASHLAR_JSON_ARRAY));
    skip_blanks(scan);
    const char c = peek(scan);
    *is_there = c != (is_object ? '}' : ']');
    if (!*is_there) {
        scan->at++;
        scan->depth--;
        scan->is_first = false;
        return ASHLAR_OK;
    }
    if (!scan->is_first && c != ',') {
        return fail_at(scan->at, is_object ? "expected ',' or '}'" : "expected ',' or ']'");
    }
    scan->at += !scan->is_first;
    scan->is_first = false;
    *item = (ashlar_json){.kind = ASHLAR_JSON_NULL};
    if (is_object) {
        ASHLAR_TRY(scan_key(scan, item));
    }
    return scan_value(scan, item);
}

ashlar_status ashlar__json_scan_end(ashlar_json_scan *scan) {
    ASHLAR_CHECK2(scan->depth == 0);
    skip_blanks(scan);
    return scan->at == scan->bytes ? ASHLAR_OK : fail_at(scan->at, "text after the document's end");
}

bool ashlar__json_get_uint64(const ashlar_json *value, uint64_t *out) {
    if (value == NULL || !value->is_integer || (value->is_negative && value->magnitude != 0)) {
        return false;
    }
    *out = value->magnitude;
    return true;
}
