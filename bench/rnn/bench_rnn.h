/*
 * bench_rnn.h - measures steps of recurrent networks: with the allocator, with the driver's plain
 * allocation, without memory management, and by oneDNN (internal).
 *
 * Before a turn there is a pause, in which another library's threads go to sleep. The number of
 * threads stays what it was set to. CUDA devices are refused.
 */
#ifndef ASHLAR_BENCH_RNN_H
#define ASHLAR_BENCH_RNN_H

#include "bench/harness/benchmark.h"

/* Medians over the rounds. A ratio is the median of those in each round. */
enum {
    ASHLAR_RNN_ROW_CASE,
    ASHLAR_RNN_ROW_SUBJECT,
    ASHLAR_RNN_ROW_MS_FORWARD,
    ASHLAR_RNN_ROW_MS_BACKWARD,
    ASHLAR_RNN_ROW_MS_STEP,
    ASHLAR_RNN_ROW_STEPS_PER_S,
    ASHLAR_RNN_ROW_OVER_STATIC, /* of MS_STEP, as is the next one */
    ASHLAR_RNN_ROW_OVER_ONEDNN,
    ASHLAR_RNN_ROW_PRODUCT_SHARE, /* of a step on one thread, what matrix products take */
    ASHLAR_RNN_ROW_COLUMNS
};

extern const ashlar_benchmark ashlar__benchmark_rnn;

#endif /* ASHLAR_BENCH_RNN_H */
