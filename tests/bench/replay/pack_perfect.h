/*
 * pack_perfect.h - packing problems with a plan that leaves no gap, made from a seed.
 */
#ifndef ASHLAR_TESTS_PACK_PERFECT_H
#define ASHLAR_TESTS_PACK_PERFECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/pack.h>

#include "allocator/base/random.h"

/* Pieces are buffers, whose bytes and offsets are in units until all are cut. */
typedef struct cutting {
    ashlar_random random;
    ashlar_pack_buffer *buffers;
    size_t *offsets; /* by buffer */
    size_t count;
} cutting;

/* Strictly between the two, and not close to them where there is a choice. */
static uint64_t between(cutting *c, uint64_t low, uint64_t high) {
    const uint64_t length = high - low, margin = length / 8;
    return low + 1 + margin + ashlar__random_below(&c->random, length - 1 - 2 * margin);
}

static void put_piece(cutting *c, size_t idx, uint64_t begin, uint64_t end, uint64_t bottom,
                      uint64_t top) {
    c->buffers[idx] = (ashlar_pack_buffer){(size_t)(top - bottom), begin, end};
    c->offsets[idx] = (size_t)bottom;
    c->count = idx == c->count ? c->count + 1 : c->count;
}

/* Cut piece `idx` in two, by time or by address. */
static void cut_straight(cutting *c, size_t idx, bool by_time) {
    const ashlar_pack_buffer b = c->buffers[idx];
    const uint64_t bottom = c->offsets[idx], top = bottom + b.bytes;
    if (by_time) {
        const uint64_t middle = between(c, b.begin, b.end);
        put_piece(c, idx, b.begin, middle, bottom, top);
        put_piece(c, c->count, middle, b.end, bottom, top);
    } else {
        const uint64_t middle = between(c, bottom, top);
        put_piece(c, idx, b.begin, b.end, bottom, middle);
        put_piece(c, c->count, b.begin, b.end, middle, top);
    }
}

/* Cut piece `idx` in five: four around one in the middle. */
static void cut_pinwheel(cutting *c, size_t idx) {
    const ashlar_pack_buffer b = c->buffers[idx];
    const uint64_t bottom = c->offsets[idx], top = bottom + b.bytes;
    const uint64_t time_2 = between(c, b.begin + 1, b.end), time_1 = between(c, b.begin, time_2);
    const uint64_t at_2 = between(c, bottom + 1, top), at_1 = between(c, bottom, at_2);
    put_piece(c, idx, b.begin, time_2, bottom, at_1);
    put_piece(c, c->count, time_2, b.end, bottom, at_2);
    put_piece(c, c->count, time_1, b.end, at_2, top);
    put_piece(c, c->count, b.begin, time_1, at_1, top);
    put_piece(c, c->count, time_1, time_2, at_1, at_2);
}

/* The largest of a few, so that pieces differ in size, but not beyond measure. */
static size_t choose(cutting *c) {
    enum { FEW = 3 };
    size_t best = 0;
    double best_area = 0;
    for (int i = 0; i < FEW; i++) {
        const size_t idx = (size_t)ashlar__random_below(&c->random, c->count);
        const ashlar_pack_buffer *b = &c->buffers[idx];
        const double area = (double)b->bytes * (double)(b->end - b->begin);
        if (area > best_area) {
            best = idx;
            best_area = area;
        }
    }
    return best;
}

static void cut_one(cutting *c, size_t count) {
    enum { SIDE_MIN = 4, PIECES = 5 };
    const size_t idx = choose(c);
    const bool has_time = c->buffers[idx].end - c->buffers[idx].begin >= SIDE_MIN;
    const bool has_bytes = c->buffers[idx].bytes >= SIDE_MIN;
    const uint64_t way = ashlar__random_below(&c->random, 3);
    if (way == 0 && has_time && has_bytes && count - c->count >= PIECES - 1) {
        cut_pinwheel(c, idx);
    } else if (has_time && (way == 1 || !has_bytes)) {
        cut_straight(c, idx, true);
    } else if (has_bytes) {
        cut_straight(c, idx, false);
    }
}

static void shuffle(cutting *c) {
    for (size_t i = c->count; i > 1; i--) {
        const size_t j = (size_t)ashlar__random_below(&c->random, i);
        const ashlar_pack_buffer b = c->buffers[i - 1];
        const size_t offset = c->offsets[i - 1];
        c->buffers[i - 1] = c->buffers[j];
        c->offsets[i - 1] = c->offsets[j];
        c->buffers[j] = b;
        c->offsets[j] = offset;
    }
}

/*
 * A rectangle of `capacity` bytes over `time` units of time, cut into pieces in random order: it
 * can be packed into `capacity` bytes without a gap. Every third cut is a pinwheel: five pieces,
 * none of which a straight line through all of them separates.
 *
 * capacity, time   large against count; sizes are multiples of `unit`, which divides capacity
 * offsets          [count] of that plan
 */
static void make_perfect_packing(uint64_t seed, size_t capacity, size_t unit, uint64_t time,
                                 ashlar_pack_buffer *buffers, size_t *offsets, size_t count) {
    cutting c = {.buffers = buffers, .offsets = offsets};
    ashlar__random_init(&c.random, seed);
    put_piece(&c, 0, 0, time, 0, capacity / unit);
    while (c.count < count) {
        cut_one(&c, count);
    }
    shuffle(&c);
    for (size_t i = 0; i < count; i++) {
        buffers[i].bytes *= unit;
        offsets[i] *= unit;
    }
}

#endif /* ASHLAR_TESTS_PACK_PERFECT_H */
