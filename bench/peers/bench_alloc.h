/*
 * bench_alloc.h - what one malloc + free pair costs on the host: beside other allocators, or from a
 * step's plan (internal).
 */
#ifndef ASHLAR_BENCH_ALLOC_H
#define ASHLAR_BENCH_ALLOC_H

#include "bench/harness/benchmark.h"

/* The columns of both; a row's figures are for its number of threads. */
enum {
    ASHLAR_ALLOC_WORKLOAD,
    ASHLAR_ALLOC_VARIANT,
    ASHLAR_ALLOC_THREADS,
    ASHLAR_ALLOC_SUBJECT,
    ASHLAR_ALLOC_NS_PAIR,
    ASHLAR_ALLOC_DRIVER_CALLS, /* in the list's first run */
    ASHLAR_ALLOC_RESERVED_OVER_LIVE,
    ASHLAR_ALLOC_OVER_FLOOR, /* of NS_PAIR, as is the next one */
    ASHLAR_ALLOC_OVER_ASHLAR,
    ASHLAR_ALLOC_INSTRUCTIONS, /* of one pair */
    ASHLAR_ALLOC_NS_STEP,
    ASHLAR_ALLOC_THROUGHPUT, /* of all threads / that of one */
    ASHLAR_ALLOC_COLUMNS
};

extern const ashlar_benchmark ashlar__benchmark_alloc, ashlar__benchmark_plan;

/* Set what follows from other rows: OVER_FLOOR, OVER_ASHLAR and THROUGHPUT from row `first` on. */
void ashlar__alloc_fill(ashlar_rows *rows, size_t first);

#endif /* ASHLAR_BENCH_ALLOC_H */
