/*
 * pack_fixture.h - packing problems, and the slow, obvious ways to solve and check them.
 */
#ifndef ASHLAR_PACK_FIXTURE_H
#define ASHLAR_PACK_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include <ashlar/plan.h>

#include "allocator/base/random.h"

/* Far more than any case takes: it never cuts one off. */
enum { NO_HURRY_MS = 600000, FEW_MAX = 13 };

static uint64_t pack_seed = 1;

static inline size_t pack_draw(size_t first, size_t last) {
    pack_seed = pack_seed * 6364136223846793005u + 1442695040888963407u;
    return first + (size_t)(pack_seed >> 33) % (last - first + 1);
}

/* `count` buffers of 1 .. bytes_max units within `time_max` units of time. */
static inline void draw_buffers(ashlar_pack_buffer *buffers, size_t count, size_t bytes_max,
                                size_t time_max) {
    for (size_t i = 0; i < count; i++) {
        const size_t begin = pack_draw(0, time_max - 1);
        buffers[i] =
            (ashlar_pack_buffer){pack_draw(1, bytes_max), begin, pack_draw(begin + 1, time_max)};
    }
}

/* A problem whose smallest plan, of 25 bytes, is above its peak of 24, and greedy plans are above
 * that.
 */
enum { HARD_COUNT = 12, HARD_SMALLEST = 25 };
static const ashlar_pack_buffer hard[HARD_COUNT] = {
    {2, 11, 35}, {4, 0, 25}, {6, 27, 38}, {1, 11, 29}, {15, 25, 32}, {4, 19, 27},
    {6, 8, 19},  {5, 8, 25}, {3, 8, 11},  {5, 8, 25},  {19, 0, 8},   {1, 0, 26}};

static inline bool are_live_together(const ashlar_pack_buffer *a, const ashlar_pack_buffer *b) {
    return a->begin < b->end && b->begin < a->end;
}

/* Every pair looked at. */
static inline bool is_plan(const ashlar_pack_buffer *buffers, size_t count, size_t alignment,
                           const size_t *offsets) {
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (are_live_together(&buffers[i], &buffers[j]) &&
                offsets[i] < offsets[j] + buffers[j].bytes &&
                offsets[j] < offsets[i] + buffers[i].bytes) {
                return false;
            }
        }
        if (offsets[i] % alignment != 0) {
            return false;
        }
    }
    return true;
}

/* At the lowest offset that is free: 0, or the end of one of the `placed` others. */
static inline size_t lowest_offset(const ashlar_pack_buffer *buffers, const size_t *order,
                                   size_t placed, const size_t *offsets) {
    const ashlar_pack_buffer *me = &buffers[order[placed]];
    size_t best = SIZE_MAX;
    for (size_t k = 0; k <= placed; k++) {
        const size_t at = k == placed ? 0 : offsets[order[k]] + buffers[order[k]].bytes;
        bool is_free = at < best;
        for (size_t j = 0; is_free && j < placed; j++) {
            const ashlar_pack_buffer *other = &buffers[order[j]];
            is_free = !are_live_together(me, other) || at + me->bytes <= offsets[order[j]] ||
                      offsets[order[j]] + other->bytes <= at;
        }
        best = is_free ? at : best;
    }
    return best;
}

/*
 * The smallest plan of all, if it is below `best`: among its like there is one in which each buffer
 * is as low as those below it let it, so every order with ascending offsets is tried.
 */
static inline size_t try_orders(const ashlar_pack_buffer *buffers, size_t count, size_t *order,
                                size_t placed, size_t *offsets, size_t highest, size_t best) {
    if (placed == count || highest >= best) {
        return highest < best ? highest : best;
    }
    for (size_t k = placed; k < count; k++) {
        const size_t swapped = order[placed];
        order[placed] = order[k];
        order[k] = swapped;
        const size_t i = order[placed];
        offsets[i] = lowest_offset(buffers, order, placed, offsets);
        const size_t end = offsets[i] + buffers[i].bytes;
        if (placed == 0 || offsets[i] >= offsets[order[placed - 1]]) {
            best = try_orders(buffers, count, order, placed + 1, offsets,
                              end > highest ? end : highest, best);
        }
        order[k] = order[placed];
        order[placed] = swapped;
    }
    return best;
}

/* Of fewer than `below` bytes; `below` if there is none. count <= FEW_MAX */
static inline size_t smallest_plan_below(const ashlar_pack_buffer *buffers, size_t count,
                                         size_t below) {
    size_t order[FEW_MAX], offsets[FEW_MAX];
    for (size_t i = 0; i < count; i++) {
        order[i] = i;
    }
    return try_orders(buffers, count, order, 0, offsets, 0, below);
}

static inline size_t smallest_plan(const ashlar_pack_buffer *buffers, size_t count) {
    return smallest_plan_below(buffers, count, SIZE_MAX);
}

/* The largest sum of bytes live at once. */
static inline size_t peak_of(const ashlar_pack_buffer *buffers, size_t count) {
    size_t peak = 0;
    for (size_t i = 0; i < count; i++) {
        size_t sum = 0;
        for (size_t j = 0; j < count; j++) {
            sum += buffers[j].begin <= buffers[i].begin && buffers[i].begin < buffers[j].end
                       ? buffers[j].bytes
                       : 0;
        }
        peak = sum > peak ? sum : peak;
    }
    return peak;
}

/* ---- problems with a plan that leaves no gap ---- */

/* Pieces are buffers, whose bytes and offsets are in units until all are cut. */
typedef struct cutting {
    ashlar_random random;
    ashlar_pack_buffer *buffers;
    size_t *offsets; /* by buffer */
    size_t count;
} cutting;

/* Strictly between the two, and not close to them where there is a choice. */
static inline uint64_t between(cutting *c, uint64_t low, uint64_t high) {
    const uint64_t length = high - low, margin = length / 8;
    return low + 1 + margin + ashlar__random_below(&c->random, length - 1 - 2 * margin);
}

static inline void put_piece(cutting *c, size_t idx, uint64_t begin, uint64_t end, uint64_t bottom,
                             uint64_t top) {
    c->buffers[idx] = (ashlar_pack_buffer){(size_t)(top - bottom), begin, end};
    c->offsets[idx] = (size_t)bottom;
    c->count = idx == c->count ? c->count + 1 : c->count;
}

/* Cut piece `idx` in two, by time or by address. */
static inline void cut_straight(cutting *c, size_t idx, bool by_time) {
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
static inline void cut_pinwheel(cutting *c, size_t idx) {
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
static inline size_t choose(cutting *c) {
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

static inline void cut_one(cutting *c, size_t count) {
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

static inline void shuffle(cutting *c) {
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

#endif /* ASHLAR_PACK_FIXTURE_H */
