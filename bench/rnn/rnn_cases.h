/*
 * rnn_cases.h - the networks and batches that `ashlar-bench rnn` runs (internal).
 */
#ifndef ASHLAR_RNN_CASES_H
#define ASHLAR_RNN_CASES_H

#include <stdint.h>

#include <ashlar/rnn_layout.h>

typedef struct ashlar_rnn_case {
    const char *name; /* cell, T, B, I where it is not H, H, L */
    size_t steps, batch;
    ashlar_rnn_config config;
    bool is_varied;    /* lengths from T/4 to T, else all are T */
    bool is_inference; /* forward only, without a reserve */
} ashlar_rnn_case;

/* All of them, in the order of the report. */
const ashlar_rnn_case *ashlar__rnn_cases(size_t *count);

/* A case's lengths, [batch]: the same on every machine; one sequence has all T steps. */
void ashlar__rnn_case_lengths(const ashlar_rnn_case *which, int32_t *lengths);

#endif /* ASHLAR_RNN_CASES_H */
