/*
 * panel.h - the matrix product's innermost part (internal; compiled for each element type and
 * instruction set, see real.h).
 *
 * The right factor is cut into panels of PANEL columns, in which the PANEL elements of one row
 * follow each other and the rows too; the last panel is filled up with zeros. While a panel passes,
 * up to BLOCK_ROWS rows of sums stay in registers. An element is a sum of sums: over DEPTH products
 * in their order, these sums again in theirs; it never depends on how the product was cut, so that
 * any cut between rows or columns, for threads or for caches, gives the same bits.
 */
#ifndef ASHLAR_PANEL_H
#define ASHLAR_PANEL_H

#include <stdbool.h>
#include <stddef.h>

#include "arena/compute/instruction_set.h"
#include "rnn/layer/real.h"

/* Registers of this set of instructions, and what of the compiler's is not in the standard. */
typedef real vector __attribute__((vector_size(ASHLAR_VECTOR_BYTES)));
typedef real loose_vector
    __attribute__((vector_size(ASHLAR_VECTOR_BYTES), aligned(sizeof(real)), may_alias));

enum {
    LANE_COUNT = ASHLAR_VECTOR_BYTES / sizeof(real),
    PANEL = 2 * LANE_COUNT,
    BLOCK_ROWS = 6,  /* with two registers of sums each, 12 of 16 */
    DEPTH = 256,     /* rows of a panel that fit the level-1 cache beside what else is there */
    CACHED_ROWS = 96 /* rows of the left factor, so deep, that fit the level-2 cache */
};

/*
 * The left factor's rows: element (i, p) at[i * row + p * column]. What is packed has its blocks of
 * rows one after the other, each a column after the other.
 */
typedef struct left_rows {
    const real *at;
    size_t row, column;
    bool is_packed;
} left_rows;

/* `count` rows are in as few blocks as they fit, of equal size; block i begins at block_start(). */
static inline size_t block_count(size_t count) {
    return (count + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

static inline size_t block_start(size_t count, size_t i) {
    return count * i / block_count(count);
}

#define pack_panels ASHLAR_VARIANT(ashlar__pack_panels)
#define multiply_panels ASHLAR_VARIANT(ashlar__multiply_panels)

/*
 * Panels of a factor [depth, columns] times `scale`; stored transposed where `trans`.
 *
 * stride   from one panel to the next, at least depth * PANEL
 */
void pack_panels(bool trans, size_t columns, size_t depth, const real *from, size_t ld, real scale,
                 size_t stride, real *panels);

/*
 * c [count, columns] = or += rows times panels that are `stride` apart. At most DEPTH deep: what
 * is deeper has its sums added one after the other.
 */
void multiply_panels(size_t count, size_t columns, size_t depth, left_rows a, const real *panels,
                     size_t stride, bool adds, real *c, size_t ldc);

#endif /* ASHLAR_PANEL_H */
