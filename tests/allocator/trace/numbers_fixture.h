/*
 * numbers_fixture.h - random numbers that are the same as float and as double, for tests.
 */
#ifndef ASHLAR_NUMBERS_FIXTURE_H
#define ASHLAR_NUMBERS_FIXTURE_H

#include "tests/check.h"
#include "allocator/base/random.h"

#include <stdint.h>

static uint64_t random_state = 88172645463325252u;

static inline double random_real(void) {
    return 2 * ashlar__random_step_uniform(&random_state) - 1;
}

static inline void widen(const float *single, double *wide, size_t count) {
    for (size_t i = 0; i < count; i++) {
        wide[i] = (double)single[i];
    }
}

/* The same random numbers as float and as double. */
static inline void draw(float *single, double *wide, size_t count) {
    for (size_t i = 0; i < count; i++) {
        single[i] = (float)random_real();
    }
    widen(single, wide, count);
}

static inline double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

#endif /* ASHLAR_NUMBERS_FIXTURE_H */
