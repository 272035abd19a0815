/* convert.c - converts values from one element type to another, one at a time, through double. */
#include "arena/compute/convert.h"

#include <string.h>

#include "allocator/base/check_level.h"

_Static_assert(ASHLAR_DTYPE_COUNT == 4, "F64, F32 and two of 16 bits");

/* Exact for every type. */
static double read_value(ashlar_dtype dtype, const void *in) {
    uint16_t half;
    float single;
    double wide;
    if (dtype == ASHLAR_F64) {
        memcpy(&wide, in, sizeof wide);
        return wide;
    }
    if (dtype == ASHLAR_F32) {
        memcpy(&single, in, sizeof single);
        return (double)single;
    }
    memcpy(&half, in, sizeof half);
    return (double)(dtype == ASHLAR_F16 ? ashlar__float_from_f16(half)
                                        : ashlar__float_from_bf16(half));
}

static void write_value(ashlar_dtype dtype, void *out, double value) {
    const float single = (float)value;
    const uint16_t half =
        dtype == ASHLAR_F16 ? ashlar__f16_from_float(single) : ashlar__bf16_from_float(single);
    memcpy(out,
           dtype == ASHLAR_F64   ? (const void *)&value
           : dtype == ASHLAR_F32 ? (const void *)&single
                                 : &half,
           ashlar_dtype_bytes(dtype));
}

void ashlar__convert(ashlar_dtype to, void *out, ashlar_dtype from, const void *in, size_t count) {
    const size_t to_bytes = ashlar_dtype_bytes(to), from_bytes = ashlar_dtype_bytes(from);
    ASHLAR_ASSERT(to_bytes != 0 && from_bytes != 0);
    ASHLAR_CHECK2((const char *)out >= (const char *)in + count * from_bytes ||
                  (const char *)in >= (const char *)out + count * to_bytes || count == 0);
    if (to == from) {
        memcpy(out, in, count * to_bytes); /* keeps signalling NaNs, which arithmetic would quiet */
        return;
    }
    for (size_t i = 0; i < count; i++) {
        write_value(to, (char *)out + i * to_bytes,
                    read_value(from, (const char *)in + i * from_bytes));
    }
}
