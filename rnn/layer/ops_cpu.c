/* ops_cpu.c - the operations of ops.h and softmax on plain memory, for the element type that
 * meson.build compiles this file for (real.h). */
#include "rnn/layer/ops.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "arena/compute/workers.h"
#include "rnn/product/real.h"

/* Sums and maxima of a row are computed as LANES partial results, so that the compiler can use
 * vector instructions without changing the order of operations. */
enum { LANES = 8 };

static real row_max(const real *row, size_t width) {
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

/* Define a function that sums `term`, an expression in x and `shift`, over a row's elements x. */
#define DEFINE_SUM(name, term)                                    \
    static real name(const real *row, size_t width, real shift) { \
        real sum[LANES] = {0};                                    \
        size_t j = 0;                                             \
        (void)shift;                                              \
        for (; j + LANES <= width; j += LANES) {                  \
            for (size_t k = 0; k < LANES; k++) {                  \
                const real x = row[j + k];                        \
                sum[k] += (term);                                 \
            }                                                     \
        }                                                         \
        for (; j < width; j++) {                                  \
            const real x = row[j];                                \
            sum[0] += (term);                                     \
        }                                                         \
        for (size_t k = 1; k < LANES; k++) {                      \
            sum[0] += sum[k];                                     \
        }                                                         \
        return sum[0];                                            \
    }
DEFINE_SUM(row_sum, x)
DEFINE_SUM(exp_sum, real_exp(x - shift))

/* out[j] = exp((row[j] - shift) * scale); out may be row. */
static void exp_row(const real *row, size_t width, real shift, real scale, real *out) {
    for (size_t j = 0; j < width; j++) {
        out[j] = real_exp((row[j] - shift) * scale);
    }
}

static void scale_row(real *row, size_t width, real factor) {
    for (size_t j = 0; j < width; j++) {
        row[j] *= factor;
    }
}

static void add_row(real *restrict sum, const real *restrict row, size_t width) {
    for (size_t j = 0; j < width; j++) {
        sum[j] += row[j];
    }
}

static size_t length_of(const int32_t *lengths, size_t sequence, size_t steps) {
    return lengths == NULL ? steps : (size_t)lengths[sequence];
}

/* The least work that is worth waking a thread for, about ten microseconds: in elements that are
 * copied, elements that are added up, and logits of which the loss is computed. */
enum { COPIED_LEAST = 1 << 15, ADDED_LEAST = 1 << 14, LOGITS_LEAST = 1 << 13 };

/* How many rows of `width` elements are worth waking a thread for, if `least` elements are. */
static size_t rows_worth(size_t least, size_t width) {
    return (least + width - 1) / width;
}

/* Sum over rows: threads share the columns, so that each sum is added in the order of the rows. */
static void share_columns(size_t rows, size_t width, void (*fn)(void *, size_t, size_t),
                          const void *args) {
    ashlar__workers_share_columns(rows, width, sizeof(real), ADDED_LEAST, fn,
                                  (void *)(uintptr_t)args); /* `fn` only reads them */
}

static void gather_rows(void *context, size_t first, size_t end) {
    const ashlar_embedding_args *const args = context;
    const size_t width = args->width;
    const real *const table = args->table;
    real *const out = args->out;
    for (size_t at = first; at < end; at++) {
        const size_t t = at / args->batch, b = at % args->batch;
        if (t >= length_of(args->lengths, b, args->steps)) {
            memset(out + at * width, 0, width * sizeof(real));
            continue;
        }
        const size_t token = (size_t)args->tokens[at];
        ASHLAR_ASSERT(token < args->classes);
        memcpy(out + at * width, table + token * width, width * sizeof(real));
    }
}

void REAL(ashlar__embedding_forward)(const ashlar_embedding_args *args) {
    ashlar__workers_share(args->steps * args->batch, rows_worth(COPIED_LEAST, args->width),
                          gather_rows, (void *)(uintptr_t)args);
}

static void scatter_columns(void *context, size_t first, size_t end) {
    const ashlar_embedding_args *const args = context;
    const real *const dout = args->dout;
    real *const dtable = args->dtable;
    for (size_t at = 0; at < args->steps * args->batch; at++) {
        if (at / args->batch >= length_of(args->lengths, at % args->batch, args->steps)) {
            continue;
        }
        const size_t token = (size_t)args->tokens[at];
        ASHLAR_ASSERT(token < args->classes);
        add_row(dtable + token * args->width + first, dout + at * args->width + first, end - first);
    }
}

void REAL(ashlar__embedding_backward)(const ashlar_embedding_args *args) {
    share_columns(args->steps * args->batch, args->width, scatter_columns, args);
}

static void copy_bias(void *context, size_t first, size_t end) {
    const ashlar_linear_args *const args = context;
    for (size_t row = first; row < end; row++) {
        memcpy((real *)args->y + row * args->out, args->bias, args->out * sizeof(real));
    }
}

void REAL(ashlar__linear_forward)(const ashlar_linear_args *args) {
    if (args->bias != NULL) {
        ashlar__workers_share(args->rows, rows_worth(COPIED_LEAST, args->out), copy_bias,
                              (void *)(uintptr_t)args);
    }
    REAL(ashlar__gemm)
    (false, true, args->rows, args->out, args->in, args->x, args->in, args->weight, args->in,
     args->bias != NULL, args->y, args->out);
}

static void add_bias_columns(void *context, size_t first, size_t end) {
    const ashlar_linear_args *const args = context;
    for (size_t row = 0; row < args->rows; row++) {
        add_row((real *)args->dbias + first, (const real *)args->dy + row * args->out + first,
                end - first);
    }
}

void REAL(ashlar__linear_backward)(const ashlar_linear_args *args) {
    const real *const dy = args->dy;
    if (args->dx != NULL) {
        REAL(ashlar__gemm)
        (false, false, args->rows, args->in, args->out, dy, args->out, args->weight, args->in,
         false, args->dx, args->in);
    }
    if (args->dweight != NULL) {
        REAL(ashlar__gemm)
        (true, false, args->out, args->in, args->rows, dy, args->out, args->x, args->in, true,
         args->dweight, args->in);
    }
    if (args->dbias != NULL) {
        share_columns(args->rows, args->out, add_bias_columns, args);
    }
}

/* The loss of one position: minus the log-probability of `target`. */
static double position_loss(const real *logits, size_t classes, size_t target) {
    const real top = row_max(logits, classes);
    return log((double)exp_sum(logits, classes, top)) + ((double)top - (double)logits[target]);
}

/* dlogits = weight * (softmax(logits) - one-hot target); it may be logits. Returns the loss. */
static double position_gradient(const real *logits, size_t classes, size_t target, real weight,
                                real *dlogits) {
    const real top = row_max(logits, classes);
    const double gap = (double)top - (double)logits[target];
    exp_row(logits, classes, top, 1, dlogits);
    const real sum = row_sum(dlogits, classes, 0);
    scale_row(dlogits, classes, weight / sum);
    dlogits[target] -= weight;
    return log((double)sum) + gap;
}

/* Whether a position counts: it lies inside its sequence, and its target is not negative. */
static bool is_valid(const ashlar_cross_entropy_args *args, size_t at) {
    return at / args->batch < length_of(args->lengths, at % args->batch, args->steps) &&
           args->targets[at] >= 0;
}

static size_t count_valid(const ashlar_cross_entropy_args *args) {
    size_t valid = 0;
    for (size_t at = 0; at < args->steps * args->batch; at++) {
        valid += is_valid(args, at);
    }
    return valid;
}

/* The weight of each of `count` positions or elements: the given one or, if that is 0, 1 / count,
 * so that the loss is a mean. */
static double weight_of(double given, size_t count) {
    return given != 0 ? given : 1 / (double)(count > 0 ? count : 1);
}

/* Threads compute the losses of KEPT_LOSSES positions; then one adds these up in order. */
enum { KEPT_LOSSES = 2048 };

/* Up to KEPT_LOSSES positions from position `from` on. */
typedef struct loss_run {
    const ashlar_cross_entropy_args *args;
    size_t from;
    real weight;  /* the factor of each position's gradient */
    double *kept; /* [KEPT_LOSSES], out: the positions' losses */
} loss_run;

static void compute_losses(void *context, size_t first, size_t end) {
    const loss_run *const run = context;
    const ashlar_cross_entropy_args *const args = run->args;
    const size_t classes = args->classes;
    for (size_t i = first; i < end; i++) {
        const size_t at = run->from + i;
        const real *const row = (const real *)args->logits + at * classes;
        real *const drow = args->dlogits == NULL ? NULL : (real *)args->dlogits + at * classes;
        run->kept[i] = 0;
        if (is_valid(args, at)) {
            const size_t target = (size_t)args->targets[at];
            ASHLAR_ASSERT(target < classes);
            run->kept[i] = drow == NULL
                               ? position_loss(row, classes, target)
                               : position_gradient(row, classes, target, run->weight, drow);
        } else if (drow != NULL) {
            memset(drow, 0, classes * sizeof(real));
        }
    }
}

void REAL(ashlar__cross_entropy)(const ashlar_cross_entropy_args *args) {
    double kept[KEPT_LOSSES], sum = 0;
    const double given = args->weight_at != NULL ? *args->weight_at : args->weight;
    const double weight = weight_of(given, given != 0 ? 1 : count_valid(args));
    const double scale = args->scale == NULL ? 1.0 : *args->scale;
    const size_t positions = args->steps * args->batch;
    loss_run run = {.args = args, .weight = (real)(scale * weight), .kept = kept};
    for (; run.from < positions; run.from += KEPT_LOSSES) {
        const size_t left = positions - run.from, count = left < KEPT_LOSSES ? left : KEPT_LOSSES;
        ashlar__workers_share(count, rows_worth(LOGITS_LEAST, args->classes), compute_losses, &run);
        for (size_t i = 0; i < count; i++) {
            sum += kept[i];
        }
        if (args->losses != NULL) {
            memcpy(args->losses + run.from, kept, count * sizeof kept[0]);
        }
    }
    *args->loss += sum * weight;
}

/* The squared error of one position. The gradient, if wanted, may overwrite the outputs. */
static double position_squares(const real *outputs, const real *targets, size_t width, real factor,
                               real *doutputs) {
    double sum = 0;
    for (size_t j = 0; j < width; j++) {
        const real difference = outputs[j] - targets[j];
        sum += (double)difference * (double)difference;
        if (doutputs != NULL) {
            doutputs[j] = factor * difference;
        }
    }
    return sum;
}

void REAL(ashlar__squared_error)(const ashlar_squared_error_args *args) {
    const size_t width = args->width;
    size_t valid = 0;
    for (size_t b = 0; b < args->batch; b++) {
        valid += length_of(args->lengths, b, args->steps);
    }
    const double weight = weight_of(args->weight, valid * width);
    const double scale = args->scale == NULL ? 1.0 : *args->scale;
    double sum = 0;
    for (size_t at = 0; at < args->steps * args->batch; at++) {
        real *const d = args->doutputs == NULL ? NULL : (real *)args->doutputs + at * width;
        double squares = 0;
        if (at / args->batch < length_of(args->lengths, at % args->batch, args->steps)) {
            squares = position_squares((const real *)args->outputs + at * width,
                                       (const real *)args->targets + at * width, width,
                                       (real)(2 * scale * weight), d);
        } else if (d != NULL) {
            memset(d, 0, width * sizeof(real));
        }
        if (args->losses != NULL) {
            args->losses[at] = squares;
        }
        sum += squares;
    }
    *args->loss += sum * weight;
}

void REAL(ashlar__softmax)(const ashlar_softmax_args *args) {
    const size_t classes = args->classes;
    const real *const logits = args->logits;
    real *const probs = args->probs;
    ASHLAR_ASSERT(args->temperature > 0);
    for (size_t row = 0; row < args->rows; row++) {
        real *const out = probs + row * classes;
        const real *const in = logits + row * classes;
        exp_row(in, classes, row_max(in, classes), (real)(1.0 / args->temperature), out);
        scale_row(out, classes, 1 / row_sum(out, classes, 0));
    }
}

void REAL(ashlar__copy_columns)(const ashlar_columns_args *args) {
    const real *const from = args->from;
    real *const to = args->to;
    for (size_t row = 0; row < args->rows; row++) {
        memcpy(to + row * args->to_stride, from + row * args->from_stride,
               args->width * sizeof(real));
    }
}

void REAL(ashlar__argmax)(const ashlar_argmax_args *args) {
    const real *const logits = args->logits;
    for (size_t row = 0; row < args->rows; row++) {
        const real *const in = logits + row * args->classes;
        size_t best = 0;
        for (size_t j = 1; j < args->classes; j++) {
            if (in[j] > in[best] || isnan(in[best])) { /* NaN is never the largest */
                best = j;
            }
        }
        args->labels[row] = isnan(in[best]) ? 0 : (int32_t)best;
    }
}
