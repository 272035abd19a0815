/*
 * rnn_results.h - the results of `ashlar-bench rnn`: table, JSON, targets (internal).
 */
#ifndef ASHLAR_RNN_RESULTS_H
#define ASHLAR_RNN_RESULTS_H

#include <stdio.h>

#include "bench/rnn/rnn_setup.h"

/* Medians over the rounds; a ratio is the median of those in each round, 0: not known. */
typedef struct ashlar_rnn_result {
    const char *case_name;
    ashlar_rnn_subject subject;
    bool is_inference;
    double ms_forward, ms_backward, ms_step;
    double over_static;   /* ms_step / that of static_buffer */
    double over_onednn;   /* ms_step / that of onednn */
    double product_share; /* of a step on one thread, what matrix products take; 0: not known */
} ashlar_rnn_result;

enum { ASHLAR_RNN_RESULTS_MAX = 64 };

/* Starts as zeros. */
typedef struct ashlar_rnn_results {
    size_t threads;
    ashlar_rnn_result items[ASHLAR_RNN_RESULTS_MAX];
    size_t count;
} ashlar_rnn_results;

void ashlar__rnn_results_print_head(FILE *out);
void ashlar__rnn_results_print(FILE *out, const ashlar_rnn_results *results, size_t first);

/* Each target that the results can tell of, and whether it is met. */
void ashlar__rnn_results_print_targets(FILE *out, const ashlar_rnn_results *results);

/*
 * Write one JSON object, whole or not at all: {processor, products, onednn, threads, rows}, rows of
 * {case, subject, ms_forward, ms_backward, ms_step, steps_per_s, over_static, over_onednn,
 * product_share}, null where it is not known. Errors: ASHLAR_EIO, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_results_write(const char *path,
                                                          const ashlar_rnn_results *results);

#endif /* ASHLAR_RNN_RESULTS_H */
