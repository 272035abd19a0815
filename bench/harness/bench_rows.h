/*
 * bench_rows.h - rows of results: as a table, as JSON, and against targets (internal).
 */
#ifndef ASHLAR_BENCH_ROWS_H
#define ASHLAR_BENCH_ROWS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <ashlar/status.h>

#include "allocator/base/json.h"

typedef struct ashlar_bench_row {
    const char *workload;
    const char *variant;
    size_t threads;
    const char *subject;
    double ns_pair;        /* 0: not timed */
    uint64_t driver_calls; /* known where ns_pair is, unless: */
    bool hides_calls;
    double reserved_over_live; /* 0: not known */
    double instructions;       /* of a pair; 0: not counted */
    double ns_step;            /* of a step of the program; 0: not timed */
} ashlar_bench_row;

/* Starts as zeros. */
typedef struct ashlar_bench_rows {
    ashlar_bench_row *items;
    size_t count, capacity;
} ashlar_bench_rows;

/* Errors: ASHLAR_EHOSTMEM. The row's texts are not copied. */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_rows_add(ashlar_bench_rows *rows,
                                                       const ashlar_bench_row *row);
void ashlar__bench_rows_finish(ashlar_bench_rows *rows);

/* The row of these names; NULL: there is none. */
const ashlar_bench_row *ashlar__bench_rows_find(const ashlar_bench_rows *rows, const char *workload,
                                                const char *variant, size_t threads,
                                                const char *subject);

/* The table's head, and its rows from `first` on with their ratios to the floor and to ashlar. */
void ashlar__bench_print_head(FILE *out);
void ashlar__bench_print_rows(FILE *out, const ashlar_bench_rows *rows, size_t first);

/* Print each target that the rows allow to judge, and whether it is met. */
void ashlar__bench_print_targets(FILE *out, const ashlar_bench_rows *rows);

/* A member of an object: a number above 0, or null where it is not known. */
void ashlar__bench_put_known(ashlar_json_writer *w, const char *key, double number);

/* Put all rows as an array, as ashlar__bench_rows_write() describes it. */
void ashlar__bench_rows_put(ashlar_json_writer *w, const ashlar_bench_rows *rows);

/*
 * Write all rows as one JSON array, whole or not at all: {workload, variant, threads, subject,
 * ns_pair, driver_calls, reserved_over_live, over_floor, over_ashlar}, null where it is not known,
 * `instructions` where they were counted, and `ns_step` where steps were timed. The two ratios are
 * those of ns_pair, as in the table. Errors: ASHLAR_EIO, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_rows_write(const char *path,
                                                         const ashlar_bench_rows *rows);

#endif /* ASHLAR_BENCH_ROWS_H */
