/* convert.h - converts values from one element type to another: one F16 or BF16, given as bits, to
 * and from float, and arrays (internal). Rounding is to nearest, ties to even. A value too large
 * becomes infinite; a NaN stays a NaN, but becomes quiet. The functions of one value are
 * branch-free where that helps compilers to vectorise them; a CUDA device has an instruction for
 * each (PTX ISA, "cvt"), which differs only in that it keeps no payload of a NaN. */
#ifndef ASHLAR_CONVERT_H
#define ASHLAR_CONVERT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <ashlar/base.h>

#include "allocator/base/compiler.h"

ASHLAR_SHARED_FN uint32_t ashlar__float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

ASHLAR_SHARED_FN float ashlar__float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

ASHLAR_SHARED_FN float ashlar__float_from_bf16(uint16_t bits) {
    return ashlar__float_from_bits((uint32_t)bits << 16);
}

ASHLAR_SHARED_FN uint16_t ashlar__bf16_from_float(float value) {
#ifdef __CUDA_ARCH__
    uint16_t out;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(value));
    return out;
#else
    const uint32_t bits = ashlar__float_bits(value);
    const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    const uint32_t quiet = bits | 0x400000u;
    return (uint16_t)(((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) >> 16);
#endif
}

/* The exponent bias of binary16 is 112 less than float's. Its bits, shifted into place as a float
 * and multiplied by 2^112, give normal and subnormal values exactly; for an infinity or a NaN the
 * exponent bits are then all set again. */
ASHLAR_SHARED_FN float ashlar__float_from_f16(uint16_t bits) {
#ifdef __CUDA_ARCH__
    float out;
    asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(bits));
    return out;
#else
    const uint32_t magnitude = (uint32_t)(bits & 0x7fffu) << 13;
    const float scaled = ashlar__float_from_bits(magnitude) * 0x1p112f;
    const uint32_t is_special = (bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0;
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    return ashlar__float_from_bits(ashlar__float_bits(scaled) | is_special | sign);
#endif
}

/* A normal result is rounded in integer arithmetic. Below 2^-14, adding 0.5 makes the float unit
 * round at 2^-24, the last bit of 0.5, which is also the last bit of a subnormal of binary16. */
ASHLAR_SHARED_FN uint16_t ashlar__f16_from_float(float value) {
#ifdef __CUDA_ARCH__
    uint16_t out;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(value));
    return out;
#else
    const uint32_t bits = ashlar__float_bits(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    const uint32_t subnormal =
        ashlar__float_bits(ashlar__float_from_bits(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
    half = magnitude >= 0x477ff000u ? 0x7c00u : half; /* too large: it rounds to 65536 */
    half = magnitude > 0x7f800000u ? nan : half;
    return (uint16_t)(half | sign);
#endif
}

/* Convert `count` values from type `from` at `in` to type `to` at `out`, rounded once. If the types
 * are the same, every bit is kept. `in` and `out` need not be aligned, and must not overlap. Both
 * types must be valid. */
void ashlar__convert(ashlar_dtype to, void *out, ashlar_dtype from, const void *in, size_t count);

#endif /* ASHLAR_CONVERT_H */
