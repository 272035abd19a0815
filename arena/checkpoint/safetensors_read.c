/* safetensors_read.c - opens a file of the safetensors format, and checks its header before use. */
#include "arena/checkpoint/safetensors.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/file_read.h"
#include "allocator/base/host.h"
#include "allocator/base/json.h"

enum { LENGTH_BYTES = 8 };

#define X(name, bytes, text) " " text
static const char dtype_reason[] = "has a dtype that is none of" ASHLAR_DTYPE_MAP(X);
#undef X

struct ashlar_safetensors {
    char *path;
    int fd;
    size_t data_at;                    /* where the first tensor's elements begin in the file */
    ashlar_json *header;               /* owns all names, keys and texts */
    ashlar_safetensors_entry *entries; /* [count], in the order of the data */
    size_t count;
    ashlar_safetensors_pair *metadata; /* [metadata_count], sorted by key */
    size_t metadata_count;
};

/* A file being checked. */
typedef struct check {
    const char *path;
    size_t data_bytes; /* behind the header */
} check;

static ashlar_status fail_format(const char *path, const char *name, const char *reason) {
    return ashlar__fail(ASHLAR_EFORMAT, "%s: '%s' %s; ashlar cannot use this file, write it anew",
                        path, name, reason);
}

/* --- one tensor ----------------------------------------------------------------------------- */

static bool parse_dtype(const ashlar_json *value, ashlar_dtype *out) {
    if (value == NULL || value->kind != ASHLAR_JSON_STRING) {
        return false;
    }
    for (unsigned int i = 0; i < ASHLAR_DTYPE_COUNT; i++) {
        const char *name = ashlar_dtype_name((ashlar_dtype)i);
        if (value->count == strlen(name) && memcmp(value->text, name, value->count) == 0) {
            *out = (ashlar_dtype)i;
            return true;
        }
    }
    return false;
}

/* Read an array of at least `min` and at most `max` sizes. False: `value` is no such array. */
static bool parse_sizes(const ashlar_json *value, size_t min, size_t max, size_t *sizes,
                        size_t *count) {
    if (value == NULL || value->kind != ASHLAR_JSON_ARRAY || value->count < min ||
        value->count > max) {
        return false;
    }
    size_t i = 0;
    for (const ashlar_json *item = value->item; item != NULL; item = item->next) {
        uint64_t size = 0;
        ASHLAR_CHECK2(i < max);
        if (!ashlar__json_get_uint64(item, &size)) {
            return false;
        }
        sizes[i++] = size;
    }
    *count = i;
    return true;
}

static bool has_text_key(const ashlar_json *member) {
    return strlen(member->key) == member->key_bytes;
}

static ashlar_status parse_entry(const check *file, const ashlar_json *member,
                                 ashlar_safetensors_entry *entry) {
    const char *name = member->key;
    const ashlar_json *shape = ashlar__json_member(member, "shape");
    const ashlar_json *offsets = ashlar__json_member(member, "data_offsets");
    size_t span[2] = {0, 0};
    size_t span_count;
    size_t bytes = 0;
    entry->name = name;
    if (!has_text_key(member)) {
        return fail_format(file->path, name, "has a byte 0 in its name");
    }
    if (member->count != 3 || shape == NULL || offsets == NULL) {
        return fail_format(file->path, name, "is not described by dtype, shape and data_offsets");
    }
    if (!parse_dtype(ashlar__json_member(member, "dtype"), &entry->dtype)) {
        return fail_format(file->path, name, dtype_reason);
    }
    if (!parse_sizes(shape, 0, ASHLAR_SAFETENSORS_RANK_MAX, entry->shape, &entry->rank)) {
        return fail_format(file->path, name, "has a shape of too high a rank or not of sizes");
    }
    if (!parse_sizes(offsets, 2, 2, span, &span_count) || span[0] > span[1] ||
        span[1] > file->data_bytes) {
        return fail_format(file->path, name, "has data_offsets outside the file");
    }
    if (ashlar__safetensors_entry_bytes(entry, &bytes) != ASHLAR_OK || bytes != span[1] - span[0]) {
        return fail_format(file->path, name, "has a shape that does not match its data_offsets");
    }
    ASHLAR_CHECK2(span[0] + bytes <= file->data_bytes);
    entry->offset = span[0];
    return ASHLAR_OK;
}

/* --- the whole header ----------------------------------------------------------------------- */

static int compare_places(const void *a, const void *b) {
    const ashlar_safetensors_entry *x = a;
    const ashlar_safetensors_entry *y = b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    /* An empty tensor begins where the next one does, and must sort before it. */
    size_t x_bytes = 0;
    size_t y_bytes = 0;
    (void)!ashlar__safetensors_entry_bytes(x, &x_bytes); /* both are checked already */
    (void)!ashlar__safetensors_entry_bytes(y, &y_bytes);
    if (x_bytes != y_bytes) {
        return x_bytes < y_bytes ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int compare_pairs(const void *a, const void *b) {
    return strcmp(((const ashlar_safetensors_pair *)a)->key,
                  ((const ashlar_safetensors_pair *)b)->key);
}

/* Sort the tensors by their data, and check that they cover all of it without hole or overlap. */
static ashlar_status check_cover(const check *checked, ashlar_safetensors *file) {
    if (file->count > 1) {
        qsort(file->entries, file->count, sizeof *file->entries, compare_places);
    }
    size_t end = 0;
    for (size_t i = 0; i < file->count; i++) {
        const ashlar_safetensors_entry *entry = &file->entries[i];
        size_t bytes;
        ASHLAR_TRY(ashlar__safetensors_entry_bytes(entry, &bytes));
        if (entry->offset != end) {
            return fail_format(checked->path, entry->name, "does not begin where the last ended");
        }
        end += bytes;
        ASHLAR_CHECK2(end <= checked->data_bytes); /* each entry lies in the data */
    }
    if (end != checked->data_bytes) {
        return ashlar__fail(ASHLAR_EFORMAT,
                            "%s: %zu bytes of data, %zu described; the file is damaged, write it "
                            "anew",
                            checked->path, checked->data_bytes, end);
    }
    return ASHLAR_OK;
}

static ashlar_status check_names(const check *checked, const ashlar_safetensors *file) {
    ashlar_status status = ASHLAR_OK;
    const char **names;
    ASHLAR_HOST_NEW(names, file->count + 1, "%s: no host memory for %zu tensors", checked->path,
                    file->count);
    for (size_t i = 0; i < file->count; i++) {
        names[i] = file->entries[i].name;
    }
    if (file->count > 1) {
        qsort(names, file->count, sizeof *names, compare_names);
    }
    for (size_t i = 1; i < file->count && status == ASHLAR_OK; i++) {
        status = strcmp(names[i - 1], names[i]) == 0
                     ? fail_format(checked->path, names[i], "is there twice")
                     : ASHLAR_OK;
    }
    ashlar__host_free(names);
    return status;
}

static ashlar_status parse_metadata(const check *checked, const ashlar_json *metadata,
                                    ashlar_safetensors *file) {
    if (file->metadata != NULL || metadata->kind != ASHLAR_JSON_OBJECT) {
        return fail_format(checked->path, metadata->key, "is not one object");
    }
    ASHLAR_HOST_NEW(file->metadata, metadata->count + 1, "%s: no host memory for its metadata",
                    checked->path);
    for (const ashlar_json *item = metadata->item; item != NULL; item = item->next) {
        if (item->kind != ASHLAR_JSON_STRING || strlen(item->text) != item->count ||
            !has_text_key(item)) {
            return fail_format(checked->path, item->key, "is metadata other than text");
        }
        ASHLAR_CHECK2(file->metadata_count < metadata->count);
        file->metadata[file->metadata_count++] = (ashlar_safetensors_pair){item->key, item->text};
    }
    if (file->metadata_count > 1) {
        qsort(file->metadata, file->metadata_count, sizeof *file->metadata, compare_pairs);
    }
    for (size_t i = 1; i < file->metadata_count; i++) {
        if (strcmp(file->metadata[i - 1].key, file->metadata[i].key) == 0) {
            return fail_format(checked->path, file->metadata[i].key, "is metadata given twice");
        }
    }
    return ASHLAR_OK;
}

static ashlar_status parse_members(const check *checked, ashlar_safetensors *file) {
    const ashlar_json *header = file->header;
    if (header->kind != ASHLAR_JSON_OBJECT) {
        return fail_format(checked->path, "header", "is not an object");
    }
    ASHLAR_HOST_NEW(file->entries, header->count + 1, "%s: no host memory for %zu tensors",
                    checked->path, header->count);
    for (const ashlar_json *member = header->item; member != NULL; member = member->next) {
        ASHLAR_CHECK2(file->count < header->count);
        const bool is_metadata = has_text_key(member) && strcmp(member->key, "__metadata__") == 0;
        const ashlar_status status =
            is_metadata ? parse_metadata(checked, member, file)
                        : parse_entry(checked, member, &file->entries[file->count++]);
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    ASHLAR_TRY(check_cover(checked, file));
    return check_names(checked, file);
}

/* Read the file's first bytes: the header's length and the header. The caller frees *text. */
static ashlar_status read_header(ashlar_safetensors *file, size_t bytes, char **text,
                                 size_t *text_bytes) {
    unsigned char little[LENGTH_BYTES];
    uint64_t length = 0;
    if (bytes < LENGTH_BYTES) {
        return ashlar__fail(ASHLAR_EFORMAT, "%s: too short; give a safetensors file", file->path);
    }
    ASHLAR_TRY(ashlar__file_read_at(file->fd, file->path, 0, little, sizeof little));
    for (int i = 0; i < LENGTH_BYTES; i++) {
        length |= (uint64_t)little[i] << (8 * i);
    }
    if (length > bytes - LENGTH_BYTES || length > ASHLAR_SAFETENSORS_HEADER_MAX) {
        return fail_format(file->path, "header", "is longer than the file or the format allows");
    }
    ASHLAR_HOST_NEW(*text, length + 1, "%s: no host memory for its header", file->path);
    *text_bytes = length;
    return ashlar__file_read_at(file->fd, file->path, LENGTH_BYTES, *text, length);
}

static ashlar_status parse_header(ashlar_safetensors *file, size_t bytes, const char *text,
                                  size_t text_bytes) {
    const ashlar_status status = ashlar__json_parse(text, text_bytes, &file->header);
    if (status != ASHLAR_OK) {
        return ashlar__fail(status, "%s: %s; give a whole safetensors file", file->path,
                            ashlar_error_detail());
    }
    file->data_at = LENGTH_BYTES + text_bytes;
    const check checked = {.path = file->path, .data_bytes = bytes - file->data_at};
    return parse_members(&checked, file);
}

static ashlar_status open_file(ashlar_safetensors *file, const char *path) {
    char *text = NULL;
    size_t bytes = 0, text_bytes = 0;
    ASHLAR_HOST_NEW(file->path, strlen(path) + 1, "no host memory to read %s", path);
    memcpy(file->path, path, strlen(path));
    ASHLAR_TRY(ashlar__file_open(path, &file->fd, &bytes));
    ashlar_status status = read_header(file, bytes, &text, &text_bytes);
    if (status == ASHLAR_OK) {
        status = parse_header(file, bytes, text, text_bytes);
    }
    ashlar__host_free(text);
    return status;
}

/* --- the interface -------------------------------------------------------------------------- */

ashlar_status ashlar__safetensors_open(const char *path, ashlar_safetensors **out) {
    ashlar_safetensors *file;
    ASHLAR_HOST_NEW(file, 1, "no host memory to read %s", path);
    file->fd = -1;
    ASHLAR_HAND_OUT(open_file(file, path), file, ashlar__safetensors_close, out);
}

void ashlar__safetensors_close(ashlar_safetensors *file) {
    if (file == NULL) {
        return;
    }
    if (file->fd >= 0) {
        (void)close(file->fd); /* nothing was written: close has nothing to report */
    }
    ashlar__host_free(file->path);
    ashlar__json_free(file->header);
    ashlar__host_free(file->entries);
    ashlar__host_free(file->metadata);
    ashlar__host_free(file);
}

const char *ashlar__safetensors_path(const ashlar_safetensors *file) {
    return file->path;
}

size_t ashlar__safetensors_count(const ashlar_safetensors *file) {
    return file->count;
}

const ashlar_safetensors_entry *ashlar__safetensors_at(const ashlar_safetensors *file, size_t i) {
    ASHLAR_ASSERT(i < file->count);
    return &file->entries[i];
}

ashlar_status ashlar__safetensors_read(const ashlar_safetensors *file,
                                       const ashlar_safetensors_entry *entry, size_t first,
                                       size_t bytes, void *out) {
    return ashlar__file_read_at(file->fd, file->path, file->data_at + entry->offset + first, out,
                                bytes);
}

const char *ashlar__safetensors_metadata(const ashlar_safetensors *file, const char *key) {
    if (file->metadata == NULL) {
        return NULL;
    }
    const ashlar_safetensors_pair wanted = {.key = key};
    const ashlar_safetensors_pair *found = bsearch(&wanted, file->metadata, file->metadata_count,
                                                   sizeof *file->metadata, compare_pairs);
    return found == NULL ? NULL : found->value;
}
