/* optimizer_update.h - how each algorithm updates one element, in the real type of ASHLAR_TYPE
 * (internal; C and CUDA C). No include guard: the CUDA kernels include it for f32 and for f64.
 * `gradient` is as stored, before scaling. A moment that the algorithm does not use may have any
 * value. An element whose parameter, gradient and moments are 0 keeps them 0: padding stays 0. */
#include "arena/compute/element.h"
#include "arena/optimizer/optimizer_impl.h"

/* ashlar_optimizer_factors, computed in double and then rounded once to the real type: 1.0f -
 * 0.999f, computed in float, would be wrong in its fifth digit. */
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

/* The gradient that an update uses: scaled, and with weight decay added. */
ASHLAR_SHARED_FN ASHLAR_REAL ASHLAR_REAL_NAME(ashlar_slope)(
    const ASHLAR_REAL_NAME(ashlar_factors) * f, ASHLAR_REAL gradient, ASHLAR_REAL parameter) {
    return f->scale * gradient + f->penalty * parameter;
}

#define ASHLAR_UPDATE(name)                                                                \
    ASHLAR_SHARED_FN void ASHLAR_REAL_NAME(ashlar__update_##name)(                         \
        const ASHLAR_REAL_NAME(ashlar_factors) * f, ASHLAR_REAL gradient, ASHLAR_REAL * p, \
        ASHLAR_REAL * m, ASHLAR_REAL * v)

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
    *p -= f->rate * *m / (ASHLAR_ROOT(*v) * f->root_scale + f->epsilon) + f->shrink * *p;
}

ASHLAR_UPDATE(adagrad) {
    const ASHLAR_REAL g = ASHLAR_REAL_NAME(ashlar_slope)(f, gradient, *p);
    (void)m;
    *v += g * g;
    *p -= f->rate * g / (ASHLAR_ROOT(*v) + f->epsilon);
}

ASHLAR_UPDATE(rmsprop) {
    const ASHLAR_REAL g = ASHLAR_REAL_NAME(ashlar_slope)(f, gradient, *p);
    (void)m;
    *v = f->keep2 * *v + f->rest2 * g * g;
    *p -= f->rate * g / (ASHLAR_ROOT(*v) + f->epsilon);
}

ASHLAR_UPDATE(rmsprop_momentum) {
    const ASHLAR_REAL g = ASHLAR_REAL_NAME(ashlar_slope)(f, gradient, *p);
    *v = f->keep2 * *v + f->rest2 * g * g;
    *m = f->keep1 * *m + g / (ASHLAR_ROOT(*v) + f->epsilon);
    *p -= f->rate * *m;
}

/* Rounded to bf16, as PyTorch rounds fp64, too: by way of fp32. */
ASHLAR_SHARED_FN ASHLAR_REAL ASHLAR_REAL_NAME(ashlar__muon_round)(ASHLAR_REAL value) {
    return (ASHLAR_REAL)ashlar__float_from_bf16(ashlar__bf16_from_float((float)value));
}

ASHLAR_UPDATE(muon_direction) {
    const ASHLAR_REAL g = f->scale * gradient;
    (void)p;
    *m += f->rest1 * (g - *m);
    *v = ASHLAR_REAL_NAME(ashlar__muon_round)(*m + f->rest2 * (g - *m));
}

ASHLAR_UPDATE(muon_apply) {
    (void)gradient;
    (void)m;
    *p = f->keep2 * *p - f->rate * *v;
}

#undef ASHLAR_UPDATE
