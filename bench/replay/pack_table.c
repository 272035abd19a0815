/* pack_table.c - reading packing problems from comma-separated rows, writing them and their
 * solutions, and checking a plan. */
#include "bench/replay/bench_pack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/check_level.h"
#include "allocator/base/parse.h"
#include "allocator/base/error.h"
#include "allocator/base/file.h"
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
    size_t buffer_capacity, id_capacity;
} reader;

/* ---- rows ---- */

static ashlar_status parse_row(reader *r, const ashlar_piece fields[static COLUMN_COUNT]) {
    uint64_t numbers[COLUMN_COUNT] = {0};
    char what[64];
    if (fields[ID].bytes == 0) {
        return ashlar__csv_fail(&r->csv, "id has to be some text", fields[ID]);
    }
    for (column c = LOWER; c < COLUMN_COUNT; c++) {
        if (!ashlar__parse_count(fields[c], &numbers[c]) || (c == SIZE && numbers[c] == 0)) {
            (void)snprintf(what, sizeof what, "%s has to be a whole number %sof 64 bits",
                           column_names[c], c == SIZE ? "from 1, " : "");
            return ashlar__csv_fail(&r->csv, what, fields[c]);
        }
    }
    if (numbers[LOWER] >= numbers[UPPER]) {
        return ashlar__csv_fail(&r->csv, "upper has to be more than lower", fields[UPPER]);
    }
    ashlar_pack_table *t = &r->table;
    ASHLAR_HOST_GROW(t->buffers, &r->buffer_capacity, t->count, "%s: no host memory to read it",
                     r->csv.name);
    ASHLAR_HOST_GROW(t->ids, &r->id_capacity, t->count, "%s: no host memory to read it",
                     r->csv.name);
    t->buffers[t->count] =
        (ashlar_pack_buffer){(size_t)numbers[SIZE], numbers[LOWER], numbers[UPPER]};
    t->ids[t->count++] = fields[ID];
    return ASHLAR_OK;
}

/* ---- whole files ---- */

ashlar_status ashlar__pack_table_parse(const char *name, char *text, size_t bytes,
                                       ashlar_pack_table *out) {
    reader r = {.table = {.text = text}};
    ashlar_piece fields[COLUMN_COUNT];
    size_t count;
    ashlar_status status = ashlar__csv_begin(&r.csv, &format, name, text, bytes);
    while (status == ASHLAR_OK && ashlar__csv_next(&r.csv, fields, &count)) {
        status = ashlar__csv_check(&r.csv, count);
        ASHLAR_THEN(status, parse_row(&r, fields));
    }
    if (status != ASHLAR_OK) {
        ashlar__pack_table_finish(&r.table);
        return status;
    }
    *out = r.table;
    return ASHLAR_OK;
}

ashlar_status ashlar__pack_table_read(const char *path, ashlar_pack_table *out) {
    char *text = NULL;
    size_t bytes = 0;
    ASHLAR_TRY(ashlar__file_read_stream(path, &text, &bytes));
    return ashlar__pack_table_parse(path, text, bytes, out);
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
    ashlar__file_buffer_print(file, "id,lower,upper,size,offset\n");
    for (size_t i = 0; i < table->count; i++) {
        const ashlar_pack_buffer *b = &table->buffers[i];
        ashlar__file_buffer_put(file, table->ids[i].text, table->ids[i].bytes);
        ashlar__file_buffer_print(file, ",%" PRIu64 ",%" PRIu64 ",%zu,%zu\n", b->begin, b->end,
                                  b->bytes, offsets[i]);
    }
    return ashlar__file_buffer_commit(file);
}

/* ---- checking ---- */

/* Order buffers by their beginning, and those of equal beginning as they are listed. */
static int compare_begins(const void *a, const void *b) {
    const ashlar_pack_buffer *x = *(const ashlar_pack_buffer *const *)a;
    const ashlar_pack_buffer *y = *(const ashlar_pack_buffer *const *)b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : (x > y) - (x < y);
}

/* Compare each buffer with those that begin while it is live. */
static ashlar_status check_sorted(const ashlar_pack_buffer *buffers,
                                  const ashlar_pack_buffer *const *sorted, size_t count,
                                  const size_t *offsets) {
    for (size_t i = 0; i < count; i++) {
        const size_t a = (size_t)(sorted[i] - buffers);
        for (size_t k = i + 1; k < count && sorted[k]->begin < sorted[i]->end; k++) {
            const size_t b = (size_t)(sorted[k] - buffers);
            ASHLAR_FAIL_IF(offsets[a] < offsets[b] + buffers[b].bytes &&
                               offsets[b] < offsets[a] + buffers[a].bytes,
                           ASHLAR_EFORMAT, "pack: buffers %zu and %zu overlap", a, b);
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__pack_check(const ashlar_pack_buffer *buffers, size_t count,
                                 const size_t *offsets, size_t *bytes) {
    const ashlar_pack_buffer **sorted;
    ASHLAR_HOST_NEW(sorted, count + 1, "pack: no host memory to check %zu buffers", count);
    for (size_t i = 0; i < count; i++) {
        sorted[i] = &buffers[i];
    }
    qsort((void *)sorted, count, sizeof *sorted, compare_begins);
    const ashlar_status status = check_sorted(buffers, sorted, count, offsets);
    ashlar__host_free((void *)sorted);
    size_t top = 0;
    for (size_t i = 0; status == ASHLAR_OK && i < count; i++) {
        top = offsets[i] + buffers[i].bytes > top ? offsets[i] + buffers[i].bytes : top;
    }
    *bytes = status == ASHLAR_OK ? top : *bytes;
    return status;
}
