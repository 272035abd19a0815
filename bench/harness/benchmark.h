/*
 * benchmark.h - what a benchmark of ashlar-bench is, what it is asked, and how one is run
 * (internal).
 *
 * A further one is an ashlar_benchmark, a row in the table of bench/programs/main_bench.c, and for
 * its chart one in that of bench/harness/results_page.c. bench/rnn/bench_rnn.c is an example.
 */
#ifndef ASHLAR_BENCHMARK_H
#define ASHLAR_BENCHMARK_H

#include <ashlar/device.h>

#include "bench/harness/rows.h"
#include "rnn/programs/options.h"

/* The options, and files of `plan`. Zeros ask for everything. */
typedef struct ashlar_bench_request {
    bool is_smoke;                /* a few short rounds, only to see that it runs */
    bool counts_instructions;     /* instead of time */
    size_t threads;               /* 0: as the benchmark has it */
    size_t pairs;                 /* only run so many, unmeasured; 0: measure */
    ashlar_option_list workloads; /* each NAME, or NAME/VARIANT; none: all */
    ashlar_option_list subjects;  /* none: the usual ones */
    ashlar_option_list peers;     /* shared objects that are further subjects */
    FILE *out;                    /* what is printed goes there */
    const char *device, *json;    /* NULL: the default one; NULL: no file */
    char **files;                 /* [file_count] problems to pack; if any, only these */
    size_t file_count;
    size_t capacity, seconds; /* bytes for the plan of each file, and time to search for it */
} ashlar_bench_request;

/* A workload's names. */
typedef struct ashlar_bench_name {
    const char *name, *variant; /* variant: "" or NULL where it has none */
} ashlar_bench_name;

typedef struct ashlar_benchmark {
    const char *name;  /* the word of ashlar-bench */
    const char *takes; /* the options, as "--smoke, --json"; NULL: all */
    const ashlar_rows_form *form;
    const ashlar_rows_form *more; /* NULL, or of a second array in the JSON */
    const char *more_key;
    bool opens_devices; /* its own: `run` is given none */
    /* The i-th workload; false: there are fewer. The i-th subject; NULL: there are fewer. */
    bool (*workload)(size_t i, ashlar_bench_name *out);
    const char *(*subject)(size_t i);
    /* Measure what is asked for, print each row as it is known, and add it. */
    ashlar_status (*run)(const ashlar_bench_request *request, ashlar_device *device,
                         ashlar_rows *rows, ashlar_rows *more);
    /* NULL, or puts members in front of "rows". Without these and `more`, the JSON is an array. */
    void (*put_head)(ashlar_json_writer *w);
    void (*print_help)(FILE *out);
} ashlar_benchmark;

/* Whether a list of workloads asks for this one; so does an empty one. */
bool ashlar__bench_wants(const ashlar_option_list *list, ashlar_bench_name name);

/* Errors: ASHLAR_EINVAL (a workload or subject that is not there; the detail lists those that
 * are). */
ASHLAR_MUST_CHECK ashlar_status ashlar__benchmark_check(const ashlar_benchmark *benchmark,
                                                        const ashlar_bench_request *request);

/*
 * Run a benchmark on the device asked for, print its targets, and write the JSON. On failure that
 * file is unchanged.
 *
 * Errors: those of its `run`, ASHLAR_EIO, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__benchmark_run(const ashlar_benchmark *benchmark,
                                                      const ashlar_bench_request *request);

/* Write the rows, and those of the second array, as one document. */
ASHLAR_MUST_CHECK ashlar_status ashlar__benchmark_write(const ashlar_benchmark *benchmark,
                                                        const char *path, const ashlar_rows *rows,
                                                        const ashlar_rows *more);

typedef struct ashlar_instructions_job {
    const char *device;         /* the argument of --device; NULL: the option is left out */
    ashlar_bench_name workload; /* of `ashlar-bench alloc` */
    const char *subject;
    size_t few, many; /* pairs of the two runs: multiples of those in the list's body */
} ashlar_instructions_job;

/*
 * Run this program twice under valgrind's callgrind, as `ashlar-bench alloc --pairs N --workload
 * WORKLOAD --subject SUBJECT` with two values of N, and divide the difference in instructions by
 * the difference in pairs. The result does not depend on the machine's load.
 *
 * out      instructions per pair
 *
 * Errors: ASHLAR_ENOTSUP (no valgrind), ASHLAR_EIO (a run failed or left no count),
 *         ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__instructions_of_pair(const ashlar_instructions_job *job,
                                                             double *out);

#endif /* ASHLAR_BENCHMARK_H */
