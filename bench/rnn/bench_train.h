/* bench_train.h - measures whole training steps, `ashlar-bench rnn --train` (internal): what
 * train_setup.h says of each subject, in rounds that take turns. A turn is a training of a few
 * steps from the beginning. The run sets the number of worker threads, and does not reset it. */
#ifndef ASHLAR_BENCH_TRAIN_H
#define ASHLAR_BENCH_TRAIN_H

#include "bench/harness/benchmark.h"

/* The columns of its rows, as in ashlar_rows_column: medians over the rounds. OVER_TORCH is the
 * median of each round's ratio of MS_STEP. LOSS is how well a subject has learned after LOSS_S
 * seconds of one longer training: the mean loss, in nats per symbol, of the last ten steps that
 * ended by then, LOSS_STEPS having been done; not known if a training has not that many steps or
 * seconds. LOSS_DIFFERENCE is the largest difference of a step's loss from PyTorch's over the steps
 * of a turn. PEER says what PyTorch is and its way, or why it takes no part. */
#define ASHLAR_TRAIN_ROW_COLUMN_MAP(X)                                    \
    X(CASE, "case", "case", TEXT, 27, 0, 0)                               \
    X(SUBJECT, "subject", "subject", TEXT, 8, 0, 0)                       \
    X(TOKENS_PER_S, "tokens_per_s", "tokens/s", NUMBER, 9, 0, 0)          \
    X(MS_STEP, "ms_step", "ms/step", NUMBER, 9, 3, 0)                     \
    X(MS_STEP_LOW, "ms_step_low", NULL, NUMBER, 0, 0, 0)                  \
    X(MS_STEP_HIGH, "ms_step_high", NULL, NUMBER, 0, 0, 0)                \
    X(OVER_TORCH, "over_torch", "/ torch", NUMBER, 8, 3, 0)               \
    X(LOSS_S, "loss_s", "after s", NUMBER, 7, 0, 0)                       \
    X(LOSS_STEPS, "loss_steps", "steps", NUMBER, 6, 0, 0)                 \
    X(LOSS, "loss", "loss", NUMBER, 7, 4, 0)                              \
    X(LOSS_DIFFERENCE, "loss_difference", "diff. e-6", NUMBER, 9, 2, 1e6) \
    X(PEER, "peer", "peer", TEXT, 0, 0, 0)
#define ASHLAR_TRAIN_ROW_COLUMN(name, ...) ASHLAR_TRAIN_ROW_##name,
enum { ASHLAR_TRAIN_ROW_COLUMN_MAP(ASHLAR_TRAIN_ROW_COLUMN) ASHLAR_TRAIN_ROW_COLUMNS };

extern const ashlar_benchmark ashlar__benchmark_rnn_train;

#endif /* ASHLAR_BENCH_TRAIN_H */
