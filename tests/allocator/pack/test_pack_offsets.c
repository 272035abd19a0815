/*
 * test_pack_offsets.c - that the same buffers get the same offsets on every machine and by every
 * compiler, as <ashlar/pack.h> promises: each method's plans have the sums that are written here.
 *
 * Whoever changes how a method looks for plans changes its sums. The new ones are what its case
 * says it got, if plans are no larger for it (test_pack_cases.c).
 */
#include "allocator/pack/pack_eject.h"
#include "allocator/pack/pack_search.h"
#include "allocator/pack/pack_valley.h"

#include "tests/check.h"
#include "tests/allocator/pack/pack_fixture.h"

enum { MOST = 160, SHAPES = 6, SEEDS = 4, PLANS = 60, MOVES = 20000, STEPS = 3000 };

static const ashlar_pack_options no_hurry = {.time_budget_ms = NO_HURRY_MS};
static ashlar_pack_buffer buffers[MOST];
static size_t best[MOST], trial[MOST], made[MOST];
static uint32_t order[MOST];
static double keys[MOST];
static ashlar_pack_items problem;
static ashlar_pack_state state;
static uint64_t sum; /* of all that a case adds: FNV-1a */

static void add(const size_t *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        sum = (sum ^ numbers[i]) * UINT64_C(1099511628211);
    }
}

/* Problems of all sorts: many and few sizes and times, short and long lives, in units of `unit`. */
static size_t draw_shape(int shape, uint64_t seed) {
    static const struct {
        size_t count, bytes_max, time_max, life_max, unit;
    } shapes[SHAPES] = {
        {40, 1000, 30, 30, 1},   {MOST, 5000, 60, 20, 1}, {MOST, 12, 40, 12, 512},
        {100, 5000, 400, 25, 1}, {60, 3, 12, 6, 7},       {120, 100000, 200, 200, 16},
    };
    pack_seed = seed;
    draw_buffers(buffers, shapes[shape].count, shapes[shape].bytes_max, shapes[shape].time_max);
    for (size_t i = 0; i < shapes[shape].count; i++) { /* of every tenth the life stays long */
        const uint64_t latest = buffers[i].begin + pack_draw(1, shapes[shape].life_max);
        buffers[i].end = buffers[i].end < latest || i % 10 == 0 ? buffers[i].end : latest;
        buffers[i].bytes *= shapes[shape].unit;
    }
    return shapes[shape].count;
}

static void begin(int shape, uint64_t seed) {
    const size_t count = draw_shape(shape, seed);
    REQUIRE(ashlar__pack_items_init(&problem, buffers, count, 1) == ASHLAR_OK);
    state = (ashlar_pack_state){.problem = &problem,
                                .target_bytes = problem.peak_bytes,
                                .plan_bytes = SIZE_MAX,
                                .offsets = best,
                                .trial = trial,
                                .order = order,
                                .keys = keys};
    ashlar__pack_budget_init(&state.budget, &no_hurry, problem.peak_bytes);
    state.budget.now.strategy = "test";
    REQUIRE(ashlar__pack_occupancy_create(problem.section_count, &state.occupancy) == ASHLAR_OK);
    REQUIRE(ashlar__pack_greedy(&state, SIZE_MAX) == ASHLAR_OK);
}

static void end(void) {
    CHECK(is_plan(buffers, problem.count, 1, state.offsets));
    add(state.offsets, problem.count);
    ashlar__pack_occupancy_destroy(state.occupancy);
    ashlar__pack_items_finish(&problem);
}

static uint64_t sum_of(void (*method)(void)) {
    sum = UINT64_C(14695981039346656037);
    for (int shape = 0; shape < SHAPES; shape++) {
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            begin(shape, seed);
            method();
            end();
        }
    }
    return sum;
}

/* ---- the methods ---- */

static void greedy(void) {
    add(&state.plan_bytes, 1);
}

CASE(greedy_plans_are_the_same_everywhere) {
    CHECK_ZU(sum_of(greedy), UINT64_C(15218011179656999204));
}

static void valleys(void) {
    ashlar_pack_valley *valley;
    state.plan_bytes = SIZE_MAX;
    REQUIRE(ashlar__pack_valley_create(&state, &valley) == ASHLAR_OK);
    for (int k = 0; k < PLANS; k++) {
        ashlar__pack_valley_run(valley, 1);
        add(&state.plan_bytes, 1);
        add(state.trial, problem.count);
    }
    ashlar__pack_valley_destroy(valley);
}

CASE(plans_by_valleys_are_the_same_everywhere) {
    CHECK_ZU(sum_of(valleys), UINT64_C(11749085340452168112));
}

static void moves(void) {
    ashlar_pack_eject *eject;
    REQUIRE(ashlar__pack_eject_create(&state, 1, &eject) == ASHLAR_OK);
    for (int k = 0; k < 4; k++) {
        REQUIRE(ashlar__pack_eject_run(eject, MOVES) == ASHLAR_OK);
        add(&state.plan_bytes, 1);
    }
    ashlar__pack_eject_destroy(eject);
}

CASE(plans_by_moves_are_the_same_everywhere) {
    CHECK_ZU(sum_of(moves), UINT64_C(17182245983145690212));
}

/* From the greedy plan's size down to the bound. */
static void searches(void) {
    ashlar_pack_search *search;
    REQUIRE(ashlar__pack_search_create(&problem, &search) == ASHLAR_OK);
    for (size_t k = 0; k <= 4; k++) {
        const size_t above = (state.plan_bytes - problem.peak_bytes) * k / 4;
        ashlar_pack_outcome outcome = ASHLAR_PACK_UNDECIDED;
        REQUIRE(ashlar__pack_search_run(search, problem.peak_bytes + above, STEPS, &state.budget,
                                        made, &outcome) == ASHLAR_OK);
        add(&(size_t){outcome}, 1);
        if (outcome == ASHLAR_PACK_FOUND) {
            CHECK(is_plan(buffers, problem.count, 1, made));
            add(made, problem.count);
        }
    }
    ashlar__pack_search_destroy(search);
}

CASE(searched_plans_are_the_same_everywhere) {
    CHECK_ZU(sum_of(searches), UINT64_C(14439452698911036862));
}

/* All in turn, to a capacity that is within reach. */
static void whole(void) {
    const ashlar_pack_options options = {
        .capacity_bytes = problem.peak_bytes + (state.plan_bytes - problem.peak_bytes) / 2,
        .time_budget_ms = NO_HURRY_MS};
    ashlar_pack_result result;
    REQUIRE(ashlar_pack(buffers, problem.count, &options, made, &result) == ASHLAR_OK);
    CHECK(!result.was_stopped);
    CHECK(is_plan(buffers, problem.count, 1, made));
    add(&result.plan_bytes, 1);
    add(&result.bound_bytes, 1);
    add(made, problem.count);
}

CASE(the_packer_s_plans_are_the_same_everywhere) {
    CHECK_ZU(sum_of(whole), UINT64_C(1370738973421554091));
}

RUN_CASES()
