/* rnn_factor.c - packs a matrix of the weights once, and multiplies the rows of steps with it. */
#include "rnn/layer/rnn_factor.h"

#include "arena/compute/workers.h"
#include "rnn/layer/blas_impl.h"
#include "rnn/layer/panel.h"

/* ---- packing ---- */

/* Panels `first` .. `end` - 1 of a factor. */
static void pack_some(const factor *f, size_t first, size_t end) {
    const size_t column = first * PANEL, last = end * PANEL;
    pack_panels(f->trans, (last < f->columns ? last : f->columns) - column, f->depth,
                f->weights + column * (f->trans ? f->ld : 1), f->ld, f->depth * PANEL,
                f->panels + column * f->depth);
}

static size_t panel_count(const factor *f) {
    return (f->columns + PANEL - 1) / PANEL;
}

enum { PACKED_TOGETHER = 8 /* panels that a thread packs in one go: tens of microseconds */ };

static void pack_piece(void *context, size_t i) {
    const factor *const f = context;
    const size_t end = (i + 1) * PACKED_TOGETHER, count = panel_count(f);
    pack_some(f, i * PACKED_TOGETHER, end < count ? end : count);
}

factor open_factor(const ashlar_rnn_rows *batch, const real *weights, ashlar_rnn_view view,
                   bool trans, real *panels) {
    factor f = {
        .trans = trans,
        .columns = trans ? view.rows : view.cols,
        .depth = trans ? view.cols : view.rows,
        .weights = weights + view.offset,
        .ld = view.cols,
        .panels = batch->is_packed ? panels : NULL,
    };
    f.pieces = ashlar__rnn_rows_pieces(batch, f.columns * f.depth);
    if (f.panels != NULL) {
        ashlar__workers_run((panel_count(&f) + PACKED_TOGETHER - 1) / PACKED_TOGETHER, pack_piece,
                            &f);
    }
    return f;
}

/* ---- products ---- */

/* c [count, columns] = or += a [count, depth] times a whole packed factor. depth must be > 0. */
static void multiply_packed(size_t count, size_t columns, size_t depth, const real *a, size_t lda,
                            const real *panels, bool adds, real *c, size_t ldc) {
    for (size_t p = 0; p < depth; p += DEPTH) {
        const size_t deep = depth - p < DEPTH ? depth - p : DEPTH;
        for (size_t i = 0; i < count; i += CACHED_ROWS) {
            const left_rows rows = {.at = a + i * lda + p, .row = lda, .column = 1};
            multiply_panels(count - i < CACHED_ROWS ? count - i : CACHED_ROWS, columns, deep, rows,
                            panels + p * PANEL, depth * PANEL, adds || p > 0, c + i * ldc, ldc);
        }
    }
}

/* c [count, columns] = or += a [count, depth] * factor. */
typedef struct factor_product {
    const factor *f;
    size_t count;
    const real *a;
    size_t lda;
    bool adds;
    real *c;
    size_t ldc;
} factor_product;

static void multiply_piece(void *context, size_t i) {
    const factor_product *const p = context;
    const factor *const f = p->f;
    const uint64_t begin = ashlar__blas_clock_begin();
    const size_t count = panel_count(f);
    const size_t column = count * i / f->pieces * PANEL;
    const size_t last = count * (i + 1) / f->pieces * PANEL;
    multiply_packed(p->count, (last < f->columns ? last : f->columns) - column, f->depth, p->a,
                    p->lda, f->panels + column * f->depth, p->adds, p->c + column, p->ldc);
    ashlar__blas_clock_end(begin);
}

static void multiply(factor_product p) {
    const factor *const f = p.f;
    if (f->panels != NULL) {
        ashlar__workers_run(f->pieces, multiply_piece, &p);
    } else {
        REAL(ashlar__gemm)
        (false, f->trans, p.count, f->columns, f->depth, p.a, p.lda, f->weights, f->ld, p.adds, p.c,
         p.ldc);
    }
}

void multiply_some(const factor *f, some_rows rows, const real *a, size_t lda, bool adds, real *c,
                   size_t ldc) {
    multiply((factor_product){.f = f,
                              .count = count_rows(rows),
                              .a = a + rows.first * lda,
                              .lda = rows.stride * lda,
                              .adds = adds,
                              .c = c + rows.first * ldc,
                              .ldc = rows.stride * ldc});
}
