/* rnn_factor.h - the products of each step with a matrix of the weights, and how a pseudo-layer's
 * steps are shared by threads (internal; compiled for each element type and instruction set, see
 * real.h).
 *
 * A pass needs R (and Wp) in each step, so it packs them once, or gets them prepared. Threads share
 * a pseudo-layer in one of two ways, with the same results to the last bit:
 *
 *     shards    strand w has the sequences w, w + shards, ..; sequences are independent, so each
 *               strand goes through all steps by itself
 *     pieces    with too few sequences for that, threads share the columns of each step's product,
 *               if they can the same units of every gate, and behind it these units' cell
 */
#ifndef ASHLAR_RNN_FACTOR_H
#define ASHLAR_RNN_FACTOR_H

#include "rnn/layer/cell_step.h"
#include "rnn/layer/rnn_part.h"

/* A right factor op(weights) [depth, columns], with which rows are multiplied. */
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
    /* `step` has what forward and backward both need; its output is h' after the step. */
    void (*run_step)(const struct layer_run *run, cell_step step, some_rows rows, size_t t);
    const real *bias; /* [K], forward */
    const real *dy;   /* backward: this pseudo-layer's columns of [N, D*P] */
    real *dh;         /* [B, P] gradient of h: in, of the last states; out, of the first states */
    real *dc;         /* [B, H] gradient of c, likewise */
    /* the rest is set by run_layer() */
    real *sums;       /* [B, G*H] */
    real *full;       /* [B, H], with a projection */
    factor recurrent; /* R, in forward R^T */
    factor project;   /* Wp, in forward Wp^T, with a projection */
} layer_run;

/* A product of step t: c = or += a * f, for the given rows of a and c, which lie `lda` and `ldc`
 * elements apart. */
typedef struct step_product {
    const factor *f;
    size_t t;
    some_rows rows;
    const real *a;
    size_t lda;
    bool adds;
    real *c;
    size_t ldc;
} step_product;

#define run_layer ASHLAR_VARIANT(ashlar__run_layer)
#define multiply_step ASHLAR_VARIANT(ashlar__multiply_step)
#define multiply_packed ASHLAR_VARIANT(ashlar__multiply_packed)
#define run_cell ASHLAR_VARIANT(ashlar__run_cell)
#define multiply_and_run_cell ASHLAR_VARIANT(ashlar__multiply_and_run_cell)

/* Run all steps, shared by the threads. */
void run_layer(layer_run run, const ashlar_rnn_cpu_args *args);

/* Every other step takes the columns backwards: it begins with what the cache has of the factor. */
void multiply_step(const step_product *p);

/* c [count, columns] = or += a [count, depth] times a factor in panels, depth * PANEL elements
 * each. depth must be > 0. backwards: from the last columns on, where there is one row. */
void multiply_packed(size_t count, size_t columns, size_t depth, const real *a, size_t lda,
                     const real *panels, bool adds, real *c, size_t ldc, bool backwards);

/* Run the cell's part of a step (cell_step.h) on the given rows. Threads share it as they share the
 * step's product. */
void run_cell(const layer_run *run, cell_function *function, const cell_step *step, some_rows rows);

/* Multiply with R, and run a forward function of a cell on the same rows. */
void multiply_and_run_cell(const layer_run *run, const step_product *p, cell_function *function,
                           const cell_step *step);

#endif /* ASHLAR_RNN_FACTOR_H */
