/* test_half.c - F16 and BF16: every value there and back, and rounding against double. */
#include "tests/check.h"

#include "arena/compute/convert.h"

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

CASE(what_is_too_large_becomes_infinite) {
    CHECK(ashlar__f16_from_float(65519.996f) == 0x7bff);
    CHECK(ashlar__f16_from_float(65520.0f) == 0x7c00);
    CHECK(ashlar__f16_from_float(-65520.0f) == 0xfc00);
    CHECK(ashlar__f16_from_float(3e38f) == 0x7c00);
    CHECK(ashlar__bf16_from_float(3.4e38f) == 0x7f80);
    CHECK(ashlar__bf16_from_float(-INFINITY) == 0xff80);
}

RUN_CASES()
