/* ops_rows.h - what the CPU's operations do with the rows of a matrix of reals (internal; included
 * only by files that meson.build compiles for an element type, see real.h). */
#ifndef ASHLAR_OPS_ROWS_H
#define ASHLAR_OPS_ROWS_H

#include "arena/compute/workers.h"
#include "arena/product/real.h"

/* Sums and maxima of a row are computed as LANES partial results, so that the compiler can use
 * vector instructions without changing the order of operations. */
enum { LANES = 8 };

static inline real row_max(const real *row, size_t width) {
    real best[LANES];
    for (size_t k = 0; k < LANES; k++) {
        best[k] = row[0];
    }
    size_t j = 0;
    for (; j + LANES <= width; j += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            best[k] = row[j + k] > best[k] ? row[j + k] : best[k];
        }
    }
    for (; j < width; j++) {
        best[0] = row[j] > best[0] ? row[j] : best[0];
    }
    for (size_t k = 1; k < LANES; k++) {
        best[0] = best[k] > best[0] ? best[k] : best[0];
    }
    return best[0];
}

/* Define a function that sums `term` over the elements x of a row. */
#define DEFINE_SUM(name, term)                                           \
    static inline real name(const real *row, size_t width, real shift) { \
        real sum[LANES] = {0};                                           \
        size_t j = 0;                                                    \
        (void)shift;                                                     \
        for (; j + LANES <= width; j += LANES) {                         \
            for (size_t k = 0; k < LANES; k++) {                         \
                const real x = row[j + k];                               \
                sum[k] += (term);                                        \
            }                                                            \
        }                                                                \
        for (; j < width; j++) {                                         \
            const real x = row[j];                                       \
            sum[0] += (term);                                            \
        }                                                                \
        for (size_t k = 1; k < LANES; k++) {                             \
            sum[0] += sum[k];                                            \
        }                                                                \
        return sum[0];                                                   \
    }
DEFINE_SUM(row_sum, x)
DEFINE_SUM(exp_sum, real_exp(x - shift))

/* out[j] = exp((row[j] - shift) * scale); out may be row. */
static inline void exp_row(const real *row, size_t width, real shift, real scale, real *out) {
    for (size_t j = 0; j < width; j++) {
        out[j] = real_exp((row[j] - shift) * scale);
    }
}

static inline void scale_row(real *row, size_t width, real factor) {
    for (size_t j = 0; j < width; j++) {
        row[j] *= factor;
    }
}

/* Copy a row, or add it. They do not overlap. */
static inline void put_row(const real *restrict row, size_t width, bool adds, real *restrict out) {
    if (!adds) {
        memcpy(out, row, width * sizeof(real));
        return;
    }
    for (size_t j = 0; j < width; j++) {
        out[j] += row[j];
    }
}

static inline size_t length_of(const int32_t *lengths, size_t sequence, size_t steps) {
    return lengths == NULL ? steps : (size_t)lengths[sequence];
}

/* The least work that is worth a thread, about ten microseconds of it: elements that are copied or
 * added up, and logits of which the loss is taken. */
enum { COPIED_LEAST = 1 << 15, ADDED_LEAST = 1 << 14, LOGITS_LEAST = 1 << 13 };

/* How many rows of `width` elements are worth a thread, of which `least` elements are. */
static inline size_t rows_worth(size_t least, size_t width) {
    return (least + width - 1) / width;
}

/* Sums over rows are shared by columns, so that each runs in the order of the rows. */
static inline void share_columns(size_t rows, size_t width, void (*fn)(void *, size_t, size_t),
                                 const void *args) {
    ashlar__workers_share_columns(rows, width, sizeof(real), ADDED_LEAST, fn,
                                  (void *)(uintptr_t)args); /* nobody writes to them */
}

#endif /* ASHLAR_OPS_ROWS_H */
