/* element_fixture.h - one element of an array of any type, to and from double. */
#ifndef ASHLAR_ELEMENT_FIXTURE_H
#define ASHLAR_ELEMENT_FIXTURE_H

#include <ashlar/base.h>

#include "arena/compute/convert.h"

static inline double get_element(const void *array, ashlar_dtype dtype, size_t i) {
    switch (dtype) {
    case ASHLAR_F64:
        return ((const double *)array)[i];
    case ASHLAR_F16:
        return (double)ashlar__float_from_f16(((const uint16_t *)array)[i]);
    case ASHLAR_BF16:
        return (double)ashlar__float_from_bf16(((const uint16_t *)array)[i]);
    default:
        return (double)((const float *)array)[i];
    }
}

static inline void put_element(void *array, ashlar_dtype dtype, size_t i, double value) {
    switch (dtype) {
    case ASHLAR_F64:
        ((double *)array)[i] = value;
        break;
    case ASHLAR_F16:
        ((uint16_t *)array)[i] = ashlar__f16_from_float((float)value);
        break;
    case ASHLAR_BF16:
        ((uint16_t *)array)[i] = ashlar__bf16_from_float((float)value);
        break;
    default:
        ((float *)array)[i] = (float)value;
        break;
    }
}

#endif /* ASHLAR_ELEMENT_FIXTURE_H */
