/*
 * bench_alloc.h - the cost of one malloc + free pair on the host: beside other allocators, or from
 * a step's plan (internal).
 */
#ifndef ASHLAR_BENCH_ALLOC_H
#define ASHLAR_BENCH_ALLOC_H

#include "bench/harness/harness.h"

/* The columns of both benchmarks, as in ashlar_rows_column; a row's figures are for its number of
 * threads. DRIVER_CALLS are those of the list's first run. OVER_FLOOR and OVER_ASHLAR are ratios of
 * NS_PAIR; THROUGHPUT is that of all threads over that of one, OVER_ONE_SIZE the pair over the same
 * subject's with 4 KiB on one thread. P50 to MAX are times of single pairs, and HOST_BYTES what the
 * process grew by for each live block. */
#define ASHLAR_ALLOC_COLUMN_MAP(X)                                                 \
    X(WORKLOAD, "workload", "workload", TEXT, 13, 0, 0)                            \
    X(VARIANT, "variant", "variant", TEXT, 16, 0, 0)                               \
    X(THREADS, "threads", "threads", NUMBER, 7, 0, 0)                              \
    X(SUBJECT, "subject", "subject", TEXT, 9, 0, 0)                                \
    X(NS_PAIR, "ns_pair", "ns/pair", NUMBER, 10, 1, 0)                             \
    X(NS_PAIR_LOW, "ns_pair_low", NULL, NUMBER, 0, 0, 0)                           \
    X(NS_PAIR_HIGH, "ns_pair_high", NULL, NUMBER, 0, 0, 0)                         \
    X(DRIVER_CALLS, "driver_calls", "driver calls", NUMBER, 13, 0, 0)              \
    X(RESERVED_OVER_LIVE, "reserved_over_live", "reserved/live", NUMBER, 14, 3, 0) \
    X(OVER_FLOOR, "over_floor", "x floor", NUMBER, 9, 2, 0)                        \
    X(OVER_ASHLAR, "over_ashlar", "x ashlar", NUMBER, 9, 2, 0)                     \
    X(NS_STEP, "ns_step", NULL, OPTIONAL, 0, 0, 0)                                 \
    X(THROUGHPUT, "throughput", "x 1 thread", OPTIONAL, 11, 2, 0)                  \
    X(OVER_ONE_SIZE, "over_one_size", "x 4 KiB", OPTIONAL, 9, 2, 0)                \
    X(NS_P50, "ns_p50", NULL, OPTIONAL, 0, 0, 0)                                   \
    X(NS_P99, "ns_p99", NULL, OPTIONAL, 0, 0, 0)                                   \
    X(NS_P999, "ns_p999", NULL, OPTIONAL, 0, 0, 0)                                 \
    X(NS_MAX, "ns_max", NULL, OPTIONAL, 0, 0, 0)                                   \
    X(HOST_BYTES, "host_bytes", NULL, OPTIONAL, 0, 0, 0)
#define ASHLAR_ALLOC_COLUMN(name, ...) ASHLAR_ALLOC_##name,
enum { ASHLAR_ALLOC_COLUMN_MAP(ASHLAR_ALLOC_COLUMN) ASHLAR_ALLOC_COLUMNS };

extern const ashlar_benchmark ashlar__benchmark_alloc, ashlar__benchmark_plan;

extern const ashlar_rows_form ashlar__alloc_form;

/* Set the figures that follow from others, OVER_FLOOR, OVER_ASHLAR, OVER_ONE_SIZE and THROUGHPUT,
 * in the rows from `first` on. */
void ashlar__alloc_fill(ashlar_rows *rows, size_t first);

#endif /* ASHLAR_BENCH_ALLOC_H */
