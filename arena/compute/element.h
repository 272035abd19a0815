/* element.h - names for code that is compiled once for each element type (internal; C and CUDA C).
 *
 * ASHLAR_TYPE is f32, f64, f16 or bf16. meson.build defines it for a .c file; a .cu file defines it
 * before each include of a .cuh. Every macro below depends on it:
 *
 *   ASHLAR_STORED                       the C type of an element in memory
 *   ASHLAR_REAL                         the C type to compute in: float or double
 *   ASHLAR_WIDEN(stored)                an element converted to ASHLAR_REAL
 *   ASHLAR_NARROW(real)                 an ASHLAR_REAL rounded to an element
 *   ASHLAR_ROOT(real), ASHLAR_EXP(real) square root and exponential of an ASHLAR_REAL
 *   ASHLAR_HAS_MASTER                   whether parameters of this type have an fp32 master
 *   ASHLAR_NAME(name)                   `name` with the element type as a suffix
 *   ASHLAR_REAL_NAME(name)              `name` with the suffix f32 or f64, as ASHLAR_REAL is
 *   ASHLAR_VARIANT(name)                `name` with element type and instruction set as suffixes;
 *                                       meson.build defines ASHLAR_SET, the instruction set */
#ifndef ASHLAR_ELEMENT_H
#define ASHLAR_ELEMENT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "arena/compute/convert.h"

/* A default, so that tools can compile a file that uses these macros by itself. */
#ifndef ASHLAR_TYPE
#define ASHLAR_TYPE f32
#endif
#ifndef ASHLAR_SET
#define ASHLAR_SET baseline
#endif

#define ASHLAR_JOIN(a, b) ASHLAR_JOIN_EXPANDED(a, b)
#define ASHLAR_JOIN_EXPANDED(a, b) a##b
#define ASHLAR_OF_TYPE(word) ASHLAR_JOIN(word, ASHLAR_TYPE)

#define ASHLAR_STORED ASHLAR_OF_TYPE(ASHLAR_STORED_)
#define ASHLAR_STORED_f32 float
#define ASHLAR_STORED_f64 double
#define ASHLAR_STORED_f16 uint16_t
#define ASHLAR_STORED_bf16 uint16_t

#define ASHLAR_REAL ASHLAR_OF_TYPE(ASHLAR_REAL_)
#define ASHLAR_REAL_f32 float
#define ASHLAR_REAL_f64 double
#define ASHLAR_REAL_f16 float
#define ASHLAR_REAL_bf16 float

#define ASHLAR_WIDEN(stored) ASHLAR_OF_TYPE(ASHLAR_WIDEN_)(stored)
#define ASHLAR_WIDEN_f32(stored) (stored)
#define ASHLAR_WIDEN_f64(stored) (stored)
#define ASHLAR_WIDEN_f16(stored) ashlar__float_from_f16(stored)
#define ASHLAR_WIDEN_bf16(stored) ashlar__float_from_bf16(stored)

#define ASHLAR_NARROW(real) ASHLAR_OF_TYPE(ASHLAR_NARROW_)(real)
#define ASHLAR_NARROW_f32(real) (real)
#define ASHLAR_NARROW_f64(real) (real)
#define ASHLAR_NARROW_f16(real) ashlar__f16_from_float(real)
#define ASHLAR_NARROW_bf16(real) ashlar__bf16_from_float(real)

#define ASHLAR_HAS_MASTER ASHLAR_OF_TYPE(ASHLAR_HAS_MASTER_)
#define ASHLAR_HAS_MASTER_f32 false
#define ASHLAR_HAS_MASTER_f64 false
#define ASHLAR_HAS_MASTER_f16 true
#define ASHLAR_HAS_MASTER_bf16 true

#define ASHLAR_NAME(name) ASHLAR_OF_TYPE(name##_)
#define ASHLAR_REAL_NAME(name) ASHLAR_JOIN(name##_, ASHLAR_OF_TYPE(ASHLAR_SUFFIX_))
#define ASHLAR_SUFFIX_f32 f32
#define ASHLAR_SUFFIX_f64 f64
#define ASHLAR_SUFFIX_f16 f32
#define ASHLAR_SUFFIX_bf16 f32
#define ASHLAR_VARIANT(name) ASHLAR_JOIN(ASHLAR_NAME(name), ASHLAR_JOIN(_, ASHLAR_SET))

#define ASHLAR_ROOT ASHLAR_REAL_NAME(ASHLAR_ROOT)
#define ASHLAR_ROOT_f32 sqrtf
#define ASHLAR_ROOT_f64 sqrt
#define ASHLAR_EXP ASHLAR_REAL_NAME(ASHLAR_EXP)
#define ASHLAR_EXP_f32 expf
#define ASHLAR_EXP_f64 exp

#endif /* ASHLAR_ELEMENT_H */
