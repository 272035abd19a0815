/*
 * real.h - the C type and the functions of the element type that a file is compiled for (internal).
 *
 * meson.build defines ASHLAR_TYPE, f32 or f64, and for the innermost loops ASHLAR_SET (element.h,
 * instruction_set.h). A function that several of these files share is renamed by a macro with
 * ASHLAR_VARIANT(), so that its copies for other types and sets are different symbols.
 */
#ifndef ASHLAR_REAL_H
#define ASHLAR_REAL_H

#include "arena/compute/element.h"
#include "rnn/layer/blas.h"
#include "rnn/layer/real_f32.h"

/* double is the reference that float is tested against: libm's, accurate, not vectorised. */
static inline double real_exp_f64(double x) {
    return exp(x);
}

static inline double real_sigmoid_f64(double x) {
    return 1.0 / (1.0 + exp(-x));
}

static inline double real_tanh_f64(double x) {
    return tanh(x);
}

typedef ASHLAR_REAL real;

#define REAL(name) ASHLAR_NAME(name)
#define REAL_DTYPE ASHLAR_OF_TYPE(REAL_DTYPE_)
#define REAL_DTYPE_f32 ASHLAR_F32
#define REAL_DTYPE_f64 ASHLAR_F64

#define real_exp REAL(real_exp)
#define real_sigmoid REAL(real_sigmoid)
#define real_tanh REAL(real_tanh)

#endif /* ASHLAR_REAL_H */
