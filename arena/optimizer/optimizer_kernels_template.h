/*
 * optimizer_kernels_template.h - the loops over arrays of one real type (internal; included by
 * optimizer_kernels.c, once for each type, with ASHLAR_REAL and ASHLAR_REAL_NAME defined, which it
 * takes away again).
 */

/* The arrays are apart from each other, and those of moments it does not have are not touched. */
#define ASHLAR_LOOP(name, function, has_moment1, has_moment2)                                    \
    static void ASHLAR_REAL_NAME(loop_##function)(                                               \
        const ASHLAR_REAL_NAME(ashlar_factors) *factors, const ASHLAR_REAL *restrict gradients,  \
        ASHLAR_REAL *restrict parameters, ASHLAR_REAL *restrict moment1,                         \
        ASHLAR_REAL *restrict moment2, size_t count) {                                           \
        const ASHLAR_REAL_NAME(ashlar_factors) f = *factors;                                     \
        for (size_t i = 0; i < count; i++) {                                                     \
            ASHLAR_REAL p = parameters[i];                                                       \
            ASHLAR_REAL m = (has_moment1) ? moment1[i] : 0;                                      \
            ASHLAR_REAL v = (has_moment2) ? moment2[i] : 0;                                      \
            ASHLAR_REAL_NAME(ashlar_update_##function)(&f, gradients[i], &p, &m, &v);            \
            parameters[i] = p;                                                                   \
            if (has_moment1) {                                                                   \
                moment1[i] = m;                                                                  \
            }                                                                                    \
            if (has_moment2) {                                                                   \
                moment2[i] = v;                                                                  \
            }                                                                                    \
        }                                                                                        \
    }                                                                                            \
    static void ASHLAR_REAL_NAME(update_##function)(const ashlar_optimizer_factors *factors,     \
                                                    const ashlar_optimizer_run *part) {          \
        const ASHLAR_REAL_NAME(ashlar_factors) f = ASHLAR_REAL_NAME(ashlar_factors_of)(factors); \
        ASHLAR_REAL_NAME(loop_##function)(&f, part->gradients, part->parameters, part->moment1,  \
                                          part->moment2, part->elements);                        \
    }
ASHLAR_ALGORITHM_MAP(ASHLAR_LOOP)
#undef ASHLAR_LOOP

#undef ASHLAR_REAL
#undef ASHLAR_REAL_NAME
