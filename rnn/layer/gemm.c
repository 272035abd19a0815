/* gemm.c - the matrix product as a whole, for the element type that meson.build compiles this file
 * for (real.h). */
#include "rnn/layer/blas_impl.h"
#include "rnn/layer/real.h"

static void scale_matrix(size_t m, size_t n, real beta, real *c, size_t ldc) {
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
        }
    }
}

void REAL(ashlar__gemm)(bool trans_a, bool trans_b, size_t m, size_t n, size_t k, real alpha,
                       const real *a, size_t lda, const real *b, size_t ldb, real beta, real *c,
                       size_t ldc) {
    const bool overwrites = beta == 0 && k > 0;
    const ashlar_gemm_args product = {
        .trans_a = trans_a,
        .trans_b = trans_b,
        .m = m,
        .n = n,
        .k = k,
        .scale = (double)alpha,
        .a = a,
        .lda = lda,
        .b = b,
        .ldb = ldb,
        .adds = !overwrites,
        .c = c,
        .ldc = ldc,
    };
    if (!overwrites && beta != 1) {
        scale_matrix(m, n, beta, c, ldc);
    }
    ashlar__blas_compute(&product, ashlar__blas_best()->ASHLAR_TYPE);
}
