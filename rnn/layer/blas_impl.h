/*
 * blas_impl.h - a matrix product as one, and who computes pieces of it (internal).
 */
#ifndef ASHLAR_BLAS_IMPL_H
#define ASHLAR_BLAS_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rnn/layer/blas.h"

/* c = or += scale * op(a) * op(b), as in blas.h; the elements are of the tile's type. k > 0. */
typedef struct ashlar_gemm_args {
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
} ashlar_gemm_args;

/* Rows and columns of c. */
typedef struct ashlar_gemm_tile {
    size_t row, row_end;
    size_t column, column_end;
} ashlar_gemm_tile;

/*
 * Compute one tile. An element of c has the same bits whatever the tile. Takes less
 * than half a MiB of stack.
 */
typedef void ashlar_gemm_kernel(const ashlar_gemm_args *product, const ashlar_gemm_tile *tile);

/*
 * Compiled for several sets of instructions (meson.build). Those without fused multiplication
 * round each product, and so get other bits.
 */
ashlar_gemm_kernel ashlar__gemm_kernel_f32_baseline, ashlar__gemm_kernel_f64_baseline;
ashlar_gemm_kernel ashlar__gemm_kernel_f32_avx2, ashlar__gemm_kernel_f64_avx2;

typedef struct ashlar_gemm_kernels {
    const char *name;
    ashlar_gemm_kernel *f32, *f64;
} ashlar_gemm_kernels;

/* The best that this processor runs. */
const ashlar_gemm_kernels *ashlar__blas_best(void);

/* Compute a product, cut into pieces for the workers. Any of m, n and k may be 0. */
void ashlar__blas_compute(const ashlar_gemm_args *p, ashlar_gemm_kernel *function);

/*
 * For benchmarks: nanoseconds that threads have spent in products since the clock was started, of
 * all together. Products outside blas.c stand between _begin and _end.
 */
void ashlar__blas_clock_start(bool runs);
uint64_t ashlar__blas_clock_ns(void);
uint64_t ashlar__blas_clock_begin(void); /* 0: the clock does not run */
void ashlar__blas_clock_end(uint64_t begin);

#endif /* ASHLAR_BLAS_IMPL_H */
