/* ops_cuda_typed.cuh - the bodies of the kernels of ops_cuda.h for one element type, ASHLAR_TYPE
 * (internal; CUDA C). No include guard: ops_cuda.cu includes it for each element type. */
#include "arena/compute/element.h"
#include "rnn/cuda/ops_cuda.h"

/* The units of a row, which a thread moves at once: a vector of elements, or a single one. */
typedef struct __align__(ASHLAR_OPS_VECTOR_BYTES) ASHLAR_NAME(vector) {
    ASHLAR_STORED at[ASHLAR_OPS_VECTOR_BYTES / sizeof(ASHLAR_STORED)];
} ASHLAR_NAME(vector);

typedef struct ASHLAR_NAME(single) {
    ASHLAR_STORED at[1];
} ASHLAR_NAME(single);

#define ITEMS(unit) (sizeof(ASHLAR_NAME(unit)) / sizeof(ASHLAR_STORED))
#define UNITS(unit, row, part) ((ASHLAR_NAME(unit) *)(void *)(row) + (part)->first)
#define CONST_UNITS(unit, row, part) \
    ((const ASHLAR_NAME(unit) *)(const void *)(row) + (part)->first)

static __device__ void ASHLAR_NAME(put)(ASHLAR_STORED *out, ASHLAR_REAL value, bool adds) {
    *out = ASHLAR_NARROW(adds ? ASHLAR_WIDEN(*out) + value : value);
}

/* The element of an array of weights, which may be missing. */
static __device__ ASHLAR_REAL ASHLAR_NAME(weight_in)(const void *weights, size_t i) {
    return weights == NULL ? 1 : ASHLAR_WIDEN(((const ASHLAR_STORED *)weights)[i]);
}

/* Fill a thread's part of a row, or copy or add it. All loads come first, so that none waits for another.
 */
#define DEFINE_MOVES(unit)                                                                    \
    static __device__ void ASHLAR_NAME(fill_##unit)(ASHLAR_STORED value, ASHLAR_STORED *row,  \
                                                    const ashlar_row_part *part) {            \
        ASHLAR_NAME(unit) *to = UNITS(unit, row, part), filled;                               \
        for (unsigned i = 0; i < ITEMS(unit); i++) {                                          \
            filled.at[i] = value;                                                             \
        }                                                                                     \
        for (unsigned k = 0; k < ASHLAR_OPS_EACH; k++) {                                      \
            if (k * part->team < part->reach) {                                               \
                to[k * part->team] = filled;                                                  \
            }                                                                                 \
        }                                                                                     \
    }                                                                                         \
    static __device__ void ASHLAR_NAME(copy_##unit)(const ASHLAR_STORED *from_row,            \
                                                    ASHLAR_STORED *row,                       \
                                                    const ashlar_row_part *part) {            \
        const ASHLAR_NAME(unit) *from = CONST_UNITS(unit, from_row, part);                    \
        ASHLAR_NAME(unit) *to = UNITS(unit, row, part), held[ASHLAR_OPS_EACH];                \
        for (unsigned k = 0; k < ASHLAR_OPS_EACH; k++) {                                      \
            if (k * part->team < part->reach) {                                               \
                held[k] = from[k * part->team];                                               \
            }                                                                                 \
        }                                                                                     \
        for (unsigned k = 0; k < ASHLAR_OPS_EACH; k++) {                                      \
            if (k * part->team < part->reach) {                                               \
                to[k * part->team] = held[k];                                                 \
            }                                                                                 \
        }                                                                                     \
    }                                                                                         \
    static __device__ void ASHLAR_NAME(add_row_##unit)(const ASHLAR_STORED *from_row,         \
                                                       ASHLAR_STORED *row,                    \
                                                       const ashlar_row_part *part) {         \
        const ASHLAR_NAME(unit) *from = CONST_UNITS(unit, from_row, part);                    \
        ASHLAR_NAME(unit) *to = UNITS(unit, row, part);                                       \
        for (unsigned k = 0; k < part->reach; k += part->team) {                              \
            const ASHLAR_NAME(unit) more = from[k];                                           \
            ASHLAR_NAME(unit) sum = to[k];                                                    \
            for (unsigned i = 0; i < ITEMS(unit); i++) {                                      \
                ASHLAR_NAME(put)(&sum.at[i], ASHLAR_WIDEN(more.at[i]), true);                 \
            }                                                                                 \
            to[k] = sum;                                                                      \
        }                                                                                     \
    }
DEFINE_MOVES(vector)
DEFINE_MOVES(single)

static __device__ void ASHLAR_NAME(fill)(const ashlar_rows *rows, ASHLAR_STORED value,
                                         ASHLAR_STORED *row, const ashlar_row_part *part) {
    if (rows->is_wide) {
        ASHLAR_NAME(fill_vector)(value, row, part);
    } else {
        ASHLAR_NAME(fill_single)(value, row, part);
    }
}

static __device__ void ASHLAR_NAME(copy)(const ashlar_rows *rows, const ASHLAR_STORED *from_row,
                                         ASHLAR_STORED *row, const ashlar_row_part *part) {
    if (rows->is_wide) {
        ASHLAR_NAME(copy_vector)(from_row, row, part);
    } else {
        ASHLAR_NAME(copy_single)(from_row, row, part);
    }
}

static __device__ void ASHLAR_NAME(copy_or_add)(const ashlar_rows *rows,
                                                const ASHLAR_STORED *from_row, ASHLAR_STORED *row,
                                                bool adds, const ashlar_row_part *part) {
    if (!adds) {
        ASHLAR_NAME(copy)(rows, from_row, row, part);
    } else if (rows->is_wide) {
        ASHLAR_NAME(add_row_vector)(from_row, row, part);
    } else {
        ASHLAR_NAME(add_row_single)(from_row, row, part);
    }
}

/* A token that is no class gets a row of NaN, which cannot be overlooked; no row of the table is
 * read. */
static __device__ void ASHLAR_NAME(embedding_forward)(const ashlar_lookup_args *args) {
    const ashlar_embedding_args *e = &args->embedding;
    const ashlar_row_part part =
        ashlar__rows_part(&args->rows, ASHLAR_OPS_EACH, blockIdx.x, threadIdx.x);
    if (part.reach == 0) {
        return;
    }
    ASHLAR_STORED *out = (ASHLAR_STORED *)e->out + part.row * e->width;
    const bool has_token = is_inside(part.row, e->batch, e->lengths);
    const size_t token = has_token ? (size_t)e->tokens[part.row] : (size_t)-1;
    if (token < e->classes) {
        const ASHLAR_STORED *table = (const ASHLAR_STORED *)e->table;
        ASHLAR_NAME(copy)(&args->rows, table + token * e->width, out, &part);
    } else { /* all bits 0: a zero in every type */
        ASHLAR_NAME(fill)(&args->rows, has_token ? ASHLAR_NARROW((ASHLAR_REAL)NAN) : 0, out, &part);
    }
}

/* Add to `sum` the elements, `width` apart, whose bits are set in GROUP words. */
static __device__ ASHLAR_REAL ASHLAR_NAME(add_rows)(ASHLAR_REAL sum, const uint32_t *words,
                                                    const ASHLAR_STORED *elements, size_t width) {
    for (unsigned k = 0; k < GROUP; k++) {
        for (uint32_t left = words[k], i = k * WORD_BITS; left != 0; left >>= 1, i++) {
            if ((left & 1) != 0) {
                sum += ASHLAR_WIDEN(elements[i * width]);
            }
        }
    }
    return sum;
}

/* Each element of dtable has one thread, which adds up gradients in the order of the positions. */
static __device__ void ASHLAR_NAME(embedding_backward)(const ashlar_embedding_args *args) {
    __shared__ uint32_t words[THREADS];
    const size_t width = args->width;
    const unsigned tiles = (unsigned)((width + THREADS - 1) / THREADS); /* at most gridDim.x */
    const unsigned class_ = blockIdx.x / tiles;
    const size_t column = (size_t)(blockIdx.x % tiles) * THREADS + threadIdx.x;
    const ASHLAR_STORED *dout = (const ASHLAR_STORED *)args->dout;
    ASHLAR_STORED *place = (ASHLAR_STORED *)args->dtable + class_ * width + column;
    ASHLAR_REAL sum = column < width ? ASHLAR_WIDEN(*place) : 0;
    for (size_t first = 0; first < args->steps * args->batch; first += CHUNK) {
        find_token(args, class_, first, words);
        __syncthreads();
        for (unsigned k = 0; k < THREADS && column < width; k += GROUP) {
            if (has_any(words + k)) {
                sum = ASHLAR_NAME(add_rows)(sum, words + k,
                                            dout + (first + k * WORD_BITS) * width + column, width);
            }
        }
        __syncthreads();
    }
    if (column < width) {
        *place = ASHLAR_NARROW(sum);
    }
}

/* Add up one unit of dtable's row for a token, along the list that begins at position part->row. */
#define DEFINE_ADD(unit)                                                                       \
    static __device__ void ASHLAR_NAME(add_##unit)(const ashlar_chain_args *args,              \
                                                   const ashlar_row_part *part) {              \
        const ashlar_embedding_args *e = &args->embedding;                                     \
        uint32_t at = (uint32_t)part->row;                                                     \
        ASHLAR_NAME(unit) *place =                                                             \
            UNITS(unit, (ASHLAR_STORED *)e->dtable + (size_t)e->tokens[at] * e->width, part);  \
        ASHLAR_NAME(unit) held = *place;                                                       \
        ASHLAR_REAL sums[ITEMS(unit)];                                                         \
        for (unsigned i = 0; i < ITEMS(unit); i++) {                                           \
            sums[i] = ASHLAR_WIDEN(held.at[i]);                                                \
        }                                                                                      \
        for (uint32_t next = at + 1; next != 0;) {                                             \
            at = next - 1;                                                                     \
            next = args->links[at] & ~ASHLAR_OPS_FIRST;                                        \
            held = *CONST_UNITS(unit, (const ASHLAR_STORED *)e->dout + at * e->width, part);   \
            for (unsigned i = 0; i < ITEMS(unit); i++) {                                       \
                sums[i] += ASHLAR_WIDEN(held.at[i]);                                           \
            }                                                                                  \
        }                                                                                      \
        for (unsigned i = 0; i < ITEMS(unit); i++) {                                           \
            held.at[i] = ASHLAR_NARROW(sums[i]);                                               \
        }                                                                                      \
        *place = held;                                                                         \
    }
DEFINE_ADD(vector)
DEFINE_ADD(single)

static __device__ void ASHLAR_NAME(embedding_add)(const ashlar_chain_args *args) {
    const ashlar_row_part part = ashlar__rows_part(&args->rows, 1, blockIdx.x, threadIdx.x);
    if (part.reach == 0 || (args->links[part.row] & ASHLAR_OPS_FIRST) == 0) {
        return;
    }
    if (args->rows.is_wide) {
        ASHLAR_NAME(add_vector)(args, &part);
    } else {
        ASHLAR_NAME(add_single)(args, &part);
    }
}

/* Each column has LANES threads: each adds up every LANES-th row, then one adds up their sums. */
static __device__ void ASHLAR_NAME(bias_backward)(const ashlar_linear_args *args) {
    enum { LANES = THREADS / ASHLAR_OPS_COLUMNS };
    __shared__ ASHLAR_REAL sums[LANES][ASHLAR_OPS_COLUMNS];
    const unsigned lane = threadIdx.x / ASHLAR_OPS_COLUMNS;
    const unsigned place = threadIdx.x % ASHLAR_OPS_COLUMNS;
    const size_t column = (size_t)blockIdx.x * ASHLAR_OPS_COLUMNS + place;
    const ASHLAR_STORED *dy = (const ASHLAR_STORED *)args->dy;
    ASHLAR_REAL sum = 0;
    for (size_t row = lane; row < args->rows && column < args->out; row += LANES) {
        sum += ASHLAR_WIDEN(dy[row * args->out + column]);
    }
    sums[lane][place] = sum;
    __syncthreads();
    if (lane == 0 && column < args->out) {
        ASHLAR_STORED *dbias = (ASHLAR_STORED *)args->dbias + column;
        for (unsigned i = 1; i < LANES; i++) {
            sum += sums[i][place];
        }
        *dbias = ASHLAR_NARROW(ASHLAR_WIDEN(*dbias) + sum);
    }
}

/* The largest value of a row; every thread gets it. */
static __device__ ASHLAR_REAL ASHLAR_NAME(row_max)(const ASHLAR_STORED *row, size_t width) {
    __shared__ ASHLAR_REAL tops[THREADS];
    ASHLAR_REAL top = ASHLAR_WIDEN(row[0]);
    for (size_t j = threadIdx.x; j < width; j += THREADS) {
        const ASHLAR_REAL value = ASHLAR_WIDEN(row[j]);
        top = value > top ? value : top;
    }
    tops[threadIdx.x] = top;
    for (unsigned left = THREADS / 2; left > 0; left /= 2) {
        __syncthreads();
        if (threadIdx.x < left && tops[threadIdx.x + left] > tops[threadIdx.x]) {
            tops[threadIdx.x] = tops[threadIdx.x + left];
        }
    }
    __syncthreads();
    top = tops[0];
    __syncthreads(); /* the next row reuses tops[], and dlogits, written next, may be logits */
    return top;
}

/* Whether a position does not count: then its gradient and its part of the loss become 0. */
static __device__ bool ASHLAR_NAME(leave_out)(const ashlar_cross_entropy_args *args, size_t at) {
    const size_t width = args->classes;
    if (is_inside(at, args->batch, args->lengths) && args->targets[at] >= 0 &&
        ASHLAR_NAME(weight_in)(args->position_weights, at) != 0) {
        return false;
    }
    ASHLAR_ROLLED
    for (size_t j = threadIdx.x; args->dlogits != NULL && j < width; j += THREADS) {
        ((ASHLAR_STORED *)args->dlogits)[at * width + j] = 0; /* all bits 0: a zero in every type */
    }
    if (threadIdx.x == 0) {
        parts_of(args->work, args->losses)[at] = 0;
    }
    return true;
}

/* The sum of the exponentials of a row, each as far below the largest; every thread gets it. */
static __device__ double ASHLAR_NAME(exp_sum)(const ASHLAR_STORED *row, size_t width,
                                              ASHLAR_REAL top, ASHLAR_REAL scale) {
    ASHLAR_REAL own = 0;
    for (size_t j = threadIdx.x; j < width; j += THREADS) {
        own += ASHLAR_EXP((ASHLAR_WIDEN(row[j]) - top) * scale);
    }
    return block_sum((double)own);
}

/* A position's own weight times its target's; a target that is no class makes the loss NaN. */
static __device__ ASHLAR_REAL ASHLAR_NAME(own_weight)(const ashlar_cross_entropy_args *args,
                                                      size_t at) {
    const size_t target = (size_t)args->targets[at];
    return ASHLAR_NAME(weight_in)(args->position_weights, at) *
           (target < args->classes ? ASHLAR_NAME(weight_in)(args->class_weights, target) : 1);
}

/* The factor of a gradient before the position's own weight. */
static __device__ ASHLAR_REAL ASHLAR_NAME(slope_weight)(const ashlar_cross_entropy_args *args) {
    const double scale = args->scale == NULL ? 1 : *args->scale;
    return (ASHLAR_REAL)(scale * position_weight(args->weight, args->weight_at, args->factor, args->work));
}

static __device__ void ASHLAR_NAME(cross_entropy)(const ashlar_cross_entropy_args *args) {
    enum { BATCH = sizeof(ASHLAR_REAL) == sizeof(float) ? 4 : 1 }; /* 4 doubles spill registers */
    const size_t at = blockIdx.x, width = args->classes;
    const ASHLAR_STORED *row = (const ASHLAR_STORED *)args->logits + at * width;
    if (ASHLAR_NAME(leave_out)(args, at)) {
        return;
    }
    const unsigned target = (unsigned)args->targets[at];
    const ASHLAR_REAL wanted = target < width ? ASHLAR_WIDEN(row[target]) : (ASHLAR_REAL)NAN;
    const ASHLAR_REAL top = ASHLAR_NAME(row_max)(row, width);
    const double sum = ASHLAR_NAME(exp_sum)(row, width, top, 1);
    const ASHLAR_REAL own = ASHLAR_NAME(own_weight)(args, at);
    if (args->dlogits != NULL) {
        ASHLAR_STORED *drow = (ASHLAR_STORED *)args->dlogits + at * width;
        const ASHLAR_REAL weight = ASHLAR_NAME(slope_weight)(args) * own;
        const ASHLAR_REAL factor = weight / (ASHLAR_REAL)sum;
        size_t j = threadIdx.x;
        for (; j + (BATCH - 1) * THREADS < width; j += BATCH * THREADS) {
            ASHLAR_STORED held[BATCH]; /* drow may be row: load all before storing any */
            for (unsigned k = 0; k < BATCH; k++) {
                held[k] = row[j + k * THREADS];
            }
            for (unsigned k = 0; k < BATCH; k++) {
                drow[j + k * THREADS] =
                    ASHLAR_NARROW(ASHLAR_EXP(ASHLAR_WIDEN(held[k]) - top) * factor);
            }
        }
        ASHLAR_ROLLED
        for (; BATCH > 1 && j < width; j += THREADS) {
            drow[j] = ASHLAR_NARROW(ASHLAR_EXP(ASHLAR_WIDEN(row[j]) - top) * factor);
        }
        if (target < width && threadIdx.x == target % THREADS) { /* the thread that wrote it */
            drow[target] = ASHLAR_NARROW(ASHLAR_EXP(wanted - top) * factor - weight);
        }
    }
    if (threadIdx.x == 0) {
        parts_of(args->work, args->losses)[at] =
            (double)own * (log(sum) + ((double)top - (double)wanted));
    }
}

/* With smoothing: a kernel of its own, so that the usual one has its registers for itself. Of each
 * class `share` times its weight is wanted, and of the target `kept` more. */
static __device__ void ASHLAR_NAME(cross_entropy_smooth)(const ashlar_cross_entropy_args *args) {
    const size_t at = blockIdx.x, width = args->classes;
    const ASHLAR_STORED *row = (const ASHLAR_STORED *)args->logits + at * width;
    if (ASHLAR_NAME(leave_out)(args, at)) {
        return;
    }
    const unsigned target = (unsigned)args->targets[at];
    const ASHLAR_REAL share = target < width
                                  ? (ASHLAR_REAL)(args->smoothing / (double)width) *
                                        ASHLAR_NAME(weight_in)(args->position_weights, at)
                                  : (ASHLAR_REAL)NAN;
    const ASHLAR_REAL kept = (ASHLAR_REAL)(1 - args->smoothing) * ASHLAR_NAME(own_weight)(args, at);
    const ASHLAR_REAL top = ASHLAR_NAME(row_max)(row, width);
    ASHLAR_REAL own = 0, own_mass = 0, own_gaps = 0;
    for (size_t j = threadIdx.x; j < width; j += THREADS) {
        const ASHLAR_REAL gap = top - ASHLAR_WIDEN(row[j]);
        const ASHLAR_REAL spread = share * ASHLAR_NAME(weight_in)(args->class_weights, j);
        const ASHLAR_REAL wanted = j == target ? spread + kept : spread;
        own += ASHLAR_EXP(-gap);
        own_mass += wanted;
        own_gaps += wanted * gap;
    }
    const double gaps = block_sum((double)own_gaps);
    const ASHLAR_REAL mass = (ASHLAR_REAL)block_sum((double)own_mass);
    const double sum = block_sum((double)own);
    if (threadIdx.x == 0) {
        parts_of(args->work, args->losses)[at] = (double)mass * log(sum) + gaps;
    }
    if (args->dlogits == NULL) {
        return;
    }
    ASHLAR_STORED *drow = (ASHLAR_STORED *)args->dlogits + at * width;
    const ASHLAR_REAL weight = ASHLAR_NAME(slope_weight)(args);
    const ASHLAR_REAL factor = mass / (ASHLAR_REAL)sum;
    for (size_t j = threadIdx.x; j < width; j += THREADS) {
        const ASHLAR_REAL spread = share * ASHLAR_NAME(weight_in)(args->class_weights, j);
        const ASHLAR_REAL wanted = j == target ? spread + kept : spread;
        drow[j] = ASHLAR_NARROW(
            weight * (ASHLAR_EXP(ASHLAR_WIDEN(row[j]) - top) * factor - wanted));
    }
}

static __device__ void ASHLAR_NAME(loss_count)(const ashlar_loss_count_args *args) {
    cursor p = cursor_at(threadIdx.x, args->batch, THREADS);
    double valid = 0;
    ASHLAR_ROLLED
    for (size_t i = threadIdx.x; i < args->steps * args->batch; i += THREADS) {
        const int32_t target = args->targets == NULL ? 0 : args->targets[i];
        if (is_before_end(&p, args->lengths) && target >= 0) {
            const double own = (double)ASHLAR_NAME(weight_in)(args->position_weights, i);
            const bool is_class = args->class_weights != NULL && (size_t)target < args->classes;
            valid += args->is_mask ? (own != 0 ? 1 : 0)
                     : is_class
                         ? own * (double)ASHLAR_NAME(weight_in)(args->class_weights, (size_t)target)
                         : own;
        }
        move_on(&p, args->batch);
    }
    valid = block_sum(valid);
    if (threadIdx.x == 0) {
        *(double *)args->work = 1 / (valid > 0 ? valid * args->factor : 1);
    }
}

/* The loss of one element, and its slope, which the gradient's factor multiplies. */
static __device__ double ASHLAR_NAME(loss_of)(const ashlar_squared_error_args *args,
                                              ASHLAR_REAL x, ASHLAR_REAL wanted,
                                              ASHLAR_REAL *slope) {
    const double difference = (double)(x - wanted), far = fabs(difference), delta = args->delta;
    if (args->kind == ASHLAR_ELEMENT_BINARY) {
        *slope = 1 / (1 + ASHLAR_EXP(-x)) - wanted;
        return (double)(x > 0 ? x : 0) - (double)x * (double)wanted +
               log1p((double)ASHLAR_EXP(x > 0 ? -x : x));
    }
    const bool is_near = far <= delta;
    *slope = is_near ? x - wanted : (ASHLAR_REAL)copysign(delta, difference);
    return is_near ? 0.5 * difference * difference : delta * (far - 0.5 * delta);
}

static __device__ void ASHLAR_NAME(lose_elements)(const ashlar_squared_error_args *args,
                                                  bool is_squared) {
    const size_t at = blockIdx.x, width = args->width;
    const ASHLAR_STORED *row = (const ASHLAR_STORED *)args->outputs + at * width;
    const ASHLAR_STORED *wanted = (const ASHLAR_STORED *)args->targets + at * width;
    ASHLAR_STORED *drow =
        args->doutputs == NULL ? NULL : (ASHLAR_STORED *)args->doutputs + at * width;
    const double weight = position_weight(args->weight, args->weight_at, args->factor, args->work);
    const double scale = args->scale == NULL ? 1 : *args->scale;
    const double steepness = is_squared ? 2 : 1;
    const ASHLAR_REAL factor = (ASHLAR_REAL)(steepness * scale * weight);
    const bool is_valid = is_inside(at, args->batch, args->lengths) &&
                          ASHLAR_NAME(weight_in)(args->mask, at) != 0;
    double own = 0;
    for (size_t j = threadIdx.x; j < width; j += THREADS) {
        ASHLAR_REAL slope = 0;
        if (is_valid && is_squared) {
            slope = ASHLAR_WIDEN(row[j]) - ASHLAR_WIDEN(wanted[j]);
            own += (double)slope * (double)slope;
        } else if (is_valid) {
            own += ASHLAR_NAME(loss_of)(args, ASHLAR_WIDEN(row[j]), ASHLAR_WIDEN(wanted[j]),
                                        &slope);
        }
        if (drow != NULL) {
            drow[j] = ASHLAR_NARROW(factor * slope);
        }
    }
    const double sum = block_sum(own);
    if (threadIdx.x == 0) {
        parts_of(args->work, args->losses)[at] = sum;
    }
}

static __device__ void ASHLAR_NAME(squared_error)(const ashlar_squared_error_args *args) {
    ASHLAR_NAME(lose_elements)(args, true);
}

/* A kernel of its own: the usual loss needs fewer registers. */
static __device__ void ASHLAR_NAME(element_loss)(const ashlar_squared_error_args *args) {
    ASHLAR_NAME(lose_elements)(args, false);
}

static __device__ void ASHLAR_NAME(copy_columns)(const ashlar_copy_args *args) {
    const ashlar_columns_args *c = &args->columns;
    const ashlar_row_part part =
        ashlar__rows_part(&args->rows, ASHLAR_OPS_EACH, blockIdx.x, threadIdx.x);
    if (part.reach > 0) {
        ASHLAR_NAME(copy_or_add)(&args->rows, (const ASHLAR_STORED *)c->from + part.row * c->from_stride,
                          (ASHLAR_STORED *)c->to + part.row * c->to_stride, c->adds, &part);
    }
}

/* Whether argmax prefers value `a` of class i to value `b` of class j; NaN is never the largest. */
static __device__ bool ASHLAR_NAME(is_before)(ASHLAR_REAL a, size_t i, ASHLAR_REAL b, size_t j) {
    return !isnan(a) && (isnan(b) || a > b || (a == b && i < j));
}

static __device__ void ASHLAR_NAME(argmax)(const ashlar_argmax_args *args) {
    __shared__ ASHLAR_REAL values[THREADS];
    __shared__ size_t classes[THREADS];
    const ASHLAR_STORED *row = (const ASHLAR_STORED *)args->logits + blockIdx.x * args->classes;
    ASHLAR_REAL best = (ASHLAR_REAL)NAN;
    size_t label = 0;
    for (size_t j = threadIdx.x; j < args->classes; j += THREADS) {
        const ASHLAR_REAL value = ASHLAR_WIDEN(row[j]);
        const bool is_better = !isnan(value) && !(value <= best); /* true if best is still NaN */
        best = is_better ? value : best;
        label = is_better ? j : label;
    }
    values[threadIdx.x] = best;
    classes[threadIdx.x] = label;
    for (unsigned left = THREADS / 2; left > 0; left /= 2) {
        __syncthreads();
        const unsigned other = threadIdx.x + left;
        if (threadIdx.x < left &&
            ASHLAR_NAME(is_before)(values[other], classes[other], values[threadIdx.x],
                                   classes[threadIdx.x])) {
            values[threadIdx.x] = values[other];
            classes[threadIdx.x] = classes[other];
        }
    }
    if (threadIdx.x == 0) {
        args->labels[blockIdx.x] = (int32_t)classes[0];
    }
}

static __device__ ASHLAR_REAL ASHLAR_NAME(mapped)(ashlar_map_kind kind, ASHLAR_REAL a,
                                                  ASHLAR_REAL b) {
    switch (kind) {
    case ASHLAR_MAP_ADD:
        return a + b;
    case ASHLAR_MAP_MULTIPLY:
        return a * b;
    case ASHLAR_MAP_TANH:
        return ASHLAR_TANH(a);
    case ASHLAR_MAP_RELU:
        return a < 0 ? 0 : a; /* NaN stays */
    case ASHLAR_MAP_SIGMOID:
        return 1 / (1 + ASHLAR_EXP(-a));
    case ASHLAR_MAP_TANH_BACK:
        return b * (1 - a * a);
    case ASHLAR_MAP_RELU_BACK:
        return a > 0 ? b : 0;
    case ASHLAR_MAP_SIGMOID_BACK:
        return b * a * (1 - a);
    default: /* COPY */
        return a;
    }
}

#define DEFINE_MAP(unit)                                                                       \
    static __device__ void ASHLAR_NAME(map_##unit)(const ashlar_map_args *args, size_t at) {   \
        ASHLAR_NAME(unit) *out = (ASHLAR_NAME(unit) *)args->out + at, held;                    \
        const ASHLAR_NAME(unit) a = ((const ASHLAR_NAME(unit) *)args->a)[at];                  \
        const ASHLAR_NAME(unit) b =                                                            \
            args->b == NULL ? a : ((const ASHLAR_NAME(unit) *)args->b)[at];                    \
        if (args->adds) {                                                                      \
            held = *out;                                                                       \
        }                                                                                      \
        for (unsigned i = 0; i < ITEMS(unit); i++) {                                           \
            ASHLAR_NAME(put)(&held.at[i],                                                      \
                             ASHLAR_NAME(mapped)(args->kind, ASHLAR_WIDEN(a.at[i]),            \
                                                 ASHLAR_WIDEN(b.at[i])),                       \
                             args->adds);                                                      \
        }                                                                                      \
        *out = held;                                                                           \
    }
DEFINE_MAP(vector)
DEFINE_MAP(single)

static __device__ void ASHLAR_NAME(map)(const ashlar_mapped_args *args) {
    const size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (at < args->units && args->is_wide) {
        ASHLAR_NAME(map_vector)(&args->map, at);
    } else if (at < args->units) {
        ASHLAR_NAME(map_single)(&args->map, at);
    }
}

static __device__ void ASHLAR_NAME(scale_rows)(const ashlar_scaled_args *args) {
    const ashlar_scale_rows_args *s = &args->scale;
    const ashlar_row_part part =
        ashlar__rows_part(&args->rows, ASHLAR_OPS_EACH, blockIdx.x, threadIdx.x);
    if (part.reach == 0) {
        return;
    }
    const size_t first = part.row * s->width + part.first;
    const ASHLAR_STORED *a = (const ASHLAR_STORED *)s->a + first;
    ASHLAR_STORED *out = (ASHLAR_STORED *)s->out + first;
    const bool counts =
        (s->lengths == NULL || is_inside(part.row, s->batch, s->lengths)) != s->is_past;
    const ASHLAR_REAL factor = ASHLAR_NAME(weight_in)(s->scale, part.row);
    for (unsigned k = 0; k < ASHLAR_OPS_EACH && k * part.team < part.reach; k++) {
        const ASHLAR_REAL value = counts ? ASHLAR_WIDEN(a[k * part.team]) * factor : 0;
        if (counts || !s->adds) {
            ASHLAR_NAME(put)(&out[k * part.team], value, s->adds);
        }
    }
}

/* The sum of a[j] * b[j]; every thread gets it. */
static __device__ ASHLAR_REAL ASHLAR_NAME(row_product)(const ASHLAR_STORED *a,
                                                       const ASHLAR_STORED *b, size_t width) {
    ASHLAR_REAL own = 0;
    for (size_t j = threadIdx.x; j < width; j += THREADS) {
        own += ASHLAR_WIDEN(a[j]) * ASHLAR_WIDEN(b[j]);
    }
    return (ASHLAR_REAL)block_sum((double)own);
}

static __device__ void ASHLAR_NAME(row_products)(const ashlar_row_products_args *args) {
    const size_t row = blockIdx.x, first = row * args->width;
    const ASHLAR_REAL sum =
        ASHLAR_NAME(row_product)((const ASHLAR_STORED *)args->a + first,
                                 (const ASHLAR_STORED *)args->b + first, args->width);
    if (threadIdx.x == 0) {
        ASHLAR_NAME(put)((ASHLAR_STORED *)args->out + row, sum, args->adds);
    }
}

static __device__ void ASHLAR_NAME(softmax)(const ashlar_softmax_args *args) {
    const size_t first = blockIdx.x * args->width;
    const ASHLAR_STORED *x = (const ASHLAR_STORED *)args->x + first;
    ASHLAR_STORED *y = (ASHLAR_STORED *)args->y + first;
    const ASHLAR_REAL scale =
        args->temperature == 0 ? 1 : (ASHLAR_REAL)(1 / args->temperature);
    const ASHLAR_REAL top = ASHLAR_NAME(row_max)(x, args->width);
    const ASHLAR_REAL factor = 1 / (ASHLAR_REAL)ASHLAR_NAME(exp_sum)(x, args->width, top, scale);
    for (size_t j = threadIdx.x; j < args->width; j += THREADS) {
        y[j] = ASHLAR_NARROW(ASHLAR_EXP((ASHLAR_WIDEN(x[j]) - top) * scale) * factor);
    }
}

static __device__ void ASHLAR_NAME(softmax_back)(const ashlar_softmax_back_args *args) {
    const size_t first = blockIdx.x * args->width;
    const ASHLAR_STORED *y = (const ASHLAR_STORED *)args->y + first;
    const ASHLAR_STORED *dy = (const ASHLAR_STORED *)args->dy + first;
    ASHLAR_STORED *dx = (ASHLAR_STORED *)args->dx + first;
    const ASHLAR_REAL sum = ASHLAR_NAME(row_product)(y, dy, args->width);
    for (size_t j = threadIdx.x; j < args->width; j += THREADS) {
        ASHLAR_NAME(put)(&dx[j], ASHLAR_WIDEN(y[j]) * (ASHLAR_WIDEN(dy[j]) - sum), args->adds);
    }
}

/* A unit is a block of Philox, whose numbers are those of elements LANES apart. */
static __device__ void ASHLAR_NAME(drop)(const ashlar_dropped_args *args) {
    const ashlar_drop_args *d = &args->drop;
    const ashlar_row_part part = ashlar__rows_part(&args->rows, 1, blockIdx.x, threadIdx.x);
    if (part.reach == 0) {
        return;
    }
    const size_t group = part.first / ASHLAR_DROPOUT_LANES;
    const unsigned lane = (unsigned)(part.first % ASHLAR_DROPOUT_LANES);
    const size_t stride = d->stride == 0 ? 1 : d->stride;
    ashlar_dropout_row key;
    key.seed = d->seed + (d->seed_at == NULL ? 0 : *d->seed_at);
    key.layer = ASHLAR_DROPOUT_SITE + d->site;
    key.step = part.row / d->batch;
    key.sequence = d->first + part.row % d->batch * stride;
    uint32_t c[4];
    ashlar__dropout_counter(&key, group, (int)lane, &c[0], &c[1], &c[2], &c[3]);
    for (unsigned i = 0; i < ASHLAR_DROPOUT_ROUNDS; i++) {
        ashlar__dropout_round(key.seed, i, &c[0], &c[1], &c[2], &c[3]);
    }
    const uint32_t threshold = ashlar__dropout_threshold(d->rate);
    const ASHLAR_REAL scale = (ASHLAR_REAL)(1 / (1 - d->rate));
    const ASHLAR_STORED *a = (const ASHLAR_STORED *)d->a + part.row * d->width;
    ASHLAR_STORED *out = (ASHLAR_STORED *)d->out + part.row * d->width;
    for (unsigned i = 0; i < 4; i++) {
        const size_t j = group * ASHLAR_DROPOUT_DRAWS + i * ASHLAR_DROPOUT_LANES + lane;
        if (j < d->width) {
            ASHLAR_NAME(put)(&out[j], c[i] < threshold ? 0 : ASHLAR_WIDEN(a[j]) * scale, d->adds);
        }
    }
}

static __device__ void ASHLAR_NAME(pool)(const ashlar_pool_args *args) {
    const size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x, row = args->batch * args->width;
    if (at >= row) {
        return;
    }
    const ASHLAR_STORED *x = (const ASHLAR_STORED *)args->x + at;
    const size_t length =
        args->lengths == NULL ? args->steps : (size_t)args->lengths[at / args->width];
    ASHLAR_REAL held = 0;
    if (length > 0) {
        held = ASHLAR_WIDEN(x[args->kind == ASHLAR_POOL_LAST ? (length - 1) * row : 0]);
    }
    for (size_t t = 1; t < length && args->kind != ASHLAR_POOL_LAST; t++) {
        const ASHLAR_REAL next = ASHLAR_WIDEN(x[t * row]);
        const bool is_larger = next > held || isnan(next);
        held = args->kind == ASHLAR_POOL_MEAN ? held + next : is_larger ? next : held;
    }
    ASHLAR_NAME(put)((ASHLAR_STORED *)args->y + at,
                     args->kind == ASHLAR_POOL_MEAN && length > 0 ? held / (ASHLAR_REAL)length
                                                                  : held,
                     args->adds);
}

static __device__ void ASHLAR_NAME(pool_back)(const ashlar_pool_args *args) {
    const size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x, row = args->batch * args->width;
    if (at >= row) {
        return;
    }
    const ASHLAR_STORED *x = (const ASHLAR_STORED *)args->x + at;
    ASHLAR_STORED *dx = (ASHLAR_STORED *)args->dx + at;
    const size_t length =
        args->lengths == NULL ? args->steps : (size_t)args->lengths[at / args->width];
    const ASHLAR_REAL dy = ASHLAR_WIDEN(((const ASHLAR_STORED *)args->dy)[at]);
    const ASHLAR_REAL y =
        args->kind == ASHLAR_POOL_MAX ? ASHLAR_WIDEN(((const ASHLAR_STORED *)args->y)[at]) : 0;
    const ASHLAR_REAL share = length > 0 ? dy / (ASHLAR_REAL)length : 0;
    bool is_given = false;
    ASHLAR_ROLLED
    for (size_t t = 0; t < args->steps; t++) {
        ASHLAR_REAL slope = 0;
        if (t < length && args->kind == ASHLAR_POOL_MEAN) {
            slope = share;
        } else if (t < length && args->kind == ASHLAR_POOL_LAST) {
            slope = t + 1 == length ? dy : 0;
        } else if (t < length && !is_given) {
            const ASHLAR_REAL value = ASHLAR_WIDEN(x[t * row]);
            is_given = value >= y || isnan(value);
            slope = is_given ? dy : 0;
        }
        ASHLAR_NAME(put)(&dx[t * row], slope, args->adds);
    }
}

static __device__ void ASHLAR_NAME(swap)(const ashlar_swapped_args *args) {
    const ashlar_swap_args *s = &args->swap;
    const ashlar_row_part part =
        ashlar__rows_part(&args->rows, ASHLAR_OPS_EACH, blockIdx.x, threadIdx.x);
    if (part.reach > 0) {
        const size_t from = part.row % s->outer * s->inner + part.row / s->outer;
        ASHLAR_NAME(copy_or_add)(&args->rows, (const ASHLAR_STORED *)s->from + from * s->width,
                          (ASHLAR_STORED *)s->to + part.row * s->width, s->adds, &part);
    }
}

#undef DEFINE_MAP
#undef ITEMS
#undef UNITS
#undef CONST_UNITS
#undef DEFINE_MOVES
#undef DEFINE_ADD
