/* optimizer_update.c - every algorithm's loop over a piece of a run, for the real type and the
 * instruction set that meson.build compiles this file for. */
#include "arena/optimizer/optimizer_update.h"

#include "arena/optimizer/optimizer_kernels.h"

/* The arrays do not overlap. If the algorithm does not have a moment, its array is not touched. */
#define LOOP(name, function, has_moment1, has_moment2)                                           \
    static void loop_##function(const ASHLAR_NAME(ashlar_factors) * factors,                     \
                                const ASHLAR_REAL *restrict gradients,                           \
                                ASHLAR_REAL *restrict parameters, ASHLAR_REAL *restrict moment1, \
                                ASHLAR_REAL *restrict moment2, size_t count) {                   \
        const ASHLAR_NAME(ashlar_factors) f = *factors;                                          \
        for (size_t i = 0; i < count; i++) {                                                     \
            ASHLAR_REAL p = parameters[i];                                                       \
            ASHLAR_REAL m = (has_moment1) ? moment1[i] : 0;                                      \
            ASHLAR_REAL v = (has_moment2) ? moment2[i] : 0;                                      \
            ASHLAR_NAME(ashlar__update_##function)(&f, gradients[i], &p, &m, &v);                \
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
        const ASHLAR_NAME(ashlar_factors) f = ASHLAR_NAME(ashlar_factors_of)(factors);           \
        ASHLAR_CHECK2(!(has_moment1) || part->moment1 != NULL);                                  \
        ASHLAR_CHECK2(!(has_moment2) || part->moment2 != NULL);                                  \
        loop_##function(&f, part->gradients, part->parameters, part->moment1, part->moment2,     \
                        part->elements);                                                         \
    }
ASHLAR_ALGORITHM_MAP(LOOP)

#define ROW(name, function, moment1, moment2) [ASHLAR_ALGORITHM_##name] = update_##function,
const ashlar_optimizer_updates ASHLAR_VARIANT(ashlar__optimizer_updates) = {
    ASHLAR_ALGORITHM_MAP(ROW)};
