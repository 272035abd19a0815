/* ops_loss.c - softmax and losses on plain memory, for the element type that meson.build compiles
 * this file for (real.h). */
#include "rnn/layer/ops.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/soft/soft.h"
#include "rnn/layer/ops_rows.h"

/* Positions whose losses are kept until they are added up, in order. */
enum { KEPT_LOSSES = 2048 };

/* What both losses share. */
typedef struct loss_run {
    const void *args;
    size_t from;  /* the first position of this run */
    real weight;  /* of gradients */
    double *kept; /* [KEPT_LOSSES] losses of the positions from `from` on */
} loss_run;

/* Let fn compute the losses of all positions, `least` or more at once, and gradients times
 * `weight`. Returns the sum of the losses. */
static double run_losses(const void *args, real weight, size_t positions, size_t least,
                         void (*fn)(void *, size_t, size_t), double *losses) {
    double kept[KEPT_LOSSES], sum = 0;
    loss_run run = {.args = args, .weight = weight, .kept = kept};
    for (; run.from < positions; run.from += KEPT_LOSSES) {
        const size_t left = positions - run.from, count = left < KEPT_LOSSES ? left : KEPT_LOSSES;
        ashlar__workers_share(count, least, fn, &run);
        for (size_t i = 0; i < count; i++) {
            sum += kept[i];
        }
        if (losses != NULL) {
            memcpy(losses + run.from, kept, count * sizeof kept[0]);
        }
    }
    return sum;
}

static double given_weight(double weight, const double *weight_at) {
    return weight_at != NULL ? *weight_at : weight;
}

static double factor_of(double factor) {
    return factor != 0 ? factor : 1;
}

/* The weight that gives a mean; of 0, it does not matter. */
static double mean_weight(double count) {
    return 1 / (count > 0 ? count : 1);
}

static bool is_inside(size_t at, size_t steps, size_t batch, const int32_t *lengths) {
    return at / batch < length_of(lengths, at % batch, steps);
}

/* The element of an array of weights, which may be missing. */
static real weight_in(const void *weights, size_t i) {
    return weights == NULL ? 1 : ((const real *)weights)[i];
}

/* Whether a position counts: inside its sequence, and not to be ignored. */
static bool is_valid(const ashlar_cross_entropy_args *args, size_t at) {
    return is_inside(at, args->steps, args->batch, args->lengths) && args->targets[at] >= 0 &&
           weight_in(args->position_weights, at) != 0;
}

static double total_weight(const ashlar_cross_entropy_args *args) {
    double total = 0;
    for (size_t at = 0; at < args->steps * args->batch; at++) {
        total += is_valid(args, at)
                     ? (double)weight_in(args->class_weights, (size_t)args->targets[at]) *
                           (double)weight_in(args->position_weights, at)
                     : 0;
    }
    return total;
}

/* The loss of a position, the sum over the classes of -wanted * log softmax(logits), and its
 * gradient, `weight` times softmax(logits) * (the sum of wanted) - wanted, which may overwrite the
 * logits. Wanted is the target's class weight, of which label smoothing spreads a part. */
static double position_loss(const ashlar_cross_entropy_args *args, const real *logits,
                            size_t target, real weight, real *dlogits) {
    const size_t classes = args->classes;
    const real top = row_max(logits, classes);
    const double gap = (double)top - (double)logits[target];
    const double own = (1 - args->smoothing) * (double)weight_in(args->class_weights, target);
    const double share = args->smoothing / (double)classes;
    double mass = own, gaps = 0, sum;
    for (size_t j = 0; j < classes && share > 0; j++) {
        const double spread = share * (double)weight_in(args->class_weights, j);
        mass += spread;
        gaps += spread * ((double)top - (double)logits[j]);
    }
    if (dlogits == NULL) {
        sum = (double)exp_sum(logits, classes, top);
    } else {
        exp_row(logits, classes, top, 1, dlogits);
        const real total = row_sum(dlogits, classes, 0);
        scale_row(dlogits, classes, weight * (real)mass / total);
        for (size_t j = 0; j < classes && share > 0; j++) {
            dlogits[j] -= weight * (real)share * weight_in(args->class_weights, j);
        }
        dlogits[target] -= weight * (real)own;
        sum = (double)total;
    }
    return mass * log(sum) + own * gap + gaps;
}

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
            const real weight = weight_in(args->position_weights, at);
            run->kept[i] =
                (double)weight * position_loss(args, row, target, run->weight * weight, drow);
        } else if (drow != NULL) {
            memset(drow, 0, classes * sizeof(real));
        }
    }
}

/* Whether every target that counts is a class; else the device is lost. */
static bool are_classes(const ashlar_cross_entropy_args *args) {
    for (size_t at = 0; at < args->steps * args->batch; at++) {
        if (is_valid(args, at) && (size_t)args->targets[at] >= args->classes) {
            ashlar__soft_lose_device("cross-entropy: a target is no class: it is not below the "
                                     "number of logits of a position");
            return false;
        }
    }
    return true;
}

void REAL(ashlar__cross_entropy)(const ashlar_cross_entropy_args *args) {
    if (!are_classes(args)) {
        return;
    }
    const double given = given_weight(args->weight, args->weight_at);
    const double weight =
        (given != 0 ? given : mean_weight(total_weight(args))) * factor_of(args->factor);
    const double scale = args->scale == NULL ? 1.0 : *args->scale;
    const double sum =
        run_losses(args, (real)(scale * weight), args->steps * args->batch,
                   rows_worth(LOGITS_LEAST, args->classes), compute_losses, args->losses);
    if (args->loss != NULL) {
        *args->loss += weight * sum;
    }
}

static bool has_elements(const ashlar_squared_error_args *args, size_t at) {
    return is_inside(at, args->steps, args->batch, args->lengths) && weight_in(args->mask, at) != 0;
}

static size_t count_elements(const ashlar_squared_error_args *args) {
    size_t valid = 0;
    for (size_t at = 0; at < args->steps * args->batch; at++) {
        valid += has_elements(args, at);
    }
    return valid * args->width;
}

/* A loop over the elements of a position: their losses, and what the gradient's factor multiplies.
 * The gradient, if wanted, may overwrite the outputs. */
#define ELEMENT_LOOP(loss, slope)                       \
    for (size_t j = 0; j < width; j++) {                \
        const real x = outputs[j], wanted = targets[j]; \
        const real difference = x - wanted;             \
        const double far = fabs((double)difference);    \
        (void)far;                                      \
        sum += (loss);                                  \
        if (doutputs != NULL) {                         \
            doutputs[j] = factor * (slope);             \
        }                                               \
    }                                                   \
    break

static double position_elements(const ashlar_squared_error_args *args, const real *outputs,
                                const real *targets, real factor, real *doutputs) {
    const size_t width = args->width;
    const double delta = args->delta;
    double sum = 0;
    switch (args->kind) {
    case ASHLAR_ELEMENT_SQUARED:
        ELEMENT_LOOP((double)difference * (double)difference, difference);
    case ASHLAR_ELEMENT_HUBER:
        ELEMENT_LOOP(far <= delta ? 0.5 * far * far : delta * (far - 0.5 * delta),
                     far <= delta ? difference : (real)copysign(delta, (double)difference));
    case ASHLAR_ELEMENT_BINARY:
        ELEMENT_LOOP((double)(x > 0 ? x : 0) - (double)x * (double)wanted +
                         log1p(exp(-fabs((double)x))),
                     real_sigmoid(x) - wanted);
    case ASHLAR_ELEMENT_LOSS_COUNT:
        break;
    }
    return sum;
}

static void compute_elements(void *context, size_t first, size_t end) {
    const loss_run *const run = context;
    const ashlar_squared_error_args *const args = run->args;
    const size_t width = args->width;
    for (size_t i = first; i < end; i++) {
        const size_t at = run->from + i;
        real *const d = args->doutputs == NULL ? NULL : (real *)args->doutputs + at * width;
        run->kept[i] = 0;
        if (has_elements(args, at)) {
            run->kept[i] =
                position_elements(args, (const real *)args->outputs + at * width,
                                  (const real *)args->targets + at * width, run->weight, d);
        } else if (d != NULL) {
            memset(d, 0, width * sizeof(real));
        }
    }
}

void REAL(ashlar__squared_error)(const ashlar_squared_error_args *args) {
    const double given = given_weight(args->weight, args->weight_at);
    const double weight =
        (given != 0 ? given : mean_weight((double)count_elements(args))) * factor_of(args->factor);
    const double scale = args->scale == NULL ? 1.0 : *args->scale;
    const double slope = args->kind == ASHLAR_ELEMENT_SQUARED ? 2 : 1;
    const double sum =
        run_losses(args, (real)(slope * scale * weight), args->steps * args->batch,
                   rows_worth(LOGITS_LEAST, args->width), compute_elements, args->losses);
    if (args->loss != NULL) {
        *args->loss += weight * sum;
    }
}

void REAL(ashlar__add_losses)(const ashlar_add_losses_args *args) {
    double sum = 0;
    for (size_t i = 0; i < args->positions; i++) {
        sum += args->losses[i];
    }
    const double weight = given_weight(args->weight, args->weight_at) * args->factor;
    *args->loss += weight * sum;
}

static void soften_rows(void *context, size_t first, size_t end) {
    const ashlar_softmax_args *const args = context;
    const size_t width = args->width;
    const double temperature = args->temperature != 0 ? args->temperature : 1;
    ASHLAR_ASSERT(temperature > 0);
    for (size_t row = first; row < end; row++) {
        const real *const in = (const real *)args->x + row * width;
        real *const out = (real *)args->y + row * width;
        exp_row(in, width, row_max(in, width), (real)(1.0 / temperature), out);
        scale_row(out, width, 1 / row_sum(out, width, 0));
    }
}

void REAL(ashlar__softmax)(const ashlar_softmax_args *args) {
    ashlar__workers_share(args->rows, rows_worth(LOGITS_LEAST, args->width), soften_rows,
                          (void *)(uintptr_t)args);
}
