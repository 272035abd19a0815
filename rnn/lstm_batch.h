/*
 * lstm_batch.h - one call's batch without its padding, and the map of its buffers (internal).
 *
 * Packed rows: the sequences are sorted by descending length, ties in their own order; step t
 * has the rows of those still running, one after the other, and the steps follow each other.
 *
 *     start[0]                  = 0
 *     start[t + 1] - start[t]   = n(t), the number of lengths > t; never grows with t
 *     start[T]                  = N, the sum of the lengths
 *     row start[t] + p          = step t of sequence order[p], p < n(t)
 *
 * Hidden and cell states are kept with the initial ones in front, so that each step's previous
 * states are rows of the same buffer: see ashlar_lstm_state_row().
 */
#ifndef ASHLAR_LSTM_BATCH_H
#define ASHLAR_LSTM_BATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "lstm_cpu.h"

/* Byte offsets and sizes, all for the padded T * B rows, so that they do not depend on lengths. */
typedef struct ashlar_lstm_map {
    /* in work */
    size_t order; /* size_t [B] */
    size_t start; /* size_t [T + 1] */
    size_t rows;  /* [T*B, max(I, H)]: packed x, or the gradient on its way down */
    size_t bias;  /* [4H]: bW + bR, or their gradient */
    size_t dh;    /* [B, H], training */
    size_t dc;    /* [B, H], training */
    size_t slice; /* inference: the slice that all layers share */
    size_t work_bytes;

    /* in a slice: a layer's part of the reserve, layer l at l * slice_bytes */
    size_t gates;  /* [T*B, 4H] packed; after backward_data: their gradients */
    size_t hidden; /* [B + T*B, H] */
    size_t cells;  /* [B + T*B, H]; inference: [2B, H], alternating */
    size_t slice_bytes;
    size_t reserve_bytes; /* 0 for inference */
} ashlar_lstm_map;

typedef struct ashlar_lstm_batch {
    ashlar_lstm_map map;
    bool training;
    size_t input, hidden, layers; /* I, H, L */
    size_t steps, batch;          /* T, B */
    size_t row_count;             /* N */
    size_t *order;                /* [B], in work */
    size_t *start;                /* [T + 1], in work */
} ashlar_lstm_batch;

/* One layer's part of a call's memory, packed rows. */
typedef struct ashlar_lstm_slice {
    void *gates;  /* [N, 4H] */
    void *hidden; /* [B + N, H] */
    void *cells;  /* [B + N, H] or [2B, H] */
} ashlar_lstm_slice;

/* Sort the lengths of `args` into args->work. Requires sizes that ashlar_lstm_sizes() accepted. */
ashlar_lstm_batch ashlar_lstm_batch_open(const ashlar_lstm_args *args, bool training);

ashlar_lstm_slice ashlar_lstm_slice_at(const ashlar_lstm_batch *batch,
                                       const ashlar_lstm_args *args, size_t layer);

/*
 * First row of the states that step t starts from (t = T included: those the last step leaves),
 * in a buffer that keeps all of them: the initial B, then the packed rows of every step.
 */
static inline size_t ashlar_lstm_state_row(const ashlar_lstm_batch *batch, size_t t) {
    return t == 0 ? 0 : batch->batch + batch->start[t - 1];
}

/* The same for cells. Inference keeps two blocks in turn; a finished row is not written again. */
static inline size_t ashlar_lstm_cell_row(const ashlar_lstm_batch *batch, size_t t) {
    return batch->training ? ashlar_lstm_state_row(batch, t) : t % 2 * batch->batch;
}

static inline size_t ashlar_lstm_active(const ashlar_lstm_batch *batch, size_t t) {
    return batch->start[t + 1] - batch->start[t];
}

#endif /* ASHLAR_LSTM_BATCH_H */
