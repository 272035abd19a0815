/*
 * real_f64.h - what the templates need to know of double (internal; see also real_f32.h).
 *
 * double is the reference the float build is tested against: libm, accurate and not vectorised.
 */
#ifndef ASHLAR_REAL_F64_H
#define ASHLAR_REAL_F64_H

#include <math.h>

#include "rnn/layer/blas.h"

typedef double real;

#define REAL(name) name##_f64
#define REAL_DTYPE ASHLAR_F64

static inline double real_exp(double x) {
    return exp(x);
}

static inline double real_sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}

static inline double real_tanh(double x) {
    return tanh(x);
}

#endif /* ASHLAR_REAL_F64_H */
