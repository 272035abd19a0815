/* blas.h - the matrix product: its calls, and its kernels for each instruction set (internal).
 * On one machine the same call gives the same bits every time, with any number of threads: each
 * element of the result is computed by itself, in one order. Processors with and without fused
 * multiplication get different bits. */
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

/* The same with op(b) already packed into panels (panel.h) for this processor's best instruction
 * set, k * PANEL elements from one panel to the next. If m > 3 the result has the bits of the call
 * above; with fewer rows that call sums in another order. k > 0. */
void ashlar__gemm_panels_f32(size_t m, size_t n, size_t k, const float *a, size_t lda,
                             const float *panels, bool adds, float *c, size_t ldc);
void ashlar__gemm_panels_f64(size_t m, size_t n, size_t k, const double *a, size_t lda,
                             const double *panels, bool adds, double *c, size_t ldc);

/* c = or += op(a) * op(b), as in blas.h; elements are of the kernel's type. k > 0. */
typedef struct ashlar_gemm_args {
    bool trans_a, trans_b;
    size_t m, n, k;
    const void *a;
    size_t lda;
    const void *b;
    size_t ldb;
    const void *panels; /* op(b) in panels of k rows each (panel.h); NULL: b is read */
    bool adds;
    void *c;
    size_t ldc;
} ashlar_gemm_args;

/* A tile: rows row .. row_end - 1 and columns column .. column_end - 1 of c. */
typedef struct ashlar_gemm_tile {
    size_t row, row_end;
    size_t column, column_end;
} ashlar_gemm_tile;

/* The memory that each thread keeps (threads.h) to pack factors into, since callers' stacks may be
 * small. PAD: further bytes, to align it. */
enum { ASHLAR_PRODUCT_BYTES = 448 * 1024, ASHLAR_PRODUCT_PAD = 64 };

/* Compute one tile. An element of c has the same bits no matter which tile it lies in. Takes less
 * than 64 KiB of stack. */
typedef void ashlar_gemm_kernel(const ashlar_gemm_args *product, const ashlar_gemm_tile *tile);

/* The kernels for each instruction set (meson.build). Those without fused multiply-add round each
 * product, so their results differ in the last bits. */
ashlar_gemm_kernel ashlar__gemm_kernel_f32_baseline, ashlar__gemm_kernel_f64_baseline;
ashlar_gemm_kernel ashlar__gemm_kernel_f32_avx2, ashlar__gemm_kernel_f64_avx2;
ashlar_gemm_kernel ashlar__gemm_kernel_f32_avx512;
ashlar_gemm_kernel ashlar__gemm_kernel_f32_neon, ashlar__gemm_kernel_f64_neon;

typedef struct ashlar_gemm_kernels {
    const char *name;
    ashlar_gemm_kernel *f32, *f64;
} ashlar_gemm_kernels;

/* The kernels of the best instruction set that this processor can run. */
const ashlar_gemm_kernels *ashlar__blas_best(void);

/* How many threads a product [m, k] x [k, n] is worth: at least 1. */
size_t ashlar__blas_pieces(size_t m, size_t n, size_t k);

/* Compute a product, cut into tiles for the workers. Any of m, n and k may be 0. */
void ashlar__blas_compute(const ashlar_gemm_args *p, ashlar_gemm_kernel *function);

/* The sizes of all tiles but the last in each direction are multiples of these, so that row blocks
 * and panels (panel.h) stay whole. */
enum { ASHLAR_ROW_UNIT = 12, ASHLAR_COLUMN_UNIT = 32 };

static inline size_t ashlar__blas_units(size_t count, size_t unit) {
    return (count + unit - 1) / unit;
}

/* The row or column, of `count`, at which tile i of `pieces` begins: a multiple of `unit`. */
static inline size_t ashlar__blas_edge(size_t count, size_t unit, size_t pieces, size_t i) {
    const size_t at = ashlar__blas_units(count, unit) * i / pieces * unit;
    return at < count ? at : count;
}

#endif /* ASHLAR_BLAS_H */
