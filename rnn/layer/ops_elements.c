/* ops_elements.c - a model's engine's operations on elements and rows on plain memory, for the
 * element type that meson.build compiles this file for (real.h). */
#include "rnn/layer/ops.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "rnn/layer/dropout.h"
#include "rnn/layer/ops_rows.h"

static void put(real *out, real value, bool adds) {
    *out = adds ? *out + value : value;
}

#define MAP_LOOP(value)                                 \
    for (size_t i = first; i < end; i++) {              \
        out[i] = args->adds ? out[i] + (value) : value; \
    }                                                   \
    break

static void map_elements(void *context, size_t first, size_t end) {
    const ashlar_map_args *const args = context;
    const real *const a = args->a, *const b = args->b;
    real *const out = args->out;
    switch (args->kind) {
    case ASHLAR_MAP_COPY:
        MAP_LOOP(a[i]);
    case ASHLAR_MAP_ADD:
        MAP_LOOP(a[i] + b[i]);
    case ASHLAR_MAP_MULTIPLY:
        MAP_LOOP(a[i] * b[i]);
    case ASHLAR_MAP_TANH:
        MAP_LOOP(real_tanh(a[i]));
    case ASHLAR_MAP_RELU:
        MAP_LOOP((a[i] < 0 ? 0 : a[i])); /* NaN stays */
    case ASHLAR_MAP_SIGMOID:
        MAP_LOOP(real_sigmoid(a[i]));
    case ASHLAR_MAP_TANH_BACK:
        MAP_LOOP(b[i] * (1 - a[i] * a[i]));
    case ASHLAR_MAP_RELU_BACK:
        MAP_LOOP((a[i] > 0 ? b[i] : 0));
    case ASHLAR_MAP_SIGMOID_BACK:
        MAP_LOOP(b[i] * a[i] * (1 - a[i]));
    case ASHLAR_MAP_KIND_COUNT:
        break;
    }
}

void REAL(ashlar__map)(const ashlar_map_args *args) {
    ASHLAR_ASSERT(args->kind < ASHLAR_MAP_KIND_COUNT);
    ashlar__workers_share(args->count, ADDED_LEAST, map_elements, (void *)(uintptr_t)args);
}

static void scale_some_rows(void *context, size_t first, size_t end) {
    const ashlar_scale_rows_args *const args = context;
    const real *const scale = args->scale;
    for (size_t row = first; row < end; row++) {
        const real *const a = (const real *)args->a + row * args->width;
        real *const out = (real *)args->out + row * args->width;
        const bool is_valid =
            args->lengths == NULL ||
            row / args->batch < length_of(args->lengths, row % args->batch, args->steps);
        const bool counts = is_valid != args->is_past;
        const real factor = scale == NULL ? 1 : scale[row];
        if (counts) {
            for (size_t j = 0; j < args->width; j++) {
                out[j] = args->adds ? out[j] + a[j] * factor : a[j] * factor;
            }
        } else if (!args->adds) {
            memset(out, 0, args->width * sizeof(real));
        }
    }
}

void REAL(ashlar__scale_rows)(const ashlar_scale_rows_args *args) {
    ASHLAR_ASSERT(args->lengths == NULL || args->rows == args->steps * args->batch);
    ashlar__workers_share(args->rows, rows_worth(COPIED_LEAST, args->width), scale_some_rows,
                          (void *)(uintptr_t)args);
}

static real row_product(const real *a, const real *b, size_t width) {
    real sum[LANES] = {0};
    size_t j = 0;
    for (; j + LANES <= width; j += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            sum[k] += a[j + k] * b[j + k];
        }
    }
    for (; j < width; j++) {
        sum[0] += a[j] * b[j];
    }
    for (size_t k = 1; k < LANES; k++) {
        sum[0] += sum[k];
    }
    return sum[0];
}

static void multiply_rows(void *context, size_t first, size_t end) {
    const ashlar_row_products_args *const args = context;
    for (size_t row = first; row < end; row++) {
        put((real *)args->out + row,
            row_product((const real *)args->a + row * args->width,
                        (const real *)args->b + row * args->width, args->width),
            args->adds);
    }
}

void REAL(ashlar__row_products)(const ashlar_row_products_args *args) {
    ashlar__workers_share(args->rows, rows_worth(ADDED_LEAST, args->width), multiply_rows,
                          (void *)(uintptr_t)args);
}

static void soften_rows_back(void *context, size_t first, size_t end) {
    const ashlar_softmax_back_args *const args = context;
    const size_t width = args->width;
    for (size_t row = first; row < end; row++) {
        const real *const y = (const real *)args->y + row * width;
        const real *const dy = (const real *)args->dy + row * width;
        real *const dx = (real *)args->dx + row * width;
        const real sum = row_product(y, dy, width);
        for (size_t j = 0; j < width; j++) {
            put(&dx[j], y[j] * (dy[j] - sum), args->adds);
        }
    }
}

void REAL(ashlar__softmax_back)(const ashlar_softmax_back_args *args) {
    ashlar__workers_share(args->rows, rows_worth(ADDED_LEAST, args->width), soften_rows_back,
                          (void *)(uintptr_t)args);
}

static void drop_positions(void *context, size_t first, size_t end) {
    const ashlar_drop_args *const args = context;
    const size_t width = args->width, stride = args->stride == 0 ? 1 : args->stride;
    const uint32_t threshold = ashlar__dropout_threshold(args->rate);
    const real scale = (real)(1 / (1 - args->rate));
    ashlar_dropout_row key = {.seed = args->seed + (args->seed_at != NULL ? *args->seed_at : 0),
                              .layer = ASHLAR_DROPOUT_SITE + args->site};
    for (size_t at = first; at < end; at++) {
        const real *const a = (const real *)args->a + at * width;
        real *const out = (real *)args->out + at * width;
        key.step = at / args->batch;
        key.sequence = args->first + at % args->batch * stride;
        for (size_t done = 0; done < width; done += ASHLAR_DROPOUT_DRAWS) {
            const size_t left = width - done;
            const size_t count = left < ASHLAR_DROPOUT_DRAWS ? left : ASHLAR_DROPOUT_DRAWS;
            uint32_t draws[ASHLAR_DROPOUT_DRAWS];
            ashlar__dropout_draw(&key, done / ASHLAR_DROPOUT_DRAWS, draws);
            for (size_t j = 0; j < count; j++) {
                put(&out[done + j], draws[j] < threshold ? 0 : a[done + j] * scale, args->adds);
            }
        }
    }
}

void REAL(ashlar__drop)(const ashlar_drop_args *args) {
    ASHLAR_ASSERT(args->rate >= 0 && args->rate < 1 && args->site < ASHLAR_DROPOUT_SITE);
    ashlar__workers_share(args->steps * args->batch, rows_worth(LOGITS_LEAST, args->width),
                          drop_positions, (void *)(uintptr_t)args);
}

/* Columns of one sequence, which are pooled together: their first one in [T, B * W], and how many
 * steps count. */
enum { POOLED_COLUMNS = 64 };

typedef struct pooled {
    size_t first, count; /* 1 .. POOLED_COLUMNS */
    size_t length;
} pooled;

/* The columns from `first` on, up to `end` at most. */
static pooled pooled_at(const ashlar_pool_args *args, size_t first, size_t end) {
    const size_t sequence = first / args->width, left = (sequence + 1) * args->width - first;
    size_t count = left < end - first ? left : end - first;
    count = count < POOLED_COLUMNS ? count : POOLED_COLUMNS;
    return (pooled){first, count, length_of(args->lengths, sequence, args->steps)};
}

static void pool_steps(const ashlar_pool_args *args, const pooled *p) {
    const size_t row = args->batch * args->width;
    const real *x = (const real *)args->x + p->first;
    real *const y = (real *)args->y + p->first;
    real held[POOLED_COLUMNS] = {0};
    if (p->length > 0) {
        x += args->kind == ASHLAR_POOL_LAST ? (p->length - 1) * row : 0;
        memcpy(held, x, p->count * sizeof(real));
    }
    for (size_t t = 1; t < p->length && args->kind != ASHLAR_POOL_LAST; t++) {
        x += row;
        for (size_t j = 0; j < p->count; j++) {
            const bool is_larger = x[j] > held[j] || isnan(x[j]);
            held[j] = args->kind == ASHLAR_POOL_MEAN ? held[j] + x[j] : is_larger ? x[j] : held[j];
        }
    }
    const real divisor = args->kind == ASHLAR_POOL_MEAN && p->length > 0 ? (real)p->length : 1;
    for (size_t j = 0; j < p->count; j++) {
        put(&y[j], held[j] / divisor, args->adds);
    }
}

static void pool_columns(void *context, size_t first, size_t end) {
    const ashlar_pool_args *const args = context;
    for (size_t at = first; at < end;) {
        const pooled p = pooled_at(args, at, end);
        pool_steps(args, &p);
        at += p.count;
    }
}

void REAL(ashlar__pool)(const ashlar_pool_args *args) {
    ASHLAR_ASSERT(args->kind < ASHLAR_POOL_KIND_COUNT);
    share_columns(args->steps, args->batch * args->width, pool_columns, args);
}

static void pool_steps_back(const ashlar_pool_args *args, const pooled *p) {
    const size_t row = args->batch * args->width;
    const real *const y = (const real *)args->y + p->first;
    const real *const dy = (const real *)args->dy + p->first;
    bool is_given[POOLED_COLUMNS] = {false};
    for (size_t t = 0; t < args->steps; t++) {
        const real *const x = (const real *)args->x + p->first + t * row;
        real *const dx = (real *)args->dx + p->first + t * row;
        for (size_t j = 0; j < p->count; j++) {
            real slope = 0;
            if (t >= p->length) {
            } else if (args->kind == ASHLAR_POOL_MEAN) {
                slope = dy[j] / (real)p->length;
            } else if (args->kind == ASHLAR_POOL_LAST) {
                slope = t + 1 == p->length ? dy[j] : 0;
            } else if (!is_given[j] && (x[j] >= y[j] || isnan(x[j]))) {
                is_given[j] = true;
                slope = dy[j];
            }
            put(&dx[j], slope, args->adds);
        }
    }
}

static void pool_columns_back(void *context, size_t first, size_t end) {
    const ashlar_pool_args *const args = context;
    for (size_t at = first; at < end;) {
        const pooled p = pooled_at(args, at, end);
        pool_steps_back(args, &p);
        at += p.count;
    }
}

void REAL(ashlar__pool_back)(const ashlar_pool_args *args) {
    ASHLAR_ASSERT(args->kind < ASHLAR_POOL_KIND_COUNT);
    share_columns(args->steps, args->batch * args->width, pool_columns_back, args);
}

static void swap_rows(void *context, size_t first, size_t end) {
    const ashlar_swap_args *const args = context;
    const size_t width = args->width;
    for (size_t row = first; row < end; row++) {
        const size_t from = row % args->outer * args->inner + row / args->outer;
        put_row((const real *)args->from + from * width, width, args->adds,
                (real *)args->to + row * width);
    }
}

void REAL(ashlar__swap)(const ashlar_swap_args *args) {
    ashlar__workers_share(args->outer * args->inner, rows_worth(COPIED_LEAST, args->width),
                          swap_rows, (void *)(uintptr_t)args);
}

void REAL(ashlar__clip_lengths)(const ashlar_clip_lengths_args *args) {
    ASHLAR_ASSERT(args->least <= args->steps);
    for (size_t b = 0; b < args->batch; b++) {
        args->out[b] = ashlar__clip_length(args, b);
    }
}
