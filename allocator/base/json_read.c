/* json_read.c - parsing JSON into one block of memory. */
#include "allocator/base/json.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/json_scan.h"

/*
 * The document is one block of memory: first the values, then the text, in which strings and keys
 * are decoded. The number of values is known before parsing:
 *   values <= 1 + commas + opening brackets: an array or object of k > 0 items has k-1 commas
 */
typedef struct parser {
    ashlar_json_scan scan;
    ashlar_json *values; /* the beginning of the block */
    size_t value_count, value_max;
} parser;

/*
 * Parse the items of an array or object. The opening bracket has been read; the closing one is read
 * here.
 */
static ashlar_status parse_items(parser *p, ashlar_json *value) {
    const ashlar_json **link = &value->item;
    for (;;) {
        ashlar_json item;
        bool is_there;
        ASHLAR_TRY(ashlar__json_scan_next(&p->scan, value->kind, &item, &is_there));
        if (!is_there) {
            return ASHLAR_OK;
        }
        ASHLAR_CHECK2(p->value_count < p->value_max);
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

static ashlar_status parse_document(parser *p, char *text, size_t bytes) {
    p->value_count = 1;
    ASHLAR_TRY(ashlar__json_scan_begin(&p->scan, text, bytes, p->values));
    if (p->values->kind == ASHLAR_JSON_ARRAY || p->values->kind == ASHLAR_JSON_OBJECT) {
        ASHLAR_TRY(parse_items(p, p->values));
    }
    return ashlar__json_scan_end(&p->scan);
}

/* --- the interface -------------------------------------------------------------------------- */

ashlar_status ashlar__json_parse(const char *text, size_t bytes, ashlar_json **out) {
    /* Each byte is copied, and may begin a value. */
    if (bytes >= SIZE_MAX / (sizeof(ashlar_json) + 1)) {
        return ashlar__fail(ASHLAR_EOVERFLOW, "JSON: %zu bytes of text are too many", bytes);
    }
    size_t value_max = 1;
    for (size_t i = 0; i < bytes; i++) {
        value_max += text[i] == ',' || text[i] == '[' || text[i] == '{';
    }
    const size_t total = value_max * sizeof(ashlar_json) + bytes + 1;
    ashlar_json *values = ashlar__host_calloc(total, 1);
    if (values == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "JSON: no host memory for %zu bytes of text", bytes);
    }
    char *copy = (char *)(values + value_max);
    if (bytes > 0) {
        memcpy(copy, text, bytes);
    }
    parser p = {.values = values, .value_max = value_max};
    const ashlar_status status = parse_document(&p, copy, bytes);
    if (status != ASHLAR_OK) {
        ashlar__json_free(values);
        return status;
    }
    ASHLAR_ASSERT(p.value_count <= value_max);
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
    /* Written as -(m - 1) - 1 instead of -m: m may be 2^63, which int64_t cannot hold. */
    *out = value->is_negative && value->magnitude != 0 ? -(int64_t)(value->magnitude - 1) - 1
                                                       : (int64_t)value->magnitude;
    return true;
}
