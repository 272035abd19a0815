/*
 * ops_elements_fixture.h - a model's engine's operations and the losses as one table: arguments on
 * operands that lie on the host or on a device, and what each element of the result should be.
 *
 * A case has variants. The operands are random; padded ones have NaN past the lengths, one of which
 * is 0.
 */
#ifndef ASHLAR_OPS_ELEMENTS_FIXTURE_H
#define ASHLAR_OPS_ELEMENTS_FIXTURE_H

#include "tests/allocator/trace/numbers_fixture.h"

#include "rnn/layer/dropout.h"
#include "rnn/layer/ops.h"

enum { STEPS = 5, BATCH = 4, ROWS = STEPS * BATCH, WIDTH_MAX = 931, GAP = 3 };
enum { COUNT_MAX = ROWS * (WIDTH_MAX + GAP) };

static const int32_t LENGTHS[BATCH] = {5, 0, 3, 1};
static const uint64_t SEED = 77, SEED_MORE = (uint64_t)1 << 40;
static const double RATE = 0.4, TEMPERATURE = 0.5, DELTA = 0.7, SMOOTHING = 0.3, SCALE = 3;
static const double WEIGHTS[] = {0.25, 0}; /* of losses; 0: the mean */
enum { SITE = 5, FIRST = 2, STRIDE = 3 };

/* What is of the elements' type, room_of(width) of each. */
typedef enum operand {
    IN,     /* with ties, of which the first two positions of column 0 are the largest */
    PADDED, /* the same, with NaN past the lengths */
    OTHER,
    TOPS,       /* [B, width], the largest of IN over the steps */
    TOPS_SHORT, /* of PADDED over the lengths */
    CLASSES,    /* positive weights */
    POSITIONS,  /* some of which are 0 */
    OUT,
    OPERAND_COUNT
} operand;

typedef struct operands {
    size_t width;
    void *of[OPERAND_COUNT];
    const int32_t *lengths, *targets; /* [B], [T, B]: some negative, those past the lengths too */
    const uint64_t *seed_at;
    const double *weight_at, *scale; /* WEIGHTS, a factor of gradients */
    void *work;
    double *loss, *losses;
    bool adds, is_in_place, is_loss_only;
} operands;

/* The input of an operation whose result may take its place. */
#define PLACE(input) (o->is_in_place ? o->of[OUT] : o->of[input])
#define SHAPE .steps = STEPS, .batch = BATCH, .width = o->width

/* X(operation, arguments, variants, elements of the result, whether it may add, input in whose
 * place the result may be, or OPERAND_COUNT; fields). */
#define OPS_CASES(X)                                                                              \
    X(map, map, ASHLAR_MAP_KIND_COUNT, ROWS * o->width, true, IN, .kind = (ashlar_map_kind)v,     \
      .count = ROWS * o->width, .a = PLACE(IN), .b = o->of[OTHER], .out = o->of[OUT],             \
      .adds = o->adds)                                                                            \
    X(scale_rows, scale_rows, 4, ROWS * o->width, true, PADDED, .rows = ROWS, SHAPE,              \
      .a = PLACE(PADDED), .scale = v & 1 ? o->of[OTHER] : NULL, .lengths = o->lengths,            \
      .out = o->of[OUT], .adds = o->adds)                                                         \
    X(row_products, row_products, 1, ROWS, true, OPERAND_COUNT, .rows = ROWS, .width = o->width,  \
      .a = o->of[IN], .b = o->of[OTHER], .out = o->of[OUT], .adds = o->adds)                      \
    X(softmax, softmax, 2, ROWS * o->width, false, IN, .rows = ROWS, .width = o->width,           \
      .x = PLACE(IN), .y = o->of[OUT], .temperature = v == 0 ? 0 : TEMPERATURE)                   \
    X(softmax_back, softmax_back, 1, ROWS * o->width, true, OTHER, .rows = ROWS,                  \
      .width = o->width, .y = o->of[IN], .dy = PLACE(OTHER), .dx = o->of[OUT], .adds = o->adds)   \
    X(drop, drop, 2, ROWS * o->width, true, IN, SHAPE, .rate = RATE, .seed = SEED,                \
      .seed_at = v == 0 ? NULL : o->seed_at, .site = SITE, .first = FIRST, .stride = STRIDE,      \
      .a = PLACE(IN), .out = o->of[OUT], .adds = o->adds)                                         \
    X(pool, pool, 6, BATCH * o->width, true, OPERAND_COUNT, SHAPE,                                \
      .kind = (ashlar_pool_kind)(v / 2), .lengths = v & 1 ? o->lengths : NULL,                    \
      .x = o->of[v & 1 ? PADDED : IN], .y = o->of[OUT], .adds = o->adds)                          \
    X(pool_back, pool_back, 6, ROWS * o->width, true, OPERAND_COUNT, SHAPE,                       \
      .kind = (ashlar_pool_kind)(v / 2), .lengths = v & 1 ? o->lengths : NULL,                    \
      .x = o->of[v & 1 ? PADDED : IN], .y = o->of[v & 1 ? TOPS_SHORT : TOPS], .dy = o->of[OTHER], \
      .dx = o->of[OUT], .adds = o->adds)                                                          \
    X(swap, swap, 1, ROWS * o->width, true, OPERAND_COUNT, .outer = STEPS, .inner = BATCH,        \
      .width = o->width, .from = o->of[IN], .to = o->of[OUT], .adds = o->adds)                    \
    X(copy_columns, columns, 1, ROWS *(o->width + GAP), true, OPERAND_COUNT, .rows = ROWS,        \
      .width = o->width, .from = o->of[IN], .from_stride = o->width, .to = o->of[OUT],            \
      .to_stride = o->width + GAP, .adds = o->adds)                                               \
    X(cross_entropy, cross_entropy, 16, ROWS * o->width, false, PADDED, .steps = STEPS,           \
      .batch = BATCH, .lengths = o->lengths, .classes = o->width, .logits = PLACE(PADDED),        \
      .targets = o->targets,                                                                      \
      .weight = v & 1   ? 9                                                                       \
                : v & 8 ? WEIGHTS[0]                                                              \
                        : 0,                                                                      \
      .weight_at = v & 1 ? o->weight_at + (v & 8 ? 0 : 1) : NULL,                                 \
      .dlogits = o->is_loss_only ? NULL : o->of[OUT], .scale = o->scale, .work = o->work,         \
      .loss = o->loss, .losses = o->losses, .class_weights = v & 1 ? o->of[CLASSES] : NULL,       \
      .position_weights = v & 2 ? o->of[POSITIONS] : NULL, .smoothing = v & 4 ? SMOOTHING : 0)    \
    X(squared_error, squared_error, 12, ROWS * o->width, false, PADDED, SHAPE,                    \
      .lengths = o->lengths, .outputs = PLACE(PADDED), .targets = o->of[OTHER],                   \
      .weight_at = v & 2 ? o->weight_at : NULL, .doutputs = o->is_loss_only ? NULL : o->of[OUT],  \
      .scale = o->scale, .work = o->work, .loss = o->loss, .losses = o->losses, .delta = DELTA,   \
      .kind = (ashlar_element_loss)(v / 4), .mask = v & 1 ? o->of[POSITIONS] : NULL)

#define DEFINE_CASE(op, kind, variants, count, may_add, place, ...)                         \
    static inline ashlar_##kind##_args op##_args(const operands *o, int v) {                \
        (void)v;                                                                            \
        return (ashlar_##kind##_args){__VA_ARGS__};                                         \
    }                                                                                       \
    static inline size_t op##_count(const operands *o) {                                    \
        (void)o;                                                                            \
        return count;                                                                       \
    }                                                                                       \
    static inline void op##_near(const operands *o, int v, bool is_f64) {                   \
        const ashlar_##kind##_args args = op##_args(o, v);                                  \
        (is_f64 ? ashlar__##op##_f64 : ashlar__##op##_f32)(&args);                          \
    }                                                                                       \
    static inline ashlar_status op##_queue(const ashlar_ops *ops, const operands *o, int v, \
                                           ashlar_stream stream) {                          \
        const ashlar_##kind##_args args = op##_args(o, v);                                  \
        return ashlar__ops_##op(ops, &args, stream);                                        \
    }
OPS_CASES(DEFINE_CASE)

#define CASE_NUMBER(op, kind, variants, count, may_add, place, ...) CASE_##op,
typedef enum case_number { OPS_CASES(CASE_NUMBER) CASE_COUNT } case_number;

typedef struct op_case {
    const char *name;
    int variants;
    bool may_add;
    operand place;
    size_t (*count)(const operands *o);
    void (*near)(const operands *o, int v, bool is_f64);
    ashlar_status (*queue)(const ashlar_ops *ops, const operands *o, int v, ashlar_stream stream);
} op_case;

#define CASE_ROW(op, kind, variants, count, may_add, place, ...) \
    {#op, variants, may_add, place, op##_count, op##_near, op##_queue},
static const op_case op_cases[] = {OPS_CASES(CASE_ROW)};

/* ---- operands ---- */

static inline size_t room_of(size_t width) {
    return ROWS * (width + GAP);
}

static inline size_t length_in(int v, size_t b) {
    return v & 1 ? (size_t)LENGTHS[b] : STEPS;
}

static inline bool is_inside(size_t row) {
    return row / BATCH < (size_t)LENGTHS[row % BATCH];
}

static inline void draw_operand(operand which, size_t width, double *out) {
    for (size_t i = 0; i < room_of(width); i++) {
        out[i] = which == CLASSES     ? 1.5 + random_real()
                 : which == POSITIONS ? (i % 5 == 3 ? 0 : 1 + (double)(i % 3))
                 : which == IN ? (i % width == 0 && i / width < 2 * BATCH ? 2 : random_real())
                               : random_real();
    }
}

/* Of double: those that follow from the others, which may have been rounded. */
static inline void derive_operands(const operands *o) {
    const size_t width = o->width;
    const double *const in = o->of[IN];
    double *const padded = o->of[PADDED];
    for (size_t i = 0; i < ROWS * width; i++) {
        padded[i] = is_inside(i / width) ? in[i] : (double)NAN;
    }
    for (size_t i = 0; i < 2 * BATCH * width; i++) {
        const size_t at = i / 2, length = length_in((int)(i % 2), at / width);
        double top = length == 0 ? 0 : -9;
        for (size_t t = 0; t < length; t++) {
            top = fmax(top, in[t * BATCH * width + at]);
        }
        ((double *)o->of[i % 2 == 0 ? TOPS : TOPS_SHORT])[at] = top;
    }
}

static inline void draw_targets(size_t width, int32_t targets[ROWS]) {
    for (size_t row = 0; row < ROWS; row++) {
        targets[row] = row == 2 * BATCH ? -100 : (int32_t)(row * 7 % width);
        targets[row] = is_inside(row) ? targets[row] : -1;
    }
}

/* ---- the results, from operands of double ---- */

static inline double x_of(const operands *o, operand which, size_t i) {
    return ((const double *)o->of[which])[i];
}

static inline double plain_map(int v, double a, double b) {
    switch ((ashlar_map_kind)v) {
    case ASHLAR_MAP_ADD:
        return a + b;
    case ASHLAR_MAP_MULTIPLY:
        return a * b;
    case ASHLAR_MAP_TANH:
        return tanh(a);
    case ASHLAR_MAP_RELU:
        return fmax(a, 0);
    case ASHLAR_MAP_SIGMOID:
        return sigmoid(a);
    case ASHLAR_MAP_TANH_BACK:
        return b * (1 - a * a);
    case ASHLAR_MAP_RELU_BACK:
        return a > 0 ? b : 0;
    case ASHLAR_MAP_SIGMOID_BACK:
        return b * a * (1 - a);
    default:
        return a;
    }
}

/* The sum over a row of `which`: of exp(x / temperature), or of products with OTHER. */
static inline double row_total(const operands *o, size_t row, double temperature) {
    double sum = 0;
    for (size_t j = row * o->width; j < (row + 1) * o->width; j++) {
        sum += temperature > 0 ? exp(x_of(o, IN, j) / temperature)
                               : x_of(o, IN, j) * x_of(o, OTHER, j);
    }
    return sum;
}

static inline double plain_drop(const operands *o, int v, size_t i) {
    const size_t row = i / o->width, j = i % o->width;
    const ashlar_dropout_row key = {.seed = SEED + (v == 0 ? 0 : SEED_MORE),
                                    .layer = ASHLAR_DROPOUT_SITE + SITE,
                                    .step = row / BATCH,
                                    .sequence = FIRST + row % BATCH * STRIDE};
    uint32_t draws[ASHLAR_DROPOUT_DRAWS];
    ashlar__dropout_draw(&key, j / ASHLAR_DROPOUT_DRAWS, draws);
    return draws[j % ASHLAR_DROPOUT_DRAWS] / 0x1p32 < RATE ? 0 : x_of(o, IN, i) / (1 - RATE);
}

static inline double plain_pool(const operands *o, int v, size_t at) {
    const size_t length = length_in(v, at / o->width), row = BATCH * o->width;
    double sum = 0;
    for (size_t t = 0; t < length; t++) {
        sum += x_of(o, IN, t * row + at) / (double)length;
    }
    return length == 0                 ? 0
           : v / 2 == ASHLAR_POOL_LAST ? x_of(o, IN, (length - 1) * row + at)
           : v / 2 == ASHLAR_POOL_MEAN ? sum
                                       : x_of(o, v & 1 ? TOPS_SHORT : TOPS, at);
}

static inline double plain_pool_back(const operands *o, int v, size_t i) {
    const size_t row = BATCH * o->width, t = i / row, at = i % row;
    const size_t length = length_in(v, at / o->width);
    const double top = x_of(o, v & 1 ? TOPS_SHORT : TOPS, at);
    size_t first = 0;
    while (first < length && x_of(o, IN, first * row + at) != top) {
        first++;
    }
    const double share = v / 2 == ASHLAR_POOL_LAST   ? (t + 1 == length ? 1 : 0)
                         : v / 2 == ASHLAR_POOL_MEAN ? 1 / (double)length
                                                     : (t == first ? 1 : 0);
    return t < length ? share * x_of(o, OTHER, at) : 0;
}

/* Whether a position counts for a loss, and how much. */
static inline double plain_position(const operands *o, bool is_entropy, int v, size_t row) {
    const bool has_own = is_entropy ? v & 2 : v & 1;
    const double own = has_own ? x_of(o, POSITIONS, row) : 1;
    return !is_inside(row) || (is_entropy && o->targets[row] < 0) ? 0
           : is_entropy                                           ? own
                                                                  : (own != 0 ? 1 : 0);
}

static inline double class_weight(const operands *o, int v, size_t class_) {
    return v & 1 ? x_of(o, CLASSES, class_) : 1;
}

/* A position's loss as PyTorch's CrossEntropyLoss has it, before the weight. */
static inline double plain_entropy(const operands *o, int v, size_t row) {
    const double own = plain_position(o, true, v, row), s = v & 4 ? SMOOTHING : 0;
    double spread = 0;
    if (own == 0) {
        return 0;
    }
    const double total = log(row_total(o, row, 1));
    const size_t target = (size_t)o->targets[row];
    for (size_t j = 0; j < o->width; j++) {
        spread += class_weight(o, v, j) * (total - x_of(o, IN, row * o->width + j));
    }
    return own *
           ((1 - s) * class_weight(o, v, target) * (total - x_of(o, IN, row * o->width + target)) +
            s * spread / (double)o->width);
}

static inline double plain_elements(const operands *o, int v, size_t row) {
    double sum = 0;
    for (size_t i = row * o->width; i < (row + 1) * o->width; i++) {
        const double x = x_of(o, IN, i), z = x_of(o, OTHER, i), far = fabs(x - z);
        sum += v / 4 == ASHLAR_ELEMENT_SQUARED ? far * far
               : v / 4 == ASHLAR_ELEMENT_BINARY
                   ? -z * log(sigmoid(x)) - (1 - z) * log(1 - sigmoid(x))
               : far < DELTA ? far * far / 2
                             : DELTA * (far - DELTA / 2);
    }
    return plain_position(o, false, v, row) * sum;
}

/* The weight of a loss: given, or 1 / all that counts. */
static inline double plain_weight(const operands *o, bool is_entropy, int v) {
    double total = 0;
    for (size_t row = 0; row < ROWS; row++) {
        const double own = plain_position(o, is_entropy, v, row);
        total += own == 0     ? 0
                 : is_entropy ? own * class_weight(o, v, (size_t)o->targets[row])
                              : own * (double)o->width;
    }
    return (is_entropy ? v & 8 : v & 2) ? WEIGHTS[0] : 1 / total;
}

static inline bool is_loss(case_number number) {
    return number == CASE_cross_entropy || number == CASE_squared_error;
}

/* Element i of a result that is not added to; NaN where the operation writes nothing. Gradients of
 * losses are compared with differences instead. */
static inline double plain_result(case_number number, const operands *o, int v, size_t i) {
    const size_t width = o->width, row = i / width, j = i % width;
    switch (number) {
    case CASE_map:
        return plain_map(v, x_of(o, IN, i), x_of(o, OTHER, i));
    case CASE_scale_rows:
        return is_inside(row) ? x_of(o, IN, i) * (v & 1 ? x_of(o, OTHER, row) : 1) : 0;
    case CASE_row_products:
        return row_total(o, i, 0);
    case CASE_softmax:
        return exp(x_of(o, IN, i) / (v == 0 ? 1 : TEMPERATURE)) /
               row_total(o, row, v == 0 ? 1 : TEMPERATURE);
    case CASE_softmax_back:
        return x_of(o, IN, i) * (x_of(o, OTHER, i) - row_total(o, row, 0));
    case CASE_drop:
        return plain_drop(o, v, i);
    case CASE_pool:
        return plain_pool(o, v, i);
    case CASE_pool_back:
        return plain_pool_back(o, v, i);
    case CASE_swap:
        return x_of(o, IN, (row % STEPS * BATCH + row / STEPS) * width + j);
    case CASE_copy_columns:
        return i % (width + GAP) < width
                   ? x_of(o, IN, i / (width + GAP) * width + i % (width + GAP))
                   : (double)NAN;
    default:
        return (double)NAN;
    }
}

#endif /* ASHLAR_OPS_ELEMENTS_FIXTURE_H */
