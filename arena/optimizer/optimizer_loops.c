/* optimizer_loops.c - the optimizer's loops over an array: the sum of its squares, and the update
 * by each algorithm; for the element type and the instruction set that meson.build compiles this
 * file for. 16-bit parameters are updated through their fp32 masters. */
#include "allocator/base/check_level.h"
#include "arena/optimizer/optimizer_impl.h"
#include "arena/optimizer/optimizer_update.h"

/* LANES: interleaved partial sums. AHEAD: how many elements ahead of the summed ones to prefetch: a
 * page's worth, since the processor does not prefetch across pages by itself. */
enum { LANES = 16, AHEAD = 4096 / sizeof(ASHLAR_STORED) };

static double square(ASHLAR_STORED stored) {
    const double value = (double)ASHLAR_WIDEN(stored);
    return value * value;
}

double ASHLAR_VARIANT(ashlar__optimizer_sum)(const void *array, size_t count) {
    const ASHLAR_STORED *values = array;
    double lanes[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        ASHLAR_PREFETCH(values + i + AHEAD);
        for (size_t lane = 0; lane < LANES; lane++) {
            lanes[lane] += square(values[i + lane]);
        }
    }
    for (size_t lane = 0; i < count; i++, lane++) {
        lanes[lane] += square(values[i]);
    }
    for (size_t lane = 0; lane < LANES; lane++) {
        sum += lanes[lane];
    }
    return sum;
}

void ASHLAR_VARIANT(ashlar__optimizer_mix)(void *array, const void *products, double keep,
                                           double scale, size_t count) {
    ASHLAR_REAL *restrict values = array;
    const ASHLAR_REAL *restrict added = products;
    const ASHLAR_REAL k = (ASHLAR_REAL)keep, s = (ASHLAR_REAL)scale;
    for (size_t i = 0; added != NULL && i < count; i++) {
        values[i] = ASHLAR_REAL_NAME(ashlar__muon_round)(k * values[i] + s * added[i]);
    }
    for (size_t i = 0; added == NULL && i < count; i++) {
        values[i] = ASHLAR_REAL_NAME(ashlar__muon_round)(values[i] / s);
    }
}

typedef void loop(const ASHLAR_REAL_NAME(ashlar_factors) * factors, const ASHLAR_REAL *gradients,
                  ASHLAR_REAL *parameters, ASHLAR_REAL *moment1, ASHLAR_REAL *moment2,
                  size_t count);

static void widen(ASHLAR_REAL *restrict to, const ASHLAR_STORED *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] = ASHLAR_WIDEN(from[i]);
    }
}

static void narrow(ASHLAR_STORED *restrict to, const ASHLAR_REAL *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] = (ASHLAR_STORED)ASHLAR_NARROW(from[i]);
    }
}

/* Update the elements of `part`; 16-bit ones are converted and updated in blocks that stay in the
 * level-1 cache, which is faster than one loop over arrays of 16 and 32 bits. */
static void update(const ashlar_optimizer_factors *factors, const ashlar_optimizer_run *part,
                   loop *run) {
    enum { BLOCK = 512 };
    const ASHLAR_REAL_NAME(ashlar_factors) f = ASHLAR_REAL_NAME(ashlar_factors_of)(factors);
    ASHLAR_REAL gradients[BLOCK], *moment1 = part->moment1, *moment2 = part->moment2;
    if (!ASHLAR_HAS_MASTER) {
        run(&f, part->gradients, part->parameters, moment1, moment2, part->elements);
        return;
    }
    for (size_t at = 0; at < part->elements; at += BLOCK) {
        const size_t left = part->elements - at, count = left < BLOCK ? left : BLOCK;
        ASHLAR_STORED *parameters = (ASHLAR_STORED *)part->parameters + at;
        ASHLAR_REAL *master = (ASHLAR_REAL *)(void *)part->master + at;
        if (factors->is_first) {
            widen(master, parameters, count);
        }
        widen(gradients, (const ASHLAR_STORED *)part->gradients + at, count);
        run(&f, gradients, master, moment1 == NULL ? NULL : moment1 + at,
            moment2 == NULL ? NULL : moment2 + at, count);
        narrow(parameters, master, count);
    }
}

/* The loops over elements. Their arrays do not overlap; those of moments that the algorithm does
 * not have are not touched. */
#define LOOP(name, function, has_moment1, has_moment2)                                           \
    static void loop_##function(const ASHLAR_REAL_NAME(ashlar_factors) * factors,                \
                                const ASHLAR_REAL *restrict gradients,                           \
                                ASHLAR_REAL *restrict parameters, ASHLAR_REAL *restrict moment1, \
                                ASHLAR_REAL *restrict moment2, size_t count) {                   \
        const ASHLAR_REAL_NAME(ashlar_factors) f = *factors;                                     \
        for (size_t i = 0; i < count; i++) {                                                     \
            ASHLAR_REAL p = parameters[i];                                                       \
            ASHLAR_REAL m = (has_moment1) ? moment1[i] : 0;                                      \
            ASHLAR_REAL v = (has_moment2) ? moment2[i] : 0;                                      \
            ASHLAR_REAL_NAME(ashlar__update_##function)(&f, gradients[i], &p, &m, &v);           \
            parameters[i] = p;                                                                   \
            if (has_moment1) {                                                                   \
                moment1[i] = m;                                                                  \
            }                                                                                    \
            if (has_moment2) {                                                                   \
                moment2[i] = v;                                                                  \
            }                                                                                    \
        }                                                                                        \
    }                                                                                            \
    static void update_##function(const ashlar_optimizer_factors *factors,                       \
                                  const ashlar_optimizer_run *part) {                            \
        update(factors, part, loop_##function);                                                  \
    }
ASHLAR_ALGORITHM_MAP(LOOP)

#define ROW(name, function, moment1, moment2) [ASHLAR_ALGORITHM_##name] = update_##function,
const ashlar_optimizer_updates ASHLAR_VARIANT(ashlar__optimizer_updates) = {
    ASHLAR_ALGORITHM_MAP(ROW)};
