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

/* mix() or, with `products` NULL, divide(), of elements that the workers share. */
typedef struct rounding {
    const batch *batch;
    char *values;
    const char *products;
    double keep, scale, divisor;
} rounding;

static ashlar_dtype type_of(const batch *b) {
    return b->matrices->is_wide ? ASHLAR_F64 : ASHLAR_F32;
}

static void round_some(void *context, size_t first, size_t end) {
    const rounding *r = context;
    const ashlar_dtype dtype = type_of(r->batch);
    const size_t at = first * ashlar_dtype_bytes(dtype);
    if (r->products == NULL) {
        r->batch->kernels->divide[dtype](r->values + at, r->divisor, end - first);
    } else {
        r->batch->kernels->mix[dtype](r->values + at, r->products + at, r->keep, r->scale,
                                      end - first);
    }
}

enum { LEAST = 32768 /* elements that are worth waking a thread for */ };

static void divide(const batch *b, void *values, double divisor, size_t count) {
    rounding r = {.batch = b, .values = values, .divisor = divisor};
    ashlar__workers_share(count, LEAST, round_some, &r);
}

static void mix(const batch *b, void *values, const void *products, double keep, double scale,
                size_t count) {
    rounding r = {.batch = b, .values = values, .products = products, .keep = keep, .scale = scale};
    ashlar__workers_share(count, LEAST, round_some, &r);
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
    const double *ns = b->job->rule.config.ns;
    if (rows <= columns) {
        multiply(b, false, true, rows, rows, columns, x, x, y);
        divide(b, y, 1, rows * rows);
        multiply(b, false, false, rows, rows, rows, y, y, product);
        mix(b, y, product, ns[1], ns[2], rows * rows);
        multiply(b, false, false, rows, columns, rows, y, x, product);
    } else {
        multiply(b, true, false, columns, columns, rows, x, x, y);
        divide(b, y, 1, columns * columns);
        multiply(b, false, false, columns, columns, columns, y, y, product);
        mix(b, y, product, ns[1], ns[2], columns * columns);
        multiply(b, false, false, rows, columns, columns, x, y, product);
    }
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
    const double sum = b->kernels->sum[type_of(b)](run->moment2, count);
    divide(b, run->moment2, ashlar__formula_muon_norm(&b->job->rule.config, sum), count);
    for (uint32_t step = 0; step < b->job->rule.config.ns_steps; step++) {
        iterate(b, run->moment2, product, product + count * ashlar_dtype_bytes(type_of(b)));
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
