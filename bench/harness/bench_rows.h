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
    uint64_t driver_calls; /* in the list's first run; not known if ns_pair is 0 or hides_calls */
    bool hides_calls;      /* the subject's driver calls cannot be counted */
    double reserved_over_live; /* ratio of the peaks; 0: not known */
    double instructions;       /* of one pair; 0: not counted */
    double ns_step;            /* time of one step of the program; 0: not timed */
} ashlar_bench_row;

/* Zeroes are an empty list. The caller ends it with ashlar__bench_rows_finish(). */
typedef struct ashlar_bench_rows {
    ashlar_bench_row *items;
    size_t count, capacity;
} ashlar_bench_rows;

/* Append a copy of the row. Its texts are not copied and must outlive `rows`. Errors:
 * ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_rows_add(ashlar_bench_rows *rows,
                                                       const ashlar_bench_row *row);
void ashlar__bench_rows_finish(ashlar_bench_rows *rows);

/* The row with these four values; NULL: there is none. */
const ashlar_bench_row *ashlar__bench_rows_find(const ashlar_bench_rows *rows, const char *workload,
                                                const char *variant, size_t threads,
                                                const char *subject);

/* Print the table's head, or its rows from index `first` on with ratios to `floor` and `ashlar`. */
void ashlar__bench_print_head(FILE *out);
void ashlar__bench_print_rows(FILE *out, const ashlar_bench_rows *rows, size_t first);

/* Print each target whose figures are among the rows, and whether it is met. */
void ashlar__bench_print_targets(FILE *out, const ashlar_bench_rows *rows);

/* Add a member to an open object: `number` if it is above 0, else null (not known). */
void ashlar__bench_put_known(ashlar_json_writer *w, const char *key, double number);

/* Put all rows as one JSON array of objects; ashlar__bench_rows_write() lists their members. */
void ashlar__bench_rows_put(ashlar_json_writer *w, const ashlar_bench_rows *rows);

/*
 * Write all rows as one JSON array. On failure the file at `path` is unchanged. Each row is
 * {workload, variant, threads, subject, ns_pair, driver_calls, reserved_over_live, over_floor,
 * over_ashlar}, with null for a figure that is not known; `instructions` is added if they were
 * counted, `ns_step` if steps were timed. over_floor and over_ashlar are ratios of ns_pair. Errors:
 * ASHLAR_EIO, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_rows_write(const char *path,
                                                         const ashlar_bench_rows *rows);

#endif /* ASHLAR_BENCH_ROWS_H */
