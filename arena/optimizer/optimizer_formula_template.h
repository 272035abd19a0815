/*
 * optimizer_formula_template.h - the update of one element, for one real type (internal; included
 * by optimizer_formula.h, once for each type, with ASHLAR_REAL, ASHLAR_REAL_NAME and
 * ASHLAR_REAL_ROOT defined, which it takes away again).
 *
 * In each function `gradient` is as stored, and of m and v those may be anything that the
 * algorithm does not have. An element whose parameter, gradient and moments are 0 stays 0.
 */

/* The factors in this type. Each is rounded once: 1.0f - 0.999f is wrong in its fifth digit. */
typedef struct ASHLAR_REAL_NAME(ashlar_factors) {
    ASHLAR_REAL scale, penalty, rate, shrink, keep1, rest1, keep2, rest2, root_scale, epsilon;
} ASHLAR_REAL_NAME(ashlar_factors);

ASHLAR_SHARED_FN ASHLAR_REAL_NAME(ashlar_factors)
    ASHLAR_REAL_NAME(ashlar_factors_of)(const ashlar_optimizer_factors *f) {
    ASHLAR_REAL_NAME(ashlar_factors) r;
    r.scale = (ASHLAR_REAL)f->scale;
    r.penalty = (ASHLAR_REAL)f->penalty;
    r.rate = (ASHLAR_REAL)f->rate;
    r.shrink = (ASHLAR_REAL)f->shrink;
    r.keep1 = (ASHLAR_REAL)f->keep1;
    r.rest1 = (ASHLAR_REAL)f->rest1;
    r.keep2 = (ASHLAR_REAL)f->keep2;
    r.rest2 = (ASHLAR_REAL)f->rest2;
    r.root_scale = (ASHLAR_REAL)f->root_scale;
    r.epsilon = (ASHLAR_REAL)f->epsilon;
    return r;
}

/* The gradient that an update goes by. */
ASHLAR_SHARED_FN ASHLAR_REAL ASHLAR_REAL_NAME(ashlar_slope)(
    const ASHLAR_REAL_NAME(ashlar_factors) *f, ASHLAR_REAL gradient, ASHLAR_REAL parameter) {
    return f->scale * gradient + f->penalty * parameter;
}

#define ASHLAR_UPDATE(name)                                                              \
    ASHLAR_SHARED_FN void ASHLAR_REAL_NAME(ashlar_update_##name)(                        \
        const ASHLAR_REAL_NAME(ashlar_factors) *f, ASHLAR_REAL gradient, ASHLAR_REAL *p, \
        ASHLAR_REAL *m, ASHLAR_REAL *v)

ASHLAR_UPDATE(sgd) {
    (void)m;
    (void)v;
    *p -= f->rate * ASHLAR_REAL_NAME(ashlar_slope)(f, gradient, *p);
}

ASHLAR_UPDATE(momentum) {
    (void)v;
    *m = f->keep1 * *m + f->rest1 * ASHLAR_REAL_NAME(ashlar_slope)(f, gradient, *p);
    *p -= f->rate * *m;
}

ASHLAR_UPDATE(nesterov) {
    const ASHLAR_REAL g = ASHLAR_REAL_NAME(ashlar_slope)(f, gradient, *p);
    (void)v;
    *m = f->keep1 * *m + f->rest1 * g;
    *p -= f->rate * (g + f->keep1 * *m);
}

ASHLAR_UPDATE(adam) {
    const ASHLAR_REAL g = ASHLAR_REAL_NAME(ashlar_slope)(f, gradient, *p);
    *m = f->keep1 * *m + f->rest1 * g;
    *v = f->keep2 * *v + f->rest2 * g * g;
    *p -= f->rate * *m / (ASHLAR_REAL_ROOT(*v) * f->root_scale + f->epsilon) + f->shrink * *p;
}

ASHLAR_UPDATE(adagrad) {
    const ASHLAR_REAL g = ASHLAR_REAL_NAME(ashlar_slope)(f, gradient, *p);
    (void)m;
    *v += g * g;
    *p -= f->rate * g / (ASHLAR_REAL_ROOT(*v) + f->epsilon);
}

ASHLAR_UPDATE(rmsprop) {
    const ASHLAR_REAL g = ASHLAR_REAL_NAME(ashlar_slope)(f, gradient, *p);
    (void)m;
    *v = f->keep2 * *v + f->rest2 * g * g;
    *p -= f->rate * g / (ASHLAR_REAL_ROOT(*v) + f->epsilon);
}

ASHLAR_UPDATE(rmsprop_momentum) {
    const ASHLAR_REAL g = ASHLAR_REAL_NAME(ashlar_slope)(f, gradient, *p);
    *v = f->keep2 * *v + f->rest2 * g * g;
    *m = f->keep1 * *m + g / (ASHLAR_REAL_ROOT(*v) + f->epsilon);
    *p -= f->rate * *m;
}

#undef ASHLAR_UPDATE
#undef ASHLAR_REAL
#undef ASHLAR_REAL_NAME
#undef ASHLAR_REAL_ROOT
