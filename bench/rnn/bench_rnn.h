/*
 * bench_rnn.h - measures steps of recurrent networks: with the allocator, with the driver's plain
 * allocation, without memory management, and by oneDNN (internal).
 *
 * As in peers/measure.h all subjects take turns in each round; what is reported are medians over
 * the rounds. Before a turn there is a pause, in which another library's threads go to sleep.
 */
#ifndef ASHLAR_BENCH_RNN_H
#define ASHLAR_BENCH_RNN_H

#include "rnn/programs/options.h"
#include "bench/rnn/rnn_results.h"

typedef struct ashlar_bench_rnn_config {
    bool is_smoke;               /* one round */
    ashlar_option_list wanted;   /* cases; none: all */
    ashlar_option_list subjects; /* none: all */
    size_t threads;              /* 0: as many as the process may run on */
} ashlar_bench_rnn_config;

/* Errors: ASHLAR_EINVAL (a name that there is not; it says which there are). */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_rnn_check(const ashlar_bench_rnn_config *config);

/*
 * Measure every chosen case, print each as it is done, and add the rows. The number of threads
 * stays what it was set to.
 *
 * Errors: ASHLAR_ENOTSUP (a CUDA device), those of the subjects.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_rnn(ashlar_device *device,
                                                  const ashlar_bench_rnn_config *config,
                                                  ashlar_rnn_results *results);

/* The names of all cases, for --help. */
void ashlar__bench_rnn_print_cases(FILE *out);

#endif /* ASHLAR_BENCH_RNN_H */
