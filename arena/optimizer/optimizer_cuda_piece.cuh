/* optimizer_cuda_piece.cuh - what a block of threads does to an ashlar_optimizer_piece of elements
 * of ASHLAR_TYPE (internal; CUDA C). No include guard: optimizer_cuda.cu includes it for each type.
 * If the arrays are aligned, a thread updates a unit at a time: 16 bytes of reals. */
#include "arena/compute/element.h"
#include "arena/optimizer/optimizer_impl.h"

enum {
    ASHLAR_NAME(unit_count) = 16 / sizeof(ASHLAR_REAL),
    ASHLAR_NAME(line_count) = 16 / sizeof(ASHLAR_STORED),
};

typedef struct __align__(16) ASHLAR_NAME(line) {
    ASHLAR_STORED at[ASHLAR_NAME(line_count)];
} ASHLAR_NAME(line);

typedef struct __align__(16 / sizeof(ASHLAR_REAL) * sizeof(ASHLAR_STORED)) ASHLAR_NAME(stored) {
    ASHLAR_STORED at[ASHLAR_NAME(unit_count)];
} ASHLAR_NAME(stored);

typedef struct __align__(16) ASHLAR_NAME(reals) {
    ASHLAR_REAL at[ASHLAR_NAME(unit_count)];
} ASHLAR_NAME(reals);

/* values[i] = gradients[i], for i below `count`. */
static __device__ void ASHLAR_NAME(widen)(const ASHLAR_STORED *gradients, unsigned count,
                                          ASHLAR_REAL *values) {
    unsigned done = 0;
    if (ashlar__is_aligned(gradients, sizeof(ASHLAR_NAME(line)))) {
        const unsigned lines = count / ASHLAR_NAME(line_count);
        for (unsigned i = threadIdx.x; i < lines; i += ASHLAR_CHUNK_THREADS) {
            const ASHLAR_NAME(line) line = ((const ASHLAR_NAME(line) *)(const void *)gradients)[i];
            for (unsigned k = 0; k < ASHLAR_NAME(line_count); k++) {
                values[i * ASHLAR_NAME(line_count) + k] = ASHLAR_WIDEN(line.at[k]);
            }
        }
        done = lines * ASHLAR_NAME(line_count);
    }
    ASHLAR_ROLLED
    for (unsigned i = done + threadIdx.x; i < count; i += ASHLAR_CHUNK_THREADS) {
        values[i] = ASHLAR_WIDEN(gradients[i]);
    }
}

/* *lane = the sum of the squares of every LANES-th gradient, from that with the thread's number on,
 * in their order. `room`, ROOM_BYTES of shared memory, holds the values rather than their squares,
 * which would be doubles: half the shared memory lets twice as many blocks run. */
static __device__ void ASHLAR_NAME(square)(const ashlar_optimizer_piece *p, void *room,
                                           double *lane) {
    const unsigned most = ROOM_BYTES / sizeof(ASHLAR_REAL);
    const ASHLAR_STORED *gradients = (const ASHLAR_STORED *)p->run.gradients + p->first;
    ASHLAR_REAL *values = (ASHLAR_REAL *)room;
    double sum = 0;
    for (unsigned first = 0; first < p->count; first += most) {
        const unsigned count = p->count - first < most ? p->count - first : most;
        ASHLAR_NAME(widen)(gradients + first, count, values);
        __syncthreads();
        for (unsigned i = threadIdx.x; threadIdx.x < LANES && i < count; i += LANES) {
            const double value = (double)values[i];
            sum += value * value;
        }
        __syncthreads();
    }
    if (threadIdx.x < LANES) {
        *lane = sum;
    }
}

/* Where a piece begins in each array; NULL where there is no such array. They do not overlap. */
typedef struct ASHLAR_NAME(arrays) {
    ASHLAR_STORED *__restrict__ parameters;
    const ASHLAR_STORED *__restrict__ gradients;
    ASHLAR_REAL *__restrict__ moment1;
    ASHLAR_REAL *__restrict__ moment2;
    ASHLAR_REAL *__restrict__ master;
    bool is_first; /* the master has no values yet: take the parameters */
} ASHLAR_NAME(arrays);

static __device__ __forceinline__ ASHLAR_NAME(arrays)
ASHLAR_NAME(find)(const ashlar_optimizer_piece *p, bool has1, bool has2) {
    ASHLAR_NAME(arrays) a;
    a.parameters = (ASHLAR_STORED *)p->run.parameters + p->first;
    a.gradients = (const ASHLAR_STORED *)p->run.gradients + p->first;
    a.moment1 = has1 ? (ASHLAR_REAL *)p->run.moment1 + p->first : NULL;
    a.moment2 = has2 ? (ASHLAR_REAL *)p->run.moment2 + p->first : NULL;
    a.master = ASHLAR_HAS_MASTER ? (ASHLAR_REAL *)(void *)p->run.master + p->first : NULL;
    a.is_first = p->factors.is_first;
    return a;
}

static __device__ __forceinline__ bool ASHLAR_NAME(has_units)(const ASHLAR_NAME(arrays) *a) {
    return ashlar__is_aligned(a->parameters, sizeof(ASHLAR_NAME(stored))) &&
           ashlar__is_aligned(a->gradients, sizeof(ASHLAR_NAME(stored))) &&
           ashlar__is_aligned(a->moment1, 16) && ashlar__is_aligned(a->moment2, 16) &&
           ashlar__is_aligned(a->master, 16);
}

/* What a thread works on: one unit (a vector of elements) of each array. */
typedef struct ASHLAR_NAME(hand) {
    ASHLAR_NAME(stored) gradient, parameter;
    ASHLAR_NAME(reals) value, moment1, moment2;
} ASHLAR_NAME(hand);

/* Update element k of hand `h` with factors `f`. */
#define ASHLAR_UPDATE(function, f, h, k)                                                     \
    ASHLAR_REAL_NAME(ashlar__update_##function)                                                 \
    (f, ASHLAR_WIDEN((h)->gradient.at[k]), &(h)->value.at[k], &(h)->moment1.at[k],           \
     &(h)->moment2.at[k])

static __device__ __forceinline__ void
ASHLAR_NAME(take_unit)(const ASHLAR_NAME(arrays) *a, unsigned i, ASHLAR_NAME(hand) *h) {
    h->gradient = ((const ASHLAR_NAME(stored) *)(const void *)a->gradients)[i];
    if (a->moment1 != NULL) {
        h->moment1 = ((const ASHLAR_NAME(reals) *)(const void *)a->moment1)[i];
    }
    if (a->moment2 != NULL) {
        h->moment2 = ((const ASHLAR_NAME(reals) *)(const void *)a->moment2)[i];
    }
    if (ASHLAR_HAS_MASTER && !a->is_first) {
        h->value = ((const ASHLAR_NAME(reals) *)(const void *)a->master)[i];
        return;
    }
    h->parameter = ((const ASHLAR_NAME(stored) *)(const void *)a->parameters)[i];
    for (unsigned k = 0; k < ASHLAR_NAME(unit_count); k++) {
        h->value.at[k] = ASHLAR_WIDEN(h->parameter.at[k]);
    }
}

static __device__ __forceinline__ void
ASHLAR_NAME(give_unit)(const ASHLAR_NAME(arrays) *a, unsigned i, ASHLAR_NAME(hand) *h) {
    for (unsigned k = 0; k < ASHLAR_NAME(unit_count); k++) {
        h->parameter.at[k] = ASHLAR_NARROW(h->value.at[k]);
    }
    ((ASHLAR_NAME(stored) *)(void *)a->parameters)[i] = h->parameter;
    if (ASHLAR_HAS_MASTER) {
        ((ASHLAR_NAME(reals) *)(void *)a->master)[i] = h->value;
    }
    if (a->moment1 != NULL) {
        ((ASHLAR_NAME(reals) *)(void *)a->moment1)[i] = h->moment1;
    }
    if (a->moment2 != NULL) {
        ((ASHLAR_NAME(reals) *)(void *)a->moment2)[i] = h->moment2;
    }
}

/* The same for up to `count` elements from `first` on, one by one: not aligned, or less than a unit.
 */
static __device__ __forceinline__ void ASHLAR_NAME(take_some)(const ASHLAR_NAME(arrays) *a,
                                                              unsigned first, unsigned count,
                                                              ASHLAR_NAME(hand) *h) {
    for (unsigned k = 0; k < ASHLAR_NAME(unit_count); k++) {
        const bool has = k < count;
        const unsigned i = first + k;
        h->gradient.at[k] = has ? a->gradients[i] : 0;
        h->moment1.at[k] = has && a->moment1 != NULL ? a->moment1[i] : 0;
        h->moment2.at[k] = has && a->moment2 != NULL ? a->moment2[i] : 0;
        h->value.at[k] = !has                                ? 0
                         : ASHLAR_HAS_MASTER && !a->is_first ? a->master[i]
                                                             : ASHLAR_WIDEN(a->parameters[i]);
    }
}

static __device__ __forceinline__ void ASHLAR_NAME(give_some)(const ASHLAR_NAME(arrays) *a,
                                                              unsigned first, unsigned count,
                                                              const ASHLAR_NAME(hand) *h) {
    for (unsigned k = 0; k < ASHLAR_NAME(unit_count) && k < count; k++) {
        const unsigned i = first + k;
        a->parameters[i] = ASHLAR_NARROW(h->value.at[k]);
        if (ASHLAR_HAS_MASTER) {
            a->master[i] = h->value.at[k];
        }
        if (a->moment1 != NULL) {
            a->moment1[i] = h->moment1.at[k];
        }
        if (a->moment2 != NULL) {
            a->moment2[i] = h->moment2.at[k];
        }
    }
}

#define ASHLAR_LOOP(name, function, has1, has2)                                          \
    static __device__ __forceinline__ void ASHLAR_NAME(function)(                        \
        const ashlar_optimizer_piece *p) {                                               \
        const ASHLAR_REAL_NAME(ashlar_factors) f =                                       \
            ASHLAR_REAL_NAME(ashlar_factors_of)(&p->factors);                            \
        const ASHLAR_NAME(arrays) a = ASHLAR_NAME(find)(p, has1, has2);                  \
        const unsigned whole = ASHLAR_NAME(has_units)(&a) ? p->count / UNIT : 0;         \
        for (unsigned i = threadIdx.x; i * UNIT < p->count; i += ASHLAR_CHUNK_THREADS) { \
            ASHLAR_NAME(hand) h;                                                         \
            if (i < whole) {                                                             \
                ASHLAR_NAME(take_unit)(&a, i, &h);                                       \
            } else {                                                                     \
                ASHLAR_NAME(take_some)(&a, i * UNIT, p->count - i * UNIT, &h);           \
            }                                                                            \
            for (unsigned k = 0; k < UNIT; k++) {                                        \
                ASHLAR_UPDATE(function, &f, &h, k);                                      \
            }                                                                            \
            if (i < whole) {                                                             \
                ASHLAR_NAME(give_unit)(&a, i, &h);                                       \
            } else {                                                                     \
                ASHLAR_NAME(give_some)(&a, i * UNIT, p->count - i * UNIT, &h);           \
            }                                                                            \
        }                                                                                \
    }
#define UNIT ASHLAR_NAME(unit_count)
ASHLAR_ALGORITHM_MAP(ASHLAR_LOOP)
#undef UNIT
#undef ASHLAR_LOOP
#undef ASHLAR_UPDATE
