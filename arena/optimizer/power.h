/* power.h - powers with integer exponents, equal to the last bit on every back end, unlike pow()
 * (internal; C and CUDA C). */
#ifndef ASHLAR_POWER_H
#define ASHLAR_POWER_H

#include <stdint.h>

#include "allocator/base/compiler.h"

/* base^n, by repeated squaring. */
ASHLAR_SHARED_FN double ashlar__power(double base, uint64_t n) {
    double result = 1;
    for (; n != 0; n >>= 1) {
        if ((n & 1) != 0) {
            result *= base;
        }
        base *= base;
    }
    return result;
}

#endif /* ASHLAR_POWER_H */
