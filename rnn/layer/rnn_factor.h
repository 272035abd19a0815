/*
 * rnn_factor.h - the products of each step with a matrix of the weights, and how a pseudo-layer's
 * steps are shared by threads (internal; compiled for each element type and instruction set, see
 * real.h).
 *
 * A pass needs R (and Wp) in each step, so it packs them once. Threads share a pseudo-layer in one
 * of two ways, with the same results to the last bit:
 *
 *     shards    strand w has the sequences w, w + shards, ..; sequences are independent, so each
 *               strand goes through all steps by itself
 *     pieces    with too few sequences for that, threads share the columns of each step's product
 */
#ifndef ASHLAR_RNN_FACTOR_H
#define ASHLAR_RNN_FACTOR_H

#include "rnn/layer/real.h"
#include "rnn/layer/rnn_rows.h"

/* A right factor op(weights) [depth, columns], with which rows are multiplied. */
typedef struct factor {
    bool trans;
    size_t columns, depth;
    const real *weights;
    size_t ld;
    real *panels; /* NULL: not packed, because there are few steps */
    size_t pieces;
} factor;

/* The rows first, first + stride, .. that are below end. */
typedef struct some_rows {
    size_t first, stride, end;
} some_rows;

static inline size_t count_rows(some_rows rows) {
    return rows.first < rows.end ? (rows.end - rows.first + rows.stride - 1) / rows.stride : 0;
}

#define open_factor ASHLAR_VARIANT(ashlar__open_factor)
#define multiply_some ASHLAR_VARIANT(ashlar__multiply_some)

/* Make a factor of a weight matrix, packed into `panels` if the batch has enough steps. */
factor open_factor(const ashlar_rnn_rows *batch, const real *weights, ashlar_rnn_view view,
                   bool trans, real *panels);

/* c = or += a * f, for these rows of a and c, which lie `lda` and `ldc` elements apart. */
void multiply_some(const factor *f, some_rows rows, const real *a, size_t lda, bool adds, real *c,
                   size_t ldc);

#endif /* ASHLAR_RNN_FACTOR_H */
