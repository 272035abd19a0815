/*
 * blas_builtin_template.h - the built-in matrix product for one element type (internal).
 *
 * blas_builtin.c includes it once per type, after defining real (the type) and REAL(name) (the
 * name with the type's suffix). It therefore has no include guard and does not compile alone.
 *
 * Blocks of op(b) are copied to the stack, row-major, BLOCK_K x BLOCK_N: whatever the transposes,
 * the inner loop then runs over contiguous columns of the copy and of c, and the copy stays in
 * the cache while every row of op(a) passes over it.
 */

/* Copy op(b)[k0 .. k0+depth) [n0 .. n0+width) into block. */
static void REAL(pack_block)(bool trans, const real *b, size_t ldb, size_t k0, size_t depth,
                             size_t n0, size_t width, real block[BLOCK_K][BLOCK_N]) {
    for (size_t p = 0; p < depth; p++) {
        for (size_t j = 0; j < width; j++) {
            block[p][j] = trans ? b[(n0 + j) * ldb + k0 + p] : b[(k0 + p) * ldb + n0 + j];
        }
    }
}

/* c[0 .. width) += alpha * (one row of op(a), `stride` between its elements) * block. */
static void REAL(add_row)(const real *a, size_t stride, real alpha, size_t depth, size_t width,
                          real block[BLOCK_K][BLOCK_N], real *restrict c) {
    for (size_t p = 0; p < depth; p++) {
        const real factor = alpha * a[p * stride];
        for (size_t j = 0; j < width; j++) {
            c[j] += factor * block[p][j];
        }
    }
}

static void REAL(scale_matrix)(size_t m, size_t n, real beta, real *c, size_t ldc) {
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
        }
    }
}

void REAL(ashlar_gemm)(bool trans_a, bool trans_b, size_t m, size_t n, size_t k, real alpha,
                       const real *a, size_t lda, const real *b, size_t ldb, real beta, real *c,
                       size_t ldc) {
    real block[BLOCK_K][BLOCK_N];
    const size_t row_stride = trans_a ? 1 : lda;
    const size_t col_stride = trans_a ? lda : 1;
    REAL(scale_matrix)(m, n, beta, c, ldc);
    for (size_t n0 = 0; n0 < n; n0 += BLOCK_N) {
        const size_t width = n - n0 < BLOCK_N ? n - n0 : BLOCK_N;
        for (size_t k0 = 0; k0 < k; k0 += BLOCK_K) {
            const size_t depth = k - k0 < BLOCK_K ? k - k0 : BLOCK_K;
            REAL(pack_block)(trans_b, b, ldb, k0, depth, n0, width, block);
            for (size_t i = 0; i < m; i++) {
                REAL(add_row)(a + i * row_stride + k0 * col_stride, col_stride, alpha, depth,
                              width, block, c + i * ldc + n0);
            }
        }
    }
}
