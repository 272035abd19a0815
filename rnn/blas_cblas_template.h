/*
 * blas_cblas_template.h - the matrix product by cblas for one element type (internal).
 *
 * blas_cblas.c includes it once per type, after defining real (the type), REAL(name) (the name
 * with the type's suffix) and CBLAS(name) (cblas's name for it). It therefore has no include
 * guard and does not compile alone.
 */

/*
 * One row of c is a matrix-vector product, which OpenBLAS has faster: gemm would copy the whole
 * of b into its own order to use it once. Row-major b [k, n] times a row is b^T times a vector.
 * Two differences of gemv are made up for: with k == 0 it may leave c unscaled, and with
 * beta == 0 some versions read c.
 */
void REAL(ashlar_gemm)(bool trans_a, bool trans_b, size_t m, size_t n, size_t k, real alpha,
                       const real *a, size_t lda, const real *b, size_t ldb, real beta, real *c,
                       size_t ldc) {
    ASHLAR_ASSERT(ashlar_gemm_fits(m, n, k));
    if (m == 0 || n == 0) {
        return;
    }
    if (m == 1 && k > 0) {
        if (beta == 0) {
            memset(c, 0, n * sizeof *c);
        }
        CBLAS(gemv)(CblasRowMajor, transposed(!trans_b), (blasint)(trans_b ? n : k),
                    (blasint)(trans_b ? k : n), alpha, b, leading(ldb), a,
                    trans_a ? leading(lda) : 1, beta, c, 1);
        return;
    }
    CBLAS(gemm)(CblasRowMajor, transposed(trans_a), transposed(trans_b), (blasint)m, (blasint)n,
                (blasint)k, alpha, a, leading(lda), b, leading(ldb), beta, c, leading(ldc));
}
