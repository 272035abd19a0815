/* bench_rows.c - rows of `ashlar-bench alloc` and `plan`: table, JSON, targets met or missed. */
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

/* Print a cell of the table: a number above 0, else a dash for "not known". */
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

void ashlar__bench_put_known(ashlar_json_writer *w, const char *key, double number) {
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
    ashlar__bench_put_known(w, "ns_pair", row->ns_pair);
    ashlar__json_put_key(w, "driver_calls");
    if (row->ns_pair > 0 && !row->hides_calls) {
        ashlar__json_put_uint64(w, row->driver_calls);
    } else {
        ashlar__json_put_null(w);
    }
    ashlar__bench_put_known(w, "reserved_over_live", row->reserved_over_live);
    ashlar__bench_put_known(w, "over_floor", over(rows, row, "floor"));
    ashlar__bench_put_known(w, "over_ashlar", over(rows, row, "ashlar"));
    if (row->instructions > 0) {
        ashlar__bench_put_known(w, "instructions", row->instructions);
    }
    if (row->ns_step > 0) {
        ashlar__bench_put_known(w, "ns_step", row->ns_step);
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

typedef enum figure_kind {
    NS_PAIR,
    DRIVER_CALLS,
    RESERVED_OVER_LIVE,
    INSTRUCTIONS,
} figure_kind;

typedef enum bound_kind { AT_MOST, AT_LEAST } bound_kind;

/* A bound on a figure of `subject`; if `base` is not NULL, on its ratio to the figure of `base`. */
typedef struct target {
    const char *what;
    figure_kind figure;
    const char *subject;
    const char *base;
    bound_kind bound;
    double limit;
} target;

static const target pair_cost = {"pair cost / floor", NS_PAIR, "ashlar", "floor", AT_MOST, 2.0};
static const target hard_cost = {"pair cost / floor", NS_PAIR, "ashlar", "floor", AT_MOST, 8.0};
static const target beside_cub = {"CUB / ashlar", NS_PAIR, "cub", "ashlar", AT_LEAST, 5};
static const target beside_cub_2 = {"CUB / ashlar", NS_PAIR, "cub", "ashlar", AT_LEAST, 15};
static const target tight = {
    "reserved / peak live", RESERVED_OVER_LIVE, "ashlar", NULL, AT_MOST, 1.05};
static const target warm_tight = {
    "reserved / peak live", RESERVED_OVER_LIVE, "ashlar", NULL, AT_MOST, 1.02};
static const target warm_calls = {
    "driver calls after the first step", DRIVER_CALLS, "ashlar", NULL, AT_MOST, 3};
static const target hit = {"instructions of a pair", INSTRUCTIONS, "ashlar", NULL, AT_MOST, 130};

static const target replay_cost = {
    "replayed pair / thread cache's", NS_PAIR, "plan", "ashlar", AT_MOST, 1.0};
static const target replay_hit = {
    "instructions replayed / cache's", INSTRUCTIONS, "plan", "ashlar", AT_MOST, 1.0};
static const target planned_tight = {
    "plan's reserved / peak live", RESERVED_OVER_LIVE, "plan", NULL, AT_MOST, 1.02};
static const target planned_calls = {
    "driver calls of the plan's steps", DRIVER_CALLS, "plan", NULL, AT_MOST, 0};

static double figure_of(const ashlar_bench_row *row, figure_kind figure) {
    switch (figure) {
    case NS_PAIR:
        return row->ns_pair;
    case DRIVER_CALLS:
        return (double)row->driver_calls;
    case RESERVED_OVER_LIVE:
        return row->reserved_over_live;
    case INSTRUCTIONS:
        return row->instructions;
    }
    return 0;
}

static void print_verdict(FILE *out, const ashlar_bench_row *row, const char *what, double value,
                          bound_kind bound, double limit) {
    const bool is_met = bound == AT_MOST ? value <= limit : value >= limit;
    fprintf(out, "%-8s %-9s %-16s %zu thread%s  %-34s %9.3f  (%s %g)\n", is_met ? "met" : "NOT MET",
            row->workload, row->variant, row->threads, row->threads == 1 ? " " : "s", what, value,
            bound == AT_MOST ? "at most" : "at least", limit);
}

/* Print one target, judged on the workload, variant and threads of `row`. */
static void print_target(FILE *out, const ashlar_bench_rows *rows, const ashlar_bench_row *row,
                         const target *t) {
    const ashlar_bench_row *of =
        ashlar__bench_rows_find(rows, row->workload, row->variant, row->threads, t->subject);
    if (of == NULL) {
        return;
    }
    double value = figure_of(of, t->figure);
    if (t->base != NULL) {
        const ashlar_bench_row *base =
            ashlar__bench_rows_find(rows, row->workload, row->variant, row->threads, t->base);
        if (base == NULL) {
            return;
        }
        value /= figure_of(base, t->figure);
    }
    print_verdict(out, row, t->what, value, t->bound, t->limit);
}

/* Print the throughput of n threads / that of one: n if a pair costs each thread the same. */
static void print_throughput(FILE *out, const ashlar_bench_rows *rows,
                             const ashlar_bench_row *two) {
    const ashlar_bench_row *one =
        ashlar__bench_rows_find(rows, two->workload, two->variant, 1, two->subject);
    if (one != NULL) {
        const double factor = (double)two->threads * one->ns_pair / two->ns_pair;
        print_verdict(out, two, "throughput / that of one thread", factor, AT_LEAST, 1.8);
    }
}

static void print_one_size(FILE *out, const ashlar_bench_rows *rows, const ashlar_bench_row *row) {
    if (row->threads == 1) {
        print_target(out, rows, row, &pair_cost);
        print_target(out, rows, row, &beside_cub);
    } else if (row->threads == 2) {
        print_throughput(out, rows, row);
        print_target(out, rows, row, &beside_cub_2);
    }
}

static bool is_workload(const ashlar_bench_row *row, const char *name) {
    return strcmp(row->workload, name) == 0;
}

static void print_plan_targets(FILE *out, const ashlar_bench_rows *rows,
                               const ashlar_bench_row *row) {
    if (row->instructions > 0) {
        print_target(out, rows, row, &replay_hit);
    } else if (is_workload(row, "rnn_warm")) {
        print_target(out, rows, row, &planned_tight);
        print_target(out, rows, row, &planned_calls);
    } else {
        print_target(out, rows, row, &replay_cost);
    }
}

static void print_row_targets(FILE *out, const ashlar_bench_rows *rows,
                              const ashlar_bench_row *row) {
    if (row->instructions > 0) {
        print_target(out, rows, row, &hit);
    } else if (is_workload(row, "one_size")) {
        if (strchr(row->variant, '-') == NULL) { /* "4096-fragmented" has no target */
            print_one_size(out, rows, row);
        }
    } else if (row->threads != 1 || is_workload(row, "rnn_step")) {
        return; /* these have no target */
    } else if (is_workload(row, "rnn_warm")) {
        print_target(out, rows, row, &warm_tight);
        print_target(out, rows, row, &warm_calls);
    } else if (is_workload(row, "rnn_cold")) {
        print_target(out, rows, row, &tight);
    } else {
        print_target(out, rows, row, &hard_cost);
        print_target(out, rows, row, &tight);
    }
}

void ashlar__bench_print_targets(FILE *out, const ashlar_bench_rows *rows) {
    for (size_t i = 0; i < rows->count; i++) {
        if (strcmp(rows->items[i].subject, "ashlar") == 0) {
            print_row_targets(out, rows, &rows->items[i]);
        } else if (strcmp(rows->items[i].subject, "plan") == 0) {
            print_plan_targets(out, rows, &rows->items[i]);
        }
    }
}
