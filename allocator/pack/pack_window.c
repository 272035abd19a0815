/* pack_window.c - finds the cheapest offset for an item: slides it up through the gaps, and adds up
 * the costs of the items in its way. */
#include "allocator/pack/pack_window.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "allocator/base/check_level.h"

/* ---- sorting ---- */

enum { DIGIT_BITS = 9, DIGITS = 1 << DIGIT_BITS, FEW = 24 };

static void sort_few(ashlar_pack_mark *all, size_t count) {
    for (size_t i = 1; i < count; i++) {
        const ashlar_pack_mark moved = all[i];
        size_t to = i;
        for (; to > 0 && all[to - 1].at > moved.at; to--) {
            all[to] = all[to - 1];
        }
        all[to] = moved;
    }
}

/* Copy `from` to `to` in the order of the digit at `shift`; equal digits keep their order. */
static void sort_by_digit(const ashlar_pack_mark *from, ashlar_pack_mark *to, size_t count,
                          unsigned shift) {
    uint32_t next[DIGITS] = {0};
    for (size_t i = 0; i < count; i++) {
        next[from[i].at >> shift & (DIGITS - 1)]++;
    }
    uint32_t begin = 0;
    for (size_t d = 0; d < DIGITS; d++) {
        const uint32_t here = next[d];
        next[d] = begin;
        begin += here;
    }
    for (size_t i = 0; i < count; i++) {
        to[next[from[i].at >> shift & (DIGITS - 1)]++] = from[i];
    }
}

/* Sort by digits, from the lowest bit in which two marks differ to the highest. If all are
 * multiples of 512 bytes, nine bits are skipped. */
static void sort(ashlar_pack_mark *all, ashlar_pack_mark *scratch, size_t count) {
    uint64_t differing = 0;
    if (count <= FEW) {
        sort_few(all, count);
        return;
    }
    for (size_t i = 1; i < count; i++) {
        differing |= all[i].at ^ all[0].at;
    }
    ashlar_pack_mark *from = all, *to = scratch;
    for (unsigned shift = differing == 0 ? 64 : (unsigned)__builtin_ctzll(differing);
         shift < 64 && differing >> shift != 0; shift += DIGIT_BITS) {
        sort_by_digit(from, to, count, shift);
        ashlar_pack_mark *const sorted = to;
        to = from;
        from = sorted;
    }
    if (from != all) {
        memcpy(all, from, count * sizeof *all);
    }
}

/* ---- sliding ---- */

/* The items in the way of [offset, offset + bytes): those that begin below its end, less those
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
    const size_t count = w->placed_count, end = offset + w->bytes;
    ASHLAR_CHECK3(end <= w->capacity);
    for (; s->ended < count && w->ends[s->ended].at <= offset; s->ended++) {
        s->ended_cost += w->ends[s->ended].cost;
    }
    for (; s->begun < count && w->begins[s->begun].at < end; s->begun++) {
        s->begun_cost += w->begins[s->begun].cost;
    }
    ASHLAR_CHECK3(s->ended <= s->begun);
    /* Beside large costs the sums lose small ones, and are then equal, or even the wrong way round.
     * What is in the way must cost something all the same, else it would not be taken out. */
    const double left = s->begun_cost - s->ended_cost;
    const double cost = s->begun == s->ended ? 0 : left > 0 ? left : DBL_MIN;
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

/* Only bottoms of gaps and ends of items are tried: an item anywhere else can be let down to one of
 * these, where nothing more is in its way than before. */
static void slide_up(slide *s) {
    const ashlar_pack_window *w = s->w;
    for (size_t g = 0; g < w->gap_count && s->least > 0; g++) {
        const size_t end = end_of_gap(w, &w->gaps[g]);
        if (!has_room(w, &w->gaps[g], end)) {
            break; /* each gap is wide enough, so the capacity cuts this one off */
        }
        try_offset(s, w->gaps[g].begin);
        while (s->least > 0 && s->ended < w->placed_count &&
               w->ends[s->ended].at <= end - w->bytes) {
            try_offset(s, w->ends[s->ended].at);
        }
    }
}

double ashlar__pack_window_cheapest(const ashlar_pack_window *w, size_t *offset) {
    slide up = {.w = w, .least = INFINITY};
    sort(w->begins, w->scratch, w->placed_count);
    sort(w->ends, w->scratch, w->placed_count);
    slide_up(&up);
    if (up.least < INFINITY) {
        *offset = up.best;
    }
    return up.least;
}
