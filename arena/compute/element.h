/* element.h - names for code that is compiled once for each element type, and for each
 * instruction set (internal; C and CUDA C).
 *
 * ASHLAR_TYPE is f32, f64, f16 or bf16. meson.build defines it for a .c file; a .cu file defines it
 * before each include of a .cuh. Every macro below depends on it:
 *
 *   ASHLAR_STORED                       the C type of an element in memory
 *   ASHLAR_REAL                         the C type to compute in: float or double
 *   ASHLAR_WIDEN(stored)                an element converted to ASHLAR_REAL
 *   ASHLAR_NARROW(real)                 an ASHLAR_REAL rounded to an element
 *   ASHLAR_ROOT(real), ASHLAR_EXP(real), ASHLAR_TANH(real)
 *                                       these functions of an ASHLAR_REAL
 *   ASHLAR_HAS_MASTER                   whether parameters of this type have an fp32 master
 *   ASHLAR_NAME(name)                   `name` with the element type as a suffix
 *   ASHLAR_REAL_NAME(name)              `name` with the suffix f32 or f64, as ASHLAR_REAL is
 *   ASHLAR_VARIANT(name)                `name` with element type and instruction set as suffixes;
 *                                       meson.build defines ASHLAR_SET, the instruction set */
#ifndef ASHLAR_ELEMENT_H
#define ASHLAR_ELEMENT_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

#include "arena/compute/convert.h"

/* A default, so that tools can compile a file that uses these macros by itself. */
#ifndef ASHLAR_TYPE
#define ASHLAR_TYPE f32
#endif
#ifndef ASHLAR_SET
#define ASHLAR_SET baseline
#endif

/* Before a loop that CUDA's compiler shall not unroll: its body is large, and the loads of one pass
 * are enough to keep memory busy, or it is the rest of a loop over vectors. */
#ifdef __CUDACC__
#define ASHLAR_ROLLED _Pragma("unroll 1")
#else
#define ASHLAR_ROLLED
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
#define ASHLAR_TANH ASHLAR_REAL_NAME(ASHLAR_TANH)
#define ASHLAR_TANH_f32 tanhf
#define ASHLAR_TANH_f64 tanh

/*
 * The instruction sets that loops are compiled for. meson.build compiles a file of loops once for
 * each set, with ASHLAR_SET defined as the set. For the file that chooses one of the results it
 * defines ASHLAR_SETS(X): X(set) for every set that was compiled, baseline included.
 */

/* A default, so that tools can compile a file that uses ASHLAR_SETS by itself. */
#ifndef ASHLAR_SETS
#define ASHLAR_SETS(X) X(baseline)
#endif

/* All sets: X(set, bytes of a vector register, number of vector registers). On one processor each
 * set that it can run contains those before it. */
#define ASHLAR_SET_MAP(X) \
    X(baseline, 16, 16)   \
    X(avx2, 32, 16)       \
    X(avx512, 64, 32)     \
    X(neon, 16, 32)

typedef enum ashlar_instruction_set {
#define ASHLAR_SET_NAME(set, bytes, registers) ASHLAR_SET_##set,
    ASHLAR_SET_MAP(ASHLAR_SET_NAME)
#undef ASHLAR_SET_NAME
        ASHLAR_SET_COUNT
} ashlar_instruction_set;

/* The largest set that this processor can run and ASHLAR_ISA=SET in the environment allows. The
 * variable is read once, and ignored if it names no set. Threads: any. */
ashlar_instruction_set ashlar__instruction_set(void);

/* Check ASHLAR_ISA. Errors: ASHLAR_EINVAL: it names no set, or one that the processor lacks. */
ASHLAR_MUST_CHECK ashlar_status ashlar__instruction_set_check(void);

/* The index in ASHLAR_SETS of the best set that is at most ashlar__instruction_set(). */
#define ASHLAR_SET_ROW(set) ASHLAR_SET_##set,
static inline size_t ashlar__best_set(void) {
    static const ashlar_instruction_set sets[] = {ASHLAR_SETS(ASHLAR_SET_ROW)};
    const ashlar_instruction_set most = ashlar__instruction_set();
    size_t best = 0;
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        best = sets[i] <= most && (sets[best] > most || sets[i] > sets[best]) ? i : best;
    }
    return best;
}

/* `name` with the set appended whose double-precision loops `set` uses. Double precision is for
 * checking gradients, so AVX-512 uses AVX2's: its own would add a tenth to the library's size. */
#define ASHLAR_F64_SET_baseline baseline
#define ASHLAR_F64_SET_avx2 avx2
#define ASHLAR_F64_SET_avx512 avx2
#define ASHLAR_F64_SET_neon neon
#define ASHLAR_F64_NAME(name, set) ASHLAR_JOIN(name, ASHLAR_F64_SET_##set)

/* Bytes of a vector register of the set that a file is compiled for, and how many there are. */
#define ASHLAR_VECTOR_BYTES ASHLAR_JOIN(ASHLAR_VECTOR_BYTES_, ASHLAR_SET)
#define ASHLAR_VECTOR_COUNT ASHLAR_JOIN(ASHLAR_VECTOR_COUNT_, ASHLAR_SET)
enum {
#define ASHLAR_SET_SIZES(set, bytes, registers) \
    ASHLAR_VECTOR_BYTES_##set = (bytes), ASHLAR_VECTOR_COUNT_##set = (registers),
    ASHLAR_SET_MAP(ASHLAR_SET_SIZES)
#undef ASHLAR_SET_SIZES
        ASHLAR_VECTOR_BYTES_MAX = 64
};

#endif /* ASHLAR_ELEMENT_H */
