/*
 * benchmark.h - the description of a benchmark of ashlar-bench, the request to it, and its run
 * (internal).
 *
 * To add a benchmark, define an ashlar_benchmark, and add a row to the table of
 * bench/programs/main_bench.c and, for its chart, one to the table of bench/harness/results_page.c.
 * bench/rnn/bench_rnn.c is an example.
 */
#ifndef ASHLAR_BENCHMARK_H
#define ASHLAR_BENCHMARK_H

#include <ashlar/device.h>

#include "bench/harness/rows.h"
#include "rnn/programs/options.h"

/* The options of a run. Zeros ask for everything. */
typedef struct ashlar_bench_request {
    bool is_smoke;                /* a few short rounds, only to see that the benchmark runs */
    size_t threads;               /* 0: the benchmark's own choice */
    size_t pairs;                 /* only run this many pairs, without measuring; 0: measure */
    ashlar_option_list workloads; /* each NAME, or NAME/VARIANT; none: all */
    ashlar_option_list subjects;  /* none: the usual ones */
    ashlar_option_list peers;     /* shared objects that are further subjects */
    FILE *out;                    /* receives all printed text */
    const char *device, *json;    /* device NULL: the default one; json NULL: no file */
} ashlar_bench_request;

/* A workload's names. */
typedef struct ashlar_bench_name {
    const char *name, *variant; /* variant: "" or NULL if there is none */
} ashlar_bench_name;

typedef struct ashlar_benchmark {
    const char *name;  /* its word on the command line of ashlar-bench */
    const char *takes; /* the options, as "--smoke, --json"; NULL: all */
    const ashlar_rows_form *form;
    const ashlar_rows_form *more; /* form of a second array in the JSON; NULL: none */
    const char *more_key;
    /* The i-th workload; false: there are fewer. The i-th subject; NULL: there are fewer. */
    bool (*workload)(size_t i, ashlar_bench_name *out);
    const char *(*subject)(size_t i);
    /* Measure the requested workloads, print each row as soon as it is known, and add it. */
    ashlar_status (*run)(const ashlar_bench_request *request, ashlar_device *device,
                         ashlar_rows *rows, ashlar_rows *more);
    /* Puts members in front of "rows"; may be NULL. */
    void (*put_head)(ashlar_json_writer *w);
    void (*print_help)(FILE *out);
} ashlar_benchmark;

/* Whether a list of names asks for `name`. An empty list asks for all. */
bool ashlar__bench_wants(const ashlar_option_list *list, ashlar_bench_name name);

/* Check the names in a request. Errors: ASHLAR_EINVAL (no such workload or subject; the detail
 * lists the valid names). */
ASHLAR_MUST_CHECK ashlar_status ashlar__benchmark_check(const ashlar_benchmark *benchmark,
                                                        const ashlar_bench_request *request);

/*
 * Run a benchmark on the requested device, print its targets, and write the JSON. A file is written
 * anew whenever rows are complete, so that a run that fails or is ended leaves those; if none were,
 * it is unchanged.
 *
 * Errors: those of its `run`, ASHLAR_EIO, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__benchmark_run(const ashlar_benchmark *benchmark,
                                                      const ashlar_bench_request *request);

/* Write the rows, and the rows of the second array, as one document. */
ASHLAR_MUST_CHECK ashlar_status ashlar__benchmark_write(const ashlar_benchmark *benchmark,
                                                        const char *path, const ashlar_rows *rows,
                                                        const ashlar_rows *more);

#endif /* ASHLAR_BENCHMARK_H */
