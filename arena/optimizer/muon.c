/* muon.c - MUON's matrices on the CPU: Newton-Schulz iterations on each, and how many at once. */
#include "arena/compute/workers.h"
#include "arena/optimizer/optimizer_impl.h"
#include "arena/product/blas.h"

/* Matrices of one shape, each with its own room for products. */
typedef struct batch {
    const ashlar_optimizer_job *job;
    const ashlar_optimizer_kernels *kernels;
    const ashlar_optimizer_matrix *matrices;
    char *products;
} batch;

/* The arguments of ashlar_optimizer_mix_fn, for elements that the workers share. */
typedef struct mixing {
    const batch *batch;
    char *values;
    const char *products;
    double keep, scale;
} mixing;

static ashlar_dtype type_of(const batch *b) {
    return b->matrices->is_wide ? ASHLAR_F64 : ASHLAR_F32;
}

static void mix_some(void *context, size_t first, size_t end) {
    const mixing *m = context;
    const size_t at = first * ashlar_dtype_bytes(type_of(m->batch));
    m->batch->kernels->mix[type_of(m->batch)](m->values + at,
                                              m->products == NULL ? NULL : m->products + at,
                                              m->keep, m->scale, end - first);
}

static void mix(const batch *b, void *values, const void *products, double keep, double scale,
                size_t count) {
    enum { LEAST = 32768 /* elements that are worth waking a thread for */ };
    mixing m = {b, values, products, keep, scale};
    ashlar__workers_share(count, LEAST, mix_some, &m);
}

static void divide(const batch *b, void *values, double divisor, size_t count) {
    mix(b, values, NULL, 0, divisor, count);
}

/* c = op(x) op(y), without padding between rows. */
static void multiply(const batch *b, bool trans_x, bool trans_y, size_t m, size_t n, size_t k,
                     const void *x, const void *y, void *c) {
    const size_t ldx = trans_x ? m : k, ldy = trans_y ? k : n;
    if (b->matrices->is_wide) {
        ashlar__gemm_f64(trans_x, trans_y, m, n, k, x, ldx, y, ldy, false, c, n);
    } else {
        ashlar__gemm_f32(trans_x, trans_y, m, n, k, x, ldx, y, ldy, false, c, n);
    }
}

/* x = (a + b y + c y^2) x, with y = x x^T; or if x has more rows than columns, with y = x^T x and
 * x (a + b y + c y^2), which is the same. The sums of y's element (i, j) are those of (j, i), so y
 * is symmetric to the last bit, and so is its polynomial. */
static void iterate(const batch *b, void *x, void *product, void *y) {
    const size_t rows = b->matrices->rows, columns = b->matrices->columns;
    const size_t side = rows <= columns ? rows : columns;
    const bool is_tall = side < rows;
    const double *ns = b->job->rule.config.ns;
    multiply(b, is_tall, !is_tall, side, side, rows + columns - side, x, x, y);
    divide(b, y, 1, side * side);
    multiply(b, false, false, side, side, side, y, y, product);
    mix(b, y, product, ns[1], ns[2], side * side);
    multiply(b, false, false, rows, columns, side, is_tall ? x : y, is_tall ? y : x, product);
    mix(b, x, product, ns[0], 1, rows * columns);
}

static void orthogonalize(void *context, size_t i) {
    const batch *b = context;
    const ashlar_optimizer_matrix *matrix = &b->matrices[i];
    const ashlar_optimizer_run *run = ashlar__formula_matrix(b->job, matrix);
    const size_t count = matrix->rows * matrix->columns;
    char *product = b->products + i * ashlar__muon_products_bytes(matrix);
    if (run == NULL) {
        return;
    }
    void *const x = ashlar__formula_staged(b->job, run->moment2, 1);
    const double sum = b->kernels->sum[type_of(b)](x, count);
    divide(b, x, ashlar__formula_muon_norm(&b->job->rule.config, sum), count);
    for (uint32_t step = 0; step < b->job->rule.config.ns_steps; step++) {
        iterate(b, x, product, product + count * ashlar_dtype_bytes(type_of(b)));
    }
}

/* The workers share the matrices or, if that would leave some of them idle, each product. */
static void run_batch(batch *b, size_t count) {
    const size_t rows = b->matrices->rows, columns = b->matrices->columns;
    const size_t side = rows < columns ? rows : columns;
    if (count >= ashlar__blas_pieces(side, side, rows + columns - side)) {
        ashlar__workers_run(count, orthogonalize, b);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        orthogonalize(b, i);
    }
}

void ashlar__muon_run(const ashlar_optimizer_job *job, const ashlar_optimizer_kernels *kernels) {
    for (size_t at = 0, count; at < job->matrix_count; at += count) {
        batch b = {.job = job,
                   .kernels = kernels,
                   .matrices = &job->matrices[at],
                   .products = job->products};
        count = ashlar__muon_batch(job->matrices, job->matrix_count, at);
        run_batch(&b, count);
    }
}
