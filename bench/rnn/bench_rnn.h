/* bench_rnn.h - measures steps of recurrent networks: with the allocator, with the driver's plain
 * allocation, without memory management, and by PyTorch (internal). Before a turn there
 * is a pause, in which another library's threads go to sleep. The run sets the number of worker
 * threads, and does not reset it. On a CUDA device cuDNN computes the steps; PyTorch and the
 * machine's limits are left out. */
#ifndef ASHLAR_BENCH_RNN_H
#define ASHLAR_BENCH_RNN_H

#include "bench/harness/benchmark.h"

/* The columns of its rows, as in ashlar_rows_column: medians over the rounds. A ratio is the median
 * of each round's ratio of MS_STEP. FLOPS and READ_RATE are the machine's limits (roof.h), measured
 * in the same rounds, the latter on a buffer as large as one recurrent matrix. OF_PEAK is the
 * step's multiplications and additions per second, over FLOPS. OF_READ is the bytes of weights that
 * a step has to read, per second, over READ_RATE: each pass reads recurrent matrices at each time
 * step, the others once. */
#define ASHLAR_RNN_ROW_COLUMN_MAP(X)                           \
    X(CASE, "case", "case", TEXT, 30, 0, 0)                    \
    X(SUBJECT, "subject", "subject", TEXT, 16, 0, 0)           \
    X(MS_FORWARD, "ms_forward", "forward", NUMBER, 9, 3, 0)    \
    X(MS_BACKWARD, "ms_backward", "backward", NUMBER, 9, 3, 0) \
    X(MS_STEP, "ms_step", "ms/step", NUMBER, 9, 3, 0)          \
    X(MS_STEP_LOW, "ms_step_low", NULL, NUMBER, 0, 0, 0)       \
    X(MS_STEP_HIGH, "ms_step_high", NULL, NUMBER, 0, 0, 0)     \
    X(STEPS_PER_S, "steps_per_s", "steps/s", NUMBER, 9, 1, 0)  \
    X(OVER_STATIC, "over_static", "/ static", NUMBER, 8, 3, 0) \
    X(OVER_TORCH, "over_torch", "/ torch", NUMBER, 8, 3, 0)    \
    X(OF_PEAK, "of_peak", "peak %", NUMBER, 6, 0, 100)         \
    X(OF_READ, "of_read", "read %", NUMBER, 6, 0, 100)         \
    X(FLOPS, "flops_per_s", NULL, NUMBER, 0, 0, 0)             \
    X(READ_RATE, "read_bytes_per_s", NULL, NUMBER, 0, 0, 0)
#define ASHLAR_RNN_ROW_COLUMN(name, ...) ASHLAR_RNN_ROW_##name,
enum { ASHLAR_RNN_ROW_COLUMN_MAP(ASHLAR_RNN_ROW_COLUMN) ASHLAR_RNN_ROW_COLUMNS };

extern const ashlar_benchmark ashlar__benchmark_rnn;

#endif /* ASHLAR_BENCH_RNN_H */
