/*
 * blas.h - the matrix product, from whichever library the build found (internal).
 *
 * blas_cblas.c calls OpenBLAS; blas_builtin.c needs nothing and is for machines without it. The
 * build compiles exactly one of the two. For one implementation, machine and number of threads
 * the same call gives the same bits every time.
 */
#ifndef ASHLAR_BLAS_H
#define ASHLAR_BLAS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * c = alpha * op(a) * op(b) + beta * c, all row-major; op transposes where trans_ is true.
 *
 * op(a) is [m, k], op(b) is [k, n], c is [m, n]; ld* is the distance between the rows of a matrix
 * as it is stored, at least their length. Any dimension may be 0; with k == 0 the product is
 * zero. c must not overlap a or b. With beta == 0, c is not read: it may hold anything, NaN too.
 *
 * Requires ashlar_gemm_fits(m, n, k) and the same of every ld; asserted, for the caller is ours.
 * Each row of c depends on that row of op(a) only, so a NaN in one row stays in it.
 * Threads: any, on distinct c. The product itself may use ashlar_blas_threads() threads.
 */
void ashlar_gemm_f32(bool trans_a, bool trans_b, size_t m, size_t n, size_t k, float alpha,
                     const float *a, size_t lda, const float *b, size_t ldb, float beta, float *c,
                     size_t ldc);
void ashlar_gemm_f64(bool trans_a, bool trans_b, size_t m, size_t n, size_t k, double alpha,
                     const double *a, size_t lda, const double *b, size_t ldb, double beta,
                     double *c, size_t ldc);

/* Whether the library can count such dimensions: a BLAS of 32-bit int cannot pass 2^31 - 1. */
bool ashlar_gemm_fits(size_t m, size_t n, size_t k);

/* Name and version for reports ("OpenBLAS 0.3.21 ..."). Never NULL. */
const char *ashlar_blas_name(void);

/* Threads of one product, of the whole process. n >= 1; the built-in product always has 1. */
void ashlar_blas_set_threads(int n);
int ashlar_blas_threads(void);

#endif /* ASHLAR_BLAS_H */
