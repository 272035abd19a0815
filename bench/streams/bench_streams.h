/*
 * bench_streams.h - measures how much an allocator makes independent streams wait for each other,
 * on software devices with virtual time (internal).
 *
 * The ideal is the same program with per_stream (subject.h) on a device of more memory than it
 * takes. Time begins when streams and subject are there, so that it has every driver call for
 * memory, of the ideal too. The figures follow from the calls alone, and are the same in each run.
 */
#ifndef ASHLAR_BENCH_STREAMS_H
#define ASHLAR_BENCH_STREAMS_H

#include "bench/harness/benchmark.h"

enum {
    ASHLAR_STREAMS_CASE,
    ASHLAR_STREAMS_VARIANT,
    ASHLAR_STREAMS_SUBJECT,
    ASHLAR_STREAMS_STREAMS,
    ASHLAR_STREAMS_BYTES,    /* of each block, if all have the same */
    ASHLAR_STREAMS_TIME,     /* over the ideal's; NaN, as are the next four: it had no memory */
    ASHLAR_STREAMS_SETTLED,  /* the same, but for the first two steps of each stream */
    ASHLAR_STREAMS_RESERVED, /* over the need (stage.h) */
    ASHLAR_STREAMS_WAITS,    /* per step, but for the first two, as is the next one */
    ASHLAR_STREAMS_HOST_WAITS,
    ASHLAR_STREAMS_COLUMNS
};

extern const ashlar_benchmark ashlar__benchmark_streams;

#endif /* ASHLAR_BENCH_STREAMS_H */
