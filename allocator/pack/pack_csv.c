/* pack_csv.c - packing problems as lines of text. */
#include "allocator/pack/pack_csv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/file_buffer.h"
#include "allocator/base/host.h"

typedef enum column { ID, LOWER, UPPER, SIZE, COLUMN_COUNT } column;

static const char *const column_names[] = {"id", "lower", "upper", "size"};
ASHLAR_TABLE_IS_FULL(column_names, COLUMN_COUNT);
static const char *const refused_names[] = {"alignment", "gaps"};

typedef struct reader {
    const char *name;
    ashlar_pack_table table;
    size_t *lines;               /* by buffer */
    size_t capacity;             /* of the arrays */
    ashlar_piece rest;           /* what has not been read yet */
    size_t line;                 /* number of the line read last */
    size_t places[COLUMN_COUNT]; /* which field of a row, from 0 */
    size_t field_count;          /* of the header */
} reader;

/* ---- pieces of lines ---- */

static ashlar_status fail_field(const reader *r, const char *what, ashlar_piece field) {
    char shown[ASHLAR_SHOWN_BYTES];
    return ashlar_fail(ASHLAR_EFORMAT, "%s:%zu: %s, not \"%s\"", r->name, r->line, what,
                       ashlar_piece_show(field, shown));
}

/* The next line that is not blank; false at the end. */
static bool next_line(reader *r, ashlar_piece *line) {
    while (r->rest.bytes > 0) {
        *line = ashlar_piece_trim(ashlar_piece_cut(&r->rest, '\n'));
        r->line++;
        if (line->bytes > 0) {
            return true;
        }
    }
    return false;
}

/* The next field of a line; *is_last where no other follows. */
static ashlar_piece next_field(ashlar_piece *line, bool *is_last) {
    *is_last = memchr(line->text, ',', line->bytes) == NULL;
    return ashlar_piece_trim(ashlar_piece_cut(line, ','));
}

/* ---- the header ---- */

static ashlar_status note_column(reader *r, ashlar_piece name) {
    for (size_t i = 0; i < sizeof refused_names / sizeof refused_names[0]; i++) {
        if (ashlar_piece_is(name, refused_names[i])) {
            return ashlar_fail(ASHLAR_EFORMAT,
                               "%s:%zu: a column %s is not supported; take it out if every buffer "
                               "can do without it",
                               r->name, r->line, refused_names[i]);
        }
    }
    for (int c = 0; c < COLUMN_COUNT; c++) {
        if (ashlar_piece_is(name, column_names[c])) {
            if (r->places[c] != SIZE_MAX) {
                return fail_field(r, "each column has to be there once", name);
            }
            r->places[c] = r->field_count;
        }
    }
    return ASHLAR_OK;
}

static ashlar_status read_header(reader *r) {
    ashlar_piece line = {"", 0};
    if (r->rest.bytes >= 3 && memcmp(r->rest.text, "\xef\xbb\xbf", 3) == 0) { /* byte order mark */
        r->rest = (ashlar_piece){r->rest.text + 3, r->rest.bytes - 3};
    }
    if (!next_line(r, &line)) {
        return ashlar_fail(ASHLAR_EFORMAT, "%s: empty; it has to begin with id,lower,upper,size",
                           r->name);
    }
    for (bool is_last = false; !is_last; r->field_count++) {
        const ashlar_status status = note_column(r, next_field(&line, &is_last));
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    for (int c = 0; c < COLUMN_COUNT; c++) {
        if (r->places[c] == SIZE_MAX) {
            return ashlar_fail(ASHLAR_EFORMAT,
                               "%s:%zu: no column %s; the first line has to be "
                               "id,lower,upper,size",
                               r->name, r->line, column_names[c]);
        }
    }
    return ASHLAR_OK;
}

/* ---- rows ---- */

static ashlar_status reserve(reader *r) {
    ashlar_pack_table *t = &r->table;
    if (t->count < r->capacity) {
        return ASHLAR_OK;
    }
    const size_t capacity = r->capacity == 0 ? 64 : 2 * r->capacity;
    ashlar_pack_buffer *buffers = ashlar_host_realloc(t->buffers, capacity, sizeof *buffers);
    t->buffers = buffers == NULL ? t->buffers : buffers;
    ashlar_piece *ids = ashlar_host_realloc(t->ids, capacity, sizeof *ids);
    t->ids = ids == NULL ? t->ids : ids;
    size_t *lines = ashlar_host_realloc(r->lines, capacity, sizeof *lines);
    r->lines = lines == NULL ? r->lines : lines;
    if (buffers == NULL || ids == NULL || lines == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "%s: no host memory to read it", r->name);
    }
    r->capacity = capacity;
    return ASHLAR_OK;
}

static ashlar_status parse_row(reader *r, const ashlar_piece fields[static COLUMN_COUNT]) {
    uint64_t lower, upper, size;
    if (fields[ID].bytes == 0) {
        return fail_field(r, "id has to be some text", fields[ID]);
    }
    if (!ashlar_parse_count(fields[LOWER], &lower)) {
        return fail_field(r, "lower has to be a whole number of 64 bits", fields[LOWER]);
    }
    if (!ashlar_parse_count(fields[UPPER], &upper)) {
        return fail_field(r, "upper has to be a whole number of 64 bits", fields[UPPER]);
    }
    if (!ashlar_parse_count(fields[SIZE], &size) || size == 0) {
        return fail_field(r, "size has to be a whole number from 1, of 64 bits", fields[SIZE]);
    }
    if (lower >= upper) {
        return fail_field(r, "upper has to be more than lower", fields[UPPER]);
    }
    const ashlar_status status = reserve(r);
    if (status == ASHLAR_OK) {
        r->table.buffers[r->table.count] = (ashlar_pack_buffer){(size_t)size, lower, upper};
        r->table.ids[r->table.count] = fields[ID];
        r->lines[r->table.count++] = r->line;
    }
    return status;
}

static ashlar_status read_row(reader *r, ashlar_piece line) {
    ashlar_piece fields[COLUMN_COUNT] = {{"", 0}};
    size_t count = 0;
    for (bool is_last = false; !is_last; count++) {
        const ashlar_piece field = next_field(&line, &is_last);
        for (int c = 0; c < COLUMN_COUNT; c++) {
            if (r->places[c] == count) {
                fields[c] = field;
            }
        }
    }
    if (count != r->field_count) {
        return ashlar_fail(ASHLAR_EFORMAT, "%s:%zu: %zu fields where the header has %zu", r->name,
                           r->line, count, r->field_count);
    }
    return parse_row(r, fields);
}

/* ---- ids ---- */

static int compare_ids(const void *a, const void *b, void *context) {
    const size_t i = *(const size_t *)a, j = *(const size_t *)b;
    const ashlar_piece *x = (const ashlar_piece *)context + i;
    const ashlar_piece *y = (const ashlar_piece *)context + j;
    const int order = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);
    if (order != 0) {
        return order;
    }
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return (i > j) - (i < j);
}

static ashlar_status check_ids(const reader *r) {
    const ashlar_pack_table *t = &r->table;
    ashlar_status status = ASHLAR_OK;
    size_t *order = ashlar_host_calloc(t->count + 1, sizeof *order); /* count may be 0 */
    if (order == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "%s: no host memory to read it", r->name);
    }
    for (size_t i = 0; i < t->count; i++) {
        order[i] = i;
    }
    qsort_r(order, t->count, sizeof *order, compare_ids, t->ids);
    for (size_t k = 1; status == ASHLAR_OK && k < t->count; k++) {
        const ashlar_piece *x = &t->ids[order[k - 1]], *y = &t->ids[order[k]];
        char shown[ASHLAR_SHOWN_BYTES];
        if (x->bytes == y->bytes && memcmp(x->text, y->text, x->bytes) == 0) {
            status = ashlar_fail(ASHLAR_EFORMAT,
                                 "%s:%zu: the id \"%s\" is also that of line %zu; give each "
                                 "buffer its own",
                                 r->name, r->lines[order[k]], ashlar_piece_show(*y, shown),
                                 r->lines[order[k - 1]]);
        }
    }
    ashlar_host_free(order);
    return status;
}

/* ---- all of it ---- */

/* `text` becomes the table's, also where that fails. */
static ashlar_status parse_owned(const char *name, char *text, size_t bytes,
                                 ashlar_pack_table *out) {
    reader r = {.name = name, .table = {.text = text}, .rest = {text, bytes}};
    ashlar_piece line;
    for (int c = 0; c < COLUMN_COUNT; c++) {
        r.places[c] = SIZE_MAX;
    }
    ashlar_status status = read_header(&r);
    while (status == ASHLAR_OK && next_line(&r, &line)) {
        status = read_row(&r, line);
    }
    if (status == ASHLAR_OK) {
        status = check_ids(&r);
    }
    ashlar_host_free(r.lines);
    if (status != ASHLAR_OK) {
        ashlar_pack_table_finish(&r.table);
        return status;
    }
    *out = r.table;
    return ASHLAR_OK;
}

ashlar_status ashlar_pack_table_parse(const char *name, const char *text, size_t bytes,
                                      ashlar_pack_table *out) {
    char *copy = ashlar_host_calloc(bytes + 1, 1);
    if (copy == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "%s: no host memory to read it", name);
    }
    memcpy(copy, text, bytes);
    return parse_owned(name, copy, bytes, out);
}

/* To the end, without asking for the size first: a pipe has none. *text is the caller's. */
static ashlar_status read_all(FILE *file, const char *path, char **text, size_t *bytes) {
    enum { FIRST = 1 << 16 };
    for (size_t capacity = 0;;) {
        if (*bytes == capacity) {
            capacity = capacity == 0 ? FIRST : 2 * capacity;
            char *grown = ashlar_host_realloc(*text, capacity, 1);
            if (grown == NULL) {
                return ashlar_fail(ASHLAR_EHOSTMEM, "%s: no host memory to read it", path);
            }
            *text = grown;
        }
        const size_t got = fread(*text + *bytes, 1, capacity - *bytes, file);
        *bytes += got;
        if (ferror(file)) {
            return ashlar_fail(ASHLAR_EIO, "%s: cannot be read: %s", path, strerror(errno));
        }
        if (got == 0) {
            return ASHLAR_OK;
        }
    }
}

ashlar_status ashlar_pack_table_read(const char *path, ashlar_pack_table *out) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return ashlar_fail(ASHLAR_EIO, "%s: cannot be read: %s", path, strerror(errno));
    }
    const ashlar_status status = read_all(file, path, &text, &bytes);
    (void)fclose(file);
    if (status != ASHLAR_OK) {
        ashlar_host_free(text);
        return status;
    }
    return parse_owned(path, text, bytes, out);
}

void ashlar_pack_table_finish(ashlar_pack_table *table) {
    ashlar_host_free(table->buffers);
    ashlar_host_free(table->ids);
    ashlar_host_free(table->text);
    *table = (ashlar_pack_table){0};
}

ashlar_status ashlar_pack_table_write(const ashlar_pack_table *table, const size_t *offsets,
                                      const char *path) {
    ashlar_file_buffer *file;
    const ashlar_status status = ashlar_file_buffer_create(path, &file);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_file_buffer_print(file, "id,lower,upper,size%s\n", offsets == NULL ? "" : ",offset");
    for (size_t i = 0; i < table->count; i++) {
        const ashlar_pack_buffer *b = &table->buffers[i];
        ashlar_file_buffer_put(file, table->ids[i].text, table->ids[i].bytes);
        ashlar_file_buffer_print(file, ",%" PRIu64 ",%" PRIu64 ",%zu", b->begin, b->end, b->bytes);
        if (offsets != NULL) {
            ashlar_file_buffer_print(file, ",%zu", offsets[i]);
        }
        ashlar_file_buffer_put(file, "\n", 1);
    }
    return ashlar_file_buffer_commit(file);
}
