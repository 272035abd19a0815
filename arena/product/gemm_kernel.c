/* gemm_kernel.c - computes a tile of a matrix product, for the element type and the instruction set
 * that meson.build compiles this file for (real.h). It packs a block of panels of the right factor,
 * multiplies all rows with it, then packs the next block. The left factor is packed only if its
 * lines would push each other out of the cache. */
#include <string.h>

#include "allocator/base/compiler.h"
#include "allocator/base/threads.h"
#include "arena/product/blas.h"
#include "arena/product/panel.h"

/* With up to this many rows of c, packing the right factor would cost more than it saves. */
enum { THIN_ROWS = 3 };

/* A block of panels is 256 KiB for either type. */
enum { BLOCK_COLUMNS = 256 * 1024 / DEPTH / sizeof(real) };
_Static_assert((BLOCK_COLUMNS + CACHED_ROWS) * DEPTH * sizeof(real) <= ASHLAR_PRODUCT_BYTES,
               "a thread's memory has room for a block, and rows");

/* Where factors are packed. */
typedef struct pack_room {
    real *panels;
    size_t columns; /* of the largest block of panels that fits there */
    real *rows;     /* [CACHED_ROWS * DEPTH]; NULL: rows are read where they are, more slowly */
} pack_room;

static const real *left_at(const ashlar_gemm_args *p, size_t row, size_t k) {
    const real *a = p->a;
    return p->trans_a ? a + k * p->lda + row : a + row * p->lda + k;
}

static const real *right_at(const ashlar_gemm_args *p, size_t k, size_t column) {
    const real *b = p->b;
    return p->trans_b ? b + column * p->ldb + k : b + k * p->ldb + column;
}

static real *sum_at(const ashlar_gemm_args *p, size_t row, size_t column) {
    return (real *)p->c + row * p->ldc + column;
}

/* How many rows ahead to prefetch: rows are often pages apart, and processors do not prefetch
 * across pages. */
enum { ROWS_AHEAD = 16 };

static void prefetch_row(const real *row) {
    ASHLAR_UNROLL
    for (size_t i = 0; i < CACHED_ROWS; i += LINE) {
        ASHLAR_PREFETCH(row + i);
    }
}

/* Pack rows of a factor that is stored transposed: its column p is row p of `from`. */
static void pack_rows_of(size_t count, size_t depth, const real *from, size_t ld, real *packed) {
    const size_t blocks = block_count(count);
    for (size_t p = 0; p < depth; p++) {
        const real *restrict row = from + p * ld;
        if (count == CACHED_ROWS) {
            prefetch_row(p + ROWS_AHEAD < depth ? row + ROWS_AHEAD * ld : row);
            for (size_t i = 0; i < CACHED_ROWS / BLOCK_ROWS; i++) { /* constant counts: faster */
                memcpy(packed + (i * depth + p) * BLOCK_ROWS, row + i * BLOCK_ROWS,
                       BLOCK_ROWS * sizeof(real));
            }
            continue;
        }
        for (size_t i = 0; i < blocks; i++) {
            const size_t first = block_start(count, i), rows = block_start(count, i + 1) - first;
            real *restrict to = packed + first * depth + p * rows;
            for (size_t r = 0; r < rows; r++) {
                to[r] = row[first + r];
            }
        }
    }
}

/* Cache lines a multiple of this many bytes apart share one set of the first-level cache. */
enum { SET_BYTES = 4096 };

/* The left factor's rows row .. row + count - 1, from column k on: where they are, or packed. */
static left_rows open_rows(const ashlar_gemm_args *p, size_t row, size_t count, size_t k,
                           size_t depth, real *packed) {
    const real *const at = left_at(p, row, k);
    if (!p->trans_a) {
        return (left_rows){.at = at, .row = p->lda, .column = 1};
    }
    if (p->lda * sizeof(real) % SET_BYTES != 0 || packed == NULL) {
        return (left_rows){.at = at, .row = 1, .column = p->lda};
    }
    pack_rows_of(count, depth, at, p->lda, packed);
    return (left_rows){.at = packed, .row = 1, .column = 1, .is_packed = true};
}

/* A block of the right factor: columns column .. + width - 1 of its rows k .. k + depth - 1. */
typedef struct right_block {
    size_t k, depth;
    size_t column, width;
    right_panels panels;
} right_block;

/* Multiply all rows of a tile with one block of panels. */
static void pass_rows(const ashlar_gemm_args *p, const ashlar_gemm_tile *tile, const right_block *b,
                      real *packed) {
    for (size_t row = tile->row; row < tile->row_end; row += CACHED_ROWS) {
        const size_t left = tile->row_end - row, count = left < CACHED_ROWS ? left : CACHED_ROWS;
        multiply_panels(count, b->width, b->depth, open_rows(p, row, count, b->k, b->depth, packed),
                        b->panels, p->adds || b->k > 0, sum_at(p, row, b->column), p->ldc);
    }
}

/* A right factor from this size on pushes much else out of a last-level cache. */
static const size_t LARGE_BYTES = (size_t)8 << 20;

/* Whether a tile reads the right factor's panels only once, and they are large. They are then kept
 * out of the caches, which have other memory for the next product. */
static bool reads_once(const ashlar_gemm_args *p, const ashlar_gemm_tile *tile) {
    return p->panels != NULL && tile->row_end - tile->row <= CACHED_ROWS &&
           p->n * p->k * sizeof(real) >= LARGE_BYTES;
}

/* Find a block in the panels that the caller gave; without any, pack it. */
static right_panels open_panels(const ashlar_gemm_args *p, const right_block *b, real *packed) {
    if (p->panels != NULL) {
        return (right_panels){.at = (const real *)p->panels + b->column * p->k + b->k * PANEL,
                              .stride = p->k * PANEL};
    }
    pack_panels(p->trans_b, b->width, b->depth, right_at(p, b->k, b->column), p->ldb,
                b->depth * PANEL, packed);
    return (right_panels){.at = packed, .stride = b->depth * PANEL};
}

static void compute_in(const ashlar_gemm_args *p, const ashlar_gemm_tile *tile,
                       const pack_room *room) {
    const bool is_once = reads_once(p, tile);
    const size_t most = is_once ? tile->column_end - tile->column : room->columns;
    for (size_t k = 0; k < p->k; k += DEPTH) {
        for (size_t column = tile->column; column < tile->column_end; column += most) {
            const size_t left = tile->column_end - column;
            right_block b = {.k = k,
                             .depth = p->k - k < DEPTH ? p->k - k : DEPTH,
                             .column = column,
                             .width = left < most ? left : most};
            b.panels = open_panels(p, &b, room->panels);
            b.panels.is_once = is_once;
            pass_rows(p, tile, &b, room->rows);
        }
    }
}

/* For a thread that got no memory to pack into: one panel at a time, on the stack. Not inlined, so
 * that other threads need no such stack. */
static ASHLAR_NOINLINE void compute_on_stack(const ashlar_gemm_args *p,
                                             const ashlar_gemm_tile *tile) {
    _Alignas(64) real panel[PANEL * DEPTH];
    compute_in(p, tile, &(pack_room){.panels = panel, .columns = PANEL});
}

static void compute_thick(const ashlar_gemm_args *p, const ashlar_gemm_tile *tile) {
    const uintptr_t own = (uintptr_t)ashlar__thread_data(ASHLAR_THREAD_PRODUCTS,
                                                         ASHLAR_PRODUCT_BYTES + ASHLAR_PRODUCT_PAD);
    real *const panels = (real *)((own + ASHLAR_PRODUCT_PAD - 1) & -(uintptr_t)ASHLAR_PRODUCT_PAD);
    if (own == 0) {
        compute_on_stack(p, tile);
        return;
    }
    compute_in(p, tile,
               &(pack_room){.panels = panels,
                            .columns = BLOCK_COLUMNS,
                            .rows = panels + BLOCK_COLUMNS * DEPTH});
}

/* The dot product of two rows, with as many partial sums as four registers have lanes. */
static real dot(const real *a, size_t stride, const real *b, size_t count) {
    enum { REGISTERS = 4, TOGETHER = REGISTERS * LANE_COUNT };
    vector sums[REGISTERS] = {{0}};
    real sum = 0;
    size_t p = 0;
    for (; stride == 1 && p + TOGETHER <= count; p += TOGETHER) {
        ASHLAR_UNROLL
        for (size_t i = 0; i < REGISTERS; i++) {
            sums[i] += *(const loose_vector *)(a + p + i * LANE_COUNT) *
                       *(const loose_vector *)(b + p + i * LANE_COUNT);
        }
    }
    const vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    ASHLAR_UNROLL
    for (size_t lane = 0; lane < LANE_COUNT; lane++) {
        sum += all[lane];
    }
    for (; p < count; p++) {
        sum += a[p * stride] * b[p];
    }
    return sum;
}

/* For few rows, and a right factor stored transposed: each element of c is the dot product of two
 * stored rows. */
static void compute_thin_transposed(const ashlar_gemm_args *p, const ashlar_gemm_tile *tile) {
    for (size_t column = tile->column; column < tile->column_end; column++) {
        for (size_t row = tile->row; row < tile->row_end; row++) {
            const real sum =
                dot(left_at(p, row, 0), p->trans_a ? p->lda : 1, right_at(p, 0, column), p->k);
            real *const c = sum_at(p, row, column);
            *c = p->adds ? *c + sum : sum;
        }
    }
}

/* For few rows, and a right factor stored as it is: a row of c is a weighted sum of its rows. */
static void compute_thin_plain(const ashlar_gemm_args *p, const ashlar_gemm_tile *tile) {
    const size_t width = tile->column_end - tile->column;
    for (size_t row = tile->row; row < tile->row_end; row++) {
        real *restrict c = sum_at(p, row, tile->column);
        for (size_t j = 0; j < width && !p->adds; j++) {
            c[j] = 0;
        }
        for (size_t k = 0; k < p->k; k++) {
            const real factor = *left_at(p, row, k);
            const real *restrict b = right_at(p, k, tile->column);
            for (size_t j = 0; j < width; j++) {
                c[j] += factor * b[j];
            }
        }
    }
}

/* Choose by the rows of the whole product: by the tile's, bits would depend on how it is cut. */
void ASHLAR_VARIANT(ashlar__gemm_kernel)(const ashlar_gemm_args *p, const ashlar_gemm_tile *tile) {
    if (p->m > THIN_ROWS || p->panels != NULL) {
        compute_thick(p, tile);
    } else if (p->trans_b) {
        compute_thin_transposed(p, tile);
    } else {
        compute_thin_plain(p, tile);
    }
}
