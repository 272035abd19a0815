/* optimizer_muon.cuh - what a block of threads does for MUON's matrices in ASHLAR_REAL, f32 or f64
 * (internal; CUDA C). No include guard: optimizer_cuda.cu includes it for each. A matrix x changes
 * between two places from step to step: second moments, where the last step leaves it, and the
 * first rows * columns elements of the room for its products. Products are summed in the order of
 * arena/product, so that they have the CPU's bits: those of two bf16 values are exact. */
#include "arena/compute/element.h"
#include "arena/optimizer/optimizer_impl.h"

enum {
    ASHLAR_NAME(muon_deep) = 16,   /* columns of a factor that lie in shared memory */
    ASHLAR_NAME(muon_depth) = 256, /* DEPTH of panel.h: so many products are one partial sum */
    ASHLAR_NAME(muon_each) = 4,    /* rows, and columns, of a tile that a thread sums up */
    ASHLAR_NAME(muon_across) = ASHLAR_MUON_TILE / ASHLAR_NAME(muon_each),
};

/* c = keep base + scale a b, rounded. Element (i, j) of a is a[i * a_row + j * a_column]. */
typedef struct ASHLAR_NAME(muon_args) {
    const ASHLAR_REAL *a, *b, *base; /* [m, k], [k, n]; [m, n] like c, or NULL: 0 */
    size_t a_row, a_column, b_row, b_column;
    size_t m, n, k;
    ASHLAR_REAL keep, scale;
    ASHLAR_REAL *c;
} ASHLAR_NAME(muon_args);

/* Where x is before step `step`. */
static __device__ ASHLAR_REAL *ASHLAR_NAME(muon_x)(const ashlar_optimizer_job *job,
                                                   const ashlar_optimizer_run *run, void *room,
                                                   unsigned step) {
    return (ASHLAR_REAL *)((job->rule.config.ns_steps - step) % 2 == 0
                               ? ashlar__formula_staged(job, run->moment2, 1)
                               : room);
}

/* The product of the job's step for a matrix. */
static __device__ void ASHLAR_NAME(muon_describe)(const ashlar_optimizer_job *job,
                                                  const ashlar_optimizer_matrix *matrix,
                                                  const ashlar_optimizer_run *run, void *room,
                                                  ASHLAR_NAME(muon_args) * p) {
    const size_t rows = matrix->rows, columns = matrix->columns;
    const bool is_wide = rows <= columns;
    const size_t side = is_wide ? rows : columns;
    ASHLAR_REAL *y = (ASHLAR_REAL *)room + rows * columns, *polynomial = y + side * side;
    const ASHLAR_REAL *x = ASHLAR_NAME(muon_x)(job, run, room, job->ns_step);
    const double *ns = job->rule.config.ns;
    p->m = p->n = p->k = p->a_row = p->b_row = side;
    p->a_column = p->b_column = 1;
    p->a = p->b = p->base = y;
    p->keep = (ASHLAR_REAL)ns[1];
    p->scale = (ASHLAR_REAL)ns[2];
    p->c = polynomial;
    if (job->ns_product == ASHLAR_MUON_GRAM) {
        p->k = rows + columns - side;
        p->a = p->b = x;
        p->a_row = p->b_column = is_wide ? columns : 1;
        p->a_column = p->b_row = is_wide ? 1 : columns;
        p->base = NULL;
        p->scale = 1;
        p->c = y;
    } else if (job->ns_product == ASHLAR_MUON_NEXT) {
        p->m = rows;
        p->n = columns;
        p->a = is_wide ? polynomial : x;
        p->a_row = is_wide ? side : columns;
        p->b = is_wide ? x : polynomial;
        p->b_row = is_wide ? columns : side;
        p->base = x;
        p->keep = (ASHLAR_REAL)ns[0];
        p->scale = 1;
        p->c = ASHLAR_NAME(muon_x)(job, run, room, job->ns_step + 1);
    }
}

/* Copy columns k .. of a tile's rows of a, and rows k .. of its columns of b, to shared memory,
 * with zeros beyond the end; threads that follow each other read what follows in memory. */
static __device__ void ASHLAR_NAME(muon_take)(const ASHLAR_NAME(muon_args) * p, size_t row,
                                              size_t column, size_t k,
                                              ASHLAR_REAL (*a)[ASHLAR_MUON_PITCH],
                                              ASHLAR_REAL (*b)[ASHLAR_MUON_PITCH]) {
    const unsigned deep = ASHLAR_NAME(muon_deep);
    for (unsigned e = threadIdx.x; e < deep * ASHLAR_MUON_TILE; e += ASHLAR_MUON_THREADS) {
        const unsigned across = e % ASHLAR_MUON_TILE, down = e / ASHLAR_MUON_TILE;
        const unsigned ai = p->a_column == 1 ? e / deep : across;
        const unsigned ak = p->a_column == 1 ? e % deep : down;
        const unsigned bj = p->b_column == 1 ? across : e / deep;
        const unsigned bk = p->b_column == 1 ? down : e % deep;
        a[ak][ai] = row + ai < p->m && k + ak < p->k
                        ? p->a[(row + ai) * p->a_row + (k + ak) * p->a_column]
                        : 0;
        b[bk][bj] = column + bj < p->n && k + bk < p->k
                        ? p->b[(k + bk) * p->b_row + (column + bj) * p->b_column]
                        : 0;
    }
}

/* One tile of c. */
static __device__ void ASHLAR_NAME(muon_tile)(const ASHLAR_NAME(muon_args) * p, size_t tile,
                                              ASHLAR_REAL (*a)[ASHLAR_MUON_PITCH],
                                              ASHLAR_REAL (*b)[ASHLAR_MUON_PITCH]) {
    enum { EACH = ASHLAR_NAME(muon_each), ACROSS = ASHLAR_NAME(muon_across) };
    const size_t tiles = (p->n + ASHLAR_MUON_TILE - 1) / ASHLAR_MUON_TILE;
    const size_t row = tile / tiles * ASHLAR_MUON_TILE, column = tile % tiles * ASHLAR_MUON_TILE;
    const unsigned i0 = threadIdx.x / ACROSS, j0 = threadIdx.x % ACROSS;
    ASHLAR_REAL sum[EACH][EACH] = {{0}}, total[EACH][EACH] = {{0}};
    for (size_t k = 0; k < p->k; k += ASHLAR_NAME(muon_deep)) {
        ASHLAR_NAME(muon_take)(p, row, column, k, a, b);
        __syncthreads();
        for (unsigned d = 0; d < ASHLAR_NAME(muon_deep); d++) {
            for (unsigned e = 0; e < EACH * EACH; e++) {
                const unsigned i = e / EACH, j = e % EACH;
                sum[i][j] = ASHLAR_FMA(a[d][i0 + i * ACROSS], b[d][j0 + j * ACROSS], sum[i][j]);
            }
        }
        __syncthreads();
        const size_t done = k + ASHLAR_NAME(muon_deep);
        for (unsigned e = 0;
             (done % ASHLAR_NAME(muon_depth) == 0 || done >= p->k) && e < EACH * EACH; e++) {
            total[e / EACH][e % EACH] += sum[e / EACH][e % EACH];
            sum[e / EACH][e % EACH] = 0;
        }
    }
    for (unsigned e = 0; e < EACH * EACH; e++) {
        const size_t i = row + i0 + e / EACH * ACROSS, j = column + j0 + e % EACH * ACROSS;
        if (i < p->m && j < p->n) {
            const ASHLAR_REAL kept = p->base != NULL ? p->keep * p->base[i * p->n + j] : 0;
            p->c[i * p->n + j] =
                ASHLAR_REAL_NAME(ashlar__muon_round)(kept + p->scale * total[e / EACH][e % EACH]);
        }
    }
}

/* x = u / |u|, by one block. */
static __device__ void ASHLAR_NAME(muon_begin)(const ashlar_optimizer_job *job,
                                               const ashlar_optimizer_run *run, void *room,
                                               double *sums) {
    const ASHLAR_REAL *u = (const ASHLAR_REAL *)ashlar__formula_staged(job, run->moment2, 1);
    ASHLAR_REAL *x = ASHLAR_NAME(muon_x)(job, run, room, 0);
    double sum = 0;
    for (size_t i = threadIdx.x; i < run->elements; i += ASHLAR_MUON_THREADS) {
        sum += (double)u[i] * (double)u[i];
    }
    add_up(sum, sums, ASHLAR_MUON_THREADS);
    __syncthreads();
    const ASHLAR_REAL norm = (ASHLAR_REAL)ashlar__formula_muon_norm(&job->rule.config, sums[0]);
    for (size_t i = threadIdx.x; i < run->elements; i += ASHLAR_MUON_THREADS) {
        x[i] = ASHLAR_REAL_NAME(ashlar__muon_round)(u[i] / norm);
    }
}
