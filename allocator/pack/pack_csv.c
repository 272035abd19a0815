/* pack_csv.c - reading packing problems from comma-separated rows, and writing them and their
 * solutions. */
#include "allocator/pack/pack_csv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/csv_read.h"
#include "allocator/base/error.h"
#include "allocator/base/file_buffer.h"
#include "allocator/base/file_read.h"
#include "allocator/base/host.h"

typedef enum column { ID, LOWER, UPPER, SIZE, COLUMN_COUNT } column;

static const char *const column_names[] = {"id", "lower", "upper", "size"};
ASHLAR_TABLE_IS_FULL(column_names, COLUMN_COUNT);
_Static_assert((int)COLUMN_COUNT <= (int)ASHLAR_CSV_COLUMNS_MAX, "the reader has places for all");
static const char *const refused_names[] = {"alignment", "gaps", NULL};
static const ashlar_csv_format format = {
    .columns = column_names,
    .count = COLUMN_COUNT,
    .refused = refused_names,
    .begins = "the first line has to be id,lower,upper,size",
};

typedef struct reader {
    ashlar_csv csv;
    ashlar_pack_table table;
    size_t *lines;   /* line number of each buffer */
    size_t capacity; /* of the three arrays */
} reader;

/* ---- rows ---- */

static ashlar_status reserve(reader *r) {
    ashlar_pack_table *t = &r->table;
    ASHLAR_CHECK2(t->count <= r->capacity);
    if (t->count < r->capacity) {
        return ASHLAR_OK;
    }
    const size_t capacity = r->capacity == 0 ? 64 : 2 * r->capacity;
    ashlar_pack_buffer *buffers = ashlar__host_realloc(t->buffers, capacity, sizeof *buffers);
    t->buffers = buffers == NULL ? t->buffers : buffers;
    ashlar_piece *ids = ashlar__host_realloc(t->ids, capacity, sizeof *ids);
    t->ids = ids == NULL ? t->ids : ids;
    size_t *lines = ashlar__host_realloc(r->lines, capacity, sizeof *lines);
    r->lines = lines == NULL ? r->lines : lines;
    if (buffers == NULL || ids == NULL || lines == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory to read it", r->csv.name);
    }
    r->capacity = capacity;
    return ASHLAR_OK;
}

static ashlar_status parse_row(reader *r, const ashlar_piece fields[static COLUMN_COUNT]) {
    uint64_t lower, upper, size;
    if (fields[ID].bytes == 0) {
        return ashlar__csv_fail(&r->csv, "id has to be some text", fields[ID]);
    }
    if (!ashlar__parse_count(fields[LOWER], &lower)) {
        return ashlar__csv_fail(&r->csv, "lower has to be a whole number of 64 bits",
                                fields[LOWER]);
    }
    if (!ashlar__parse_count(fields[UPPER], &upper)) {
        return ashlar__csv_fail(&r->csv, "upper has to be a whole number of 64 bits",
                                fields[UPPER]);
    }
    if (!ashlar__parse_count(fields[SIZE], &size) || size == 0) {
        return ashlar__csv_fail(&r->csv, "size has to be a whole number from 1, of 64 bits",
                                fields[SIZE]);
    }
    if (lower >= upper) {
        return ashlar__csv_fail(&r->csv, "upper has to be more than lower", fields[UPPER]);
    }
    const ashlar_status status = reserve(r);
    if (status == ASHLAR_OK) {
        r->table.buffers[r->table.count] = (ashlar_pack_buffer){(size_t)size, lower, upper};
        r->table.ids[r->table.count] = fields[ID];
        r->lines[r->table.count++] = r->csv.line;
    }
    return status;
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
    size_t *order = ashlar__host_calloc(t->count + 1, sizeof *order); /* count may be 0 */
    if (order == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory to read it", r->csv.name);
    }
    for (size_t i = 0; i < t->count; i++) {
        order[i] = i;
    }
    qsort_r(order, t->count, sizeof *order, compare_ids, t->ids);
    for (size_t k = 1; status == ASHLAR_OK && k < t->count; k++) {
        const ashlar_piece *x = &t->ids[order[k - 1]], *y = &t->ids[order[k]];
        char shown[ASHLAR_SHOWN_BYTES];
        /* Of equal ids the earlier line comes first. */
        ASHLAR_CHECK2(compare_ids(&order[k - 1], &order[k], t->ids) < 0);
        if (x->bytes == y->bytes && memcmp(x->text, y->text, x->bytes) == 0) {
            status = ashlar__fail(ASHLAR_EFORMAT,
                                  "%s:%zu: the id \"%s\" is also that of line %zu; give each "
                                  "buffer its own",
                                  r->csv.name, r->lines[order[k]], ashlar__piece_show(*y, shown),
                                  r->lines[order[k - 1]]);
        }
    }
    ashlar__host_free(order);
    return status;
}

/* ---- all of it ---- */

/* Takes ownership of `text`, also on failure. */
static ashlar_status parse_owned(const char *name, char *text, size_t bytes,
                                 ashlar_pack_table *out) {
    reader r = {.table = {.text = text}};
    ashlar_piece fields[COLUMN_COUNT];
    size_t count;
    ashlar_status status = ashlar__csv_begin(&r.csv, &format, name, text, bytes);
    while (status == ASHLAR_OK && ashlar__csv_next(&r.csv, fields, &count)) {
        status = ashlar__csv_check(&r.csv, count);
        ASHLAR_THEN(status, parse_row(&r, fields));
    }
    ASHLAR_THEN(status, check_ids(&r));
    ashlar__host_free(r.lines);
    if (status != ASHLAR_OK) {
        ashlar__pack_table_finish(&r.table);
        return status;
    }
    *out = r.table;
    return ASHLAR_OK;
}

ashlar_status ashlar__pack_table_parse(const char *name, const char *text, size_t bytes,
                                       ashlar_pack_table *out) {
    char *copy = ashlar__host_calloc(bytes + 1, 1);
    if (copy == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory to read it", name);
    }
    memcpy(copy, text, bytes);
    return parse_owned(name, copy, bytes, out);
}

ashlar_status ashlar__pack_table_read(const char *path, ashlar_pack_table *out) {
    char *text = NULL;
    size_t bytes = 0;
    const ashlar_status status = ashlar__file_read_stream(path, &text, &bytes);
    return status == ASHLAR_OK ? parse_owned(path, text, bytes, out) : status;
}

void ashlar__pack_table_finish(ashlar_pack_table *table) {
    ashlar__host_free(table->buffers);
    ashlar__host_free(table->ids);
    ashlar__host_free(table->text);
    *table = (ashlar_pack_table){0};
}

ashlar_status ashlar__pack_table_write(const ashlar_pack_table *table, const size_t *offsets,
                                       const char *path) {
    ashlar_file_buffer *file;
    ASHLAR_TRY(ashlar__file_buffer_create(path, &file));
    ashlar__file_buffer_print(file, "id,lower,upper,size%s\n", offsets == NULL ? "" : ",offset");
    for (size_t i = 0; i < table->count; i++) {
        const ashlar_pack_buffer *b = &table->buffers[i];
        ashlar__file_buffer_put(file, table->ids[i].text, table->ids[i].bytes);
        ashlar__file_buffer_print(file, ",%" PRIu64 ",%" PRIu64 ",%zu", b->begin, b->end, b->bytes);
        if (offsets != NULL) {
            ashlar__file_buffer_print(file, ",%zu", offsets[i]);
        }
        ashlar__file_buffer_put(file, "\n", 1);
    }
    return ashlar__file_buffer_commit(file);
}
