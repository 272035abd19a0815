/* blas.c - cuts a matrix product into tiles, which the workers share; chooses the kernels for the
 * best instruction set of the processor. */
#include "arena/product/blas.h"

#include <ashlar/model.h>

#include "allocator/base/check_level.h"
#include "arena/compute/element.h"
#include "arena/compute/workers.h"

#define NAME_baseline "built-in"
#define NAME_avx2 "built-in, AVX2 and FMA"
#define NAME_avx512 "built-in, AVX-512"
#define NAME_neon "built-in, NEON"

const ashlar_gemm_kernels *ashlar__blas_best(void) {
#define ROW(set) \
    {NAME_##set, ashlar__gemm_kernel_f32_##set, ASHLAR_F64_NAME(ashlar__gemm_kernel_f64_, set)},
    static const ashlar_gemm_kernels sets[] = {ASHLAR_SETS(ROW)};
    return &sets[ashlar__best_set()];
}

/* A product whose c is cut into `rows` x `columns` tiles. */
typedef struct tiling {
    const ashlar_gemm_args *product;
    ashlar_gemm_kernel *compute;
    size_t rows, columns;
} tiling;

static void compute_one(void *context, size_t i) {
    const tiling *const c = context;
    const ashlar_gemm_args *const p = c->product;
    const size_t row = i / c->columns, column = i % c->columns;
    const ashlar_gemm_tile tile = {
        .row = ashlar__blas_edge(p->m, ASHLAR_ROW_UNIT, c->rows, row),
        .row_end = ashlar__blas_edge(p->m, ASHLAR_ROW_UNIT, c->rows, row + 1),
        .column = ashlar__blas_edge(p->n, ASHLAR_COLUMN_UNIT, c->columns, column),
        .column_end = ashlar__blas_edge(p->n, ASHLAR_COLUMN_UNIT, c->columns, column + 1),
    };
    c->compute(p, &tile);
}

static size_t min_of(size_t a, size_t b) {
    return a < b ? a : b;
}

/* The multiplications in about 25 us of work, which is worth waking a thread for. */
static const size_t PIECE_PRODUCTS = (size_t)1 << 20;

size_t ashlar__blas_pieces(size_t m, size_t n, size_t k) {
    const size_t worth = m * n / PIECE_PRODUCTS * k + m * n % PIECE_PRODUCTS * k / PIECE_PRODUCTS;
    return worth < 2 ? 1 : min_of(worth, ashlar__workers_count());
}

/* A tile packs its columns of b and, if a is stored transposed, copies its rows of a. So cut c in
 * the direction in which no tile packs what another one does, too, and in the other direction only
 * if that gives too few tiles. */
static tiling make_tiling(const ashlar_gemm_args *p, ashlar_gemm_kernel *compute) {
    const size_t pieces = ashlar__blas_pieces(p->m, p->n, p->k);
    const size_t rows = ashlar__blas_units(p->m, ASHLAR_ROW_UNIT);
    const size_t columns = ashlar__blas_units(p->n, ASHLAR_COLUMN_UNIT);
    tiling c = {.product = p, .compute = compute};
    if (p->trans_a) {
        c.rows = min_of(pieces, rows);
        c.columns = min_of(pieces / c.rows, columns);
    } else {
        c.columns = min_of(pieces, columns);
        c.rows = min_of(pieces / c.columns, rows);
    }
    return c;
}

void ashlar__blas_compute(const ashlar_gemm_args *p, ashlar_gemm_kernel *function) {
    if (p->m > 0 && p->n > 0 && p->k > 0) {
        tiling c = make_tiling(p, function);
        ashlar__workers_run(c.rows * c.columns, compute_one, &c);
    }
}

ashlar_cpu_info ashlar_cpu_get_info(void) {
    return (ashlar_cpu_info){.threads = ashlar__workers_count(),
                             .products = ashlar__blas_best()->name};
}
