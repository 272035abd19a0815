/*
 * random.h - a small seeded random generator (internal): xoshiro256**, seeded by splitmix64.
 *
 * The state is integers only, so a seed gives the same numbers on every machine. A copy of the
 * struct continues with the same numbers as the original.
 *
 * Threads: one at a time per generator.
 */
#ifndef ASHLAR_RANDOM_H
#define ASHLAR_RANDOM_H

#include <stdint.h>

#include "allocator/base/check_level.h"

typedef struct ashlar_random {
    uint64_t s[4]; /* never all 0 */
} ashlar_random;

/* Restart from `seed`. Every seed is good, even 0. */
void ashlar__random_init(ashlar_random *random, uint64_t seed);

/* The next 64 random bits. */
uint64_t ashlar__random_next(ashlar_random *random);

/* Uniform in [0, 1), a multiple of 2^-53. */
double ashlar__random_uniform(ashlar_random *random);

/* Uniform in 0 .. bound-1, every value equally likely. Requires bound > 0. */
uint64_t ashlar__random_below(ashlar_random *random, uint64_t bound);

/* Hash a number with the output function of splitmix64: the results for successive numbers look
 * random, and no two numbers have the same result. */
static inline uint64_t ashlar__random_mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* splitmix64: the next 64 random bits. The state is one word, which may begin with any value. */
static inline uint64_t ashlar__random_step(uint64_t *state) {
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return ashlar__random_mix(*state);
}

/* Uniform in [0, 1). */
static inline double ashlar__random_step_uniform(uint64_t *state) {
    return (double)(ashlar__random_step(state) >> 11) * 0x1p-53;
}

/* A number in 0 .. bound-1; nearly uniform if the bound is far below 2^64. Requires bound > 0. */
static inline uint64_t ashlar__random_step_below(uint64_t *state, uint64_t bound) {
    ASHLAR_CHECK2(bound > 0);
    return ashlar__random_step(state) % bound;
}

#endif /* ASHLAR_RANDOM_H */
