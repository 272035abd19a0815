/*
 * dropout.h - which outputs are dropped between layers: numbers drawn by place, not in turn
 * (internal).
 *
 * Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3"). A
 * number depends on the seed and on the layer, step, sequence and feature alone, so that forward
 * and backward draw the same ones, in any order, and neither lengths nor sorting change them.
 *
 * Threads: any.
 */
#ifndef ASHLAR_DROPOUT_H
#define ASHLAR_DROPOUT_H

#include <stddef.h>
#include <stdint.h>

enum {
    ASHLAR_DROPOUT_LANES = 8,                       /* blocks drawn at once, by vectors */
    ASHLAR_DROPOUT_DRAWS = 4 * ASHLAR_DROPOUT_LANES /* numbers of one call */
};

typedef struct ashlar_dropout_row {
    uint64_t seed;
    size_t layer;    /* that reads the row, 1.. */
    size_t step;     /* t */
    size_t sequence; /* b, in the caller's order */
} ashlar_dropout_row;

/* Draw the numbers of features group * ASHLAR_DROPOUT_DRAWS and on; each uniform in 32 bits. */
void ashlar__dropout_draw(const ashlar_dropout_row *row, size_t group,
                          uint32_t draws[ASHLAR_DROPOUT_DRAWS]);

/* A feature is dropped where its number is below this: rate * 2^32. Requires 0 <= rate < 1. */
uint32_t ashlar__dropout_threshold(double rate);

#endif /* ASHLAR_DROPOUT_H */
