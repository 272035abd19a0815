/* alloc_rows.c - the columns and targets of the benchmark of malloc + free pairs, and the figures
 * that it computes from other rows. */
#include "bench/peers/bench_alloc.h"

#include <math.h>

#define COLUMN(name, key, heading, kind, ...) {key, heading, ASHLAR_ROWS_##kind, __VA_ARGS__},
static const ashlar_rows_column columns[] = {ASHLAR_ALLOC_COLUMN_MAP(COLUMN)};

#define ON(of_threads, of_workload) .threads = (of_threads), .names = {of_workload}
#define C(column) ASHLAR_ALLOC_##column
#define FRAGMENTED "4096-fragmented" /* has no target */

static const ashlar_rows_target targets[] = {
    {"pair cost / floor", "ashlar", C(OVER_FLOOR), 2, ON(1, "one_size"), .except = FRAGMENTED},
    {"CUB / ashlar", "cub", C(OVER_ASHLAR), 5, true, ON(1, "one_size"), .except = FRAGMENTED},
    {"throughput / that of one thread", "ashlar", C(THROUGHPUT), 1.8, true, ON(2, "one_size"),
     .except = FRAGMENTED},
    {"CUB / ashlar", "cub", C(OVER_ASHLAR), 15, true, ON(2, "one_size"), .except = FRAGMENTED},
    {"pair cost / floor", "ashlar", C(OVER_FLOOR), 8, ON(1, "mix")},
    {"reserved / peak live", "ashlar", C(RESERVED_OVER_LIVE), 1.05, ON(1, "mix")},
    {"pair cost / floor", "ashlar", C(OVER_FLOOR), 8, ON(1, "random")},
    {"reserved / peak live", "ashlar", C(RESERVED_OVER_LIVE), 1.05, ON(1, "random")},
    {"throughput / that of one thread", "ashlar", C(THROUGHPUT), 1.3, true, ON(2, "mix")},
    {"throughput / that of one thread", "ashlar", C(THROUGHPUT), 1.3, true, ON(2, "random")},
    {"99.9th percentile / CUB's", "ashlar", C(NS_P999), 2, .base = "cub"},
    {"pair cost / that of 4 KiB", "ashlar", C(OVER_ONE_SIZE), 10, ON(2, "handoff")},
    {"pair cost / that of 4 KiB", "ashlar", C(OVER_ONE_SIZE), 4, ON(1, "streams_64")},
    {"pair cost / that of 4 KiB", "ashlar", C(OVER_ONE_SIZE), 8, ON(1, "streams_512")},
    {"host bytes of a live block", "ashlar", C(HOST_BYTES), 160, ON(1, "live_1e6")},
    {"reserved / peak live", "ashlar", C(RESERVED_OVER_LIVE), 1.05, ON(1, "rnn_cold")},
    {"reserved / peak live", "ashlar", C(RESERVED_OVER_LIVE), 1.02, ON(1, "rnn_warm")},
    {"driver calls after the first step", "ashlar", C(DRIVER_CALLS), 3, ON(1, "rnn_warm")},
    {"plan's reserved / peak live", "plan", C(RESERVED_OVER_LIVE), 1.02, ON(0, "rnn_warm")},
    {"driver calls of the plan's steps", "plan", C(DRIVER_CALLS), 0, ON(0, "rnn_warm")},
    {"replayed pair / thread cache's", "plan", C(OVER_ASHLAR), 1, .except = "rnn_warm"},
};

const ashlar_rows_form ashlar__alloc_form = {columns, ASHLAR_ALLOC_COLUMNS, ASHLAR_ALLOC_SUBJECT,
                                             targets, sizeof targets / sizeof targets[0]};

/* The row of the same subject with pairs of 4 KiB on one thread. */
static const ashlar_row *find_4_kib(const ashlar_rows *rows, const ashlar_row *row) {
    const ashlar_row like = {{
        [ASHLAR_ALLOC_WORKLOAD].text = "one_size",
        [ASHLAR_ALLOC_VARIANT].text = "4096",
        [ASHLAR_ALLOC_THREADS].number = 1,
    }};
    return ashlar__rows_find(rows, &like, row->cells[ASHLAR_ALLOC_SUBJECT].text, 0);
}

static double ns_of(const ashlar_row *row) {
    return row != NULL ? row->cells[ASHLAR_ALLOC_NS_PAIR].number : NAN;
}

void ashlar__alloc_fill(ashlar_rows *rows, size_t first) {
    ashlar__rows_fill_ratios(rows, first, ASHLAR_ALLOC_OVER_FLOOR, ASHLAR_ALLOC_NS_PAIR, "floor");
    ashlar__rows_fill_ratios(rows, first, ASHLAR_ALLOC_OVER_ASHLAR, ASHLAR_ALLOC_NS_PAIR, "ashlar");
    for (size_t i = first; i < rows->count; i++) {
        const ashlar_row *row = &rows->items[i];
        ashlar_rows_cell *cells = rows->items[i].cells;
        const ashlar_row *one = ashlar__rows_find(rows, row, cells[ASHLAR_ALLOC_SUBJECT].text, 1);
        /* The throughput of n threads over that of one: n if a pair costs each thread the same. */
        cells[ASHLAR_ALLOC_THROUGHPUT].number =
            one == row ? NAN : cells[ASHLAR_ALLOC_THREADS].number * ns_of(one) / ns_of(row);
        cells[ASHLAR_ALLOC_OVER_ONE_SIZE].number = ns_of(row) / ns_of(find_4_kib(rows, row));
    }
}
