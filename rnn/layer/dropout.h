/* dropout.h - which outputs are dropped between layers: random numbers that depend only on an
 * output's place (internal).
 *
 * Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3"). A
 * number depends only on the seed, layer, step, sequence and feature. So forward and backward draw
 * the same numbers, in any order, whatever the lengths and the sorting.
 *
 * Threads: any. */
#ifndef ASHLAR_DROPOUT_H
#define ASHLAR_DROPOUT_H

#include <stddef.h>
#include <stdint.h>

enum {
    ASHLAR_DROPOUT_LANES = 8,                       /* Philox blocks computed at once, in vectors */
    ASHLAR_DROPOUT_DRAWS = 4 * ASHLAR_DROPOUT_LANES /* numbers of one call */
};

typedef struct ashlar_dropout_row {
    uint64_t seed;
    size_t layer;    /* the layer that reads the row, 1.. */
    size_t step;     /* t */
    size_t sequence; /* b, in the caller's order */
} ashlar_dropout_row;

/* Draw the numbers of ASHLAR_DROPOUT_DRAWS features, from feature group * ASHLAR_DROPOUT_DRAWS on.
 * Each is uniform over 32 bits. */
void ashlar__dropout_draw(const ashlar_dropout_row *row, size_t group,
                          uint32_t draws[ASHLAR_DROPOUT_DRAWS]);

/* A feature is dropped if its number is below this threshold, rate * 2^32. 0 <= rate < 1. */
uint32_t ashlar__dropout_threshold(double rate);

#endif /* ASHLAR_DROPOUT_H */
