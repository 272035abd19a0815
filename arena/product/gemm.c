/* gemm.c - the matrix product's functions, compiled once for each element type (real.h). */
#include <string.h>

#include "allocator/base/check_level.h"
#include "arena/product/blas.h"
#include "arena/product/real.h"

void REAL(ashlar__gemm)(bool trans_a, bool trans_b, size_t m, size_t n, size_t k, const real *a,
                        size_t lda, const real *b, size_t ldb, bool adds, real *c, size_t ldc) {
    const ashlar_gemm_args product = {.trans_a = trans_a,
                                      .trans_b = trans_b,
                                      .m = m,
                                      .n = n,
                                      .k = k,
                                      .a = a,
                                      .lda = lda,
                                      .b = b,
                                      .ldb = ldb,
                                      .adds = adds,
                                      .c = c,
                                      .ldc = ldc};
    for (size_t i = 0; !adds && k == 0 && i < m; i++) {
        memset(c + i * ldc, 0, n * sizeof *c);
    }
    ashlar__blas_compute(&product, ashlar__blas_best()->ASHLAR_TYPE);
}

void REAL(ashlar__gemm_panels)(size_t m, size_t n, size_t k, const real *a, size_t lda,
                               const real *panels, bool adds, real *c, size_t ldc) {
    const ashlar_gemm_args product = {.m = m,
                                      .n = n,
                                      .k = k,
                                      .a = a,
                                      .lda = lda,
                                      .panels = panels,
                                      .adds = adds,
                                      .c = c,
                                      .ldc = ldc};
    ASHLAR_ASSERT(k > 0);
    ashlar__blas_compute(&product, ashlar__blas_best()->ASHLAR_TYPE);
}
