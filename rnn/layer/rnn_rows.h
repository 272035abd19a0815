/*
 * rnn_rows.h - one call's batch without its padding, and the map of its buffers (internal).
 *
 * Packed rows: the sequences are sorted by descending length, ties in their own order; step t
 * has the rows of those still running, one after the other, and the steps follow each other.
 *
 *     start[0]                  = 0
 *     start[t + 1] - start[t]   = n(t), the number of lengths > t; never grows with t
 *     start[T]                  = N, the sum of the lengths
 *     row start[t] + p          = step t of sequence order[p], p < n(t)
 *
 * States lie so that those before a step, and those after it, are n(t) rows of one buffer that
 * follow each other. state(0) = 0 and state(t) = B + start[t - 1]; then step t has
 *
 *     forward   before: rows state(t) ..        after: rows state(t + 1) ..
 *     reverse   before: rows state(t + 1) ..    after: rows state(t) ..
 *
 * and sequence p of length n begins with row state(0) + p and ends with row state(n) + p, in
 * reverse the other way round. In reverse, the first n(t + 1) rows before step t are what step
 * t + 1 left; the others are the first states of the sequences whose last step is t.
 */
#ifndef ASHLAR_RNN_ROWS_H
#define ASHLAR_RNN_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "rnn/layer/rnn_cpu.h"

/*
 * Byte offsets and sizes, all for the padded T * B rows, so that they do not depend on lengths.
 * K is the width of a row of gates, see ashlar_rnn_rows.
 */
typedef struct ashlar_rnn_map {
    /* in work */
    size_t order;     /* size_t [B] */
    size_t start;     /* size_t [T + 1] */
    size_t rows;      /* [T*B, max(I, D*P)]: a layer's input, or the gradient on its way down */
    size_t bias;      /* [K]: the biases of a row of gates, or their gradient */
    size_t sums;      /* [B, G*H], GRU: a step's R h, or the gradient of it */
    size_t full;      /* [B, H], with a projection: a step's h' before it, or the gradient of it */
    size_t recurrent; /* a pseudo-layer's R, or its transpose, in panels (panel.h) */
    size_t project;   /* the same of its Wp */
    size_t dh;        /* [B, P], training */
    size_t dc;        /* [B, H], training, LSTM */
    size_t slices;    /* inference: one slice for each direction, shared by all layers */
    size_t work_bytes;

    /* in a slice: a pseudo-layer's share of the reserve; that of p at slices + p * slice_bytes */
    size_t gates;    /* [T*B, K] packed; after backward_data: their gradients */
    size_t states;   /* [B + T*B, P] */
    size_t cells;    /* LSTM: [B + T*B, H]; inference: [2B, H], alternating */
    size_t fulls;    /* [T*B, H] packed, training with a projection: h' before it */
    size_t doutputs; /* [T*B, P] packed, training with a projection: the gradient of h' */
    size_t slice_bytes;

    /* in the reserve; all 0 for inference */
    size_t seed;   /* uint64_t, with dropout */
    size_t inputs; /* of layer l > 0 at (l - 1) * input_bytes: [T*B, D*P], if is_joined */
    size_t input_bytes;
    size_t reserve_slices;
    size_t reserve_bytes;
} ashlar_rnn_map;

/*
 * A row of gates has a column for each row of W, and more for the rows of R from `split` on, whose
 * products do not enter the sum of W's (GRU: those of gate n; split = 2H, otherwise G*H):
 *
 *     K = 2 G*H - split        row j of R belongs to column j < split ? j : j + G*H - split
 */
typedef struct ashlar_rnn_rows {
    ashlar_rnn_map map;
    const ashlar_rnn_layout *layout;
    bool training;
    bool is_dropping;
    bool is_packed;           /* R and Wp are, for there are enough steps */
    bool is_joined;           /* a layer reads a copy of the outputs below it, not the states */
    size_t gate_rows;         /* G*H */
    size_t split, gate_width; /* K */
    size_t steps, batch;      /* T, B */
    size_t row_count;         /* N */
    size_t shards;            /* threads that have sequences of their own, 1.. */
    size_t *order;            /* [B], in work */
    size_t *start;            /* [T + 1], in work */
} ashlar_rnn_rows;

/* Sort args->lengths into args->work. Requires sizes that ashlar__rnn_cpu_sizes() accepted. */
ashlar_rnn_rows ashlar__rnn_rows_open(const ashlar_rnn_cpu_args *args, bool training);

/* The slice of one pseudo-layer. */
char *ashlar__rnn_rows_slice(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                             size_t pseudo_layer);

/* Threads that each step's product of so many weights is worth, 1..; 1 where there are shards. */
size_t ashlar__rnn_rows_pieces(const ashlar_rnn_rows *batch, size_t weights);

/* state(t) of the file's comment. */
static inline size_t ashlar__rnn_rows_state(const ashlar_rnn_rows *batch, size_t t) {
    return t == 0 ? 0 : batch->batch + batch->start[t - 1];
}

/* The same for cells. Inference keeps two blocks in turn; a finished row is not written again. */
static inline size_t ashlar__rnn_rows_cell(const ashlar_rnn_rows *batch, size_t t) {
    return batch->training ? ashlar__rnn_rows_state(batch, t) : t % 2 * batch->batch;
}

/* n(t) */
static inline size_t ashlar__rnn_rows_active(const ashlar_rnn_rows *batch, size_t t) {
    return batch->start[t + 1] - batch->start[t];
}

#endif /* ASHLAR_RNN_ROWS_H */
