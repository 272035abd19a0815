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

#endif /* ASHLAR_PACK_FIXTURE_H */
