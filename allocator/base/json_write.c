/* json_write.c - writing JSON into one growing buffer. */
#include "allocator/base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/file.h"
#include "allocator/base/host.h"
#include "allocator/base/parse.h"

size_t ashlar__json_utf8_bytes(const char *text, size_t left) {
    const unsigned char *s = (const unsigned char *)text;
    ASHLAR_CHECK2(left > 0);
    if (s[0] < 0x80) {
        return 1;
    }
    const size_t bytes = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || bytes > left) {
        return 0;
    }
    for (size_t i = 1; i < bytes; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    const bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    const bool surrogate = s[0] == 0xed && s[1] >= 0xa0;
    const bool beyond = s[0] == 0xf4 && s[1] >= 0x90; /* U+10FFFF is the last one */
    return overlong || surrogate || beyond ? 0 : bytes;
}

/* Append `bytes` bytes, and a 0 after them that writer->bytes does not count. */
static void append(ashlar_json_writer *writer, const char *text, size_t bytes) {
    size_t need;
    if (!ashlar__add(writer->bytes + 1, bytes, &need)) {
        writer->has_failed = true;
    }
    while (!writer->has_failed && need > writer->capacity) {
        void *grown = writer->text;
        writer->has_failed = !ashlar__host_grow(&grown, &writer->capacity, writer->capacity, 1);
        writer->text = grown;
    }
    if (!writer->has_failed) {
        memcpy(writer->text + writer->bytes, text, bytes);
        writer->bytes += bytes;
        writer->text[writer->bytes] = '\0';
    }
}

static void begin_line(ashlar_json_writer *writer) {
    if (writer->indent == 0 || writer->row_depth > 0) {
        return;
    }
    append(writer, "\n", 1);
    for (size_t i = 0; i < writer->depth * writer->indent; i++) {
        append(writer, " ", 1);
    }
}

/* Write what separates a key or a value from the text before it: a comma, a new line. */
static void begin_item(ashlar_json_writer *writer) {
    if (writer->last == ASHLAR_JSON_AFTER_ITEM) {
        append(writer, ",", 1);
    }
    if (writer->depth > 0) {
        begin_line(writer);
    }
}

static void begin_value(ashlar_json_writer *writer) {
    if (writer->last != ASHLAR_JSON_AFTER_KEY) {
        begin_item(writer);
    }
    writer->last = ASHLAR_JSON_AFTER_ITEM;
}

static void put_literal(ashlar_json_writer *writer, const char *text) {
    begin_value(writer);
    append(writer, text, strlen(text));
}

static void open_frame(ashlar_json_writer *writer, const char *text) {
    put_literal(writer, text);
    writer->depth++;
    writer->last = ASHLAR_JSON_OPENED;
}

static void close_frame(ashlar_json_writer *writer, const char *text) {
    ASHLAR_ASSERT(writer->depth > 0 && writer->last != ASHLAR_JSON_AFTER_KEY);
    const bool is_row = writer->row_depth == writer->depth;
    writer->depth--;
    if (writer->last == ASHLAR_JSON_AFTER_ITEM) {
        begin_line(writer);
    }
    writer->row_depth = is_row ? 0 : writer->row_depth;
    append(writer, text, 1);
    writer->last = ASHLAR_JSON_AFTER_ITEM;
}

/* Append a string in quotes, escaped. */
static void append_quoted(ashlar_json_writer *writer, const char *text, size_t bytes) {
    static const char names[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* pairs: character, its escape */
    append(writer, "\"", 1);
    for (size_t i = 0; i < bytes;) {
        const size_t length = ashlar__json_utf8_bytes(text + i, bytes - i);
        const char *pair = NULL;
        ASHLAR_CHECK2(length <= bytes - i);
        for (size_t k = 0; k + 1 < sizeof names && pair == NULL; k += 2) {
            pair = names[k] == text[i] ? names + k : NULL;
        }
        if (length == 0) {
            append(writer, "\xef\xbf\xbd", 3); /* U+FFFD */
        } else if (pair != NULL) {
            append(writer, (const char[]){'\\', pair[1]}, 2);
        } else if ((unsigned char)text[i] < 0x20) {
            char escape[sizeof "\\u0000"];
            (void)snprintf(escape, sizeof escape, "\\u%04x", (unsigned int)text[i]);
            append(writer, escape, sizeof escape - 1);
        } else {
            append(writer, text + i, length);
        }
        i += length > 0 ? length : 1;
    }
    append(writer, "\"", 1);
}

void ashlar__json_writer_init(ashlar_json_writer *writer, unsigned int indent) {
    *writer = (ashlar_json_writer){.indent = indent};
}

void ashlar__json_writer_finish(ashlar_json_writer *writer) {
    ashlar__host_free(writer->text);
    *writer = (ashlar_json_writer){0};
}

void ashlar__json_open_object(ashlar_json_writer *writer) {
    open_frame(writer, "{");
}

void ashlar__json_close_object(ashlar_json_writer *writer) {
    close_frame(writer, "}");
}

void ashlar__json_open_array(ashlar_json_writer *writer) {
    open_frame(writer, "[");
}

void ashlar__json_open_row(ashlar_json_writer *writer) {
    open_frame(writer, "[");
    writer->row_depth = writer->depth;
}

void ashlar__json_close_array(ashlar_json_writer *writer) {
    close_frame(writer, "]");
}

void ashlar__json_put_key(ashlar_json_writer *writer, const char *key) {
    ASHLAR_ASSERT(writer->depth > 0 && writer->last != ASHLAR_JSON_AFTER_KEY);
    begin_item(writer);
    append_quoted(writer, key, strlen(key));
    append(writer, ": ", writer->indent == 0 ? 1 : 2);
    writer->last = ASHLAR_JSON_AFTER_KEY;
}

void ashlar__json_put_string(ashlar_json_writer *writer, const char *text) {
    ashlar__json_put_text(writer, text, strlen(text));
}

void ashlar__json_put_text(ashlar_json_writer *writer, const char *text, size_t bytes) {
    begin_value(writer);
    append_quoted(writer, text, bytes);
}

void ashlar__json_put_uint64(ashlar_json_writer *writer, uint64_t value) {
    char text[ASHLAR_NUMBER_BYTES];
    ashlar__write_count(value, text);
    put_literal(writer, text);
}

void ashlar__json_put_double(ashlar_json_writer *writer, double value) {
    char text[ASHLAR_NUMBER_BYTES] = "null";
    if (isfinite(value)) {
        ashlar__write_real(value, text);
    }
    put_literal(writer, text);
}

void ashlar__json_put_bool(ashlar_json_writer *writer, bool value) {
    put_literal(writer, value ? "true" : "false");
}

void ashlar__json_put_null(ashlar_json_writer *writer) {
    put_literal(writer, "null");
}

void ashlar__json_put_parsed(ashlar_json_writer *writer, const char *text, size_t bytes) {
    begin_value(writer);
    append(writer, text, bytes);
}

void ashlar__json_open_table(ashlar_json_writer *w, const char *const *columns, size_t count) {
    ashlar__json_open_object(w);
    ashlar__json_put_key(w, "columns");
    ashlar__json_open_row(w);
    for (size_t i = 0; i < count; i++) {
        ashlar__json_put_string(w, columns[i]);
    }
    ashlar__json_close_array(w);
    ashlar__json_put_key(w, "rows");
    ashlar__json_open_array(w);
}

void ashlar__json_close_table(ashlar_json_writer *w) {
    ashlar__json_close_array(w);
    ashlar__json_close_object(w);
}

ashlar_status ashlar__json_writer_text(ashlar_json_writer *writer, const char **text,
                                       size_t *bytes) {
    ASHLAR_ASSERT(writer->depth == 0 && writer->last == ASHLAR_JSON_AFTER_ITEM);
    ASHLAR_FAIL_IF(writer->has_failed, ASHLAR_EHOSTMEM, "JSON: no host memory after %zu bytes",
                   writer->bytes);
    ASHLAR_CHECK2(writer->text[writer->bytes] == '\0');
    *text = writer->text;
    *bytes = writer->bytes;
    return ASHLAR_OK;
}

void ashlar__json_add_string(ashlar_json_writer *w, const char *key, const char *text) {
    ashlar__json_put_key(w, key);
    ashlar__json_put_string(w, text);
}

void ashlar__json_add_uint64(ashlar_json_writer *w, const char *key, uint64_t value) {
    ashlar__json_put_key(w, key);
    ashlar__json_put_uint64(w, value);
}

void ashlar__json_add_double(ashlar_json_writer *w, const char *key, double value) {
    ashlar__json_put_key(w, key);
    ashlar__json_put_double(w, value);
}

void ashlar__json_add_bool(ashlar_json_writer *w, const char *key, bool value) {
    ashlar__json_put_key(w, key);
    ashlar__json_put_bool(w, value);
}

void ashlar__json_open_document(ashlar_json_writer *w, const char *schema) {
    ashlar__json_open_object(w);
    ashlar__json_add_string(w, "schema", schema);
}

ashlar_status ashlar__json_writer_save(ashlar_json_writer *w, const char *path) {
    const char *text = NULL;
    size_t bytes = 0;
    const ashlar_status status = ashlar__json_writer_text(w, &text, &bytes);
    return status == ASHLAR_OK ? ashlar__stream_write_line(path, text, bytes) : status;
}

ashlar_status ashlar__json_writer_end(ashlar_json_writer *w, const char *path) {
    const ashlar_status status = ashlar__json_writer_save(w, path);
    ashlar__json_writer_finish(w);
    return status;
}
