/*
 * checked.h - size arithmetic that cannot wrap (internal).
 *
 * Each function writes *out and returns true, or returns false and leaves *out alone.
 */
#ifndef ASHLAR_CHECKED_H
#define ASHLAR_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/check_level.h"

_Static_assert(sizeof(size_t) == 8, "device sizes need a 64-bit size_t");

static inline bool ashlar__add(size_t a, size_t b, size_t *out) {
    if (a > SIZE_MAX - b) {
        return false;
    }
    *out = a + b;
    return true;
}

static inline bool ashlar__mul(size_t a, size_t b, size_t *out) {
    if (a != 0 && b > SIZE_MAX / a) {
        return false;
    }
    *out = a * b;
    return true;
}

/* Round up to a multiple of `align`, a power of two. */
static inline bool ashlar__align_up(size_t a, size_t align, size_t *out) {
    size_t sum;
    ASHLAR_CHECK2(align > 0 && (align & (align - 1)) == 0);
    if (!ashlar__add(a, align - 1, &sum)) {
        return false;
    }
    *out = sum & ~(align - 1);
    return true;
}

/* Like ashlar__align_up(), for a result that the caller knows to fit. */
static inline size_t ashlar__round_up(size_t a, size_t align) {
    ASHLAR_CHECK2(align > 0 && (align & (align - 1)) == 0 && a <= SIZE_MAX - (align - 1));
    return (a + align - 1) & ~(align - 1);
}

#endif /* ASHLAR_CHECKED_H */
