/* rnn_sample.h - the rows `samples` of `ashlar-bench rnn`: writing text with the model that
 * ashlar-train trains by default, one text and several at a time (internal). */
#ifndef ASHLAR_RNN_SAMPLE_H
#define ASHLAR_RNN_SAMPLE_H

#include "bench/harness/benchmark.h"

/* The columns of a row. NS is the time of a step, which draws a symbol of each text; SYMBOLS are
 * those of all texts. READ_BYTES are the weights that a step has to read, and a row of the
 * embedding for each text; OF_READ is their rate over READ_RATE, at which the same threads read a
 * buffer that is as large, in the same rounds (roof.h). Ratios are medians over rounds. */
#define ASHLAR_RNN_SAMPLE_COLUMN_MAP(X)                                 \
    X(CASE, "case", "case", TEXT, 30, 0, 0)                             \
    X(SUBJECT, "subject", "subject", TEXT, 16, 0, 0)                    \
    X(TEXTS, "texts", "texts", NUMBER, 6, 0, 0)                         \
    X(NS, "ns_step", "us/step", NUMBER, 9, 1, 1e-3)                     \
    X(NS_LOW, "ns_step_low", NULL, NUMBER, 0, 0, 0)                     \
    X(NS_HIGH, "ns_step_high", NULL, NUMBER, 0, 0, 0)                   \
    X(SYMBOLS_PER_S, "symbols_per_s", "symbols/s", NUMBER, 10, 0, 0)    \
    X(READ_BYTES, "read_bytes", "MiB/step", NUMBER, 9, 2, 1 / 1048576.) \
    X(OF_READ, "of_read", "read %", NUMBER, 7, 0, 100)                  \
    X(READ_RATE, "read_bytes_per_s", NULL, NUMBER, 0, 0, 0)
#define ASHLAR_RNN_SAMPLE_COLUMN(name, ...) ASHLAR_RNN_SAMPLE_##name,
enum { ASHLAR_RNN_SAMPLE_COLUMN_MAP(ASHLAR_RNN_SAMPLE_COLUMN) ASHLAR_RNN_SAMPLE_COLUMNS };

extern const ashlar_rows_form ashlar__rnn_sample_form;

/* The name of the i-th case; NULL: there are fewer. */
const char *ashlar__rnn_sample_name(size_t i);

/* Measure the cases that are asked for, and add their rows. Errors: those of the model. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_sample_run(const ashlar_bench_request *request,
                                                       ashlar_device *device, ashlar_rows *rows);

#endif /* ASHLAR_RNN_SAMPLE_H */
