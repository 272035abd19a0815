/* optimizer_sum.c - the sum of squares of an array, for the element type and the instruction set
 * that meson.build compiles this file for. */
#include "allocator/base/compiler.h"
#include "arena/compute/element.h"
#include "arena/optimizer/optimizer_kernels.h"

/* AHEAD: elements between what is summed and what is prefetched, a page's worth, since the
 * processor does not prefetch across pages by itself. */
enum { LANES = 16, AHEAD = 4096 / sizeof(ASHLAR_STORED) };

static double square(ASHLAR_STORED stored) {
    const double value = (double)ASHLAR_WIDEN(stored);
    return value * value;
}

double ASHLAR_VARIANT(ashlar__optimizer_sum)(const void *array, size_t count) {
    const ASHLAR_STORED *values = array;
    double lanes[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        ASHLAR_PREFETCH(values + i + AHEAD);
        for (size_t lane = 0; lane < LANES; lane++) {
            lanes[lane] += square(values[i + lane]);
        }
    }
    for (size_t lane = 0; i < count; i++, lane++) {
        lanes[lane] += square(values[i]);
    }
    for (size_t lane = 0; lane < LANES; lane++) {
        sum += lanes[lane];
    }
    return sum;
}
