/* ops_cuda_typed.cuh - the bodies of the kernels of ops_cuda.h for one element type, ASHLAR_TYPE
 * (internal; CUDA C). No include guard: ops_cuda.cu includes it for each element type. */
#include "arena/compute/element.h"
#include "rnn/layer/ops_cuda.h"

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

/* Fill a thread's units of a row, or copy them. All loads come first, so that none waits for a
 * store. */
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

static __device__ void ASHLAR_NAME(cross_entropy)(const ashlar_cross_entropy_args *args) {
    enum { BATCH = sizeof(ASHLAR_REAL) == sizeof(float) ? 4 : 1 }; /* 4 doubles spill registers */
    const size_t at = blockIdx.x, width = args->classes;
    const ASHLAR_STORED *row = (const ASHLAR_STORED *)args->logits + at * width;
    ASHLAR_STORED *drow =
        args->dlogits == NULL ? NULL : (ASHLAR_STORED *)args->dlogits + at * width;
    double *part = parts_of(args->work, args->losses) + at;
    if (!is_inside(at, args->batch, args->lengths) || args->targets[at] < 0) {
        for (size_t j = threadIdx.x; drow != NULL && j < width; j += THREADS) {
            drow[j] = 0; /* all bits 0: a zero in every type */
        }
        if (threadIdx.x == 0) {
            *part = 0;
        }
        return;
    }
    const size_t target = (size_t)args->targets[at];
    const double wanted = target < width ? (double)ASHLAR_WIDEN(row[target]) : (double)NAN;
    const ASHLAR_REAL top = ASHLAR_NAME(row_max)(row, width);
    ASHLAR_REAL own = 0;
    for (size_t j = threadIdx.x; j < width; j += THREADS) {
        own += ASHLAR_EXP(ASHLAR_WIDEN(row[j]) - top);
    }
    const double sum = block_sum((double)own);
    if (threadIdx.x == 0) {
        *part = log(sum) + ((double)top - wanted);
    }
    if (drow == NULL) {
        return;
    }
    const double scale = args->scale == NULL ? 1 : *args->scale;
    const ASHLAR_REAL weight =
        (ASHLAR_REAL)(scale * position_weight(args->weight, args->weight_at, args->work));
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
    for (; BATCH > 1 && j < width; j += THREADS) {
        drow[j] = ASHLAR_NARROW(ASHLAR_EXP(ASHLAR_WIDEN(row[j]) - top) * factor);
    }
    if (target < width && threadIdx.x == target % THREADS) { /* it wrote drow[target] before */
        drow[target] =
            ASHLAR_NARROW(ASHLAR_EXP((ASHLAR_REAL)wanted - top) * factor - weight);
    }
}

/* The number of elements in valid positions. Every block computes it for itself. */
static __device__ double ASHLAR_NAME(valid_elements)(const ashlar_squared_error_args *args) {
    double valid = 0;
    for (size_t b = threadIdx.x; b < args->batch; b += THREADS) {
        valid += args->lengths == NULL ? (double)args->steps : (double)args->lengths[b];
    }
    return block_sum(valid) * (double)args->width;
}

static __device__ void ASHLAR_NAME(squared_error)(const ashlar_squared_error_args *args) {
    const size_t at = blockIdx.x, width = args->width;
    const ASHLAR_STORED *row = (const ASHLAR_STORED *)args->outputs + at * width;
    const ASHLAR_STORED *wanted = (const ASHLAR_STORED *)args->targets + at * width;
    ASHLAR_STORED *drow =
        args->doutputs == NULL ? NULL : (ASHLAR_STORED *)args->doutputs + at * width;
    const double count = ASHLAR_NAME(valid_elements)(args);
    const double weight = args->weight != 0 ? args->weight : 1 / (count > 0 ? count : 1);
    const double scale = args->scale == NULL ? 1 : *args->scale;
    const ASHLAR_REAL factor = (ASHLAR_REAL)(2 * scale * weight);
    const bool is_valid = is_inside(at, args->batch, args->lengths);
    double own = 0;
    for (size_t j = threadIdx.x; j < width; j += THREADS) {
        const ASHLAR_REAL difference =
            is_valid ? ASHLAR_WIDEN(row[j]) - ASHLAR_WIDEN(wanted[j]) : (ASHLAR_REAL)0;
        own += (double)difference * (double)difference;
        if (drow != NULL) {
            drow[j] = ASHLAR_NARROW(factor * difference);
        }
    }
    const double sum = block_sum(own);
    if (threadIdx.x == 0) {
        parts_of(args->work, args->losses)[at] = sum;
        if (at == 0) {
            *(double *)args->work = count;
        }
    }
}

static __device__ void ASHLAR_NAME(copy_columns)(const ashlar_copy_args *args) {
    const ashlar_columns_args *c = &args->columns;
    const ashlar_row_part part =
        ashlar__rows_part(&args->rows, ASHLAR_OPS_EACH, blockIdx.x, threadIdx.x);
    if (part.reach > 0) {
        ASHLAR_NAME(copy)(&args->rows, (const ASHLAR_STORED *)c->from + part.row * c->from_stride,
                          (ASHLAR_STORED *)c->to + part.row * c->to_stride, &part);
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

#undef ITEMS
#undef UNITS
#undef CONST_UNITS
#undef DEFINE_MOVES
#undef DEFINE_ADD
