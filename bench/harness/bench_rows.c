#include "bench/harness/bench_rows.h"

#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/json.h"

ashlar_status ashlar__bench_rows_add(ashlar_bench_rows *rows, const ashlar_bench_row *row) {
    void *items = rows->items;
    if (!ashlar__host_grow(&items, &rows->capacity, rows->count, sizeof *row)) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "bench: no host memory for the results");
    }
    rows->items = items;
    rows->items[rows->count++] = *row;
    return ASHLAR_OK;
}

void ashlar__bench_rows_finish(ashlar_bench_rows *rows) {
    ashlar__host_free(rows->items);
    *rows = (ashlar_bench_rows){0};
}

const ashlar_bench_row *ashlar__bench_rows_find(const ashlar_bench_rows *rows, const char *workload,
                                                const char *variant, size_t threads,
                                                const char *subject) {
    for (size_t i = 0; i < rows->count; i++) {
        const ashlar_bench_row *row = &rows->items[i];
        if (row->threads == threads && strcmp(row->workload, workload) == 0 &&
            strcmp(row->variant, variant) == 0 && strcmp(row->subject, subject) == 0) {
            return row;
        }
    }
    return NULL;
}

void ashlar__bench_print_head(FILE *out) {
    fprintf(out, "%-9s %-16s %7s %-9s %10s %9s %9s %13s %14s\n", "workload", "variant", "threads",
            "subject", "ns/pair", "x floor", "x ashlar", "driver calls", "reserved/live");
}

/* A cell of the table: a number, or a dash where it is not known. */
static void print_cell(FILE *out, int width, int digits, double number) {
    if (number > 0) {
        fprintf(out, " %*.*f", width, digits, number);
    } else {
        fprintf(out, " %*s", width, "-");
    }
}

static double over(const ashlar_bench_rows *rows, const ashlar_bench_row *row,
                   const char *subject) {
    const ashlar_bench_row *base =
        ashlar__bench_rows_find(rows, row->workload, row->variant, row->threads, subject);
    return base != NULL && base->ns_pair > 0 ? row->ns_pair / base->ns_pair : 0;
}

void ashlar__bench_print_rows(FILE *out, const ashlar_bench_rows *rows, size_t first) {
    for (size_t i = first; i < rows->count; i++) {
        const ashlar_bench_row *row = &rows->items[i];
        fprintf(out, "%-9s %-16s %7zu %-9s", row->workload, row->variant, row->threads,
                row->subject);
        print_cell(out, 10, 1, row->ns_pair);
        print_cell(out, 9, 2, over(rows, row, "floor"));
        print_cell(out, 9, 2, over(rows, row, "ashlar"));
        if (row->hides_calls) {
            fprintf(out, " %13s", "-");
        } else {
            fprintf(out, " %13llu", (unsigned long long)row->driver_calls);
        }
        print_cell(out, 14, 3, row->reserved_over_live);
        fputc('\n', out);
    }
    fflush(out);
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void put_positive(ashlar_json_writer *w, const char *key, double number) {
    ashlar__json_put_key(w, key);
    if (number > 0) {
        ashlar__json_put_double(w, number);
    } else {
        ashlar__json_put_null(w);
    }
}

static void put_row(ashlar_json_writer *w, const ashlar_bench_rows *rows,
                    const ashlar_bench_row *row) {
    ashlar__json_open_object(w);
    ashlar__json_add_string(w, "workload", row->workload);
    ashlar__json_add_string(w, "variant", row->variant);
    ashlar__json_add_uint64(w, "threads", row->threads);
    ashlar__json_add_string(w, "subject", row->subject);
    put_positive(w, "ns_pair", row->ns_pair);
    ashlar__json_put_key(w, "driver_calls");
    if (row->ns_pair > 0 && !row->hides_calls) {
        ashlar__json_put_uint64(w, row->driver_calls);
    } else {
        ashlar__json_put_null(w);
    }
    put_positive(w, "reserved_over_live", row->reserved_over_live);
    put_positive(w, "over_floor", over(rows, row, "floor"));
    put_positive(w, "over_ashlar", over(rows, row, "ashlar"));
    if (row->instructions > 0) {
        put_positive(w, "instructions", row->instructions);
    }
    if (row->ns_step > 0) {
        put_positive(w, "ns_step", row->ns_step);
    }
    ashlar__json_close_object(w);
}

void ashlar__bench_rows_put(ashlar_json_writer *w, const ashlar_bench_rows *rows) {
    ashlar__json_open_array(w);
    for (size_t i = 0; i < rows->count; i++) {
        put_row(w, rows, &rows->items[i]);
    }
    ashlar__json_close_array(w);
}

ashlar_status ashlar__bench_rows_write(const char *path, const ashlar_bench_rows *rows) {
    ashlar_json_writer w;
    ashlar__json_writer_init(&w, 2);
    ashlar__bench_rows_put(&w, rows);
    return ashlar__json_writer_end(&w, path);
}
