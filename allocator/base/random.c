/* random.c - xoshiro256**: random bits, fractions, and numbers below a bound. */
#include "allocator/base/random.h"

static uint64_t rotate_left(uint64_t x, unsigned int bits) {
    return (x << bits) | (x >> (64 - bits));
}

void ashlar__random_init(ashlar_random *random, uint64_t seed) {
    /* At most one of the four words is 0: splitmix64 repeats no number before 2^64 steps. */
    for (int i = 0; i < 4; i++) {
        random->s[i] = ashlar__random_step(&seed);
    }
}

uint64_t ashlar__random_next(ashlar_random *random) {
    uint64_t *s = random->s;
    ASHLAR_CHECK2((s[0] | s[1] | s[2] | s[3]) != 0); /* an all-0 state yields only zeros */
    const uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    const uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double ashlar__random_uniform(ashlar_random *random) {
    return (double)(ashlar__random_next(random) >> 11) * 0x1p-53;
}

uint64_t ashlar__random_below(ashlar_random *random, uint64_t bound) {
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
