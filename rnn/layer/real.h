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
#include "rnn/layer/real_f64.h"

typedef ASHLAR_REAL real;

#define REAL(name) ASHLAR_NAME(name)
#define REAL_DTYPE ASHLAR_OF_TYPE(REAL_DTYPE_)
#define REAL_DTYPE_f32 ASHLAR_F32
#define REAL_DTYPE_f64 ASHLAR_F64

#define real_exp REAL(real_exp)
#define real_sigmoid REAL(real_sigmoid)
#define real_tanh REAL(real_tanh)

#endif /* ASHLAR_REAL_H */
