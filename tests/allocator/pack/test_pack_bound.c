/* test_pack_bound.c - bounds by windows: never above the smallest plan of all, and above the peak
 * of some. */
#include "allocator/pack/pack_bound.h"

#include "tests/check.h"
#include "allocator/base/host.h"
#include "tests/allocator/pack/pack_fixture.h"

enum { STEPS = 100000, UNITS = 256 };

static ashlar_pack_buffer buffers[FEW_MAX];
static const ashlar_pack_options options;

static size_t bound_of(size_t count, uint32_t width, size_t unit, size_t below) {
    ashlar_pack_items problem;
    ashlar_pack_budget budget;
    if (ashlar__pack_items_init(&problem, buffers, count, unit) != ASHLAR_OK) {
        return SIZE_MAX; /* which is no bound */
    }
    ashlar__pack_budget_init(&budget, &options, problem.peak_bytes);
    size_t bound = problem.peak_bytes;
    CHECK(ashlar__pack_bound_raise(&problem, width, unit, below, STEPS, &budget, &bound) ==
          ASHLAR_OK);
    CHECK(bound >= problem.peak_bytes && bound <= below);
    ashlar__pack_items_finish(&problem);
    return bound;
}

/* No plan of all orders is smaller than the bound. */
static bool is_bound(size_t count, size_t bound) {
    return smallest_plan_below(buffers, count, bound) == bound;
}

CASE(no_plan_is_below_the_bound_of_any_window) {
    for (int round = 0; round < CHECK_SANITIZED(3000, 300); round++) {
        const size_t count = pack_draw(4, 7);
        draw_buffers(buffers, count, round % 2 == 0 ? 9 : 4, pack_draw(5, 12));
        for (uint32_t width = 4; width <= 8; width++) {
            CHECK(is_bound(count, bound_of(count, width, 1, SIZE_MAX)));
        }
    }
}

/* Problems near one whose smallest plan is above the peak. */
CASE(some_bounds_are_above_the_peak_and_none_is_above_a_plan) {
    enum { ROUNDS = CHECK_SANITIZED(400, 40) };
    enum { LOOKS = 1 }; /* it tries all orders of twelve, for seconds */
    size_t above_peak = 0, narrow = 0, looks = 0;
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(buffers, hard[0], 12 * sizeof *buffers);
        for (size_t changes = pack_draw(0, 2); changes > 0; changes--) {
            ashlar_pack_buffer *b = &buffers[pack_draw(0, 11)];
            b->bytes += pack_draw(0, 1);
            b->end += pack_draw(0, 2);
            b->begin -= b->begin > 2 ? pack_draw(0, 2) : 0;
        }
        const size_t peak = peak_of(buffers, 12);
        const size_t bound = bound_of(12, 16, 1, SIZE_MAX), less = bound_of(12, 6, 1, SIZE_MAX);
        CHECK(peak <= less && less <= bound);
        above_peak += bound > peak;
        narrow += less > peak;
        if (bound > peak && looks < LOOKS) {
            CHECK(is_bound(12, bound));
            looks++;
        }
    }
    CHECK(above_peak > ROUNDS / 8 && narrow > ROUNDS / 8);
}

CASE(a_window_proves_what_the_peak_does_not_show) {
    memcpy(buffers, hard[0], 12 * sizeof *buffers);
    CHECK_ZU(peak_of(buffers, 12), 24);
    CHECK_ZU(bound_of(12, 16, 1, 30), 25);
    CHECK_ZU(bound_of(12, 4, 1, 30), 24);
    buffers[12] = (ashlar_pack_buffer){24, 40, 50};
    CHECK_ZU(bound_of(13, 16, 1, 30), 25);
}

/* All buffers that are live at once are disjoint, each of them rounded up. */
CASE(rounding_up_raises_the_bound) {
    for (int round = 0; round < CHECK_SANITIZED(500, 50); round++) {
        const size_t count = pack_draw(4, 7);
        draw_buffers(buffers, count, 5 * UNITS, 9);
        const size_t peak = peak_of(buffers, count), bound = bound_of(count, 6, UNITS, SIZE_MAX);
        CHECK(bound >= peak && bound % UNITS == 0);
        for (size_t i = 0; i < count; i++) {
            buffers[i].bytes = (buffers[i].bytes + UNITS - 1) / UNITS * UNITS;
        }
        CHECK(bound <= smallest_plan(buffers, count));
    }
}

CASE(few_steps_prove_nothing_wrong) {
    ashlar_pack_items problem;
    ashlar_pack_budget budget;
    memcpy(buffers, hard[0], 12 * sizeof *buffers);
    REQUIRE(ashlar__pack_items_init(&problem, buffers, 12, 1) == ASHLAR_OK);
    ashlar__pack_budget_init(&budget, &options, problem.peak_bytes);
    for (uint64_t steps = 0; steps < 300; steps += 7) {
        size_t bound = problem.peak_bytes;
        REQUIRE(ashlar__pack_bound_raise(&problem, 16, 1, 30, steps, &budget, &bound) == ASHLAR_OK);
        CHECK(bound == 24 || bound == 25);
        CHECK(steps > 0 || bound == 24);
    }
    ashlar__pack_items_finish(&problem);
}

CASE(without_host_memory_the_bound_stays_oom) {
    ashlar_pack_items problem;
    ashlar_pack_budget budget;
    memcpy(buffers, hard[0], 12 * sizeof *buffers);
    REQUIRE(ashlar__pack_items_init(&problem, buffers, 12, 1) == ASHLAR_OK);
    ashlar__pack_budget_init(&budget, &options, problem.peak_bytes);
    for (size_t at = 1; at <= 8; at++) {
        size_t bound = 24;
        HOST_FAILS_AT(at, CHECK(ashlar__pack_bound_raise(&problem, 16, 1, 30, STEPS, &budget,
                                                         &bound) == ASHLAR_EHOSTMEM));
        CHECK_ZU(bound, 24);
    }
    ashlar__pack_items_finish(&problem);
}

RUN_CASES()
