/* panel.h - packs a matrix product's right factor into panels, and multiplies rows with them
 * (internal; compiled for each element type and instruction set, see real.h).
 *
 * The right factor is cut into panels of PANEL columns. A panel is stored row by row, PANEL
 * elements each; the last panel is filled up with zeros. While a panel is multiplied, the sums of
 * up to BLOCK_ROWS rows stay in registers. An element of the result is a sum of sums of DEPTH
 * products, all in order. So its bits do not depend on how rows and columns are divided among
 * threads or caches. */
#ifndef ASHLAR_PANEL_H
#define ASHLAR_PANEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/compiler.h"
#include "arena/compute/element.h"
#include "arena/product/real.h"

/* A vector register of this instruction set, by the compiler's extensions; loose: unaligned. */
typedef real vector __attribute__((vector_size(ASHLAR_VECTOR_BYTES)));
typedef real loose_vector
    __attribute__((vector_size(ASHLAR_VECTOR_BYTES), aligned(sizeof(real)), may_alias));

enum {
    LANE_COUNT = ASHLAR_VECTOR_BYTES / sizeof(real),
    PANEL = 2 * LANE_COUNT,
    LINE = ASHLAR_CACHE_LINE / sizeof(real),  /* elements of a cache line */
    BLOCK_ROWS = ASHLAR_VECTOR_COUNT * 3 / 8, /* two registers of sums for each: 12 of 16 */
    ROW_PANELS = 4,                           /* multiplied at once if there is a single row */
    DEPTH = 256,                              /* rows of a panel that are multiplied at once */
    CACHED_ROWS = 96 /* rows of the left factor, DEPTH columns each, that fit the level-2 cache */
};
_Static_assert(CACHED_ROWS % BLOCK_ROWS == 0, "whole blocks of rows");
_Static_assert(PANEL * sizeof(real) <= 2 * ASHLAR_VECTOR_BYTES_MAX, "there is room for panels");

/* The left factor's rows: element (i, p) is at[i * row + p * column]. Packed rows are stored block
 * by block, and each block column by column, with nothing between the columns. */
typedef struct left_rows {
    const real *at;
    size_t row, column;
    bool is_packed;
} left_rows;

/* Panels of the right factor, `stride` elements from one to the next. is_once: nothing reads them
 * again before much else is read, so they are kept out of the caches, where that is possible. */
typedef struct right_panels {
    const real *at;
    size_t stride;
    bool is_once;
} right_panels;

/* `count` rows form as few blocks as possible, of equal size. Block i begins at block_start(). */
static inline size_t block_count(size_t count) {
    return (count + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

static inline size_t block_start(size_t count, size_t i) {
    return count * i / block_count(count);
}

/* c = or += the sums of a row. Callers pass a constant `count`. */
static ASHLAR_ALWAYS_INLINE void write_sums(const size_t count, const vector *sum, bool adds,
                                            real *c) {
    ASHLAR_UNROLL
    for (size_t i = 0; i < count; i++) {
        loose_vector *const to = (loose_vector *)(c + i * LANE_COUNT);
        *to = adds ? sum[i] + *to : sum[i];
    }
}

#define pack_panels ASHLAR_VARIANT(ashlar__pack_panels)
#define multiply_panels ASHLAR_VARIANT(ashlar__multiply_panels)
#define pack_bf16_panels ASHLAR_VARIANT(ashlar__pack_bf16_panels)
#define multiply_bf16_panels ASHLAR_VARIANT(ashlar__multiply_bf16_panels)

/* Pack a factor [depth, columns] into panels. `trans`: it is stored transposed.
 *
 * stride   elements from one panel to the next, at least depth * PANEL */
void pack_panels(bool trans, size_t columns, size_t depth, const real *from, size_t ld,
                 size_t stride, real *panels);

/* c [count, columns] = or += rows times panels. depth is at most DEPTH: for a deeper product call
 * this part by part, with `adds` from the second part on. */
void multiply_panels(size_t count, size_t columns, size_t depth, left_rows a, right_panels b,
                     bool adds, real *c, size_t ldc);

/* The same with a factor of floats that is kept as bf16, of half the bytes, so that it is read in
 * half the time; to multiply, its elements become floats again. A word has two elements of a
 * panel's row: column j in its lower half, column LANE_COUNT + j in its upper half. Panels have
 * depth * LANE_COUNT words and follow each other. For `real` = float only.
 *
 * pack      a factor that is stored transposed; each element is rounded to the nearest bf16
 * multiply  c [count, columns] = or += a [count, depth] times the factor, with the bits of a factor
 *           of floats that have these values. depth > 0 may be any */
void pack_bf16_panels(size_t columns, size_t depth, const real *from, size_t ld, uint32_t *panels);
void multiply_bf16_panels(size_t count, size_t columns, size_t depth, const real *a, size_t lda,
                          const uint32_t *panels, bool adds, real *c, size_t ldc);

#endif /* ASHLAR_PANEL_H */
