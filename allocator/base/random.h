/*
 * random.h - a small seeded generator (internal): xoshiro256** whose state splitmix64 fills.
 *
 * Integer arithmetic only, so a seed gives the same numbers on every machine. Copying the struct
 * copies the state: the copy and the original then give the same numbers.
 *
 * Threads: one at a time per generator.
 */
#ifndef ASHLAR_RANDOM_H
#define ASHLAR_RANDOM_H

#include <stdint.h>

typedef struct ashlar_random {
    uint64_t s[4]; /* never all 0 */
} ashlar_random;

/* Start anew from `seed`; every seed is good, 0 too. */
void ashlar_random_init(ashlar_random *random, uint64_t seed);

/* The next 64 random bits. */
uint64_t ashlar_random_next(ashlar_random *random);

/* Uniform in [0, 1), a multiple of 2^-53. */
double ashlar_random_uniform(ashlar_random *random);

/* Uniform in 0 .. bound-1, every value equally likely. Requires bound > 0. */
uint64_t ashlar_random_below(ashlar_random *random, uint64_t bound);

#endif /* ASHLAR_RANDOM_H */
