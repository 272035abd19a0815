/*
 * bench_alloc.h - what one malloc + free pair costs on the host (internal).
 */
#ifndef ASHLAR_BENCH_ALLOC_H
#define ASHLAR_BENCH_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/device.h>

#include "bench/harness/bench_rows.h"
#include "rnn/programs/options.h"

typedef struct ashlar_bench_config {
    bool is_smoke;                /* a few rounds, only to see that it runs */
    bool is_of_plans;             /* lists with steps, and subjects to compare a plan with */
    size_t threads;               /* 0: one, and two where that is of interest */
    ashlar_option_list workloads; /* NAME or NAME/VARIANT; none: all */
    ashlar_option_list subjects;  /* none: all that are usual */
} ashlar_bench_config;

/* Errors: ASHLAR_EINVAL (a name that is not in this build; it says which there are). */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_check(const ashlar_bench_config *config);

/*
 * Measure every chosen workload on every chosen subject, print each as it is done, and add the
 * rows. Errors: those of the subjects, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_alloc(ashlar_device *device,
                                                    const ashlar_bench_config *config,
                                                    ashlar_bench_rows *rows);

/*
 * Count the instructions of a pair of 4 KiB on every chosen subject (by default the usual ones but
 * the driver), by running this program twice under valgrind's callgrind with different numbers of
 * pairs. The difference is exact, whatever else the machine does. The loop's own instructions,
 * counted with a subject that does nothing, are subtracted. Errors: ASHLAR_ENOTSUP (no valgrind),
 * ASHLAR_EIO (it failed), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_instructions(const char *device,
                                                           const ashlar_bench_config *config,
                                                           ashlar_bench_rows *rows);

/* Run at least `pairs` pairs of 4 KiB on each chosen subject and nothing else, to be counted. */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_pairs(ashlar_device *device,
                                                    const ashlar_bench_config *config,
                                                    size_t pairs);

#endif /* ASHLAR_BENCH_ALLOC_H */
