/* test_pack_window.c - the cheapest place among gaps and obstacles, compared with every offset. */
#include "allocator/pack/pack_window.h"

#include <math.h>

#include "tests/check.h"
#include "tests/allocator/pack/pack_fixture.h"

enum { HEIGHT = 60, OBSTACLES = 30, GAPS = 8 };

static ashlar_pack_obstacle obstacles[OBSTACLES], by_end[OBSTACLES];
static ashlar_pack_gap gaps[GAPS];
static ashlar_pack_window window;

static double cost_at(size_t offset) {
    double cost = 0;
    for (size_t k = 0; k < window.obstacle_count; k++) {
        const bool is_in_the_way =
            obstacles[k].begin < offset + window.bytes && offset < obstacles[k].end;
        cost += is_in_the_way ? obstacles[k].cost : 0;
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
    window = (ashlar_pack_window){.obstacles = obstacles, .by_end = by_end, .gaps = gaps};
    window.bytes = pack_draw(1, 9);
    window.capacity = pack_draw(1, HEIGHT);
    window.obstacle_count = pack_draw(0, OBSTACLES);
    for (size_t k = 0; k < window.obstacle_count; k++) {
        const size_t begin = pack_draw(0, HEIGHT - 1);
        obstacles[k] =
            (ashlar_pack_obstacle){begin, begin + pack_draw(1, 12), (double)pack_draw(1, 1000)};
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

CASE(many_obstacles_are_sorted) {
    enum { MANY = 5000 };
    static ashlar_pack_obstacle all[MANY], scratch[MANY];
    for (size_t k = 0; k < MANY; k++) {
        all[k] = (ashlar_pack_obstacle){pack_draw(0, 1 << 20), pack_draw(1 << 20, 1 << 21), 1};
    }
    gaps[0] = (ashlar_pack_gap){0, SIZE_MAX};
    window = (ashlar_pack_window){.obstacles = all,
                                  .by_end = scratch,
                                  .obstacle_count = MANY,
                                  .gaps = gaps,
                                  .gap_count = 1,
                                  .bytes = 1,
                                  .capacity = 1 << 22};
    size_t offset = 0;
    CHECK(ashlar__pack_window_cheapest(&window, &offset) == 0);
    for (size_t k = 1; k < MANY; k++) {
        CHECK(all[k - 1].begin <= all[k].begin && scratch[k - 1].end <= scratch[k].end);
    }
}

RUN_CASES()
