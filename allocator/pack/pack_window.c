/* pack_window.c - slides an item up through its gaps, and adds up what is in its way. */
#include "allocator/pack/pack_window.h"

#include <math.h>
#include <string.h>

#include "allocator/base/check_level.h"

/* ---- sorting ---- */

static size_t key_of(const ashlar_pack_obstacle *x, bool by_end) {
    return by_end ? x->end : x->begin;
}

/* Shell's sort, with Ciura's distances: lists are short, and sorted by begin nearly so by end. */
static void sort(ashlar_pack_obstacle *all, size_t count, bool by_end) {
    static const size_t distances[] = {1750, 701, 301, 132, 57, 23, 10, 4, 1};
    for (size_t d = 0; d < sizeof distances / sizeof distances[0]; d++) {
        const size_t distance = distances[d];
        for (size_t i = distance; i < count; i++) {
            const ashlar_pack_obstacle moved = all[i];
            const size_t key = key_of(&moved, by_end);
            size_t to = i;
            for (; to >= distance && key_of(&all[to - distance], by_end) > key; to -= distance) {
                all[to] = all[to - distance];
            }
            all[to] = moved;
        }
    }
}

/* ---- sliding ---- */

/* The obstacles in the way of [offset, offset + bytes): those that begin below its end, less those
 * that end at or below it. Offsets only grow. */
typedef struct slide {
    const ashlar_pack_window *w;
    size_t begun, ended;
    double begun_cost, ended_cost;
    double least;
    size_t best;
} slide;

static void try_offset(slide *s, size_t offset) {
    const ashlar_pack_window *w = s->w;
    const size_t count = w->obstacle_count, end = offset + w->bytes;
    ASHLAR_CHECK3(end <= w->capacity);
    for (; s->ended < count && w->by_end[s->ended].end <= offset; s->ended++) {
        s->ended_cost += w->by_end[s->ended].cost;
    }
    for (; s->begun < count && w->obstacles[s->begun].begin < end; s->begun++) {
        s->begun_cost += w->obstacles[s->begun].cost;
    }
    ASHLAR_CHECK3(s->ended <= s->begun);
    const double cost = s->begun == s->ended ? 0 : s->begun_cost - s->ended_cost;
    if (cost < s->least) {
        s->least = cost;
        s->best = offset;
    }
}

static size_t end_of_gap(const ashlar_pack_window *w, const ashlar_pack_gap *gap) {
    return gap->end < w->capacity ? gap->end : w->capacity;
}

/* Whether the item fits between the gap's beginning and `end`. */
static bool has_room(const ashlar_pack_window *w, const ashlar_pack_gap *gap, size_t end) {
    return gap->begin <= end && end - gap->begin >= w->bytes;
}

/* Only bottoms of gaps and ends of obstacles are tried: an item anywhere else can be let down to
 * one of them, and nothing more is in its way then. */
static void slide_up(slide *s) {
    const ashlar_pack_window *w = s->w;
    for (size_t g = 0; g < w->gap_count && s->least > 0; g++) {
        const size_t end = end_of_gap(w, &w->gaps[g]);
        if (!has_room(w, &w->gaps[g], end)) {
            break; /* gaps are wide enough, so it is the capacity */
        }
        try_offset(s, w->gaps[g].begin);
        while (s->least > 0 && s->ended < w->obstacle_count &&
               w->by_end[s->ended].end <= end - w->bytes) {
            try_offset(s, w->by_end[s->ended].end);
        }
    }
}

double ashlar__pack_window_cheapest(const ashlar_pack_window *w, size_t *offset) {
    slide up = {.w = w, .least = INFINITY};
    sort(w->obstacles, w->obstacle_count, false);
    memcpy(w->by_end, w->obstacles, w->obstacle_count * sizeof *w->by_end);
    sort(w->by_end, w->obstacle_count, true);
    slide_up(&up);
    if (up.least < INFINITY) {
        *offset = up.best;
    }
    return up.least;
}
