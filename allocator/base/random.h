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

/* ---- xoshiro256** ---- */

static inline uint64_t ashlar__rotate_left(uint64_t x, unsigned int bits) {
    return (x << bits) | (x >> (64 - bits));
}

/* Restart from `seed`. Every seed is good, even 0. */
static inline void ashlar__random_init(ashlar_random *random, uint64_t seed) {
    /* At most one of the four words is 0: splitmix64 repeats no number before 2^64 steps. */
    for (int i = 0; i < 4; i++) {
        random->s[i] = ashlar__random_step(&seed);
    }
}

/* The next 64 random bits. */
static inline uint64_t ashlar__random_next(ashlar_random *random) {
    uint64_t *word = random->s;
    ASHLAR_CHECK2((word[0] | word[1] | word[2] | word[3]) !=
                  0); /* an all-0 state yields only zeros */
    const uint64_t result = ashlar__rotate_left(word[1] * 5, 7) * 9;
    const uint64_t shifted = word[1] << 17;
    word[2] ^= word[0];
    word[3] ^= word[1];
    word[1] ^= word[2];
    word[0] ^= word[3];
    word[2] ^= shifted;
    word[3] = ashlar__rotate_left(word[3], 45);
    return result;
}

/* Uniform in [0, 1), a multiple of 2^-53. */
static inline double ashlar__random_uniform(ashlar_random *random) {
    return (double)(ashlar__random_next(random) >> 11) * 0x1p-53;
}

/* Uniform in 0 .. bound-1, every value equally likely. Requires bound > 0. */
static inline uint64_t ashlar__random_below(ashlar_random *random, uint64_t bound) {
    ASHLAR_ASSERT(bound > 0);
    /* excess = 2^64 mod bound. Bits below it are drawn again. The number of remaining values is
     * then a multiple of `bound`, so each result is equally likely. */
    const uint64_t excess = (UINT64_MAX - bound + 1) % bound;
    uint64_t bits = ashlar__random_next(random);
    while (bits < excess) {
        bits = ashlar__random_next(random);
    }
    return bits % bound;
}

#endif /* ASHLAR_RANDOM_H */
