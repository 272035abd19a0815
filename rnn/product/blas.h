/* blas.h - the matrix product (internal). On one machine the same call gives the same bits every
 * time, with any number of threads: each element of the result is computed by itself, in one order.
 * Processors with and without fused multiplication get different bits. */
#ifndef ASHLAR_BLAS_H
#define ASHLAR_BLAS_H

#include <stdbool.h>
#include <stddef.h>

/* c = op(a) * op(b), or c += if `adds`, all row-major; op(x) is x transposed if trans_x is true.
 *
 * op(a) is [m, k], op(b) is [k, n], c is [m, n]; ld* is the distance between the rows of a matrix
 * as it is stored, at least their length. Any dimension may be 0; with k == 0 the product is
 * zero. c must not overlap a or b. If it is not added to, c may hold anything before, NaN too.
 *
 * Row i of c depends on no row of op(a) but row i, so a NaN in one row does not spread to others.
 * Threads: any, on distinct c. A large product is shared by the workers (workers.h). It takes
 * less than 64 KiB of stack. */
void ashlar__gemm_f32(bool trans_a, bool trans_b, size_t m, size_t n, size_t k, const float *a,
                      size_t lda, const float *b, size_t ldb, bool adds, float *c, size_t ldc);
void ashlar__gemm_f64(bool trans_a, bool trans_b, size_t m, size_t n, size_t k, const double *a,
                      size_t lda, const double *b, size_t ldb, bool adds, double *c, size_t ldc);

/* The same with op(b) in panels already, as the kernel of this processor's best set reads it:
 * panel.h, k * PANEL elements from one panel to the next. It has the bits of the call above with
 * the same factors where m > 3; below that the call above sums in another order. k > 0. */
void ashlar__gemm_panels_f32(size_t m, size_t n, size_t k, const float *a, size_t lda,
                             const float *panels, bool adds, float *c, size_t ldc);
void ashlar__gemm_panels_f64(size_t m, size_t n, size_t k, const double *a, size_t lda,
                             const double *panels, bool adds, double *c, size_t ldc);

/* The name of the implementation, for reports ("built-in, AVX2 and FMA"). Never NULL. */
const char *ashlar__blas_name(void);

/* Set and get the number of the workers' threads (workers.h); n >= 1, capped at the maximum. */
void ashlar__blas_set_threads(int n);
int ashlar__blas_threads(void);

#endif /* ASHLAR_BLAS_H */
