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
    bool is_of_plans;             /* run the lists with steps, to compare plans with other peers */
    size_t threads;               /* 0: one thread, and two if the workload is to show scaling */
    ashlar_option_list workloads; /* each NAME or NAME/VARIANT; an empty list: all workloads */
    ashlar_option_list subjects;  /* names of peers; an empty list: the usual ones */
} ashlar_bench_config;

/* Errors: ASHLAR_EINVAL (a name that this build does not have; the detail lists the names). */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_check(const ashlar_bench_config *config);

/*
 * Measure every chosen workload on every chosen subject. Print each workload's rows as soon as it
 * is measured, and append them to `rows`. Errors: those of the subjects, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_alloc(ashlar_device *device,
                                                    const ashlar_bench_config *config,
                                                    ashlar_bench_rows *rows);

/*
 * Count the instructions of a malloc + free pair of 4 KiB on every chosen subject (by default the
 * usual ones except the driver), by running this program twice under valgrind's callgrind with
 * different numbers of pairs. The difference is exact, whatever else the machine does. The loop's
 * own instructions, counted with a subject that does nothing, are subtracted. Errors:
 * ASHLAR_ENOTSUP (no valgrind), ASHLAR_EIO (valgrind failed), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_instructions(const char *device,
                                                           const ashlar_bench_config *config,
                                                           ashlar_bench_rows *rows);

/* Run at least `pairs` pairs of 4 KiB on each chosen subject: the program that callgrind counts. */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_pairs(ashlar_device *device,
                                                    const ashlar_bench_config *config,
                                                    size_t pairs);

#endif /* ASHLAR_BENCH_ALLOC_H */
