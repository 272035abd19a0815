/* json_read.c - parsing JSON into one block of memory. */
#include "allocator/base/json.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

/*
 * The document is one block of memory: first the values, then the characters of strings and keys.
 * Limits for both are known before parsing:
 *   values      <= 1 + commas + opening brackets: an array or object of k > 0 items has k-1 commas
 *   characters  <= bytes + 1. A parsed string and its 0 take no more bytes than the quoted string
 *                  in the source, as an escape sequence yields at most half its own length. A
 *                  number is copied to the unused end for a moment, with a 0, which the + 1 is for.
 */
typedef struct parser {
    const char *text;
    size_t bytes;
    size_t at; /* index of the next byte to read, <= bytes */
    size_t depth;
    ashlar_json *values; /* the beginning of the block */
    size_t value_count, value_max;
    char *free_chars, *chars_end; /* the block's unused characters */
} parser;
_Static_assert(ASHLAR_JSON_NULL == 0, "a zeroed value is null until it is parsed");

static ashlar_status parse_value(parser *p, ashlar_json *value);

static ashlar_status fail_at(size_t at, const char *what) {
    return ashlar__fail(ASHLAR_EFORMAT, "JSON, byte %zu: %s", at, what);
}

/* The next byte. At the end 0, which is valid nowhere. */
static char peek(const parser *p) {
    ASHLAR_CHECK2(p->at <= p->bytes);
    return p->at < p->bytes ? p->text[p->at] : '\0';
}

static void skip_blanks(parser *p) {
    while (p->at < p->bytes && memchr(" \t\n\r", p->text[p->at], 4) != NULL) {
        p->at++;
    }
}

/* --- strings -------------------------------------------------------------------------------- */

static bool parse_hex4(parser *p, unsigned int *out) {
    unsigned int code = 0;
    for (int i = 0; i < 4; i++) {
        const char c = peek(p);
        if (c >= '0' && c <= '9') {
            code = code * 16 + (unsigned int)(c - '0');
        } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
            code = code * 16 + (unsigned int)((c | 0x20) - 'a') + 10;
        } else {
            return false;
        }
        p->at++;
    }
    *out = code;
    return true;
}

static void put_utf8(parser *p, unsigned int code) {
    char *s = p->free_chars;
    ASHLAR_CHECK2(code <= 0x10ffff && (code < 0xd800 || code >= 0xe000)); /* no half of a pair */
    ASHLAR_CHECK2(p->chars_end - s >= 4);
    if (code < 0x80) {
        *s++ = (char)code;
    } else if (code < 0x800) {
        *s++ = (char)(0xc0 | code >> 6);
    } else if (code < 0x10000) {
        *s++ = (char)(0xe0 | code >> 12);
        *s++ = (char)(0x80 | (code >> 6 & 0x3f));
    } else {
        *s++ = (char)(0xf0 | code >> 18);
        *s++ = (char)(0x80 | (code >> 12 & 0x3f));
        *s++ = (char)(0x80 | (code >> 6 & 0x3f));
    }
    if (code >= 0x80) {
        *s++ = (char)(0x80 | (code & 0x3f));
    }
    p->free_chars = s;
}

/* Parse what follows "\u": one code unit or, with another \u, a pair of surrogates. */
static ashlar_status parse_unicode(parser *p) {
    const size_t start = p->at;
    unsigned int code;
    if (!parse_hex4(p, &code)) {
        return fail_at(p->at, "\\u needs four hexadecimal digits");
    }
    if (code >= 0xd800 && code < 0xe000) {
        unsigned int low = 0;
        const bool second = code < 0xdc00 && p->bytes - p->at >= 6 && p->text[p->at] == '\\' &&
                            p->text[p->at + 1] == 'u';
        p->at += second ? 2 : 0;
        if (!second || !parse_hex4(p, &low) || low < 0xdc00 || low >= 0xe000) {
            return fail_at(start, "half of a surrogate pair");
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    put_utf8(p, code);
    return ASHLAR_OK;
}

/* Parse what follows a backslash in a string. */
static ashlar_status parse_escape(parser *p) {
    static const char plain[] = "\"\"\\\\//b\bf\fn\nr\rt\t"; /* pairs: escape, its character */
    const char c = peek(p);
    if (c == 'u') {
        p->at++;
        return parse_unicode(p);
    }
    for (size_t i = 0; i + 1 < sizeof plain; i += 2) {
        if (plain[i] == c) {
            *p->free_chars++ = plain[i + 1];
            p->at++;
            return ASHLAR_OK;
        }
    }
    return fail_at(p->at, "no such escape");
}

static ashlar_status parse_string(parser *p, const char **text, size_t *count) {
    if (peek(p) != '"') {
        return fail_at(p->at, "expected a string");
    }
    const size_t open = p->at++;
    char *start = p->free_chars;
    while (p->at < p->bytes && p->text[p->at] != '"') {
        const char *s = p->text + p->at;
        if (*s == '\\') {
            p->at++;
            const ashlar_status status = parse_escape(p);
            if (status != ASHLAR_OK) {
                return status;
            }
            continue;
        }
        const size_t length = ashlar__json_utf8_bytes(s, p->bytes - p->at);
        if (length == 0 || (unsigned char)*s < 0x20) {
            return fail_at(p->at, length == 0 ? "not UTF-8" : "a control character in a string");
        }
        ASHLAR_CHECK2(length < (size_t)(p->chars_end - p->free_chars)); /* room for a 0 too */
        memcpy(p->free_chars, s, length);
        p->free_chars += length;
        p->at += length;
    }
    if (p->at == p->bytes) {
        return fail_at(open, "this string does not end");
    }
    p->at++;
    *text = start;
    *count = (size_t)(p->free_chars - start);
    *p->free_chars++ = '\0';
    return ASHLAR_OK;
}

/* --- numbers -------------------------------------------------------------------------------- */

static size_t skip_digits(parser *p) {
    const size_t start = p->at;
    while (peek(p) >= '0' && peek(p) <= '9') {
        p->at++;
    }
    return p->at - start;
}

/* Skip a number. False: it is malformed, and p->at is the index of the wrong byte. */
static bool scan_number(parser *p, bool *is_integer) {
    p->at += peek(p) == '-';
    if (peek(p) == '0') {
        p->at++; /* a digit after this 0 is not skipped: JSON has no number 012 */
    } else if (skip_digits(p) == 0) {
        return false;
    }
    *is_integer = true;
    if (peek(p) == '.') {
        *is_integer = false;
        p->at++;
        if (skip_digits(p) == 0) {
            return false;
        }
    }
    if (peek(p) == 'e' || peek(p) == 'E') {
        *is_integer = false;
        p->at++;
        p->at += peek(p) == '+' || peek(p) == '-';
        return skip_digits(p) > 0;
    }
    return true;
}

static ashlar_status parse_number(parser *p, ashlar_json *value) {
    const size_t start = p->at;
    if (!scan_number(p, &value->is_integer)) {
        return fail_at(p->at, "expected a digit");
    }
    /* strtod() needs a copy that ends with a 0, and a locale whose decimal separator is a point. */
    char *copy = p->free_chars;
    ASHLAR_CHECK2(p->at - start < (size_t)(p->chars_end - copy));
    memcpy(copy, p->text + start, p->at - start);
    copy[p->at - start] = '\0';
    value->kind = ASHLAR_JSON_NUMBER;
    value->is_negative = copy[0] == '-';
    const locale_t before = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
    value->number = strtod(copy, NULL);
    (void)uselocale(before);
    if (!isfinite(value->number)) {
        return fail_at(start, "the number is beyond a double");
    }
    if (value->is_integer) {
        errno = 0;
        value->magnitude = strtoull(copy + value->is_negative, NULL, 10);
        value->is_integer = errno == 0;
    }
    return ASHLAR_OK;
}

/* --- values --------------------------------------------------------------------------------- */

static ashlar_status parse_literal(parser *p, ashlar_json *value) {
    static const struct {
        const char *text;
        size_t bytes;
        ashlar_json_kind kind;
        bool boolean;
    } literals[] = {
        {"null", 4, ASHLAR_JSON_NULL, false},
        {"true", 4, ASHLAR_JSON_BOOL, true},
        {"false", 5, ASHLAR_JSON_BOOL, false},
    };
    for (size_t i = 0; i < sizeof literals / sizeof literals[0]; i++) {
        if (p->bytes - p->at >= literals[i].bytes &&
            memcmp(p->text + p->at, literals[i].text, literals[i].bytes) == 0) {
            value->kind = literals[i].kind;
            value->boolean = literals[i].boolean;
            p->at += literals[i].bytes;
            return ASHLAR_OK;
        }
    }
    return fail_at(p->at, "expected a value");
}

static ashlar_status parse_key(parser *p, ashlar_json *item) {
    skip_blanks(p);
    const ashlar_status status = parse_string(p, &item->key, &item->key_bytes);
    if (status != ASHLAR_OK) {
        return status;
    }
    skip_blanks(p);
    if (peek(p) != ':') {
        return fail_at(p->at, "expected ':' after a key");
    }
    p->at++;
    return ASHLAR_OK;
}

/* Parse the items of an array or object, after its opening bracket, and its closing bracket. */
static ashlar_status parse_items(parser *p, ashlar_json *value) {
    const bool is_object = value->kind == ASHLAR_JSON_OBJECT;
    const char close = is_object ? '}' : ']';
    const ashlar_json **link = &value->item;
    skip_blanks(p);
    if (peek(p) == close) {
        p->at++;
        return ASHLAR_OK;
    }
    for (;;) {
        ASHLAR_CHECK2(p->value_count < p->value_max);
        ashlar_json *item = &p->values[p->value_count++];
        ashlar_status status = is_object ? parse_key(p, item) : ASHLAR_OK;
        if (status == ASHLAR_OK) {
            status = parse_value(p, item);
        }
        if (status != ASHLAR_OK) {
            return status;
        }
        *link = item;
        link = &item->next;
        value->count++;
        skip_blanks(p);
        const char c = peek(p);
        if (c != ',' && c != close) {
            return fail_at(p->at, is_object ? "expected ',' or '}'" : "expected ',' or ']'");
        }
        p->at++;
        if (c == close) {
            return ASHLAR_OK;
        }
    }
}

static ashlar_status parse_value(parser *p, ashlar_json *value) {
    ASHLAR_CHECK2(p->depth <= ASHLAR_JSON_DEPTH);
    ASHLAR_CHECK2(value->kind == ASHLAR_JSON_NULL && value->item == NULL); /* still zeroed */
    skip_blanks(p);
    const char c = peek(p);
    if (c == '"') {
        value->kind = ASHLAR_JSON_STRING;
        return parse_string(p, &value->text, &value->count);
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        return parse_number(p, value);
    }
    if (c != '{' && c != '[') {
        return parse_literal(p, value);
    }
    if (p->depth == ASHLAR_JSON_DEPTH) {
        return fail_at(p->at, "nested too deep");
    }
    p->at++;
    p->depth++;
    value->kind = c == '{' ? ASHLAR_JSON_OBJECT : ASHLAR_JSON_ARRAY;
    const ashlar_status status = parse_items(p, value);
    p->depth--;
    return status;
}

static ashlar_status parse_document(parser *p) {
    p->value_count = 1;
    const ashlar_status status = parse_value(p, &p->values[0]);
    if (status != ASHLAR_OK) {
        return status;
    }
    ASHLAR_CHECK2(p->depth == 0);
    skip_blanks(p);
    return p->at == p->bytes ? ASHLAR_OK : fail_at(p->at, "text after the document's end");
}

/* --- the interface -------------------------------------------------------------------------- */

ashlar_status ashlar__json_parse(const char *text, size_t bytes, ashlar_json **out) {
    size_t value_max = 1;
    for (size_t i = 0; i < bytes; i++) {
        value_max += text[i] == ',' || text[i] == '[' || text[i] == '{';
    }
    size_t total;
    if (!ashlar__mul(value_max, sizeof(ashlar_json), &total) ||
        !ashlar__add(total, bytes, &total) || !ashlar__add(total, 1, &total)) {
        return ashlar__fail(ASHLAR_EOVERFLOW, "JSON: %zu bytes of text are too many", bytes);
    }
    ashlar_json *values = ashlar__host_calloc(total, 1);
    if (values == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "JSON: no host memory for %zu bytes of text", bytes);
    }
    parser p = {
        .text = text,
        .bytes = bytes,
        .values = values,
        .value_max = value_max,
        .free_chars = (char *)(values + value_max),
        .chars_end = (char *)(values + value_max) + bytes + 1,
    };
    const ashlar_status status = parse_document(&p);
    if (status != ASHLAR_OK) {
        ashlar__json_free(values);
        return status;
    }
    ASHLAR_ASSERT(p.value_count <= value_max);
    ASHLAR_CHECK2(p.free_chars <= p.chars_end);
    *out = values;
    return ASHLAR_OK;
}

void ashlar__json_free(ashlar_json *document) {
    ashlar__host_free(document);
}

const ashlar_json *ashlar__json_member(const ashlar_json *value, const char *key) {
    if (value == NULL || value->kind != ASHLAR_JSON_OBJECT) {
        return NULL;
    }
    const size_t bytes = strlen(key);
    for (const ashlar_json *item = value->item; item != NULL; item = item->next) {
        ASHLAR_CHECK2(item->key != NULL);
        if (item->key_bytes == bytes && memcmp(item->key, key, bytes) == 0) {
            return item;
        }
    }
    return NULL;
}

bool ashlar__json_get_uint64(const ashlar_json *value, uint64_t *out) {
    if (value == NULL || !value->is_integer || (value->is_negative && value->magnitude != 0)) {
        return false;
    }
    *out = value->magnitude;
    return true;
}

bool ashlar__json_get_int64(const ashlar_json *value, int64_t *out) {
    if (value == NULL || !value->is_integer ||
        value->magnitude > (uint64_t)INT64_MAX + value->is_negative) {
        return false;
    }
    /* -(m - 1) - 1 and not -m: m may be 2^63, which int64_t cannot hold. */
    *out = value->is_negative && value->magnitude != 0 ? -(int64_t)(value->magnitude - 1) - 1
                                                       : (int64_t)value->magnitude;
    return true;
}
