/* test_pack_window.c - the cheapest place among gaps and obstacles, compared with every offset. */
#include "allocator/pack/pack_window.h"

#include <math.h>
#include <stdlib.h>

#include "tests/check.h"
#include "tests/allocator/pack/pack_fixture.h"

enum { HEIGHT = 60, PLACED = 40, GAPS = 8 };

/* Those in the window are sorted, these are not. */
static size_t placed_begins[PLACED], placed_ends[PLACED];
static double costs[PLACED];
static ashlar_pack_mark begins[PLACED], ends[PLACED], scratch[PLACED];
static ashlar_pack_gap gaps[GAPS];
static ashlar_pack_window window;

static double cost_at(size_t offset) {
    double cost = 0;
    for (size_t k = 0; k < window.placed_count; k++) {
        const bool is_in_the_way =
            placed_begins[k] < offset + window.bytes && offset < placed_ends[k];
        cost += is_in_the_way ? costs[k] : 0;
    }
    return cost;
}

static bool is_allowed(size_t offset) {
    bool is_in_gap = false;
    for (size_t g = 0; g < window.gap_count; g++) {
        is_in_gap |= gaps[g].begin <= offset && offset + window.bytes <= gaps[g].end;
    }
    return is_in_gap && offset + window.bytes <= window.capacity;
}

static void draw_window(void) {
    window = (ashlar_pack_window){.begins = begins, .ends = ends, .scratch = scratch, .gaps = gaps};
    window.bytes = pack_draw(1, 9);
    window.capacity = pack_draw(1, HEIGHT);
    window.placed_count = pack_draw(0, PLACED);
    for (size_t k = 0; k < window.placed_count; k++) {
        placed_begins[k] = pack_draw(0, HEIGHT - 1);
        placed_ends[k] = placed_begins[k] + pack_draw(1, 12);
        costs[k] = (double)pack_draw(1, 1000);
        begins[k] = (ashlar_pack_mark){placed_begins[k], costs[k]};
        ends[k] = (ashlar_pack_mark){placed_ends[k], costs[k]};
    }
    for (size_t at = pack_draw(0, 9); window.gap_count < GAPS && at < HEIGHT;) {
        const size_t end = at + window.bytes + pack_draw(0, 9);
        gaps[window.gap_count++] = (ashlar_pack_gap){at, end};
        at = end + pack_draw(1, 9);
    }
    if (window.gap_count > 0 && pack_draw(0, 2) == 0) {
        gaps[window.gap_count - 1].end = SIZE_MAX;
    }
}

CASE(no_offset_is_cheaper) {
    size_t free_count = 0, costly = 0, impossible = 0;
    for (int round = 0; round < 20000; round++) {
        size_t offset = SIZE_MAX;
        double least = INFINITY;
        draw_window();
        const double cost = ashlar__pack_window_cheapest(&window, &offset);
        for (size_t at = 0; at < HEIGHT; at++) {
            least = is_allowed(at) && cost_at(at) < least ? cost_at(at) : least;
        }
        CHECK(cost == least);
        CHECK(cost == INFINITY ? offset == SIZE_MAX
                               : is_allowed(offset) && cost_at(offset) == least);
        for (size_t at = 0; at < HEIGHT && at < offset; at++) {
            CHECK(!is_allowed(at) || cost_at(at) > least);
        }
        free_count += cost == 0;
        costly += cost > 0 && cost < INFINITY;
        impossible += cost == INFINITY;
    }
    CHECK(free_count > 1000 && costly > 1000 && impossible > 100);
}

/* An item of 1 byte in the way, above one whose cost is so large that 1 is lost in the sum. */
CASE(what_is_in_the_way_costs_something_beside_the_largest_costs) {
    const double most = 0x1p60;
    size_t offset = 0;
    gaps[0] = (ashlar_pack_gap){8, 16};
    begins[0] = (ashlar_pack_mark){0, most};
    begins[1] = (ashlar_pack_mark){8, 1};
    ends[0] = (ashlar_pack_mark){8, most};
    ends[1] = (ashlar_pack_mark){16, 1};
    window = (ashlar_pack_window){begins, ends, scratch, 2, gaps, 1, 8, 16};
    CHECK(ashlar__pack_window_cheapest(&window, &offset) > 0);
    CHECK_ZU(offset, 8);
}

static int compare_marks(const void *a, const void *b) {
    const size_t x = ((const ashlar_pack_mark *)a)->at, y = ((const ashlar_pack_mark *)b)->at;
    return (x > y) - (x < y);
}

/* Begins and ends of `count` items, in units, up to far above what 32 bits hold. */
static void check_sorted(size_t count, size_t unit, unsigned bits) {
    enum { MANY = 5000 };
    static ashlar_pack_mark low[MANY], high[MANY], spare[MANY], expected[MANY];
    size_t offset = 0;
    for (size_t k = 0; k < count; k++) {
        const size_t at = unit * pack_draw(0, ((size_t)1 << bits) - 1);
        low[k] = expected[k] = (ashlar_pack_mark){at, (double)k + 1};
        high[k] = (ashlar_pack_mark){at + unit, (double)k + 1};
    }
    gaps[0] = (ashlar_pack_gap){0, SIZE_MAX};
    window = (ashlar_pack_window){low, high, spare, count, gaps, 1, unit, SIZE_MAX / 2};
    (void)ashlar__pack_window_cheapest(&window, &offset);
    qsort(expected, count, sizeof *expected, compare_marks);
    for (size_t k = 0; k < count; k++) {
        CHECK(low[k].at == expected[k].at && high[k].at == expected[k].at + unit);
        CHECK(low[k].cost >= 1 && low[k].cost <= (double)count);
    }
}

CASE(begins_and_ends_are_sorted) {
    for (unsigned bits = 1; bits <= 53; bits += 4) {
        check_sorted(5000, 1, bits);
        check_sorted(5000, 512, bits);
        check_sorted(pack_draw(1, 60), 3, bits);
    }
}

RUN_CASES()
