/* bench_arena.h - measures an arena's savings: optimizer steps, fills, norms, copies and files over
 * one range, compared with the same work tensor by tensor, and with a copy of as many bytes
 * (internal).
 *
 * Every subject has an instance of its own, and all take turns in each round, the copy included.
 * Making pointers point to the scattered tensors before they are flattened is not timed. Files go
 * to a new folder in TMPDIR, or /tmp, which is removed. On a CUDA device the copy is the driver's,
 * and scattered tensors are only filled and copied. */
#ifndef ASHLAR_BENCH_ARENA_H
#define ASHLAR_BENCH_ARENA_H

#include "bench/harness/benchmark.h"

/* The columns of its rows, as in ashlar_rows_column. NS is the time of one operation; bytes are
 * those read plus those written, counted as in arena_setup.h. COPY is a copy by a plain loop in the
 * same rounds. OVER_COPY is a ratio of BYTES_PER_S, OVER_ARENA of NS. */
#define ASHLAR_ARENA_COLUMN_MAP(X)                                 \
    X(CASE, "case", "case", TEXT, 13, 0, 0)                        \
    X(OPERATION, "operation", "operation", TEXT, 10, 0, 0)         \
    X(SUBJECT, "subject", "subject", TEXT, 11, 0, 0)               \
    X(NS, "ns", "us", NUMBER, 12, 1, 1e-3)                         \
    X(NS_LOW, "ns_low", NULL, NUMBER, 0, 0, 0)                     \
    X(NS_HIGH, "ns_high", NULL, NUMBER, 0, 0, 0)                   \
    X(BYTES_PER_S, "bytes_per_s", "GB/s", NUMBER, 8, 2, 1e-9)      \
    X(COPY_BYTES_PER_S, "copy_bytes_per_s", NULL, NUMBER, 0, 0, 0) \
    X(OVER_COPY, NULL, "/ copy", NUMBER, 7, 2, 0)                  \
    X(OVER_ARENA, "over_arena", "x arena", NUMBER, 8, 2, 0)
#define ASHLAR_ARENA_COLUMN(name, ...) ASHLAR_ARENA_##name,
enum { ASHLAR_ARENA_COLUMN_MAP(ASHLAR_ARENA_COLUMN) ASHLAR_ARENA_COLUMNS };

extern const ashlar_benchmark ashlar__benchmark_arena;

#endif /* ASHLAR_BENCH_ARENA_H */
