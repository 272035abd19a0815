/*
 * rnn_factor.h - the products of each step with a matrix of the weights, and how a pseudo-layer's
 * steps are shared by threads (internal; compiled for each element type and instruction set, see
 * real.h).
 *
 * A pass reads R (and Wp) again in each step, so it packs them once. Threads share a pseudo-layer
 * in one of two ways, neither of which changes a bit:
 *
 *     shards    strand w has the sequences w, w + shards, ..: they never need each other, so that
 *                each strand goes through all steps by itself
 *     pieces     where sequences are too few for that, columns of each step's product
 */
#ifndef ASHLAR_RNN_FACTOR_H
#define ASHLAR_RNN_FACTOR_H

#include "rnn/layer/real.h"
#include "rnn/layer/rnn_rows.h"

/* op(weights) [depth, columns], to multiply rows with. */
typedef struct factor {
    bool trans;
    size_t columns, depth;
    const real *weights;
    size_t ld;
    real *panels; /* NULL: not packed, for there are few steps */
    size_t pieces;
} factor;

/* Rows first, first + stride, .. below end. */
typedef struct some_rows {
    size_t first, stride, end;
} some_rows;

static inline size_t count_rows(some_rows rows) {
    return rows.first < rows.end ? (rows.end - rows.first + rows.stride - 1) / rows.stride : 0;
}

#define open_factor ASHLAR_VARIANT(ashlar__open_factor)
#define multiply_some ASHLAR_VARIANT(ashlar__multiply_some)

/* op(view) of a pseudo-layer, as the batch's steps need it; `panels` has room for it. */
factor open_factor(const ashlar_rnn_rows *batch, const real *weights, ashlar_rnn_view view,
                   bool trans, real *panels);

/* c = or += a * f for these rows of both, which are `lda` and `ldc` apart. */
void multiply_some(const factor *f, some_rows rows, const real *a, size_t lda, bool adds, real *c,
                   size_t ldc);

#endif /* ASHLAR_RNN_FACTOR_H */
