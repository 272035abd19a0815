/*
 * bench_alloc.h - what one malloc + free pair costs on the host (internal).
 */
#ifndef ASHLAR_BENCH_ALLOC_H
#define ASHLAR_BENCH_ALLOC_H

#include <stdbool.h>

#include <ashlar/device.h>

typedef struct ashlar_bench_config {
    bool is_smoke;    /* a few pairs, only to see that it runs */
    const char *json; /* NULL: not wanted */
} ashlar_bench_config;

/*
 * Workload one_size: a pair of one size, again and again, one stream, one thread. Subjects:
 * ashlar, the driver's plain allocation, and jemalloc's host memory for reference. Rounds are
 * interleaved, so that a noisy machine disturbs all alike; printed are medians and ratios.
 *
 * Errors: those of the allocator and of writing a file.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_bench_alloc(ashlar_device *device,
                                                   const ashlar_bench_config *config);

#endif /* ASHLAR_BENCH_ALLOC_H */
