/* bench_streams.h - measures how much an allocator makes independent streams wait for each other,
 * on software devices with virtual time (internal).
 *
 * The ideal is the same program with per_stream (simulation.h) on a device with more memory than it
 * takes. Time begins once streams and subject exist, so that it includes every driver call for
 * memory, in the ideal, too. The figures follow from the calls alone, and are the same in each
 * run. */
#ifndef ASHLAR_BENCH_STREAMS_H
#define ASHLAR_BENCH_STREAMS_H

#include "bench/harness/benchmark.h"

/* The columns of its rows, as in ashlar_rows_column. BYTES: of each block, if all have the same.
 * TIME: ratio to the ideal's time; SETTLED: the same without the first two steps of each stream;
 * RESERVED: ratio to the need (simulation.h); waits: per step, without the first two. NaN: the
 * subject had no memory. */
#define ASHLAR_STREAMS_COLUMN_MAP(X)                                     \
    X(CASE, "case", "case", TEXT, 16, 0, 0)                              \
    X(VARIANT, "variant", "variant", TEXT, 7, 0, 0)                      \
    X(SUBJECT, "subject", "subject", TEXT, 10, 0, 0)                     \
    X(STREAMS, "streams", "streams", NUMBER, 7, 0, 0)                    \
    X(BYTES, "bytes", NULL, OPTIONAL, 0, 0, 0)                           \
    X(TIME, "time_over_ideal", "time/ideal", NUMBER, 10, 4, 0)           \
    X(SETTLED, "settled_over_ideal", "settled", NUMBER, 8, 4, 0)         \
    X(RESERVED, "reserved_over_need", "reserved/need", NUMBER, 13, 3, 0) \
    X(WAITS, "waits_per_step", "waits/step", NUMBER, 10, 3, 0)           \
    X(HOST_WAITS, "host_waits_per_step", "host waits", NUMBER, 10, 3, 0)
#define ASHLAR_STREAMS_COLUMN(name, ...) ASHLAR_STREAMS_##name,
enum { ASHLAR_STREAMS_COLUMN_MAP(ASHLAR_STREAMS_COLUMN) ASHLAR_STREAMS_COLUMNS };

extern const ashlar_benchmark ashlar__benchmark_streams;

#endif /* ASHLAR_BENCH_STREAMS_H */
