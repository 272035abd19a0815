/* cell_step.h - one time step of one pseudo-layer, as the cells' point-wise functions see it: the
 * matrix products are done elsewhere (internal; compiled for each element type and instruction set,
 * see real.h).
 *
 * Each cell has one function that computes some rows of a step forward, and one backward. Rows are
 * independent, so any rows may be given. The formulas are those of rnn_layout.h. `restrict` and the
 * absence of branches let the loops over a row vectorise. */
#ifndef ASHLAR_CELL_STEP_H
#define ASHLAR_CELL_STEP_H

#include <ashlar/rnn.h>

#include "rnn/product/real.h"

/* The rows first, first + stride, .. that are below end. */
typedef struct some_rows {
    size_t first, stride, end;
} some_rows;

static inline size_t count_rows(some_rows rows) {
    return rows.first < rows.end ? (rows.end - rows.first + rows.stride - 1) / rows.stride : 0;
}

/* A step of the n sequences still running, a row each. Arrays that a cell does not need are NULL
 * or not read. `in` and `out` say whether the cell's function reads or writes an array. */
typedef struct cell_step {
    size_t hidden;      /* H */
    size_t gate_stride; /* elements from one row of `gates` to the next: K or a bit more */
    size_t unit, units; /* forward computes only units unit .. unit + units - 1 of each row; units
                         * 0: all */
    const real *bias;   /* [K], forward: the bias of each column of gates */
    real *gates;        /* [n, K], forward: in, W x (plus R h, except for the GRU); out, what
                           backward needs. backward: in, the same; out, the gates' gradient */
    real *sums;         /* [n, 3H], GRU. forward: in, R h. backward: out, gradient of R h */
    const real *state;  /* [n, H], GRU: h before the step */
    const real *cell;   /* [n, H], LSTM: c before the step */
    real *next_cell;    /* [n, H], LSTM: c after the step. forward: out. backward: in */
    real *output;       /* [n, H], h' before a projection. forward: out. backward: in */
    real *doutput;      /* [n, H], backward: in, gradient of `output`. GRU: out, gradient of
                           `state`, without the part that comes through R h */
    real *dcell;        /* [n, H], backward, LSTM: in, gradient of next_cell; out, of cell */
} cell_step;

typedef void cell_function(const cell_step *s, some_rows rows);

/* The functions of each ashlar_rnn_cell. */
#define cell_forward ASHLAR_VARIANT(ashlar__cell_forward)
#define cell_backward ASHLAR_VARIANT(ashlar__cell_backward)
extern cell_function *const cell_forward[ASHLAR_RNN_CELL_COUNT];
extern cell_function *const cell_backward[ASHLAR_RNN_CELL_COUNT];

#endif /* ASHLAR_CELL_STEP_H */
