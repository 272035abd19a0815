/* rnn_pass.h - what rnn_pass.c, rnn_step.c and rnn_prepared.c share: the step of a cell, packed
 * weights (internal; compiled for each element type and instruction set, see real.h). */
#ifndef ASHLAR_RNN_PASS_H
#define ASHLAR_RNN_PASS_H

#include <ashlar/rnn.h>

#include "rnn/layer/rnn_cpu.h"
#include "arena/product/real.h"

/* The rows first .. end - 1. */
typedef struct some_rows {
    size_t first, end;
} some_rows;

static inline size_t count_rows(some_rows rows) {
    return rows.first < rows.end ? rows.end - rows.first : 0;
}

/* A cell's part of one step, for the n sequences that still run, a row each. Arrays that the cell
 * does not need are NULL or not read. */
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

/* The forward function of each ashlar_rnn_cell (rnn_step.c). A row depends on no other one, so any
 * subset may be given. The formulas are those of rnn.h. */
#define cell_forward ASHLAR_VARIANT(ashlar__cell_forward)
extern cell_function *const cell_forward[ASHLAR_RNN_CELL_COUNT];

/* One pseudo-layer in one pass: its sizes, its weights' places, its buffers. */
typedef struct layer_part {
    size_t layer, direction;
    size_t input;  /* in(l) */
    size_t hidden; /* H */
    size_t state;  /* P */
    ashlar_rnn_view place[ASHLAR_RNN_TENSOR_COUNT];
    real *gates;    /* [N, K], rows gate_stride apart; ashlar_rnn_map describes these buffers */
    real *states;   /* [B + N, P] */
    real *cells;    /* [B + N, H] or [2B, H] */
    real *fulls;    /* [N, H] */
    real *doutputs; /* [N, P] */
} layer_part;

/* The address in `work` at a byte offset of the map. */
static inline real *in_work(const ashlar_rnn_cpu_args *args, size_t offset) {
    return (real *)(void *)((char *)args->b.work + offset);
}

/* The address in the prepared weights at a byte offset. */
static inline const real *in_prepared(const ashlar_rnn_cpu_args *args, size_t offset) {
    return (const real *)(const void *)((const char *)args->b.prepared + offset);
}

static inline size_t pseudo_layer_of(const ashlar_rnn_rows *batch, const layer_part *part) {
    return part->layer * batch->layout->config.directions + part->direction;
}

/* side_before(): the i for which state(i), as defined in rnn_cpu.h, is the state before step t in
 * this direction. side_after(): the i of the state after step t. */
static inline size_t side_before(size_t direction, size_t t) {
    return direction == 0 ? t : t + 1;
}

static inline size_t side_after(size_t direction, size_t t) {
    return direction == 0 ? t + 1 : t;
}

/* A right factor [depth, columns] to be packed into consecutive panels (panel.h). */
typedef struct matrix_packing {
    bool trans;   /* weights are stored transposed */
    bool is_bf16; /* the panels are bf16; only for a transposed factor of floats */
    size_t columns, depth;
    const real *weights;
    size_t ld;
    void *panels;
} matrix_packing;

/* Pack a matrix. The workers share the panels. */
#define pack_matrix ASHLAR_VARIANT(ashlar__pack_matrix)
void pack_matrix(matrix_packing m);

/* c [count, columns] = or += a [count, depth] times a factor in panels, depth * PANEL elements
 * each. depth must be > 0. backwards: with one row, begin with the last columns. */
#define multiply_packed ASHLAR_VARIANT(ashlar__multiply_packed)
void multiply_packed(size_t count, size_t columns, size_t depth, const real *a, size_t lda,
                     const real *panels, bool adds, real *c, size_t ldc, bool backwards);

/* Set bias [K] to the sum of all biases that are added to each column of gates. */
#define gather_bias ASHLAR_VARIANT(ashlar__gather_bias)
void gather_bias(const ashlar_rnn_layout *layout, size_t pseudo_layer, const real *weights,
                 real *bias);

/* A right factor op(weights) [depth, columns], which each step multiplies its rows with. */
typedef struct factor {
    bool trans;
    size_t columns, depth;
    const real *weights;
    size_t ld;
    const real *panels; /* NULL: not packed, because there are few steps */
    size_t pieces;
} factor;

/* All steps of one pseudo-layer, forward or backward. */
typedef struct layer_run {
    const ashlar_rnn_rows *batch;
    const layer_part *part;
    bool is_forward;
    const real *bias; /* [K], forward */
    const real *dy;   /* backward: this pseudo-layer's columns of [N, D*P] */
    real *dh;         /* [B, P] gradient of h: in, of the last states; out, of the first states */
    real *dc;         /* [B, H] gradient of c, likewise */
    /* run_layer() sets the fields below */
    real *sums;       /* [B, G*H], GRU: R h or its gradient */
    real *full;       /* [B, H], with a projection: h' before that, or its gradient */
    factor recurrent; /* R, in forward R^T */
    factor project;   /* Wp, in forward Wp^T, with a projection */
} layer_run;

/* Run all steps. The threads share them. */
#define run_layer ASHLAR_VARIANT(ashlar__run_layer)
void run_layer(layer_run run, const ashlar_rnn_cpu_args *args);

/* A forward pass for which ashlar__rnn_is_step() is true (rnn_prepared.c). */
#define single_step ASHLAR_VARIANT(ashlar__rnn_single_step)
ashlar_rnn_cpu_pass single_step;

/* The passes (rnn_pass.c). */
#define forward_pass ASHLAR_VARIANT(ashlar__rnn_forward)
#define backward_data_pass ASHLAR_VARIANT(ashlar__rnn_backward_data)
#define backward_weights_pass ASHLAR_VARIANT(ashlar__rnn_backward_weights)
ashlar_rnn_cpu_pass forward_pass, backward_data_pass, backward_weights_pass;

#endif /* ASHLAR_RNN_PASS_H */
