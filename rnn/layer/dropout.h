/* dropout.h - which elements a dropout drops: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel
 * random numbers: as easy as 1, 2, 3"; internal; C and CUDA C).
 *
 * A number depends only on the seed, layer, step, sequence and feature. So forward and backward
 * draw the same ones, in any order and on any device. */
#ifndef ASHLAR_DROPOUT_H
#define ASHLAR_DROPOUT_H

#include <stddef.h>
#include <stdint.h>

#include "allocator/base/compiler.h"

enum {
    ASHLAR_DROPOUT_LANES = 8, /* Philox blocks computed at once, in vectors */
    ASHLAR_DROPOUT_DRAWS = 4 * ASHLAR_DROPOUT_LANES, /* numbers of one call */
    ASHLAR_DROPOUT_ROUNDS = 10
};

typedef struct ashlar_dropout_row {
    uint64_t seed;
    size_t layer;    /* the layer that reads the row, 1..; or ASHLAR_DROPOUT_SITE + a site */
    size_t step;     /* t */
    size_t sequence; /* b, in the caller's order */
} ashlar_dropout_row;

/* In place of a layer: the first of a model's dropouts outside its stacks. */
#define ASHLAR_DROPOUT_SITE ((uint32_t)1 << 31)

/* The counter of Philox block `lane` of a group of ASHLAR_DROPOUT_LANES. Its number i is that of
 * feature group * ASHLAR_DROPOUT_DRAWS + i * ASHLAR_DROPOUT_LANES + lane. */
ASHLAR_SHARED_FN void ashlar__dropout_counter(const ashlar_dropout_row *row, size_t group, int lane,
                                              uint32_t *c0, uint32_t *c1, uint32_t *c2,
                                              uint32_t *c3) {
    *c0 = (uint32_t)(group * ASHLAR_DROPOUT_LANES) + (uint32_t)lane;
    *c1 = (uint32_t)row->sequence;
    *c2 = (uint32_t)row->step;
    *c3 = (uint32_t)row->layer;
}

/* Round `round`, 0 .. ASHLAR_DROPOUT_ROUNDS - 1, of a block. */
ASHLAR_SHARED_FN void ashlar__dropout_round(uint64_t seed, unsigned round, uint32_t *c0,
                                            uint32_t *c1, uint32_t *c2, uint32_t *c3) {
    const uint32_t key0 = (uint32_t)seed + round * 0x9e3779b9u;
    const uint32_t key1 = (uint32_t)(seed >> 32) + round * 0xbb67ae85u;
    const uint64_t a = (uint64_t)*c0 * 0xd2511f53u;
    const uint64_t b = (uint64_t)*c2 * 0xcd9e8d57u;
    *c0 = (uint32_t)(b >> 32) ^ *c1 ^ key0;
    *c1 = (uint32_t)b;
    *c2 = (uint32_t)(a >> 32) ^ *c3 ^ key1;
    *c3 = (uint32_t)a;
}

/* A feature is dropped if its number is below this threshold, rate * 2^32. 0 <= rate < 1. */
ASHLAR_SHARED_FN uint32_t ashlar__dropout_threshold(double rate) {
    return (uint32_t)(rate * 4294967296.0);
}

/* Draw the numbers of ASHLAR_DROPOUT_DRAWS features, from feature group * ASHLAR_DROPOUT_DRAWS on.
 * Each is uniform over 32 bits. */
void ashlar__dropout_draw(const ashlar_dropout_row *row, size_t group,
                          uint32_t draws[ASHLAR_DROPOUT_DRAWS]);

#endif /* ASHLAR_DROPOUT_H */
