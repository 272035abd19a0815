/*
 * json_tree.h - a JSON text as a tree of its values, in one block of memory: what tests look at.
 */
#ifndef TESTS_JSON_TREE_H
#define TESTS_JSON_TREE_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/json.h"

/*
 * The document is one block of memory: first the values, then the text, in which strings and keys
 * are decoded. The number of values is known before parsing:
 *   values <= 1 + commas + opening brackets: an array or object of k > 0 items has k-1 commas
 */
typedef struct json_parser {
    ashlar_json_scan scan;
    ashlar_json *values; /* the beginning of the block */
    size_t value_count, value_max;
} json_parser;

/*
 * Parse the items of an array or object. The opening bracket has been read; the closing one is read
 * here.
 */
static inline ashlar_status parse_items(json_parser *p, ashlar_json *value) {
    const ashlar_json **link = &value->item;
    for (;;) {
        ashlar_json item;
        bool is_there;
        ASHLAR_TRY(ashlar__json_scan_next(&p->scan, value->kind, &item, &is_there));
        if (!is_there) {
            return ASHLAR_OK;
        }
        ashlar_json *kept = &p->values[p->value_count++];
        *kept = item;
        if (item.kind == ASHLAR_JSON_ARRAY || item.kind == ASHLAR_JSON_OBJECT) {
            ASHLAR_TRY(parse_items(p, kept));
        }
        *link = kept;
        link = &kept->next;
        value->count++;
    }
}

static inline ashlar_status parse_document(json_parser *p, char *text, size_t bytes) {
    p->value_count = 1;
    ASHLAR_TRY(ashlar__json_scan_begin(&p->scan, text, bytes, p->values));
    if (p->values->kind == ASHLAR_JSON_ARRAY || p->values->kind == ASHLAR_JSON_OBJECT) {
        ASHLAR_TRY(parse_items(p, p->values));
    }
    return ashlar__json_scan_end(&p->scan);
}

/* --- the interface -------------------------------------------------------------------------- */

/* The caller frees *out with json_free(). */
static inline ashlar_status json_parse(const char *text, size_t bytes, ashlar_json **out) {
    /* Each byte is copied, and may begin a value. */
    ASHLAR_FAIL_IF(bytes >= SIZE_MAX / (sizeof(ashlar_json) + 1), ASHLAR_EOVERFLOW,
                   "JSON: %zu bytes of text are too many", bytes);
    size_t value_max = 1;
    for (size_t i = 0; i < bytes; i++) {
        value_max += text[i] == ',' || text[i] == '[' || text[i] == '{';
    }
    const size_t total = value_max * sizeof(ashlar_json) + bytes + 1;
    ashlar_json *values = ashlar__host_calloc(total, 1);
    ASHLAR_FAIL_IF(values == NULL, ASHLAR_EHOSTMEM, "JSON: no host memory for %zu bytes of text",
                   bytes);
    char *copy = (char *)(values + value_max);
    if (bytes > 0) {
        memcpy(copy, text, bytes);
    }
    json_parser p = {.values = values, .value_max = value_max};
    const ashlar_status status = parse_document(&p, copy, bytes);
    if (status != ASHLAR_OK) {
        ashlar__host_free(values);
        return status;
    }
    *out = values;
    return ASHLAR_OK;
}

static inline void json_free(ashlar_json *document) {
    ashlar__host_free(document);
}

static inline const ashlar_json *json_member(const ashlar_json *value, const char *key) {
    if (value == NULL || value->kind != ASHLAR_JSON_OBJECT) {
        return NULL;
    }
    const size_t bytes = strlen(key);
    for (const ashlar_json *item = value->item; item != NULL; item = item->next) {
        if (item->key_bytes == bytes && memcmp(item->key, key, bytes) == 0) {
            return item;
        }
    }
    return NULL;
}

static inline bool json_get_int64(const ashlar_json *value, int64_t *out) {
    if (value == NULL || !value->is_integer ||
        value->magnitude > (uint64_t)INT64_MAX + value->is_negative) {
        return false;
    }
    /* Written as -(m - 1) - 1 instead of -m: m may be 2^63, which int64_t cannot hold. */
    *out = value->is_negative && value->magnitude != 0 ? -(int64_t)(value->magnitude - 1) - 1
                                                       : (int64_t)value->magnitude;
    return true;
}

static inline void json_put_int64(ashlar_json_writer *writer, int64_t value) {
    char text[32];
    const int bytes = snprintf(text, sizeof text, "%" PRId64, value);
    ashlar__json_put_parsed(writer, text, (size_t)bytes);
}

#endif /* TESTS_JSON_TREE_H */
