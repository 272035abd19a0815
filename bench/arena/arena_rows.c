/* arena_rows.c - rows of `ashlar-bench arena`: table, JSON, and targets met or missed. */
#include "bench/arena/arena_rows.h"

#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/json.h"
#include "bench/harness/bench_rows.h"

enum { ARENA, PER_TENSOR, LISTS_OF_36, SUBJECT_COUNT };

static const char *const subject_names[] = {"arena", "per_tensor", "lists_of_36"};
ASHLAR_TABLE_IS_FULL(subject_names, SUBJECT_COUNT);

const char *ashlar__arena_operation_name(ashlar_arena_operation operation) {
    static const char *const names[] = {
#define X(name, text, accesses, arrays, shared) [ASHLAR_ARENA_OPERATION_##name] = text,
        ASHLAR_ARENA_OPERATION_MAP(X)
#undef X
    };
    ASHLAR_TABLE_IS_FULL(names, ASHLAR_ARENA_OPERATION_COUNT);
    return names[operation];
}

ashlar_status ashlar__arena_rows_add(ashlar_arena_rows *rows, const ashlar_arena_row *row) {
    void *items = rows->items;
    if (!ashlar__host_grow(&items, &rows->capacity, rows->count, sizeof *row)) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "bench: no host memory for the results");
    }
    rows->items = items;
    rows->items[rows->count++] = *row;
    return ASHLAR_OK;
}

void ashlar__arena_rows_finish(ashlar_arena_rows *rows) {
    ashlar__host_free(rows->items);
    *rows = (ashlar_arena_rows){0};
}

static double speed(const ashlar_arena_row *row) {
    return row->bytes / row->ns * 1e9;
}

/* Of the same case and operation; NULL: it is not there. */
static const ashlar_arena_row *beside(const ashlar_arena_rows *rows, const ashlar_arena_row *row,
                                      size_t subject) {
    for (size_t i = 0; i < rows->count; i++) {
        const ashlar_arena_row *other = &rows->items[i];
        if (other->subject == subject && other->operation == row->operation &&
            strcmp(other->case_name, row->case_name) == 0) {
            return other;
        }
    }
    return NULL;
}

/* ---- table ---- */

void ashlar__arena_rows_print_head(FILE *out) {
    fprintf(out, "%-13s %-10s %-11s %12s %8s %7s %9s %8s\n", "case", "operation", "subject", "us",
            "GB/s", "/ copy", "/ memcpy", "x arena");
}

void ashlar__arena_rows_print(FILE *out, const ashlar_arena_rows *rows, size_t first) {
    for (size_t i = first; i < rows->count; i++) {
        const ashlar_arena_row *row = &rows->items[i];
        const ashlar_arena_row *arena = beside(rows, row, ARENA);
        fprintf(out, "%-13s %-10s %-11s %12.1f %8.2f %7.2f %9.2f", row->case_name,
                ashlar__arena_operation_name(row->operation),
                subject_names[row->subject], row->ns / 1e3, speed(row) / 1e9,
                speed(row) / row->copy_bytes_per_s, speed(row) / row->memcpy_bytes_per_s);
        if (arena != NULL) {
            fprintf(out, " %8.2f\n", row->ns / arena->ns);
        } else {
            fprintf(out, " %8s\n", "-");
        }
    }
    fflush(out);
}

/* ---- targets ---- */

/* Two medians of the same work differ by so much: what is "not slower". */
static const double even = 0.95;

static const struct {
    const char *case_name;
    double limit;
} per_tensor_limit = {"10000_tensors", 3}, copy_limit = {"large", 0.8};

/* What every training step does. The others happen once, and check what these take on trust. */
static bool is_of_step(ashlar_arena_operation operation) {
    return operation == ASHLAR_ARENA_OPERATION_ADAMW || operation == ASHLAR_ARENA_OPERATION_ZERO ||
           operation == ASHLAR_ARENA_OPERATION_NORM;
}

static void print_verdict(FILE *out, const ashlar_arena_row *row, const char *what, double value,
                          double limit) {
    fprintf(out, "%-8s %-13s %-10s  %-34s %9.3f  (at least %g)\n",
            value >= limit ? "met" : "NOT MET", row->case_name,
            ashlar__arena_operation_name(row->operation), what, value, limit);
}

void ashlar__arena_rows_print_targets(FILE *out, const ashlar_arena_rows *rows) {
    for (size_t i = 0; i < rows->count; i++) {
        const ashlar_arena_row *row = &rows->items[i];
        const bool is_adamw = row->operation == ASHLAR_ARENA_OPERATION_ADAMW;
        const ashlar_arena_row *per_tensor = beside(rows, row, PER_TENSOR);
        if (row->subject != ARENA) {
            continue;
        }
        if (is_adamw && strcmp(row->case_name, copy_limit.case_name) == 0) {
            print_verdict(out, row, "bytes per second / copy loop's",
                          speed(row) / row->copy_bytes_per_s, copy_limit.limit);
        }
        if (per_tensor != NULL && is_of_step(row->operation)) {
            const bool is_many =
                is_adamw && strcmp(row->case_name, per_tensor_limit.case_name) == 0;
            print_verdict(out, row, "per_tensor / arena", per_tensor->ns / row->ns,
                          is_many ? per_tensor_limit.limit : even);
        }
    }
}

/* ---- JSON ---- */

static void put_row(ashlar_json_writer *w, const ashlar_arena_rows *rows,
                    const ashlar_arena_row *row) {
    const ashlar_arena_row *arena = beside(rows, row, ARENA);
    ashlar__json_open_object(w);
    ashlar__json_add_string(w, "case", row->case_name);
    ashlar__json_add_string(w, "operation", ashlar__arena_operation_name(row->operation));
    ashlar__json_add_string(w, "subject", subject_names[row->subject]);
    ashlar__json_add_double(w, "ns", row->ns);
    ashlar__json_add_double(w, "bytes_per_s", speed(row));
    ashlar__json_add_double(w, "copy_bytes_per_s", row->copy_bytes_per_s);
    ashlar__bench_put_known(w, "over_arena", arena != NULL ? row->ns / arena->ns : 0);
    ashlar__json_close_object(w);
}

ashlar_status ashlar__arena_rows_write(const char *path, const ashlar_arena_rows *rows) {
    ashlar_json_writer w;
    ashlar__json_writer_init(&w, 2);
    ashlar__json_open_array(&w);
    for (size_t i = 0; i < rows->count; i++) {
        put_row(&w, rows, &rows->items[i]);
    }
    ashlar__json_close_array(&w);
    return ashlar__json_writer_end(&w, path);
}
