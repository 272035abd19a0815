/*
 * bench_arena.h - measures what an arena saves: optimizer steps, fills, norms, copies and files
 * over one range, compared with the same work tensor by tensor and in lists, and with a copy of as
 * many bytes (internal).
 *
 * As in peers/measure.h every subject has an instance of its own, and all take turns in each round,
 * the two copies among them; what is reported are medians over the rounds. A few things are not
 * timed, because every subject would need them: pointers that are to be flattened are made to point
 * to the scattered tensors, and replicas are given back.
 */
#ifndef ASHLAR_BENCH_ARENA_H
#define ASHLAR_BENCH_ARENA_H

#include <stdbool.h>

#include <ashlar/device.h>

#include "bench/arena/arena_rows.h"
#include "rnn/programs/options.h"

typedef struct ashlar_bench_arena_config {
    bool is_smoke;             /* one round, and a small "large" case */
    ashlar_option_list wanted; /* CASE or CASE/OPERATION; none: all */
} ashlar_bench_arena_config;

/* Errors: ASHLAR_EINVAL (a name that there is not; it says which there are). */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_arena_check(const ashlar_bench_arena_config *config);

/*
 * Measure every chosen operation of every chosen case, print each as it is done, and add the rows.
 * Checkpoints go to a new folder in TMPDIR, or /tmp, which is removed.
 *
 * Errors: ASHLAR_ENOTSUP (a CUDA device), ASHLAR_EIO, those of the operations.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_arena(ashlar_device *device,
                                                    const ashlar_bench_arena_config *config,
                                                    ashlar_arena_rows *rows);

/* A line for each case and what its tensors are, for --help. */
void ashlar__bench_arena_print_cases(FILE *out);

#endif /* ASHLAR_BENCH_ARENA_H */
