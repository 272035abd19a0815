/*
 * blas_cblas.c - the matrix product by OpenBLAS.
 */
#include "blas.h"

#include <cblas.h>
#include <limits.h>
#include <string.h>

#include "check_level.h"

/* OpenBLAS may be built with 64-bit integers; we ask of it no more than 32. */
static const size_t DIMENSION_MAX = INT_MAX;

bool ashlar_gemm_fits(size_t m, size_t n, size_t k) {
    return m <= DIMENSION_MAX && n <= DIMENSION_MAX && k <= DIMENSION_MAX;
}

/* cblas refuses a leading dimension of 0, which an empty matrix has. */
static blasint leading(size_t ld) {
    ASHLAR_ASSERT(ld <= DIMENSION_MAX);
    return ld == 0 ? 1 : (blasint)ld;
}

static CBLAS_TRANSPOSE transposed(bool trans) {
    return trans ? CblasTrans : CblasNoTrans;
}

/*
 * One row of c is a matrix-vector product, which OpenBLAS has faster: gemm would copy the whole
 * of b into its own order to use it once. Row-major b [k, n] times a row is b^T times a vector.
 * Two differences of gemv are made up for: with k == 0 it may leave c unscaled, and with
 * beta == 0 some versions read c.
 */
void ashlar_gemm_f32(bool trans_a, bool trans_b, size_t m, size_t n, size_t k, float alpha,
                     const float *a, size_t lda, const float *b, size_t ldb, float beta, float *c,
                     size_t ldc) {
    ASHLAR_ASSERT(ashlar_gemm_fits(m, n, k));
    if (m == 0 || n == 0) {
        return;
    }
    if (m == 1 && k > 0) {
        if (beta == 0) {
            memset(c, 0, n * sizeof *c);
        }
        cblas_sgemv(CblasRowMajor, transposed(!trans_b), (blasint)(trans_b ? n : k),
                    (blasint)(trans_b ? k : n), alpha, b, leading(ldb), a,
                    trans_a ? leading(lda) : 1, beta, c, 1);
        return;
    }
    cblas_sgemm(CblasRowMajor, transposed(trans_a), transposed(trans_b), (blasint)m, (blasint)n,
                (blasint)k, alpha, a, leading(lda), b, leading(ldb), beta, c, leading(ldc));
}

void ashlar_gemm_f64(bool trans_a, bool trans_b, size_t m, size_t n, size_t k, double alpha,
                     const double *a, size_t lda, const double *b, size_t ldb, double beta,
                     double *c, size_t ldc) {
    ASHLAR_ASSERT(ashlar_gemm_fits(m, n, k));
    if (m == 0 || n == 0) {
        return;
    }
    if (m == 1 && k > 0) {
        if (beta == 0) {
            memset(c, 0, n * sizeof *c);
        }
        cblas_dgemv(CblasRowMajor, transposed(!trans_b), (blasint)(trans_b ? n : k),
                    (blasint)(trans_b ? k : n), alpha, b, leading(ldb), a,
                    trans_a ? leading(lda) : 1, beta, c, 1);
        return;
    }
    cblas_dgemm(CblasRowMajor, transposed(trans_a), transposed(trans_b), (blasint)m, (blasint)n,
                (blasint)k, alpha, a, leading(lda), b, leading(ldb), beta, c, leading(ldc));
}

const char *ashlar_blas_name(void) {
    return openblas_get_config();
}

void ashlar_blas_set_threads(int n) {
    ASHLAR_ASSERT(n >= 1);
    openblas_set_num_threads(n);
}

int ashlar_blas_threads(void) {
    return openblas_get_num_threads();
}
