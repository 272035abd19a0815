/*
 * real_f64.h - exp, sigmoid and tanh of double (internal; real.h chooses it or real_f32.h).
 *
 * double is the reference that float is tested against, so it uses libm: accurate, not vectorised.
 */
#ifndef ASHLAR_REAL_F64_H
#define ASHLAR_REAL_F64_H

#include <math.h>

static inline double real_exp_f64(double x) {
    return exp(x);
}

static inline double real_sigmoid_f64(double x) {
    return 1.0 / (1.0 + exp(-x));
}

static inline double real_tanh_f64(double x) {
    return tanh(x);
}

#endif /* ASHLAR_REAL_F64_H */
