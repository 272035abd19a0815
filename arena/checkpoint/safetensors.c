/* safetensors.c - reads and writes files of the safetensors format: checks all of a header before
 * any of it is used, and names and texts before they are written. */
#include "arena/checkpoint/safetensors.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/file.h"
#include "allocator/base/host.h"
#include "allocator/base/json.h"

enum { LENGTH_BYTES = 8 };

/* The format's types, and the bits of an element. */
static const struct {
    const char *name;
    size_t bits;
} types[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
};

/* The bits of an element; 0: the type is none of the format's. */
static size_t bits_of(const char *dtype) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].name, dtype) == 0) {
            return types[i].bits;
        }
    }
    return 0;
}

/* Compute the bytes of a tensor's elements, whole ones. False: they do not fit in size_t, or the
 * last byte would not be full. */
static bool count_bytes(size_t bits, size_t rank, const size_t *shape, size_t *out) {
    size_t elements = 1, all = 0;
    for (size_t i = 0; i < rank; i++) {
        if (!ashlar__mul(elements, shape[i], &elements)) {
            return false;
        }
    }
    const bool fits = ashlar__mul(elements, bits, &all) && all % 8 == 0;
    *out = all / 8;
    return fits;
}

static ashlar_status entry_bytes(const ashlar_safetensors_entry *entry, size_t *out) {
    const size_t bits = 8 * ashlar_dtype_bytes(entry->dtype);
    ASHLAR_FAIL_IF(bits == 0 || entry->rank > ASHLAR_RANK_MAX, ASHLAR_EINVAL,
                   "tensor '%s': type %d, rank %zu; the rank is at most %d", entry->name,
                   (int)entry->dtype, entry->rank, ASHLAR_RANK_MAX);
    ASHLAR_FAIL_IF(!count_bytes(bits, entry->rank, entry->shape, out), ASHLAR_EOVERFLOW,
                   "tensor '%s': its shape does not fit in memory", entry->name);
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

/* Sort names. Returns one that is there twice, or NULL. */
static const char *find_twice(const char **names, size_t count) {
    qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            return names[i];
        }
    }
    return NULL;
}

/* Check that `names` may be written; this sorts them. `what`: what has the names, for messages. */
static ashlar_status check_names(const char **names, size_t count, const char *what) {
    const char *twice = find_twice(names, count);
    ASHLAR_FAIL_IF(twice != NULL, ASHLAR_EINVAL, "%s '%s' is there twice; rename one", what, twice);
    for (size_t i = 0; i < count; i++) {
        ASHLAR_FAIL_IF(!is_utf8(names[i]), ASHLAR_EINVAL, "%s '%s': not UTF-8; rename it", what,
                       names[i]);
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

/* Wider elements come first. Equally wide ones keep their order in the caller's array. */
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
    ASHLAR_TRY(entry_bytes(entry, &bytes));
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
    const size_t padding_bytes = (LENGTH_BYTES - bytes % LENGTH_BYTES) % LENGTH_BYTES;
    uint64_t length = bytes + padding_bytes;
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

static ashlar_status write_elements(ashlar_file_buffer *file, const ashlar_safetensors_entry *entry,
                                    const ashlar_safetensors_source *source) {
    size_t bytes, some = 0;
    ASHLAR_TRY(entry_bytes(entry, &bytes));
    for (size_t first = 0; first < bytes; first += some) {
        const char *at = entry->data;
        some = bytes;
        ASHLAR_TRY(source == NULL ? ASHLAR_OK
                                  : source->find(source->context, entry, first, &at, &some));
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
                                        size_t metadata_count,
                                        const ashlar_safetensors_source *source) {
    ASHLAR_TRY(check_arguments(entries, count, metadata, metadata_count));
    const ashlar_safetensors_entry **order;
    ASHLAR_HOST_NEW(order, count + 1, "no host memory to write %zu tensors to %s", count, path);
    for (size_t i = 0; i < count; i++) {
        order[i] = &entries[i];
    }
    qsort(order, count, sizeof *order, compare_entries);
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

struct ashlar_checkpoint {
    char *path;
    int fd;
    char *header;                      /* its text, where all names, keys and texts lie */
    ashlar_checkpoint_tensor *tensors; /* [count], in the order of the data */
    size_t count;
    size_t *sizes;                     /* of all shapes, one behind the other */
    ashlar_safetensors_pair *metadata; /* [metadata_count], sorted by key */
    size_t metadata_count;
};

/*
 * A header being read. It is not parsed into a tree, since a tree's values may take 40 times the
 * memory of their text. The arrays of tensors, sizes and metadata pairs take only a few times the
 * memory of the text, so they are allocated at once, for the most of them that fit into it.
 */
typedef struct reading {
    ashlar_checkpoint *file;
    ashlar_json_scan scan;
    size_t text_bytes;
    size_t data_at;    /* behind the header: data_offsets count from here */
    size_t data_bytes; /* from there to the file's end */
    size_t sizes;      /* of shapes, read so far */
} reading;

enum {
    TENSOR_TEXT_MIN = sizeof "'':{'dtype':'','shape':[],'data_offsets':[0,0]}" - 1,
    SIZE_TEXT_MIN = sizeof "1," - 1,
    PAIR_TEXT_MIN = sizeof "'':''," - 1,
};

static ashlar_status fail_format(const char *path, const char *name, const char *reason) {
    return ashlar__fail(ASHLAR_EFORMAT, "%s: '%s' %s; the file is damaged, write it anew", path,
                        name, reason);
}

/* --- one tensor ----------------------------------------------------------------------------- */

/* Pass on a failure to read the header's JSON. */
static ashlar_status check_json(const reading *r, ashlar_status status) {
    return status == ASHLAR_OK ? status
                               : ashlar__fail(status, "%s: %s; give a whole safetensors file",
                                              r->file->path, ashlar_error_detail());
}

/* Read the next item of an array or object. */
static ashlar_status next(reading *r, const ashlar_json *of, ashlar_json *item, bool *is_there) {
    return check_json(r, ashlar__json_scan_next(&r->scan, of->kind, item, is_there));
}

/* Read an array of at most `max` sizes. `reason`: the text for refusing anything else. */
static ashlar_status read_sizes(reading *r, const char *name, const ashlar_json *value, size_t max,
                                size_t *sizes, size_t *count, const char *reason) {
    for (*count = 0; value->kind == ASHLAR_JSON_ARRAY; (*count)++) {
        ashlar_json item;
        bool is_there;
        uint64_t size;
        ASHLAR_TRY(next(r, value, &item, &is_there));
        if (!is_there) {
            return ASHLAR_OK;
        }
        if (*count == max || !ashlar__json_get_uint64(&item, &size)) {
            break;
        }
        sizes[*count] = size;
    }
    return fail_format(r->file->path, name, reason);
}

static bool has_text_key(const ashlar_json *member) {
    return strlen(member->key) == member->key_bytes;
}

static bool is_text(const ashlar_json *value) {
    return value->kind == ASHLAR_JSON_STRING && strlen(value->text) == value->count;
}

/* Read the value of one of a tensor's keys. span: begin and end in the data. */
static ashlar_status read_span(reading *r, const char *name, const ashlar_json *value,
                               size_t span[static 2]) {
    static const char what[] = "has data_offsets that are no begin and end";
    size_t count;
    ASHLAR_TRY(read_sizes(r, name, value, 2, span, &count, what));
    if (count != 2 || span[0] > span[1]) {
        return fail_format(r->file->path, name, what);
    }
    ASHLAR_FAIL_IF(span[1] > r->data_bytes, ASHLAR_EFORMAT,
                   "%s: ends %zu bytes before its tensor '%s' does; it was cut short, copy it anew",
                   r->file->path, span[1] - r->data_bytes, name);
    return ASHLAR_OK;
}

/* Read the value of one of a tensor's keys. span: begin and end in the data. */
static ashlar_status read_field(reading *r, const ashlar_json *field,
                                ashlar_checkpoint_tensor *tensor, size_t span[static 2]) {
    if (strcmp(field->key, "dtype") == 0) {
        tensor->dtype = field->text;
        return is_text(field) && field->count > 0
                   ? ASHLAR_OK
                   : fail_format(r->file->path, tensor->name, "has a dtype that is no name");
    }
    if (strcmp(field->key, "shape") == 0) {
        size_t *const shape = r->file->sizes + r->sizes;
        tensor->shape = shape;
        ASHLAR_TRY(read_sizes(r, tensor->name, field, r->text_bytes / SIZE_TEXT_MIN - r->sizes,
                              shape, &tensor->rank, "has a shape that is no list of sizes"));
        r->sizes += tensor->rank;
        return ASHLAR_OK;
    }
    return read_span(r, tensor->name, field, span);
}

/* Read the three keys of a tensor, each once, in any order. */
static ashlar_status read_fields(reading *r, const ashlar_json *member,
                                 ashlar_checkpoint_tensor *tensor, size_t span[static 2]) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    enum { KEYS = sizeof keys / sizeof keys[0], ALL = (1 << KEYS) - 1 };
    unsigned seen = 0;
    bool is_there = member->kind == ASHLAR_JSON_OBJECT;
    while (is_there) {
        ashlar_json field;
        unsigned i = 0;
        ASHLAR_TRY(next(r, member, &field, &is_there));
        if (!is_there) {
            break;
        }
        while (i < KEYS && (strcmp(field.key, keys[i]) != 0 || !has_text_key(&field))) {
            i++;
        }
        if (i == KEYS || (seen & 1u << i) != 0) {
            seen = 0;
            break;
        }
        seen |= 1u << i;
        ASHLAR_TRY(read_field(r, &field, tensor, span));
    }
    return seen == ALL ? ASHLAR_OK
                       : fail_format(r->file->path, tensor->name,
                                     "is not described by dtype, shape and data_offsets");
}

static ashlar_status read_tensor(reading *r, const ashlar_json *member) {
    ashlar_checkpoint_tensor *tensor = &r->file->tensors[r->file->count];
    size_t span[2] = {0, 0}, bytes = 0;
    ASHLAR_ASSERT(r->file->count <= r->text_bytes / TENSOR_TEXT_MIN);
    tensor->name = member->key;
    if (!has_text_key(member)) {
        return fail_format(r->file->path, tensor->name, "has a byte 0 in its name");
    }
    ASHLAR_TRY(read_fields(r, member, tensor, span));
    tensor->offset = r->data_at + span[0];
    tensor->bytes = span[1] - span[0];
    const size_t bits = bits_of(tensor->dtype);
    if (bits != 0 &&
        (!count_bytes(bits, tensor->rank, tensor->shape, &bytes) || bytes != tensor->bytes)) {
        return fail_format(r->file->path, tensor->name,
                           "has a shape that does not match its data_offsets");
    }
    r->file->count++;
    return ASHLAR_OK;
}

/* --- the whole header ----------------------------------------------------------------------- */

/* An empty tensor begins where the next one does, and sorts before it. */
static int compare_places(const void *a, const void *b) {
    const ashlar_checkpoint_tensor *x = a;
    const ashlar_checkpoint_tensor *y = b;
    const size_t x_end = x->offset + x->bytes, y_end = y->offset + y->bytes;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1)
           : x_end != y_end       ? (x_end < y_end ? -1 : 1)
                                  : strcmp(x->name, y->name);
}

static int compare_pairs(const void *a, const void *b) {
    return strcmp(((const ashlar_safetensors_pair *)a)->key,
                  ((const ashlar_safetensors_pair *)b)->key);
}

/* Sort the tensors by their data, and check that they cover all of it without hole or overlap. */
static ashlar_status check_cover(const reading *r) {
    ashlar_checkpoint *file = r->file;
    size_t end = r->data_at;
    qsort(file->tensors, file->count, sizeof *file->tensors, compare_places);
    for (size_t i = 0; i < file->count; i++) {
        const ashlar_checkpoint_tensor *tensor = &file->tensors[i];
        if (tensor->offset != end) {
            return fail_format(file->path, tensor->name,
                               tensor->offset < end ? "overlaps the tensor before it"
                                                    : "has a hole before it");
        }
        end += tensor->bytes;
    }
    ASHLAR_FAIL_IF(end != r->data_at + r->data_bytes, ASHLAR_EFORMAT,
                   "%s: %zu bytes of data, %zu described; the file is damaged, write it anew",
                   file->path, r->data_bytes, end - r->data_at);
    return ASHLAR_OK;
}

static ashlar_status check_unique(const reading *r) {
    const ashlar_checkpoint *file = r->file;
    const char **names;
    ASHLAR_HOST_NEW(names, file->count + 1, "%s: no host memory for %zu tensors", file->path,
                    file->count);
    for (size_t i = 0; i < file->count; i++) {
        names[i] = file->tensors[i].name;
    }
    const char *twice = find_twice(names, file->count);
    ashlar__host_free(names);
    ASHLAR_FAIL_IF(twice != NULL, ASHLAR_EFORMAT,
                   "%s: duplicate key '%s'; give each tensor its own name", file->path, twice);
    return ASHLAR_OK;
}

static ashlar_status read_pairs(reading *r, const ashlar_json *metadata) {
    ashlar_checkpoint *file = r->file;
    for (;;) {
        ashlar_json item;
        bool is_there;
        ASHLAR_TRY(next(r, metadata, &item, &is_there));
        if (!is_there) {
            return ASHLAR_OK;
        }
        if (!is_text(&item) || !has_text_key(&item)) {
            return fail_format(file->path, item.key, "is metadata other than text");
        }
        ASHLAR_ASSERT(file->metadata_count <= r->text_bytes / PAIR_TEXT_MIN);
        file->metadata[file->metadata_count++] = (ashlar_safetensors_pair){item.key, item.text};
    }
}

static ashlar_status read_metadata(reading *r, const ashlar_json *metadata) {
    ashlar_checkpoint *file = r->file;
    if (metadata->kind == ASHLAR_JSON_NULL) { /* as good as absent */
        return ASHLAR_OK;
    }
    if (file->metadata != NULL || metadata->kind != ASHLAR_JSON_OBJECT) {
        return fail_format(file->path, metadata->key, "is not one object");
    }
    ASHLAR_HOST_NEW(file->metadata, r->text_bytes / PAIR_TEXT_MIN + 1,
                    "%s: no host memory for its metadata", file->path);
    ASHLAR_TRY(read_pairs(r, metadata));
    qsort(file->metadata, file->metadata_count, sizeof *file->metadata, compare_pairs);
    for (size_t i = 1; i < file->metadata_count; i++) {
        if (strcmp(file->metadata[i - 1].key, file->metadata[i].key) == 0) {
            return fail_format(file->path, file->metadata[i].key,
                               "is a duplicate key of the metadata");
        }
    }
    return ASHLAR_OK;
}

static ashlar_status read_members(reading *r, const ashlar_json *header) {
    bool is_there = header->kind == ASHLAR_JSON_OBJECT;
    if (!is_there) {
        return fail_format(r->file->path, "header", "is not an object");
    }
    while (is_there) {
        ashlar_json member;
        ASHLAR_TRY(next(r, header, &member, &is_there));
        if (is_there) {
            const bool is_metadata =
                has_text_key(&member) && strcmp(member.key, "__metadata__") == 0;
            ASHLAR_TRY(is_metadata ? read_metadata(r, &member) : read_tensor(r, &member));
        }
    }
    return check_json(r, ashlar__json_scan_end(&r->scan));
}

/* Say why the file cannot be read at all, by its first bytes: a zip file (torch.save() since 2019)
 * begins with PK, a pickle (before) with byte 0x80 and its version. */
static ashlar_status fail_length(const char *path, const unsigned char *first, bool is_long) {
    const bool is_torch =
        memcmp(first, "PK\3\4", 4) == 0 || (first[0] == 0x80 && first[1] >= 2 && first[1] <= 5);
    return is_torch
               ? ashlar__fail(ASHLAR_EFORMAT,
                              "%s: a zip or pickle file, such as torch.save() writes; convert it: "
                              "python3 -c \"import torch, safetensors.torch as s; "
                              "s.save_file(torch.load('%s', weights_only=True), "
                              "'%s.safetensors')\"",
                              path, path, path)
               : ashlar__fail(ASHLAR_EFORMAT,
                              "%s: a header longer than the %s; the file was cut short, or is no "
                              "safetensors file",
                              path, is_long ? "format allows" : "file");
}

/* Read the file's first bytes: the header's length and the header. */
static ashlar_status take_header(ashlar_checkpoint *file, size_t bytes, size_t *text_bytes) {
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
        return fail_length(file->path, little, length <= bytes - LENGTH_BYTES);
    }
    ASHLAR_HOST_NEW(file->header, length + 1, "%s: no host memory for its header", file->path);
    *text_bytes = length;
    return ashlar__file_read_at(file->fd, file->path, LENGTH_BYTES, file->header, length);
}

static ashlar_status open_file(ashlar_checkpoint *file, const char *path) {
    reading r = {.file = file};
    size_t bytes = 0;
    ashlar_json header;
    ASHLAR_HOST_NEW(file->path, strlen(path) + 1, "no host memory to read %s", path);
    memcpy(file->path, path, strlen(path));
    ASHLAR_TRY(ashlar__file_open(path, &file->fd, &bytes));
    ASHLAR_TRY(take_header(file, bytes, &r.text_bytes));
    r.data_at = LENGTH_BYTES + r.text_bytes;
    r.data_bytes = bytes - r.data_at;
    ASHLAR_HOST_NEW(file->tensors, r.text_bytes / TENSOR_TEXT_MIN + 1,
                    "%s: no host memory for its tensors", path);
    ASHLAR_HOST_NEW(file->sizes, r.text_bytes / SIZE_TEXT_MIN + 1,
                    "%s: no host memory for its shapes", path);
    ASHLAR_TRY(
        check_json(&r, ashlar__json_scan_begin(&r.scan, file->header, r.text_bytes, &header)));
    ASHLAR_TRY(read_members(&r, &header));
    ASHLAR_TRY(check_unique(&r));
    return check_cover(&r);
}

/* --- the interface -------------------------------------------------------------------------- */

ashlar_status ashlar_checkpoint_open(const char *path, ashlar_checkpoint **out) {
    ashlar_checkpoint *file;
    ASHLAR_HOST_NEW(file, 1, "no host memory to read %s", path);
    file->fd = -1;
    ASHLAR_HAND_OUT(open_file(file, path), file, ashlar_checkpoint_close, out);
}

void ashlar_checkpoint_close(ashlar_checkpoint *file) {
    if (file == NULL) {
        return;
    }
    if (file->fd >= 0) {
        (void)close(file->fd); /* nothing was written: close has nothing to report */
    }
    ashlar__host_free(file->path);
    ashlar__host_free(file->header);
    ashlar__host_free(file->tensors);
    ashlar__host_free(file->sizes);
    ashlar__host_free(file->metadata);
    ashlar__host_free(file);
}

const char *ashlar__safetensors_path(const ashlar_checkpoint *file) {
    return file->path;
}

const ashlar_checkpoint_tensor *ashlar_checkpoint_tensors(const ashlar_checkpoint *file,
                                                          size_t *count) {
    *count = file->count;
    return file->tensors;
}

ashlar_status ashlar__safetensors_read(const ashlar_checkpoint *file,
                                       const ashlar_checkpoint_tensor *tensor, size_t first,
                                       size_t bytes, void *out) {
    return ashlar__file_read_at(file->fd, file->path, tensor->offset + first, out, bytes);
}

const char *ashlar_checkpoint_metadata(const ashlar_checkpoint *file, const char *key) {
    if (file->metadata == NULL) {
        return NULL;
    }
    const ashlar_safetensors_pair wanted = {.key = key};
    const ashlar_safetensors_pair *found = bsearch(&wanted, file->metadata, file->metadata_count,
                                                   sizeof *file->metadata, compare_pairs);
    return found == NULL ? NULL : found->value;
}
