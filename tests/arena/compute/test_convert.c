/* test_convert.c - values of each type as values of each other type: F16 and BF16 there and back,
 * rounding against double. */
#include "arena/compute/convert.h"

#include <stdint.h>

#include "tests/check.h"

CASE(of_one_type_every_bit_is_kept) {
    const uint64_t wide[] = {UINT64_C(0x7ff0000000000001), 0}; /* a signalling NaN */
    const uint32_t single[] = {0x7f800001u, 0x80000000u};
    const uint16_t half[] = {0x7c01u, 0x8000u}, brain[] = {0x7f81u, 0x8000u};
    const void *all[] = {
        [ASHLAR_F64] = wide, [ASHLAR_F32] = single, [ASHLAR_F16] = half, [ASHLAR_BF16] = brain};
    for (int i = 0; i < ASHLAR_DTYPE_COUNT; i++) {
        unsigned char out[16];
        const ashlar_dtype dtype = (ashlar_dtype)i;
        ashlar__convert(dtype, out, dtype, all[i], 2);
        CHECK(memcmp(out, all[i], 2 * ashlar_dtype_bytes(dtype)) == 0);
    }
}

/* 1, -2.5, 0.15625, -0, 96: exact in every type. */
CASE(numbers_that_all_types_have_are_kept_between_all_of_them) {
    enum { COUNT = 5 };
    static const double wide[COUNT] = {1, -2.5, 0.15625, -0.0, 96};
    static const float single[COUNT] = {1, -2.5F, 0.15625F, -0.0F, 96};
    static const uint16_t half[COUNT] = {0x3c00, 0xc100, 0x3100, 0x8000, 0x5600};
    static const uint16_t brain[COUNT] = {0x3f80, 0xc020, 0x3e20, 0x8000, 0x42c0};
    const void *all[] = {
        [ASHLAR_F64] = wide, [ASHLAR_F32] = single, [ASHLAR_F16] = half, [ASHLAR_BF16] = brain};
    for (int from = 0; from < ASHLAR_DTYPE_COUNT; from++) {
        for (int to = 0; to < ASHLAR_DTYPE_COUNT; to++) {
            unsigned char in[1 + sizeof wide], out[1 + sizeof wide + 1];
            const size_t bytes = COUNT * ashlar_dtype_bytes((ashlar_dtype)to);
            /* Neither aligned. */
            memcpy(in + 1, all[from], COUNT * ashlar_dtype_bytes((ashlar_dtype)from));
            memset(out, 0x5a, sizeof out);
            ashlar__convert((ashlar_dtype)to, out + 1, (ashlar_dtype)from, in + 1, COUNT);
            CHECK(memcmp(out + 1, all[to], bytes) == 0);
            CHECK(out[0] == 0x5a && out[1 + bytes] == 0x5a);
        }
    }
}

CASE(what_does_not_fit_is_rounded_or_infinite) {
    const double values[] = {1 + 0x1p-30, 1e300, 70000, 0x1.018p0, 0x1.004p0};
    float single[5];
    uint16_t half[5], brain[5];
    ashlar__convert(ASHLAR_F32, single, ASHLAR_F64, values, 5);
    CHECK(single[0] == 1 && single[1] == INFINITY && single[2] == 70000);
    ashlar__convert(ASHLAR_F16, half, ASHLAR_F64, values, 5);
    CHECK(half[0] == 0x3c00 && half[1] == 0x7c00 && half[2] == 0x7c00 && half[4] == 0x3c01);
    ashlar__convert(ASHLAR_BF16, brain, ASHLAR_F32, single, 5);
    CHECK(brain[0] == 0x3f80 && brain[1] == 0x7f80 && brain[3] == 0x3f81 && brain[4] == 0x3f80);
}

/* ---- the narrow types ---- */

/* The value of binary16 bits by the format's definition; NaN for the NaNs. */
static double f16_value(unsigned bits) {
    const int exponent = (int)(bits >> 10 & 31);
    const double fraction = (double)(bits & 1023) / 1024;
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == 31) {
        return fraction == 0 ? sign * INFINITY : NAN;
    }
    return exponent == 0 ? sign * ldexp(fraction, -14) : sign * ldexp(1 + fraction, exponent - 15);
}

CASE(every_f16_has_its_value_and_comes_back) {
    int wrong = 0;
    for (unsigned bits = 0; bits <= 0xffff; bits++) {
        const float value = ashlar__float_from_f16((uint16_t)bits);
        const double want = f16_value(bits);
        if (isnan(want)) {
            const uint16_t back = ashlar__f16_from_float(value);
            wrong += !isnan(value) || !isnan(f16_value(back));
            wrong += (back & 0x8200) != ((bits & 0x8000) | 0x200); /* the sign, and quiet */
        } else {
            wrong += (double)value != want || ashlar__f16_from_float(value) != bits;
        }
    }
    CHECK(wrong == 0);
}

CASE(every_bf16_has_its_value_and_comes_back) {
    int wrong = 0;
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        const float value = ashlar__float_from_bf16((uint16_t)bits);
        const uint16_t back = ashlar__bf16_from_float(value);
        wrong += ashlar__float_bits(value) != bits << 16;
        wrong += isnan(value) ? !isnan(ashlar__float_from_bf16(back)) : back != bits;
    }
    CHECK(wrong == 0);
}

/* At and beside the middle between neighbours a and b, whose last bit is even in a. */
static int wrong_between(float a, float b, uint16_t bits_a, uint16_t bits_b,
                         uint16_t (*convert)(float)) {
    const float middle = (float)(((double)a + (double)b) / 2);
    const uint16_t even = (bits_a & 1) == 0 ? bits_a : bits_b;
    int wrong = 0;
    wrong += convert(middle) != even;
    wrong += convert(nextafterf(middle, a)) != bits_a;
    wrong += convert(nextafterf(middle, b)) != bits_b;
    return wrong;
}

CASE(values_between_round_to_the_nearest_and_ties_to_even) {
    int wrong = 0;
    for (unsigned bits = 0; bits < 0x7bff; bits++) {
        const uint16_t a = (uint16_t)bits, b = (uint16_t)(bits + 1);
        wrong += wrong_between(ashlar__float_from_f16(a), ashlar__float_from_f16(b), a, b,
                               ashlar__f16_from_float);
    }
    CHECK(wrong == 0);
    for (unsigned bits = 0; bits < 0x7f7f; bits++) {
        const uint16_t a = (uint16_t)bits, b = (uint16_t)(bits + 1);
        wrong += wrong_between(ashlar__float_from_bf16(a), ashlar__float_from_bf16(b), a, b,
                               ashlar__bf16_from_float);
    }
    CHECK(wrong == 0);
}

/* Doubles beside the middle of two narrow values: rounded to F32 first, they would be ties. */
static int wrong_beside(double a, double b, uint16_t bits, ashlar_dtype dtype) {
    const double middle = (a + b) / 2;
    const double values[] = {middle, nextafter(middle, a), nextafter(middle, b)};
    const uint16_t want[] = {(uint16_t)(bits + (bits & 1)), bits, (uint16_t)(bits + 1)};
    int wrong = 0;
    for (int i = 0; i < 6; i++) {
        const double value = i < 3 ? values[i] : -values[i - 3];
        uint16_t got;
        ashlar__convert(dtype, &got, ASHLAR_F64, &value, 1);
        wrong += got != (want[i % 3] | (i < 3 ? 0 : 0x8000));
    }
    return wrong;
}

CASE(doubles_are_rounded_once) {
    int wrong = 0;
    for (unsigned bits = 0; bits < 0x7bff; bits++) {
        wrong += wrong_beside((double)ashlar__float_from_f16((uint16_t)bits),
                              (double)ashlar__float_from_f16((uint16_t)(bits + 1)), (uint16_t)bits,
                              ASHLAR_F16);
    }
    CHECK(wrong == 0);
    for (unsigned bits = 0; bits < 0x7f7f; bits++) {
        wrong += wrong_beside((double)ashlar__float_from_bf16((uint16_t)bits),
                              (double)ashlar__float_from_bf16((uint16_t)(bits + 1)), (uint16_t)bits,
                              ASHLAR_BF16);
    }
    CHECK(wrong == 0);
}

CASE(what_is_too_large_becomes_infinite) {
    CHECK(ashlar__f16_from_float(65519.996f) == 0x7bff);
    CHECK(ashlar__f16_from_float(65520.0f) == 0x7c00);
    CHECK(ashlar__f16_from_float(-65520.0f) == 0xfc00);
    CHECK(ashlar__f16_from_float(3e38f) == 0x7c00);
    CHECK(ashlar__bf16_from_float(3.4e38f) == 0x7f80);
    CHECK(ashlar__bf16_from_float(-INFINITY) == 0xff80);
}

RUN_CASES()
