/*
 * plan_read.c - reading a file of plans; the format is in plan_image.h.
 *
 * Everything is checked before use. The checksum finds damage to a file; the checks of each number
 * find mistakes in a file written by hand.
 */
#include "allocator/step/plan_image.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include <ashlar/plan_file.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/file_read.h"
#include "allocator/base/host.h"
#include "allocator/base/parse.h"
#include "allocator/heap/size_class.h"

#define REMEDY "save the plans again, or remove the file"

_Static_assert(ASHLAR_TAG_COUNT - 1 <= UCHAR_MAX, "a tag fits ashlar_recorded");
_Static_assert(ASHLAR_PLAN_STREAMS_MAX - 1 <= UCHAR_MAX, "a stream_idx fits ashlar_recorded");
_Static_assert(ASHLAR_RECORDING_MAX < ASHLAR_NOT_PLANNED, "no end is taken for that mark");

typedef struct reader {
    const char *name;  /* of the file, for messages */
    const char *text;  /* the whole file */
    ashlar_piece rest; /* the part of `text` that is not read yet */
    size_t line;       /* number of the line read last, from 1 */
} reader;

/* ---- lines and numbers ---- */

static ashlar_status next_line(reader *r, ashlar_piece *out) {
    const bool is_whole = memchr(r->rest.text, '\n', r->rest.bytes) != NULL;
    r->line++;
    if (!is_whole) {
        return ashlar__fail(ASHLAR_EFORMAT, "%s:%zu: the file is cut off here; " REMEDY, r->name,
                            r->line);
    }
    *out = ashlar__piece_cut(&r->rest, '\n');
    return ASHLAR_OK;
}

/*
 * Read the next line, which must begin with `word` and a comma; *out is the text behind the comma.
 */
static ashlar_status next_row(reader *r, const char *word, ashlar_piece *out) {
    char shown[ASHLAR_SHOWN_BYTES];
    ashlar_piece line;
    const ashlar_status status = next_line(r, &line);
    if (status != ASHLAR_OK) {
        return status;
    }
    *out = line;
    if (!ashlar__piece_is(ashlar__piece_cut(out, ','), word)) {
        return ashlar__fail(ASHLAR_EFORMAT, "%s:%zu: '%s' in place of a line '%s,...'; " REMEDY,
                            r->name, r->line, ashlar__piece_show(line, shown), word);
    }
    return ASHLAR_OK;
}

typedef struct field {
    const char *name;
    uint64_t low, high;
} field;

static ashlar_status bad_field(const reader *r, const field *f, const char *shown) {
    return ashlar__fail(ASHLAR_EFORMAT,
                        "%s:%zu: %s is '%s', not %" PRIu64 " .. %" PRIu64 "; " REMEDY, r->name,
                        r->line, f->name, shown, f->low, f->high);
}

static size_t count_fields(ashlar_piece row) {
    size_t count = 1;
    for (size_t i = 0; i < row.bytes; i++) {
        count += row.text[i] == ',';
    }
    return count;
}

/* Read the numbers of a row: there must be `count`, each within the range of its field. */
static ashlar_status parse_fields(const reader *r, ashlar_piece row, const field *fields,
                                  size_t count, uint64_t *values) {
    char shown[ASHLAR_SHOWN_BYTES];
    if (count_fields(row) != count) {
        return ashlar__fail(ASHLAR_EFORMAT, "%s:%zu: %zu numbers in place of %zu; " REMEDY, r->name,
                            r->line, count_fields(row), count);
    }
    for (size_t i = 0; i < count; i++) {
        ASHLAR_CHECK2(fields[i].low <= fields[i].high);
        const ashlar_piece piece = ashlar__piece_cut(&row, ',');
        if (!ashlar__parse_count(piece, &values[i]) || values[i] < fields[i].low ||
            values[i] > fields[i].high) {
            return bad_field(r, &fields[i], ashlar__piece_show(piece, shown));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status next_numbers(reader *r, const char *word, const field *fields, size_t count,
                                  uint64_t *values) {
    ashlar_piece row;
    const ashlar_status status = next_row(r, word, &row);
    return status == ASHLAR_OK ? parse_fields(r, row, fields, count, values) : status;
}

static ashlar_status no_host_memory(const reader *r) {
    return ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory for its plans", r->name);
}

/* Refuse a line count if that many lines, each of at least `line_bytes` bytes, do not fit into the
 * rest of the file, so that a wrong count allocates no memory. */
static ashlar_status check_room(const reader *r, uint64_t count, size_t line_bytes) {
    return count <= r->rest.bytes / line_bytes
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EFORMAT,
                              "%s:%zu: the file is cut off: less follows than %" PRIu64
                              " lines; " REMEDY,
                              r->name, r->line, count);
}

/* ---- one key ---- */

static ashlar_status read_part(reader *r, uint32_t stream_count, ashlar_image_key *key,
                               ashlar_stream_plan *out) {
    const field fields[] = {
        {"STREAM", 0, stream_count - 1}, {"PLAN", 0, SIZE_MAX}, {"PEAK", 0, SIZE_MAX}};
    uint64_t values[3];
    const ashlar_status status = next_numbers(r, "part", fields, 3, values);
    if (status != ASHLAR_OK) {
        return status;
    }
    const uint32_t stream_idx = key->recording.stream_count;
    ASHLAR_CHECK2(stream_idx < ASHLAR_PLAN_STREAMS_MAX);
    for (uint32_t other = 0; other < stream_idx; other++) {
        if (key->streams[other] == values[0]) {
            return ashlar__fail(ASHLAR_EFORMAT,
                                "%s:%zu: a second part of stream %" PRIu64 "; " REMEDY, r->name,
                                r->line, values[0]);
        }
    }
    key->streams[stream_idx] = (uint32_t)values[0];
    key->recording.peaks[stream_idx] = values[2];
    key->recording.stream_count++;
    *out = (ashlar_stream_plan){.plan_bytes = values[1], .bound_bytes = values[2]};
    return ASHLAR_OK;
}

enum {
    UNPLANNED_FIELDS = 4,
    PLANNED_FIELDS = 6,
    MARKS_MAX = ASHLAR_PLAN_FILE_LANDING | ASHLAR_PLAN_FILE_SHARED,
};

static ashlar_status read_alloc(reader *r, uint32_t count, ashlar_recording *recording,
                                size_t *offset) {
    const uint32_t i = recording->count;
    ASHLAR_CHECK2(i < count && recording->stream_count > 0);
    field fields[PLANNED_FIELDS] = {{"BYTES", 1, SIZE_MAX},
                                    {"TAG", 0, ASHLAR_TAG_COUNT - 1},
                                    {"PART", 0, recording->stream_count - 1},
                                    {"MARKS", 0, MARKS_MAX},
                                    {"END", (uint64_t)i + 1, count},
                                    {"OFFSET", 0, SIZE_MAX}};
    uint64_t values[PLANNED_FIELDS] = {[4] = ASHLAR_NOT_PLANNED};
    ashlar_piece row;
    ashlar_status status = next_row(r, "alloc", &row);
    if (status == ASHLAR_OK) {
        const bool is_planned = count_fields(row) != UNPLANNED_FIELDS;
        fields[3].high += is_planned ? 0 : ASHLAR_PLAN_FILE_REFUSED;
        status =
            parse_fields(r, row, fields, is_planned ? PLANNED_FIELDS : UNPLANNED_FIELDS, values);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    recording->allocs[recording->count++] =
        (ashlar_recorded){.bytes = values[0],
                          .end = (uint32_t)values[4],
                          .tag = (unsigned char)values[1],
                          .stream_idx = (unsigned char)values[2],
                          .is_landing = (values[3] & ASHLAR_PLAN_FILE_LANDING) != 0,
                          .is_shared = (values[3] & ASHLAR_PLAN_FILE_SHARED) != 0,
                          .is_refused = (values[3] & ASHLAR_PLAN_FILE_REFUSED) != 0};
    *offset = values[5];
    return ASHLAR_OK;
}

/* Make the key's plan from the offsets. Its sizes must be the ones stated in the file. */
static ashlar_status restore(const reader *r, const size_t *offsets,
                             const ashlar_stream_plan *parts, ashlar_image_key *key) {
    const ashlar_status status = ashlar__plan_restore(&key->recording, offsets, &key->plan);
    if (status != ASHLAR_OK) {
        return status == ASHLAR_EHOSTMEM
                   ? status
                   : ashlar__fail(ASHLAR_EFORMAT, "%s:%zu: key %" PRIu64 ": %s; " REMEDY, r->name,
                                  r->line, key->key, ashlar_error_detail());
    }
    ASHLAR_CHECK2(key->plan->count == key->recording.count);
    ASHLAR_CHECK2(key->plan->stream_count == key->recording.stream_count);
    for (uint32_t stream_idx = 0; stream_idx < key->plan->stream_count; stream_idx++) {
        const ashlar_stream_plan *is = &key->plan->stream_plans[stream_idx],
                                 *says = &parts[stream_idx];
        if (is->plan_bytes != says->plan_bytes || is->bound_bytes != says->bound_bytes) {
            return ashlar__fail(ASHLAR_EFORMAT,
                                "%s:%zu: key %" PRIu64 ", part %" PRIu32 ": PLAN,PEAK are %zu,%zu"
                                " but its allocations need %zu,%zu; " REMEDY,
                                r->name, r->line, key->key, stream_idx, says->plan_bytes,
                                says->bound_bytes, is->plan_bytes, is->bound_bytes);
        }
    }
    return ASHLAR_OK;
}

static ashlar_status read_allocs(reader *r, uint32_t count, const ashlar_stream_plan *parts,
                                 ashlar_image_key *key) {
    size_t *offsets = ashlar__host_calloc((size_t)count + 1, sizeof *offsets);
    key->recording.allocs = ashlar__host_calloc((size_t)count + 1, sizeof *key->recording.allocs);
    ashlar_status status =
        offsets == NULL || key->recording.allocs == NULL ? no_host_memory(r) : ASHLAR_OK;
    for (uint32_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = read_alloc(r, count, &key->recording, &offsets[i]);
    }
    if (status == ASHLAR_OK) {
        ASHLAR_CHECK2(key->recording.count == count);
        status = restore(r, offsets, parts, key);
    }
    ashlar__host_free(offsets);
    return status;
}

/* Whether the image already has one of the key's numbers on its stream. */
static bool is_known(const ashlar_plan_image *image, const ashlar_image_key *key) {
    uint32_t i = 0;
    while (i < image->key_count && (image->keys[i].stream != key->stream ||
                                    (key->key - image->keys[i].key >= image->keys[i].number_count &&
                                     image->keys[i].key - key->key >= key->number_count))) {
        i++;
    }
    return i < image->key_count;
}

static ashlar_status read_key(reader *r, ashlar_plan_image *image) {
    const field fields[] = {{"KEY", 0, UINT64_MAX},
                            {"NUMBERS", 1, UINT64_MAX},
                            {"STREAM", 0, image->stream_count - 1},
                            {"STEPS", 1, UINT32_MAX},
                            {"PARTS", 0, ASHLAR_PLAN_STREAMS_MAX},
                            {"ALLOCS", 0, ASHLAR_RECORDING_MAX}};
    uint64_t values[6];
    ashlar_stream_plan parts[ASHLAR_PLAN_STREAMS_MAX];
    ashlar_status status = next_numbers(r, "key", fields, 6, values);
    if (status == ASHLAR_OK) {
        status = check_room(r, values[5], sizeof "alloc,1,0,0,0\n" - 1);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    const ashlar_image_key read = {.key = values[0],
                                   .number_count = values[1],
                                   .stream = (uint32_t)values[2],
                                   .step_count = (uint32_t)values[3]};
    if (is_known(image, &read)) {
        return ashlar__fail(ASHLAR_EFORMAT, "%s:%zu: key %" PRIu64 " is there twice; " REMEDY,
                            r->name, r->line, read.key);
    }
    if (values[4] == 0 && values[5] > 0) {
        return bad_field(r, &(field){"PARTS", 1, ASHLAR_PLAN_STREAMS_MAX}, "0");
    }
    ashlar_image_key *key = &image->keys[image->key_count++];
    *key = read;
    for (uint64_t stream_idx = 0; stream_idx < values[4] && status == ASHLAR_OK; stream_idx++) {
        status = read_part(r, image->stream_count, key, &parts[stream_idx]);
    }
    return status == ASHLAR_OK ? read_allocs(r, (uint32_t)values[5], parts, key) : status;
}

/* ---- the file ---- */

static ashlar_status read_version(reader *r) {
    uint64_t version;
    ashlar_piece row;
    const ashlar_status status = next_row(r, ASHLAR_PLAN_FILE_NAME, &row);
    if (status != ASHLAR_OK) {
        return status;
    }
    if (!ashlar__parse_count(row, &version)) {
        return ashlar__fail(ASHLAR_EFORMAT, "%s:%zu: the version is no number; " REMEDY, r->name,
                            r->line);
    }
    if (version != ASHLAR_PLAN_FILE_VERSION) {
        return ashlar__fail(ASHLAR_ENOTSUP,
                            "%s:%zu: version %" PRIu64
                            " of the format, and this library reads %d; " REMEDY,
                            r->name, r->line, version, ASHLAR_PLAN_FILE_VERSION);
    }
    return ASHLAR_OK;
}

static ashlar_status read_fingerprint(reader *r, ashlar_plan_image *image) {
    ashlar_piece row;
    ashlar_status status = next_row(r, "fingerprint", &row);
    if (status != ASHLAR_OK) {
        return status;
    }
    image->fingerprint = ashlar__host_calloc(row.bytes + 1, 1);
    if (image->fingerprint == NULL) {
        return no_host_memory(r);
    }
    memcpy(image->fingerprint, row.text, row.bytes);
    status = ashlar__plan_check_fingerprint(image->fingerprint);
    if (status != ASHLAR_OK || strlen(image->fingerprint) != row.bytes) {
        return ashlar__fail(ASHLAR_EFORMAT,
                            "%s:%zu: the fingerprint is too long, or no text; " REMEDY, r->name,
                            r->line);
    }
    return ASHLAR_OK;
}

static ashlar_status read_plans(reader *r, ashlar_plan_image *image) {
    const field fields[] = {{"ALIGNMENT", 1, SIZE_MAX},
                            {"STREAMS", 1, UINT32_MAX},
                            {"KEYS", 1, ASHLAR_PLAN_FILE_KEYS_MAX}};
    uint64_t values[3];
    ashlar_status status = next_numbers(r, "plans", fields, 3, values);
    if (status == ASHLAR_OK) {
        status = check_room(r, values[2], sizeof "key,0,1,0,1,0,0\n" - 1);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    if (values[0] != ASHLAR_BLOCK_ALIGN) {
        return ashlar__fail(ASHLAR_ENOTSUP,
                            "%s:%zu: slots aligned to %" PRIu64 " bytes, and this library's are to "
                            "%zu; " REMEDY,
                            r->name, r->line, values[0], (size_t)ASHLAR_BLOCK_ALIGN);
    }
    image->stream_count = (uint32_t)values[1];
    image->keys = ashlar__host_calloc((size_t)values[2], sizeof *image->keys);
    if (image->keys == NULL) {
        return no_host_memory(r);
    }
    for (uint64_t i = 0; i < values[2] && status == ASHLAR_OK; i++) {
        ASHLAR_CHECK2(image->key_count == i);
        status = read_key(r, image);
    }
    return status;
}

static ashlar_status read_end(reader *r) {
    char wanted[ASHLAR_NUMBER_BYTES];
    const size_t bytes = (size_t)(r->rest.text - r->text);
    const uint64_t sum = ashlar__plan_sum(ASHLAR_PLAN_SUM_OF_NOTHING, r->text, bytes);
    ashlar_piece row;
    const ashlar_status status = next_row(r, "end", &row);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar__plan_write_sum(sum, wanted);
    if (!ashlar__piece_is(row, wanted)) {
        return ashlar__fail(ASHLAR_EFORMAT,
                            "%s:%zu: the sum of the lines above is %s, not this: "
                            "they were changed; " REMEDY,
                            r->name, r->line, wanted);
    }
    if (r->rest.bytes > 0) {
        return ashlar__fail(ASHLAR_EFORMAT, "%s:%zu: more lines behind the end; " REMEDY, r->name,
                            r->line + 1);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__plan_image_parse(const char *name, const char *text, size_t bytes,
                                       ashlar_plan_image *out) {
    reader r = {.name = name, .text = text, .rest = {text, bytes}};
    ashlar_plan_image image = {0};
    ashlar_status status = read_version(&r);
    if (status == ASHLAR_OK) {
        status = read_fingerprint(&r, &image);
    }
    if (status == ASHLAR_OK) {
        status = read_plans(&r, &image);
    }
    if (status == ASHLAR_OK) {
        status = read_end(&r);
    }
    if (status != ASHLAR_OK) {
        ashlar__plan_image_finish(&image);
        return status;
    }
    ASHLAR_CHECK2(image.fingerprint != NULL && image.key_count > 0 && image.stream_count > 0);
    *out = image;
    return ASHLAR_OK;
}

ashlar_status ashlar__plan_image_read(const char *path, ashlar_plan_image *out) {
    char *text = NULL;
    size_t bytes = 0;
    ashlar_status status = ashlar__file_read(path, &text, &bytes);
    if (status == ASHLAR_OK) {
        status = ashlar__plan_image_parse(path, text, bytes, out);
    }
    ashlar__host_free(text);
    return status;
}
