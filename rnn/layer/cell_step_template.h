/*
 * cell_step_template.h - one step of one pseudo-layer, as the cells' point-wise halves see it, for
 * one element type (internal; see rnn_rows_template.h).
 *
 * cell_*_template.h each give two functions on some rows of a step, forward and backward; rows are
 * independent, so that a step can be cut anywhere. The formulas are those of
 * rnn_layout.h. `restrict` and the absence of branches let the loops over a row vectorise.
 */
#ifndef ASHLAR_CELL_STEP_TEMPLATE_H
#define ASHLAR_CELL_STEP_TEMPLATE_H

#include "rnn/layer/rnn_factor_template.h"

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

typedef void cell_function(const cell_step *s, row_range rows);

#endif /* ASHLAR_CELL_STEP_TEMPLATE_H */
