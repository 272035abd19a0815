/*
 * bench_alloc.h - the cost of one malloc + free pair on the host: beside other allocators, or from
 * a step's plan (internal).
 */
#ifndef ASHLAR_BENCH_ALLOC_H
#define ASHLAR_BENCH_ALLOC_H

#include "bench/harness/benchmark.h"
#include "bench/peers/peer.h"

/* The columns of both benchmarks; a row's figures are for its number of threads. */
enum {
    ASHLAR_ALLOC_WORKLOAD,
    ASHLAR_ALLOC_VARIANT,
    ASHLAR_ALLOC_THREADS,
    ASHLAR_ALLOC_SUBJECT,
    ASHLAR_ALLOC_NS_PAIR,
    ASHLAR_ALLOC_NS_PAIR_LOW,
    ASHLAR_ALLOC_NS_PAIR_HIGH,
    ASHLAR_ALLOC_DRIVER_CALLS, /* in the list's first run */
    ASHLAR_ALLOC_RESERVED_OVER_LIVE,
    ASHLAR_ALLOC_OVER_FLOOR, /* ratio of NS_PAIR, as is the next one */
    ASHLAR_ALLOC_OVER_ASHLAR,
    ASHLAR_ALLOC_INSTRUCTIONS, /* of one pair */
    ASHLAR_ALLOC_NS_STEP,
    ASHLAR_ALLOC_THROUGHPUT,    /* throughput of all threads / that of one */
    ASHLAR_ALLOC_OVER_ONE_SIZE, /* NS_PAIR / the same subject's with 4 KiB on one thread */
    ASHLAR_ALLOC_NS_P50,        /* times of single pairs, as are the next ones */
    ASHLAR_ALLOC_NS_P99,
    ASHLAR_ALLOC_NS_P999,
    ASHLAR_ALLOC_NS_MAX,
    ASHLAR_ALLOC_NS_EARLY, /* record_stream: time of a call around the 100th, ... */
    ASHLAR_ALLOC_NS_LATE,  /* ... and of one of the last */
    ASHLAR_ALLOC_LATE_OVER_EARLY,
    ASHLAR_ALLOC_HOST_BYTES, /* for each live block; record_stream: that each call leaves in use */
    ASHLAR_ALLOC_COLUMNS
};

extern const ashlar_benchmark ashlar__benchmark_alloc, ashlar__benchmark_plan;

extern const ashlar_rows_form ashlar__alloc_form;

/* Set the figures that follow from others, OVER_FLOOR, OVER_ASHLAR, OVER_ONE_SIZE, THROUGHPUT and
 * LATE_OVER_EARLY, in the rows from `first` on. */
void ashlar__alloc_fill(ashlar_rows *rows, size_t first);

/* ---- for the files of both benchmarks ---- */

/* One run of one of the two benchmarks. */
typedef struct ashlar_alloc_bench {
    const ashlar_bench_request *request;
    bool is_of_plans; /* `plan`, which runs the lists with steps */
    ashlar_device *device;
    ashlar_rows *rows;
} ashlar_alloc_bench;

/* The chosen peers, in the order of the rows, not of the options. Returns their number. */
size_t ashlar__alloc_choose_peers(const ashlar_alloc_bench *b,
                                  const ashlar_peer *out[ASHLAR_PEERS_MAX]);

/* Run at least request->pairs pairs of the first requested list, or pairs of 4 KiB: this is the
 * program that callgrind counts. */
ASHLAR_MUST_CHECK ashlar_status ashlar__alloc_run_pairs(const ashlar_alloc_bench *b);

/* Count the instructions of pairs. Errors: those of ashlar__instructions_of_pair(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__alloc_count_instructions(const ashlar_alloc_bench *b);

#endif /* ASHLAR_BENCH_ALLOC_H */
