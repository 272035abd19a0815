/* real.h - `real`, the element type that a file is compiled for, and its functions (internal).
 * meson.build defines ASHLAR_TYPE, f32 or f64, and for the innermost loops ASHLAR_SET, the
 * instruction set (arena/compute/element.h). A function that several such files share gets its name
 * from ASHLAR_VARIANT(), so that its copies for other types and sets are different symbols. */
#ifndef ASHLAR_REAL_H
#define ASHLAR_REAL_H

#include <math.h>
#include <string.h>

#include "arena/compute/element.h"
#include "arena/product/blas.h"

/* exp, sigmoid and tanh of float are branch-free and inline, so that loops over them vectorise;
 * calls of libm would not. Largest errors if the result is a normal number: exp 2 ulp, sigmoid and
 * tanh 4 ulp; tests/arena/product/test_real.c checks that over every exponent. NaN gives NaN. */

/* Returns e^r - 1 for the remainder r = x - n ln 2, |r| <= ln(2)/2. *n: the integer n. n is x/ln 2
 * rounded by adding 1.5 * 2^23, which leaves the integer in the low bits of the sum. n ln 2 is
 * subtracted in two parts; the first has so few bits of ln 2 that n times it is exact. The
 * polynomial is Taylor's: its first missing term is |r|^8 / 8! < 2^-27 of the result. */
static inline float real_reduce_expm1_f32(float x, int32_t *n) {
    const float round = 0x1.8p23f;
    const float ln2_high = 355.0f / 512.0f;
    const float ln2_low = -2.12194440054690583e-4f;
    const float sum = x * 1.44269504088896341f + round;
    const float whole = sum - round;
    const float r = (x - whole * ln2_high) - whole * ln2_low;
    uint32_t sum_bits, round_bits;
    memcpy(&sum_bits, &sum, sizeof sum_bits);
    memcpy(&round_bits, &round, sizeof round_bits);
    *n = (int32_t)(sum_bits - round_bits);
    const float tail = 1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720 + r * (1.0f / 5040)));
    return r + r * r * (1.0f / 2 + r * (1.0f / 6 + r * tail));
}

/* 2^n, -126 <= n <= 127. The sum is unsigned, because n is arbitrary if x was a NaN. */
static inline float real_power_of_two_f32(int32_t n) {
    const uint32_t bits = ((uint32_t)n + 127u) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* x, cut to -limit .. limit. It compares the magnitude, because two comparisons in sequence would
 * become branches and keep the loop from vectorising. A NaN stays a NaN. */
static inline float real_clamp_f32(float x, float limit) {
    const float size = fabsf(x);
    return copysignf(size > limit ? limit : size, x);
}

/* e^x. 2^n is split into two factors, since it may lie outside the range of a float. */
static inline float real_exp_f32(float x) {
    int32_t n;
    const float tail = real_reduce_expm1_f32(real_clamp_f32(x, 104.0f), &n);
    const int32_t half = n / 2;
    return (1.0f + tail) * real_power_of_two_f32(half) * real_power_of_two_f32(n - half);
}

/* 1 / (1 + e^-x), constant beyond x = +-87, where the result is 1 or less than 2^-125. */
static inline float real_sigmoid_f32(float x) {
    int32_t n;
    const float tail = real_reduce_expm1_f32(real_clamp_f32(-x, 87.0f), &n);
    return 1.0f / (1.0f + (1.0f + tail) * real_power_of_two_f32(n));
}

/* tanh x, computed from e^2x - 1, not from e^2x, so that small results keep all their bits. */
static inline float real_tanh_f32(float x) {
    int32_t n;
    const float tail = real_reduce_expm1_f32(real_clamp_f32(2.0f * x, 20.0f), &n);
    const float power = real_power_of_two_f32(n);
    const float expm1 = power * tail + (power - 1.0f);
    return expm1 / (expm1 + 2.0f);
}

/* Tests compare float's functions with double's: those of libm, accurate, but not vectorised. */
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
