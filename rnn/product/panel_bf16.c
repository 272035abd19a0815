/* panel_bf16.c - packs a factor into panels of bf16, and multiplies blocks of rows with them. */
#include "allocator/base/check_level.h"
#include "allocator/base/compiler.h"
#include "arena/compute/convert.h"
#include "rnn/product/panel.h"

typedef uint32_t words __attribute__((vector_size(ASHLAR_VECTOR_BYTES)));
typedef uint32_t loose_words
    __attribute__((vector_size(ASHLAR_VECTOR_BYTES), aligned(sizeof(uint32_t)), may_alias));

/* The two halves of words, as floats: a bf16 is the upper half of a float. */
static ASHLAR_ALWAYS_INLINE vector low_half(const uint32_t *at) {
    return (vector)(*(const loose_words *)at << 16);
}

static ASHLAR_ALWAYS_INLINE vector high_half(const uint32_t *at) {
    return (vector)(*(const loose_words *)at & 0xffff0000u);
}

/* Round rows of a panel. Returns where the next one goes. */
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

/* One row: each panel is read once, so its floats are not kept. */
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
    real part[DEPTH * PANEL]; /* a piece of a panel, for all rows */
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
