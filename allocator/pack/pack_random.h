/*
 * pack_random.h - the packer's random numbers (internal): splitmix64, the same on every machine.
 */
#ifndef ASHLAR_PACK_RANDOM_H
#define ASHLAR_PACK_RANDOM_H

#include <stdint.h>

/* A bijection whose results look random. */
static inline uint64_t ashlar_pack_mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

/* Uniform in [0, 1). */
static inline double ashlar_pack_random(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15U;
    return (double)(ashlar_pack_mix(*state) >> 11) * 0x1p-53;
}

#endif /* ASHLAR_PACK_RANDOM_H */
