/*
 * fuzz_json.c - any bytes as JSON text: refused, or the same again after being written; and any
 * bytes as a string to write. What the grammar accepts test_json_read.c says.
 */
#include "tests/fuzz/fuzz.h"

#include <math.h>

#include "tests/json_tree.h"

const char fuzz_claim[] = "every_text_is_refused_or_survives_being_written_and_read_again";

static const char *const samples[] = {
    "{\"a\":[1,-2.5e3,true,false,null],\"b\":{\"c\":\"\\u00e4\\ud83d\\ude00\\n\\/\"}}",
    "[0,-0,18446744073709551615,-9223372036854775808,-9223372036854775809,1e308,5e-324]",
    " [ \"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\" , [ ] , { } ] ",
    "[\"\\\"\\\\\\b\\f\\r\\t\\u0000\\u001f\"]",
    "{\"a\":1,\"a\":2,\"\":3,\"\\u0000\":4}",
    "[1e999,012,1.,.5,-,+1,0x1]",
    "[\"\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xff\"]",
    "[\"\\ud800\\udc00\\ud800\",\"\\udc00\"]",
    "[\"\x1f\"]",
};
enum { SAMPLE_COUNT = sizeof samples / sizeof samples[0] };

size_t fuzz_seed(unsigned i, uint8_t *out, size_t cap) {
    if (i >= SAMPLE_COUNT + 2) {
        return 0;
    }
    if (i >= SAMPLE_COUNT) { /* as deep as may be, and one deeper */
        const size_t depth = ASHLAR_JSON_DEPTH + i - SAMPLE_COUNT;
        FUZZ_CHECK(2 * depth <= cap);
        memset(out, '[', depth);
        memset(out + depth, ']', depth);
        return 2 * depth;
    }
    return fuzz_copy(samples[i], out, cap);
}

/* Bytes of the character at text[0, left), by its code point; 0 if it is none. */
static size_t character_bytes(const char *text, size_t left) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char lead = (unsigned char)text[0];
    if (lead < 0x80) {
        return 1;
    }
    const size_t length = lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
    if (length == 0 || length > left) {
        return 0;
    }
    uint32_t code = lead & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        const unsigned char next = (unsigned char)text[i];
        if (next >> 6 != 2) {
            return 0;
        }
        code = code << 6 | (next & 0x3fu);
    }
    return code >= least[length] && code <= 0x10ffff && code >> 11 != 0x1b ? length : 0;
}

/* ---- what was parsed ---- */

/* Whether every key can be written: the writer takes keys that end at their first 0. */
static bool check_value(const ashlar_json *value) {
    bool can_write = true;
    size_t count = 0;
    if (value->kind == ASHLAR_JSON_STRING) {
        FUZZ_CHECK(value->text[value->count] == '\0');
        return true;
    }
    if (value->kind == ASHLAR_JSON_NUMBER) {
        FUZZ_CHECK(isfinite(value->number));
        FUZZ_CHECK((signbit(value->number) != 0) == value->is_negative);
        FUZZ_CHECK(!value->is_integer || fabs(value->number) == (double)value->magnitude);
    }
    for (const ashlar_json *item = value->item; item != NULL; item = item->next) {
        FUZZ_CHECK((item->key != NULL) == (value->kind == ASHLAR_JSON_OBJECT));
        FUZZ_CHECK(item->key == NULL || item->key[item->key_bytes] == '\0');
        can_write &= item->key == NULL || strlen(item->key) == item->key_bytes;
        can_write &= check_value(item);
        count++;
    }
    FUZZ_CHECK(count == value->count);
    return can_write;
}

static void put_number(ashlar_json_writer *writer, const ashlar_json *value) {
    uint64_t whole = 0;
    int64_t negative = 0;
    if (value->is_negative && value->magnitude != 0 && json_get_int64(value, &negative)) {
        json_put_int64(writer, negative);
    } else if (!value->is_negative && ashlar__json_get_uint64(value, &whole)) {
        ashlar__json_put_uint64(writer, whole);
    } else {
        ashlar__json_put_double(writer, value->number);
    }
}

static void put_value(ashlar_json_writer *writer, const ashlar_json *value) {
    switch (value->kind) {
    case ASHLAR_JSON_NULL:
        ashlar__json_put_null(writer);
        return;
    case ASHLAR_JSON_BOOL:
        ashlar__json_put_bool(writer, value->boolean);
        return;
    case ASHLAR_JSON_NUMBER:
        put_number(writer, value);
        return;
    case ASHLAR_JSON_STRING:
        ashlar__json_put_text(writer, value->text, value->count);
        return;
    case ASHLAR_JSON_ARRAY:
        ashlar__json_open_array(writer);
        break;
    case ASHLAR_JSON_OBJECT:
        ashlar__json_open_object(writer);
        break;
    }
    for (const ashlar_json *item = value->item; item != NULL; item = item->next) {
        if (item->key != NULL) {
            ashlar__json_put_key(writer, item->key);
        }
        put_value(writer, item);
    }
    value->kind == ASHLAR_JSON_ARRAY ? ashlar__json_close_array(writer)
                                     : ashlar__json_close_object(writer);
}

static void check_same(const ashlar_json *a, const ashlar_json *b) {
    FUZZ_CHECK(a->kind == b->kind && a->boolean == b->boolean && a->count == b->count);
    FUZZ_CHECK(memcmp(&a->number, &b->number, sizeof a->number) == 0);
    if (a->is_integer && b->is_integer) {
        FUZZ_CHECK(a->magnitude == b->magnitude && a->is_negative == b->is_negative);
    }
    if (a->kind == ASHLAR_JSON_STRING) {
        FUZZ_CHECK(memcmp(a->text, b->text, a->count) == 0);
    }
    const ashlar_json *y = b->item;
    for (const ashlar_json *x = a->item; x != NULL; x = x->next, y = y->next) {
        FUZZ_CHECK(x->key == NULL || strcmp(x->key, y->key) == 0);
        check_same(x, y);
    }
}

static void check_round_trip(const ashlar_json *value, unsigned int indent) {
    ashlar_json_writer writer;
    const char *text = NULL;
    size_t bytes = 0;
    ashlar_json *again = NULL;
    ashlar__json_writer_init(&writer, indent);
    put_value(&writer, value);
    FUZZ_CHECK(ashlar__json_writer_text(&writer, &text, &bytes) == ASHLAR_OK);
    FUZZ_CHECK(json_parse(text, bytes, &again) == ASHLAR_OK);
    check_same(value, again);
    json_free(again);
    ashlar__json_writer_finish(&writer);
}

/* Any bytes can be written as a string; what is not UTF-8 is replaced, the rest comes back. */
static void check_any_text(const char *data, size_t bytes) {
    ashlar_json_writer writer;
    const char *text = NULL;
    size_t text_bytes = 0, at = 0;
    ashlar_json *value = NULL;
    ashlar__json_writer_init(&writer, 0);
    ashlar__json_put_text(&writer, data, bytes);
    FUZZ_CHECK(ashlar__json_writer_text(&writer, &text, &text_bytes) == ASHLAR_OK);
    FUZZ_CHECK(json_parse(text, text_bytes, &value) == ASHLAR_OK);
    FUZZ_CHECK(value->kind == ASHLAR_JSON_STRING);
    for (size_t i = 0; i < bytes;) {
        const size_t length = character_bytes(data + i, bytes - i);
        const char *want = length > 0 ? data + i : "\xef\xbf\xbd";
        const size_t want_bytes = length > 0 ? length : 3;
        FUZZ_CHECK(value->count - at >= want_bytes);
        FUZZ_CHECK(memcmp(value->text + at, want, want_bytes) == 0);
        at += want_bytes;
        i += length > 0 ? length : 1;
    }
    FUZZ_CHECK(at == value->count);
    json_free(value);
    ashlar__json_writer_finish(&writer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    ashlar_json *value = NULL;
    const ashlar_status status = json_parse((const char *)data, bytes, &value);
    FUZZ_CHECK(status == (value != NULL ? ASHLAR_OK : ASHLAR_EFORMAT));
    if (value != NULL && check_value(value)) {
        check_round_trip(value, 0);
        check_round_trip(value, 2);
    }
    json_free(value);
    check_any_text((const char *)data, bytes);
    return 0;
}
