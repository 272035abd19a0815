/* bench_targets.c - what the allocator is to reach, and whether it does. */
#include "bench/harness/bench_rows.h"

#include <string.h>

typedef enum figure_kind {
    NS_PAIR,
    DRIVER_CALLS,
    RESERVED_OVER_LIVE,
    INSTRUCTIONS,
} figure_kind;

typedef enum bound_kind { AT_MOST, AT_LEAST } bound_kind;

/* The figure of `subject`, over the same of `base` where that is given. */
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

/* One target at the workload of `row`. */
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

/* Pairs of all threads in the same time: n threads at the same cost of a pair give n times. */
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
        if (strchr(row->variant, '-') == NULL) { /* "4096-fragmented": nothing is promised */
            print_one_size(out, rows, row);
        }
    } else if (row->threads != 1 || is_workload(row, "rnn_step")) {
        return; /* nothing is promised */
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
