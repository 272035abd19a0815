/*
 * bench_arena.h - measures what an arena saves: optimizer steps, fills, norms, copies and files
 * over one range, compared with the same work tensor by tensor and in lists, and with a copy of as
 * many bytes (internal).
 *
 * Every subject has an instance of its own, and all take turns in each round, the two copies among
 * them. A few things are not timed, because every subject would need them: pointers that are to be
 * flattened are made to point to the scattered tensors, and replicas are given back. Checkpoints go
 * to a new folder in TMPDIR, or /tmp, which is removed. CUDA devices are refused.
 */
#ifndef ASHLAR_BENCH_ARENA_H
#define ASHLAR_BENCH_ARENA_H

#include "bench/harness/benchmark.h"

enum {
    ASHLAR_ARENA_CASE,
    ASHLAR_ARENA_OPERATION,
    ASHLAR_ARENA_SUBJECT,
    ASHLAR_ARENA_NS,               /* of one operation */
    ASHLAR_ARENA_BYTES_PER_S,      /* read and written, counted as in arena_setup.h */
    ASHLAR_ARENA_COPY_BYTES_PER_S, /* of a plain loop in the same rounds; both count */
    ASHLAR_ARENA_OVER_COPY,        /* of BYTES_PER_S, as is the next one */
    ASHLAR_ARENA_OVER_MEMCPY,
    ASHLAR_ARENA_OVER_ARENA, /* of NS */
    ASHLAR_ARENA_COLUMNS
};

extern const ashlar_benchmark ashlar__benchmark_arena;

#endif /* ASHLAR_BENCH_ARENA_H */
