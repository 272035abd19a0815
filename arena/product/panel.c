/* panel.c - packs a factor into panels, of its own type or of bf16, and multiplies blocks of
 * rows with them. */
#include "arena/product/panel.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/compiler.h"
#include "arena/compute/convert.h"

/* Four elements, whatever the instruction set. */
typedef real quad __attribute__((vector_size(4 * sizeof(real))));
typedef real loose_quad
    __attribute__((vector_size(4 * sizeof(real)), aligned(sizeof(real)), may_alias));

/* Transpose: four elements of each of four rows become four elements in four rows of a panel. */
static ASHLAR_ALWAYS_INLINE void transpose_quads(const real *from, size_t ld, real *to) {
    const quad a = *(const loose_quad *)from, b = *(const loose_quad *)(from + ld);
    const quad c = *(const loose_quad *)(from + 2 * ld), d = *(const loose_quad *)(from + 3 * ld);
    const quad ac01 = {a[0], c[0], a[1], c[1]}, ac23 = {a[2], c[2], a[3], c[3]};
    const quad bd01 = {b[0], d[0], b[1], d[1]}, bd23 = {b[2], d[2], b[3], d[3]};
    *(loose_quad *)to = (quad){ac01[0], bd01[0], ac01[1], bd01[1]};
    *(loose_quad *)(to + PANEL) = (quad){ac01[2], bd01[2], ac01[3], bd01[3]};
    *(loose_quad *)(to + 2 * PANEL) = (quad){ac23[0], bd23[0], ac23[1], bd23[1]};
    *(loose_quad *)(to + 3 * PANEL) = (quad){ac23[2], bd23[2], ac23[3], bd23[3]};
}

/* How many lines ahead to prefetch: processors by themselves do not follow this many rows. */
enum { LINES_AHEAD = 4 };

/* Pack a panel of a factor that is stored transposed: one cache line of each row after the other,
 * since rows a power of two apart push each other's lines out of the cache. */
static void pack_transposed(size_t width, size_t depth, const real *from, size_t ld,
                            real *restrict panel) {
    const size_t lines = width % 4 == 0 ? depth / LINE * LINE : 0;
    for (size_t p = 0; p < lines; p += LINE) {
        for (size_t x = 0; x < width; x += 4) {
            ASHLAR_UNROLL
            for (size_t i = 0; i < 4; i++) {
                ASHLAR_PREFETCH(from + (x + i) * ld + p + LINES_AHEAD * LINE);
            }
            ASHLAR_UNROLL
            for (size_t i = 0; i < LINE; i += 4) {
                transpose_quads(from + x * ld + p + i, ld, panel + (p + i) * PANEL + x);
            }
        }
    }
    for (size_t p = lines; p < depth; p++) {
        for (size_t x = 0; x < width; x++) {
            panel[p * PANEL + x] = from[x * ld + p];
        }
    }
}

/* Pack a factor that is stored as it is, row by row: processors prefetch along a row themselves. */
static void pack_plain(size_t columns, size_t depth, const real *from, size_t ld, size_t stride,
                       real *restrict panels) {
    for (size_t p = 0; p < depth; p++) {
        const real *restrict const row = from + p * ld;
        real *restrict to = panels + p * PANEL;
        size_t j = 0;
        for (; j + PANEL <= columns; j += PANEL, to += stride) {
            *(loose_vector *)to = *(const loose_vector *)(row + j);
            *(loose_vector *)(to + LANE_COUNT) = *(const loose_vector *)(row + j + LANE_COUNT);
        }
        for (size_t x = 0; x < columns - j; x++) {
            to[x] = row[j + x];
        }
    }
}

void pack_panels(bool trans, size_t columns, size_t depth, const real *from, size_t ld,
                 size_t stride, real *panels) {
    const size_t whole = columns / PANEL * PANEL;
    if (whole < columns) {
        memset(panels + whole / PANEL * stride, 0, depth * PANEL * sizeof(real));
    }
    if (!trans) {
        pack_plain(columns, depth, from, ld, stride, panels);
        return;
    }
    for (size_t j = 0; j < columns; j += PANEL) {
        pack_transposed(columns - j < PANEL ? columns - j : PANEL, depth, from + j * ld, ld,
                        panels + j / PANEL * stride);
    }
}

/* Add to the sums the products of one column of the left factor and one row of the panel. at: the
 * column's elements in rows 0, 3, 6 and 9. Every other row's element is then 1 or 2 strides behind
 * one of these, which the processor's addressing can add: separate instructions would take time
 * from the multiplications. */
static ASHLAR_ALWAYS_INLINE void multiply_column(const size_t rows, const real *const *at,
                                                 size_t stride, const real *panel,
                                                 vector sum[][2]) {
    const vector low = *(const loose_vector *)panel;
    const vector high = *(const loose_vector *)(panel + LANE_COUNT);
    ASHLAR_UNROLL
    for (size_t i = 0; i < rows; i++) {
        const real left = at[i / 3][i % 3 * stride];
        sum[i][0] += left * low;
        sum[i][1] += left * high;
    }
}

/* Memory to prefetch while a block is multiplied: a line with each row of the panel, `step`
 * elements apart. The multiplications do not use every load; a loop of its own would take time. */
typedef struct ahead {
    const real *at;
    size_t step;
    bool is_once; /* as in right_panels */
} ahead;

/* sum[] += the products of a block of rows with a panel. Callers pass constants for `rows` and for
 * is_once (next_panel's). */
static ASHLAR_ALWAYS_INLINE void multiply_depth(const size_t rows, const bool is_once, size_t depth,
                                                left_rows a, const real *panel, ahead next_panel,
                                                vector sum[][2]) {
    enum { TRIPLES = (BLOCK_ROWS + 2) / 3 };
    const real *at[TRIPLES];
    ASHLAR_UNROLL
    for (size_t i = 0; i < TRIPLES; i++) {
        at[i] = a.at + 3 * i * a.row;
    }
    ASHLAR_UNROLL_4
    for (size_t p = 0; p < depth; p++) {
        multiply_column(rows, at, a.row, panel, sum);
        ASHLAR_UNROLL
        for (size_t i = 0; i < TRIPLES; i++) {
            at[i] += a.column;
        }
        panel += PANEL;
        if (is_once) {
            ASHLAR_PREFETCH_ONCE(next_panel.at);
        } else {
            ASHLAR_PREFETCH_FAR(next_panel.at);
        }
        next_panel.at += next_panel.step;
    }
}

/* c [rows, PANEL] = or += a block of rows times a panel. Callers pass a constant for `rows`. */
static ASHLAR_ALWAYS_INLINE void multiply_rows(const size_t rows, size_t depth, left_rows a,
                                               const real *panel, ahead next_panel, bool adds,
                                               real *c, size_t ldc) {
    vector sum[BLOCK_ROWS][2];
    ASHLAR_UNROLL
    for (size_t i = 0; i < rows; i++) {
        sum[i][0] = sum[i][1] = (vector){0};
        ASHLAR_PREFETCH(c + i * ldc);
        ASHLAR_PREFETCH(c + i * ldc + PANEL - 1); /* the row's end may be in the next line */
    }
    if (next_panel.is_once) {
        multiply_depth(rows, true, depth, a, panel, next_panel, sum);
    } else {
        multiply_depth(rows, false, depth, a, panel, next_panel, sum);
    }
    ASHLAR_UNROLL
    for (size_t i = 0; i < rows; i++) {
        loose_vector *const low = (loose_vector *)(c + i * ldc);
        loose_vector *const high = (loose_vector *)(c + i * ldc + LANE_COUNT);
        if (adds) {
            sum[i][0] += *low;
            sum[i][1] += *high;
        }
        *low = sum[i][0];
        *high = sum[i][1];
    }
}

/* Multiply one row with `count` panels, a constant: two have enough independent sums to hide the
 * latency of additions; more of them at once make fewer loops. */
static ASHLAR_ALWAYS_INLINE void multiply_one(const size_t count, size_t depth, left_rows a,
                                              right_panels b, bool adds, real *c) {
    vector sum[2 * ROW_PANELS] = {{0}};
    const real *panel = b.at;
    for (size_t p = 0; p < depth; p++) {
        const real left = a.at[p * a.column];
        ASHLAR_UNROLL
        for (size_t i = 0; i < 2 * count; i++) {
            sum[i] += left * *(const loose_vector *)(panel + i / 2 * b.stride + i % 2 * LANE_COUNT);
        }
        panel += PANEL;
    }
    write_sums(2 * count, sum, adds, c);
}

/* Multiply one row with whole panels, but for an odd last one. Returns the number of columns done.
 * ROW_PANELS at once gain only with a factor of over DEPTH rows, which a core's cache cannot hold.
 */
static size_t multiply_one_row(size_t columns, size_t depth, left_rows a, right_panels b, bool adds,
                               real *c) {
    const real *const first = b.at;
    const bool is_far = b.stride > DEPTH * PANEL;
    size_t j = 0;
    for (; is_far && j + ROW_PANELS * PANEL <= columns; j += ROW_PANELS * PANEL) {
        b.at = first + j / PANEL * b.stride;
        multiply_one(ROW_PANELS, depth, a, b, adds, c + j);
    }
    for (; j + 2 * PANEL <= columns; j += 2 * PANEL) {
        b.at = first + j / PANEL * b.stride;
        multiply_one(2, depth, a, b, adds, c + j);
    }
    return j;
}

static void multiply_block(size_t rows, size_t depth, left_rows a, const real *panel, ahead next,
                           bool adds, real *c, size_t ldc) {
    _Static_assert(BLOCK_ROWS <= 12, "every count of rows has its case");
#define CASE(count)                                                    \
    case count:                                                        \
        if (count <= BLOCK_ROWS) {                                     \
            multiply_rows(count, depth, a, panel, next, adds, c, ldc); \
        }                                                              \
        break
    switch (rows) {
        CASE(1);
        CASE(2);
        CASE(3);
        CASE(4);
        CASE(5);
        CASE(6);
        CASE(7);
        CASE(8);
        CASE(9);
        CASE(10);
        CASE(11);
        CASE(12);
    }
}

/* Multiply a block of rows with the last panel, of which only `width` columns are in c. */
static void multiply_last_block(size_t rows, size_t depth, left_rows a, const real *panel,
                                bool adds, size_t width, real *c, size_t ldc) {
    real whole[BLOCK_ROWS * PANEL];
    multiply_block(rows, depth, a, panel, (ahead){.at = panel}, false, whole, PANEL);
    for (size_t i = 0; i < rows; i++) {
        for (size_t x = 0; x < width; x++) {
            c[i * ldc + x] = adds ? c[i * ldc + x] + whole[i * PANEL + x] : whole[i * PANEL + x];
        }
    }
}

/* While a panel is multiplied, the next one is prefetched if there are FETCHING_BLOCKS blocks of
 * rows, or if the panels exceed NEAR_BYTES, and so may not stay in a core's own cache. */
enum { FETCHING_BLOCKS = 3, NEAR_BYTES = 1 << 20 };

/*
 * What block i prefetches of a panel of `depth` rows: the panel's lines are divided among its first
 * blocks, one for each row of `depth`. If there are too few blocks, every second line is left to
 * the processor, which fetches lines in pairs.
 */
static ahead lines_ahead(const real *panel, size_t depth, size_t i, size_t blocks) {
    const size_t parts = (PANEL + LINE - 1) / LINE; /* lines for each row */
    if (blocks < parts) {
        return (ahead){.at = panel + i * LINE, .step = PANEL};
    }
    return i < parts ? (ahead){.at = panel + i * depth * PANEL / parts, .step = PANEL / parts}
                     : (ahead){.at = panel};
}

void multiply_panels(size_t count, size_t columns, size_t depth, left_rows a, right_panels b,
                     bool adds, real *c, size_t ldc) {
    const size_t blocks = block_count(count);
    const bool is_fetching =
        blocks >= FETCHING_BLOCKS || columns / PANEL * b.stride * sizeof(real) > NEAR_BYTES;
    const size_t done = count == 1 ? multiply_one_row(columns, depth, a, b, adds, c) : 0;
    for (size_t j = done; j < columns; j += PANEL) {
        const real *const panel = b.at + j / PANEL * b.stride;
        const size_t width = columns - j < PANEL ? columns - j : PANEL;
        for (size_t i = 0; i < blocks; i++) {
            const size_t first = block_start(count, i), rows = block_start(count, i + 1) - first;
            left_rows block = a;
            block.at += first * (a.is_packed ? depth : a.row);
            block.column = a.is_packed ? rows : a.column;
            if (width == PANEL) {
                ahead next = is_fetching && j + PANEL < columns
                                 ? lines_ahead(panel + b.stride, depth, i, blocks)
                                 : (ahead){.at = panel};
                next.is_once = b.is_once;
                multiply_block(rows, depth, block, panel, next, adds, c + first * ldc + j, ldc);
            } else {
                multiply_last_block(rows, depth, block, panel, adds, width, c + first * ldc + j,
                                    ldc);
            }
        }
    }
}

typedef uint32_t words __attribute__((vector_size(ASHLAR_VECTOR_BYTES)));
typedef uint32_t loose_words
    __attribute__((vector_size(ASHLAR_VECTOR_BYTES), aligned(sizeof(uint32_t)), may_alias));

/* Expand the lower or the upper halves of words to floats: a bf16 is the upper half of a float. */
static ASHLAR_ALWAYS_INLINE vector low_half(const uint32_t *at) {
    return (vector)(*(const loose_words *)at << 16);
}

static ASHLAR_ALWAYS_INLINE vector high_half(const uint32_t *at) {
    return (vector)(*(const loose_words *)at & 0xffff0000u);
}

/* Round rows of a panel to bf16. Returns where the next row goes. */
static uint32_t *round_rows(size_t rows, const real *panel, uint32_t *to) {
    for (size_t i = 0; i < rows; i++, panel += PANEL) {
        for (size_t x = 0; x < LANE_COUNT; x++) {
            *to++ = ashlar__bf16_from_float((float)panel[x]) |
                    (uint32_t)ashlar__bf16_from_float((float)panel[LANE_COUNT + x]) << 16;
        }
    }
    return to;
}

void pack_bf16_panels(size_t columns, size_t depth, const real *from, size_t ld, uint32_t *panels) {
    real part[DEPTH * PANEL];
    ASHLAR_ASSERT(REAL_DTYPE == ASHLAR_F32);
    for (size_t j = 0; j < columns; j += PANEL) {
        for (size_t p = 0; p < depth; p += DEPTH) {
            const size_t deep = depth - p < DEPTH ? depth - p : DEPTH;
            pack_panels(true, columns - j < PANEL ? columns - j : PANEL, deep, from + j * ld + p,
                        ld, 0, part);
            panels = round_rows(deep, part, panels);
        }
    }
}

/* c [count * PANEL] = or += a row times `count` panels, a constant up to ROW_PANELS: enough
 * independent sums to hide the latency of additions. */
static ASHLAR_ALWAYS_INLINE void multiply_bf16_row(const size_t count, size_t depth, const real *a,
                                                   const uint32_t *panels, size_t stride, bool adds,
                                                   real *c) {
    vector sum[2 * ROW_PANELS] = {{0}};
    for (size_t p = 0; p < depth; p++) {
        const real left = a[p];
        ASHLAR_UNROLL
        for (size_t i = 0; i < count; i++) {
            const uint32_t *const at = panels + i * stride + p * LANE_COUNT;
            sum[2 * i] += left * low_half(at);
            sum[2 * i + 1] += left * high_half(at);
        }
    }
    write_sums(2 * count, sum, adds, c);
}

/* Multiply one row. It reads each panel once, so it converts elements without storing floats. */
static void multiply_bf16_one(size_t columns, size_t depth, const real *a, const uint32_t *panels,
                              bool adds, real *c) {
    const size_t stride = depth * LANE_COUNT;
    for (size_t j = 0, many; j < columns; j += many * PANEL) {
        const size_t left = columns - j;
        many = left >= ROW_PANELS * PANEL ? ROW_PANELS : 1;
        for (size_t p = 0; p < depth; p += DEPTH) {
            const size_t deep = depth - p < DEPTH ? depth - p : DEPTH;
            const uint32_t *const at = panels + j / PANEL * stride + p * LANE_COUNT;
            if (many > 1) {
                multiply_bf16_row(ROW_PANELS, deep, a + p, at, stride, adds || p > 0, c + j);
            } else if (left >= PANEL) {
                multiply_bf16_row(1, deep, a + p, at, stride, adds || p > 0, c + j);
            } else {
                real whole[PANEL];
                multiply_bf16_row(1, deep, a + p, at, stride, false, whole);
                for (size_t x = 0; x < left; x++) {
                    c[j + x] = adds || p > 0 ? c[j + x] + whole[x] : whole[x];
                }
            }
        }
    }
}

void multiply_bf16_panels(size_t count, size_t columns, size_t depth, const real *a, size_t lda,
                          const uint32_t *panels, bool adds, real *c, size_t ldc) {
    real part[DEPTH * PANEL]; /* a piece of a panel as floats, which all rows read */
    ASHLAR_ASSERT(REAL_DTYPE == ASHLAR_F32);
    if (count == 1) {
        multiply_bf16_one(columns, depth, a, panels, adds, c);
        return;
    }
    for (size_t j = 0; j < columns; j += PANEL) {
        for (size_t p = 0; p < depth; p += DEPTH) {
            const size_t deep = depth - p < DEPTH ? depth - p : DEPTH;
            for (size_t i = 0; i < deep; i++, panels += LANE_COUNT) {
                *(loose_vector *)(part + i * PANEL) = low_half(panels);
                *(loose_vector *)(part + i * PANEL + LANE_COUNT) = high_half(panels);
            }
            multiply_panels(count, columns - j < PANEL ? columns - j : PANEL, deep,
                            (left_rows){.at = a + p, .row = lda, .column = 1},
                            (right_panels){.at = part}, adds || p > 0, c + j, ldc);
        }
    }
}
