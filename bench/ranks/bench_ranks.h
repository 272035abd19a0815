/* bench_ranks.h - measures a training on 1, 2 and 4 ranks of this machine, by programs that it
 * starts: ashlar-train, and the same model in PyTorch (internal). */
#ifndef ASHLAR_BENCH_RANKS_H
#define ASHLAR_BENCH_RANKS_H

#include "bench/harness/benchmark.h"

/* The columns of its rows, as in ashlar_rows_column: medians over the rounds. OVER_ONE is the
 * throughput beside that of one process with all threads, OVER_TORCH the time beside PyTorch's,
 * both by the medians; SUMS is the share of a step in collectives and waits for other ranks, HIDDEN
 * the share of these in which the rank computed. */
#define ASHLAR_RANKS_ROW_COLUMN_MAP(X)                             \
    X(CASE, "case", "case", TEXT, 8, 0, 0)                         \
    X(RANKS, "ranks", "ranks", TEXT, 5, 0, 0)                      \
    X(BUCKET, "bucket", "bucket", TEXT, 8, 0, 0)                   \
    X(SUBJECT, "subject", "subject", TEXT, 13, 0, 0)               \
    X(MS_STEP, "ms_step", "ms/step", NUMBER, 9, 2, 0)              \
    X(TOKENS_PER_S, "tokens_per_s", "tokens/s", OPTIONAL, 9, 0, 0) \
    X(OVER_ONE, "over_one", "/ one", OPTIONAL, 6, 2, 0)            \
    X(OVER_TORCH, "over_torch", "/ torch", OPTIONAL, 8, 2, 0)      \
    X(SUMS, "sums_share", "in sums %", OPTIONAL, 10, 0, 100)       \
    X(HIDDEN, "hidden_share", "hidden %", OPTIONAL, 9, 0, 100)     \
    X(PARAMETERS, "parameters", NULL, OPTIONAL, 0, 0, 0)
#define ASHLAR_RANKS_ROW_COLUMN(name, ...) ASHLAR_RANKS_ROW_##name,
enum { ASHLAR_RANKS_ROW_COLUMN_MAP(ASHLAR_RANKS_ROW_COLUMN) ASHLAR_RANKS_ROW_COLUMNS };

extern const ashlar_benchmark ashlar__benchmark_ranks;

#endif /* ASHLAR_BENCH_RANKS_H */
