/* safetensors_write.c - checks named tensors, and writes them as a safetensors file. */
#include "arena/checkpoint/safetensors.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/file.h"
#include "allocator/base/host.h"
#include "allocator/base/json.h"

enum { LENGTH_BYTES = 8 };

ashlar_status ashlar__safetensors_entry_bytes(const ashlar_safetensors_entry *entry, size_t *out) {
    size_t bytes = ashlar_dtype_bytes(entry->dtype);
    ASHLAR_FAIL_IF(bytes == 0 || entry->rank > ASHLAR_SAFETENSORS_RANK_MAX, ASHLAR_EINVAL,
                   "tensor '%s': type %d, rank %zu; the rank is at most %d", entry->name,
                   (int)entry->dtype, entry->rank, ASHLAR_SAFETENSORS_RANK_MAX);
    bool has_zero = false;
    for (size_t i = 0; i < entry->rank; i++) {
        has_zero = has_zero || entry->shape[i] == 0;
    }
    /* Multiply on even if a dimension is 0: the strides of [2^40, 2^40, 0] do not fit in size_t. */
    for (size_t i = 0; i < entry->rank; i++) {
        ASHLAR_FAIL_IF(entry->shape[i] != 0 && !ashlar__mul(bytes, entry->shape[i], &bytes),
                       ASHLAR_EOVERFLOW, "tensor '%s': its shape does not fit in memory",
                       entry->name);
    }
    *out = has_zero ? 0 : bytes;
    return ASHLAR_OK;
}

static bool is_utf8(const char *text) {
    const size_t bytes = strlen(text);
    size_t length = 1;
    for (size_t i = 0; i < bytes && length > 0; i += length) {
        length = ashlar__json_utf8_bytes(text + i, bytes - i);
    }
    return length > 0;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Check that `names` may be written. Sorts them. `what`: the things named, for the message. */
static ashlar_status check_names(const char **names, size_t count, const char *what) {
    if (count > 1) {
        qsort(names, count, sizeof *names, compare_names);
    }
    for (size_t i = 0; i < count; i++) {
        ASHLAR_FAIL_IF(!is_utf8(names[i]), ASHLAR_EINVAL, "%s '%s': not UTF-8; rename it", what,
                       names[i]);
        ASHLAR_FAIL_IF(i > 0 && strcmp(names[i - 1], names[i]) == 0, ASHLAR_EINVAL,
                       "%s '%s' is there twice; rename one", what, names[i]);
        ASHLAR_FAIL_IF(strcmp(names[i], "__metadata__") == 0, ASHLAR_EINVAL,
                       "%s '%s': reserved by the format; rename it", what, names[i]);
    }
    return ASHLAR_OK;
}

static ashlar_status check_arguments(const ashlar_safetensors_entry *entries, size_t count,
                                     const ashlar_safetensors_pair *metadata,
                                     size_t metadata_count) {
    const size_t most = count > metadata_count ? count : metadata_count;
    const char **names;
    ASHLAR_HOST_NEW(names, most + 1, "no host memory for the names of %zu tensors", count);
    for (size_t i = 0; i < count; i++) {
        names[i] = entries[i].name;
    }
    ashlar_status status = check_names(names, count, "tensor");
    for (size_t i = 0; i < metadata_count; i++) {
        names[i] = metadata[i].key;
    }
    ASHLAR_THEN(status, check_names(names, metadata_count, "metadata"));
    for (size_t i = 0; i < metadata_count && status == ASHLAR_OK; i++) {
        if (!is_utf8(metadata[i].value)) {
            status = ashlar__fail(ASHLAR_EINVAL, "metadata '%s': its text is not UTF-8; encode it",
                                  metadata[i].key);
        }
    }
    ashlar__host_free(names);
    return status;
}

/* Wider elements first. Entries with equally wide elements keep the order of the caller's array. */
static int compare_entries(const void *a, const void *b) {
    const ashlar_safetensors_entry *x = *(const ashlar_safetensors_entry *const *)a;
    const ashlar_safetensors_entry *y = *(const ashlar_safetensors_entry *const *)b;
    const size_t x_bytes = ashlar_dtype_bytes(x->dtype);
    const size_t y_bytes = ashlar_dtype_bytes(y->dtype);
    if (x_bytes != y_bytes) {
        return x_bytes < y_bytes ? 1 : -1;
    }
    return (x > y) - (x < y);
}

/* Write a tensor's part of the header. Its data begins at *begin, which becomes its end. */
static ashlar_status put_entry(ashlar_json_writer *json, const ashlar_safetensors_entry *entry,
                               size_t *begin) {
    size_t bytes;
    size_t end;
    ASHLAR_TRY(ashlar__safetensors_entry_bytes(entry, &bytes));
    ASHLAR_FAIL_IF(bytes > 0 && entry->data == NULL, ASHLAR_EINVAL,
                   "tensor '%s': no data; give %zu bytes", entry->name, bytes);
    ASHLAR_FAIL_IF(!ashlar__add(*begin, bytes, &end), ASHLAR_EOVERFLOW,
                   "tensor '%s': the file would be too large", entry->name);
    ashlar__json_put_key(json, entry->name);
    ashlar__json_open_object(json);
    ashlar__json_put_key(json, "dtype");
    ashlar__json_put_string(json, ashlar_dtype_name(entry->dtype));
    ashlar__json_put_key(json, "shape");
    ashlar__json_open_array(json);
    for (size_t i = 0; i < entry->rank; i++) {
        ashlar__json_put_uint64(json, entry->shape[i]);
    }
    ashlar__json_close_array(json);
    ashlar__json_put_key(json, "data_offsets");
    ashlar__json_open_array(json);
    ashlar__json_put_uint64(json, *begin);
    ashlar__json_put_uint64(json, end);
    ashlar__json_close_array(json);
    ashlar__json_close_object(json);
    ASHLAR_CHECK2(*begin % ashlar_dtype_bytes(entry->dtype) == 0); /* wider types came first */
    *begin = end;
    return ASHLAR_OK;
}

/* Write the header, without the padding behind it. */
static ashlar_status build_header(ashlar_json_writer *json,
                                  const ashlar_safetensors_entry *const *order, size_t count,
                                  const ashlar_safetensors_pair *metadata, size_t metadata_count) {
    ashlar__json_open_object(json);
    if (metadata_count > 0) {
        ashlar__json_put_key(json, "__metadata__");
        ashlar__json_open_object(json);
        for (size_t i = 0; i < metadata_count; i++) {
            ashlar__json_put_key(json, metadata[i].key);
            ashlar__json_put_string(json, metadata[i].value);
        }
        ashlar__json_close_object(json);
    }
    size_t begin = 0;
    for (size_t i = 0; i < count; i++) {
        ASHLAR_TRY(put_entry(json, order[i], &begin));
    }
    ashlar__json_close_object(json);
    return ASHLAR_OK;
}

static ashlar_status write_header(ashlar_file_buffer *file, const char *text, size_t bytes) {
    static const char padding[LENGTH_BYTES] = {' ', ' ', ' ', ' ', ' ', ' ', ' ', ' '};
    ASHLAR_CHECK2(bytes > 0 && text[0] == '{');
    const size_t padding_bytes = (LENGTH_BYTES - bytes % LENGTH_BYTES) % LENGTH_BYTES;
    uint64_t length = bytes + padding_bytes;
    ASHLAR_CHECK2(length % LENGTH_BYTES == 0); /* so that the data is aligned */
    ASHLAR_FAIL_IF(length > ASHLAR_SAFETENSORS_HEADER_MAX, ASHLAR_EOVERFLOW,
                   "a header of %zu bytes; use fewer tensors or metadata", bytes);
    unsigned char little[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++) {
        little[i] = (unsigned char)(length >> (8 * i));
    }
    ASHLAR_TRY(ashlar__file_buffer_put(file, little, sizeof little));
    ASHLAR_TRY(ashlar__file_buffer_put(file, text, bytes));
    return ashlar__file_buffer_put(file, padding, padding_bytes);
}

/* All of them at once. */
static ashlar_status find_in_memory(void *context, const ashlar_safetensors_entry *entry,
                                    size_t first, const char **at, size_t *bytes) {
    (void)context;
    (void)first;
    ASHLAR_CHECK2(first == 0);
    *at = entry->data;
    *bytes = SIZE_MAX;
    return ASHLAR_OK;
}

static ashlar_status write_elements(ashlar_file_buffer *file, const ashlar_safetensors_entry *entry,
                                    const ashlar_safetensors_source *source) {
    size_t bytes, some = 0;
    ASHLAR_TRY(ashlar__safetensors_entry_bytes(entry, &bytes));
    for (size_t first = 0; first < bytes; first += some) {
        const char *at;
        ASHLAR_TRY(source->find(source->context, entry, first, &at, &some));
        ASHLAR_CHECK2(some > 0);
        some = some < bytes - first ? some : bytes - first;
        ASHLAR_TRY(ashlar__file_buffer_put(file, at, some));
    }
    return ASHLAR_OK;
}

static ashlar_status write_file(const char *path, const ashlar_safetensors_entry *const *order,
                                size_t count, const ashlar_safetensors_source *source,
                                const char *header, size_t header_bytes) {
    ashlar_file_buffer *file;
    ASHLAR_TRY(ashlar__file_buffer_create(path, &file));
    ashlar_status status = write_header(file, header, header_bytes);
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = write_elements(file, order[i], source);
    }
    if (status != ASHLAR_OK) {
        ashlar__file_buffer_abort(file);
        return status;
    }
    return ashlar__file_buffer_commit(file);
}

ashlar_status ashlar__safetensors_write(const char *path, const ashlar_safetensors_entry *entries,
                                        size_t count, const ashlar_safetensors_pair *metadata,
                                        size_t metadata_count) {
    const ashlar_safetensors_source memory = {.find = find_in_memory};
    return ashlar__safetensors_write_from(path, entries, count, metadata, metadata_count, &memory);
}

ashlar_status ashlar__safetensors_write_from(const char *path,
                                             const ashlar_safetensors_entry *entries, size_t count,
                                             const ashlar_safetensors_pair *metadata,
                                             size_t metadata_count,
                                             const ashlar_safetensors_source *source) {
    ASHLAR_TRY(check_arguments(entries, count, metadata, metadata_count));
    const ashlar_safetensors_entry **order;
    ASHLAR_HOST_NEW(order, count + 1, "no host memory to write %zu tensors to %s", count, path);
    for (size_t i = 0; i < count; i++) {
        order[i] = &entries[i];
    }
    if (count > 1) {
        qsort(order, count, sizeof *order, compare_entries);
    }
    ashlar_json_writer json;
    ashlar__json_writer_init(&json, 0);
    const char *header = NULL;
    size_t header_bytes = 0;
    ashlar_status status = build_header(&json, order, count, metadata, metadata_count);
    ASHLAR_THEN(status, ashlar__json_writer_text(&json, &header, &header_bytes));
    ASHLAR_THEN(status, write_file(path, order, count, source, header, header_bytes));
    ashlar__json_writer_finish(&json);
    ashlar__host_free(order);
    return status;
}
