/*
 * cell_step.h - one step of one pseudo-layer, as the cells' point-wise halves see it (internal;
 * compiled for each element type and instruction set, see real.h).
 *
 * Each cell has a function for some rows of a step forward, and one backward. Rows are independent,
 * so that a step can be cut anywhere. The formulas are those of rnn_layout.h. `restrict` and the
 * absence of branches let the loops over a row vectorise.
 */
#ifndef ASHLAR_CELL_STEP_H
#define ASHLAR_CELL_STEP_H

#include "rnn/layer/rnn_factor.h"

/* n rows, of sequences still running. What a cell has no use for is NULL, or not read. */
typedef struct cell_step {
    size_t hidden;     /* H */
    const real *bias;  /* [K], forward: of each column of gates */
    real *gates;       /* [n, K], forward: in, W x (in all but the GRU + R h); out, what
                          backward needs of it. backward: in, that; out, its gradient */
    real *sums;        /* [n, 3H], GRU. forward: in, R h. backward: out, its gradient */
    const real *state; /* [n, H], GRU: h before the step */
    const real *cell;  /* [n, H], LSTM: c before it */
    real *next_cell;   /* [n, H], LSTM: c after it. forward: out. backward: in */
    real *output;      /* [n, H], h' before a projection. forward: out. backward: in */
    real *doutput;     /* [n, H], backward: in, its gradient. GRU: out, that of `state` by
                          ways other than R h */
    real *dcell;       /* [n, H], backward, LSTM: in, gradient of next_cell; out, of cell */
} cell_step;

typedef void cell_function(const cell_step *s, some_rows rows);

#define lstm_forward ASHLAR_VARIANT(ashlar__lstm_forward)
#define lstm_backward ASHLAR_VARIANT(ashlar__lstm_backward)
#define gru_forward ASHLAR_VARIANT(ashlar__gru_forward)
#define gru_backward ASHLAR_VARIANT(ashlar__gru_backward)
#define tanh_forward ASHLAR_VARIANT(ashlar__tanh_forward)
#define tanh_backward ASHLAR_VARIANT(ashlar__tanh_backward)
#define relu_forward ASHLAR_VARIANT(ashlar__relu_forward)
#define relu_backward ASHLAR_VARIANT(ashlar__relu_backward)
cell_function lstm_forward, gru_forward, tanh_forward, relu_forward;
cell_function lstm_backward, gru_backward, tanh_backward, relu_backward;

#endif /* ASHLAR_CELL_STEP_H */
