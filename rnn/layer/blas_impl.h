/*
 * blas_impl.h - a matrix product as one, and who computes pieces of it (internal).
 */
#ifndef ASHLAR_BLAS_IMPL_H
#define ASHLAR_BLAS_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rnn/layer/blas.h"

/* c = or += scale * op(a) * op(b), as in blas.h; the elements are of the piece's type. k > 0. */
typedef struct ashlar_product {
    bool trans_a, trans_b;
    size_t m, n, k;
    double scale;
    const void *a;
    size_t lda;
    const void *b;
    size_t ldb;
    bool adds;
    void *c;
    size_t ldc;
} ashlar_product;

/* Rows and columns of c. */
typedef struct ashlar_piece {
    size_t row, row_end;
    size_t column, column_end;
} ashlar_piece;

/*
 * Compute one piece. An element of c has the same bits whatever the piece. Takes less
 * than half a MiB of stack.
 */
typedef void ashlar_product_function(const ashlar_product *product, const ashlar_piece *piece);

/*
 * Compiled for several sets of instructions (meson.build). Those without fused multiplication
 * round each product, and so get other bits.
 */
ashlar_product_function ashlar_product_f32_baseline, ashlar_product_f64_baseline;
ashlar_product_function ashlar_product_f32_avx2, ashlar_product_f64_avx2;

typedef struct ashlar_blas_set {
    const char *name;
    ashlar_product_function *f32, *f64;
} ashlar_blas_set;

/* The best that this processor runs (blas_x86.c or blas_any.c). */
const ashlar_blas_set *ashlar_blas_best(void);

/*
 * For benchmarks: nanoseconds that threads have spent in products since the clock was started, of
 * all together. Products outside blas.c stand between _begin and _end.
 */
void ashlar_blas_clock_start(bool runs);
uint64_t ashlar_blas_clock_ns(void);
uint64_t ashlar_blas_clock_begin(void); /* 0: the clock does not run */
void ashlar_blas_clock_end(uint64_t begin);

#endif /* ASHLAR_BLAS_IMPL_H */
