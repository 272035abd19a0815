/*
 * test_json_write.c - what the JSON writer writes, and that its numbers survive the reader.
 */
#include "tests/json_tree.h"

#include <float.h>

#include "tests/check.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

/* The document is finished and is `want`. Finishes the writer. */
static void check_text(ashlar_json_writer *writer, const char *want) {
    const char *text = NULL;
    size_t bytes = 0;
    CHECK(ashlar__json_writer_text(writer, &text, &bytes) == ASHLAR_OK);
    CHECK(text != NULL && strcmp(text, want) == 0);
    CHECK_ZU(bytes, strlen(want));
    if (text != NULL && strcmp(text, want) != 0) {
        printf("# got %s\n", text);
    }
    ashlar__json_writer_finish(writer);
}

static void write_sample(ashlar_json_writer *writer) {
    ashlar__json_open_object(writer);
    ashlar__json_put_key(writer, "a");
    ashlar__json_open_array(writer);
    json_put_int64(writer, INT64_MIN);
    ashlar__json_put_uint64(writer, UINT64_MAX);
    ashlar__json_open_object(writer);
    ashlar__json_close_object(writer);
    ashlar__json_open_array(writer);
    ashlar__json_close_array(writer);
    ashlar__json_close_array(writer);
    ashlar__json_put_key(writer, "b");
    ashlar__json_put_bool(writer, true);
    ashlar__json_put_key(writer, "c");
    ashlar__json_put_bool(writer, false);
    ashlar__json_put_key(writer, "d\"");
    ashlar__json_put_null(writer);
    ashlar__json_close_object(writer);
}

CASE(an_indented_document_has_one_item_a_line) {
    ashlar_json_writer writer;
    ashlar__json_writer_init(&writer, 2);
    write_sample(&writer);
    check_text(&writer, "{\n  \"a\": [\n    -9223372036854775808,\n    18446744073709551615,\n"
                        "    {},\n    []\n  ],\n  \"b\": true,\n  \"c\": false,\n"
                        "  \"d\\\"\": null\n}");
}

CASE(a_table_has_a_line_for_each_row) {
    static const char *const columns[] = {"x", "y"};
    ashlar_json_writer writer;
    ashlar__json_writer_init(&writer, 1);
    ashlar__json_open_object(&writer);
    ashlar__json_put_key(&writer, "t");
    ashlar__json_open_table(&writer, columns, 2);
    for (unsigned i = 0; i < 2; i++) {
        ashlar__json_open_row(&writer);
        ashlar__json_put_uint64(&writer, i);
        ashlar__json_put_parsed(&writer, "{\"z\": 1}", 8);
        ashlar__json_close_array(&writer);
    }
    ashlar__json_close_table(&writer);
    ashlar__json_put_key(&writer, "after");
    ashlar__json_put_null(&writer);
    ashlar__json_close_object(&writer);
    check_text(&writer, "{\n \"t\": {\n  \"columns\": [\"x\",\"y\"],\n  \"rows\": [\n"
                        "   [0,{\"z\": 1}],\n   [1,{\"z\": 1}]\n  ]\n },\n"
                        " \"after\": null\n}");
}

CASE(strings_are_escaped) {
    ashlar_json_writer writer;
    ashlar__json_writer_init(&writer, 0);
    ashlar__json_put_text(&writer, "\"\\/\b\f\n\r\t\x01\x1f\0\x7f\xc3\xa4\xf0\x9f\x98\x80", 18);
    check_text(&writer, "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\\u0000\x7f\xc3\xa4"
                        "\xf0\x9f\x98\x80\"");
}

#define FFFD "\xef\xbf\xbd"

CASE(bytes_that_are_not_utf8_are_replaced) {
    ashlar_json_writer writer;
    ashlar__json_writer_init(&writer, 0);
    ashlar__json_open_array(&writer);
    ashlar__json_put_string(&writer, "a\xff"
                                     "b\x80");
    ashlar__json_put_string(&writer, "\xc0\xaf");         /* overlong */
    ashlar__json_put_string(&writer, "\xed\xa0\x80");     /* a surrogate */
    ashlar__json_put_string(&writer, "\xe0\x9f\xbf");     /* overlong, */
    ashlar__json_put_string(&writer, "\xe0\xa0\x80");     /* and not */
    ashlar__json_put_string(&writer, "\xe2\x82");         /* cut short */
    ashlar__json_put_string(&writer, "\xf4\x90\x80\x80"); /* beyond U+10FFFF */
    ashlar__json_close_array(&writer);
    check_text(&writer, "[\"a" FFFD "b" FFFD "\",\"" FFFD FFFD "\",\"" FFFD FFFD FFFD
                        "\",\"" FFFD FFFD FFFD "\",\"\xe0\xa0\x80"
                        "\",\"" FFFD FFFD "\",\"" FFFD FFFD FFFD FFFD "\"]");
}

/* Write a double, compare its text, parse it and compare its bits. `want` may be NULL. */
static void check_double(double value, const char *want) {
    ashlar_json_writer writer;
    ashlar_json *json = NULL;
    const char *text;
    size_t bytes;
    ashlar__json_writer_init(&writer, 0);
    ashlar__json_put_double(&writer, value);
    REQUIRE(ashlar__json_writer_text(&writer, &text, &bytes) == ASHLAR_OK);
    CHECK(want == NULL || strcmp(text, want) == 0);
    REQUIRE(json_parse(text, bytes, &json) == ASHLAR_OK);
    CHECK(json->kind == ASHLAR_JSON_NUMBER);
    CHECK(memcmp(&json->number, &value, sizeof value) == 0);
    json_free(json);
    ashlar__json_writer_finish(&writer);
}

CASE(doubles_are_short_and_survive) {
    check_double(0.1, "0.1");
    check_double(-0.0, "-0");
    check_double(3, "3");
    check_double(0.1 + 0.2, "0.30000000000000004");
    check_double(DBL_MAX, NULL);
    check_double(DBL_MIN, NULL);
    check_double(DBL_TRUE_MIN, NULL);
    check_double(1.0 / 3, NULL);
    uint64_t bits = 1;
    for (int i = 0; i < 2000; i++) {
        double value;
        bits = ashlar__random_mix(bits);
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value)) {
            check_double(value, NULL);
        }
    }
}

CASE(what_is_not_finite_is_null) {
    ashlar_json_writer writer;
    ashlar__json_writer_init(&writer, 0);
    ashlar__json_open_array(&writer);
    ashlar__json_put_double(&writer, (double)INFINITY);
    ashlar__json_put_double(&writer, -(double)INFINITY);
    ashlar__json_put_double(&writer, (double)NAN);
    ashlar__json_close_array(&writer);
    check_text(&writer, "[null,null,null]");
}

RUN_CASES()
