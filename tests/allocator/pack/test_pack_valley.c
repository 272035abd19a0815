/* test_pack_valley.c - plans by valleys: right, never worse with more of them, the same each time.
 */
#include "allocator/pack/pack_valley.h"

#include "tests/check.h"
#include "allocator/base/host.h"
#include "tests/allocator/pack/pack_fixture.h"

enum { COUNT = 120, PLANS = 40 };

static ashlar_pack_buffer buffers[COUNT];
static size_t best[COUNT], trial[COUNT], first_best[COUNT];
static double keys[COUNT];
static ashlar_pack_items problem;
static ashlar_pack_options options;
static ashlar_pack_state state;
static ashlar_pack_valley *valley;

static void begin(uint64_t seed) {
    pack_seed = seed;
    draw_buffers(buffers, COUNT, 5000, 60);
    for (size_t i = 0; i < COUNT; i++) { /* short lives: else all are live at the peak */
        const uint64_t latest = buffers[i].begin + pack_draw(1, 20);
        buffers[i].end = buffers[i].end < latest ? buffers[i].end : latest;
    }
    REQUIRE(ashlar__pack_items_init(&problem, buffers, COUNT, 1) == ASHLAR_OK);
    state = (ashlar_pack_state){.problem = &problem,
                                .target_bytes = problem.peak_bytes,
                                .plan_bytes = SIZE_MAX,
                                .offsets = best,
                                .trial = trial,
                                .keys = keys};
    ashlar__pack_budget_init(&state.budget, &options, problem.peak_bytes);
    state.budget.now.strategy = "test";
}

static void end(void) {
    ashlar__pack_valley_destroy(valley);
    ashlar__pack_items_finish(&problem);
    valley = NULL;
}

CASE(more_plans_are_never_worse) {
    size_t gains = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        begin(seed);
        REQUIRE(ashlar__pack_valley_create(&state, &valley) == ASHLAR_OK);
        for (int k = 0; k < PLANS; k++) {
            const size_t before = state.plan_bytes;
            ashlar__pack_valley_run(valley, 1);
            CHECK(state.plan_bytes <= before && state.plan_bytes >= peak_of(buffers, COUNT));
            CHECK(is_plan(buffers, COUNT, 1, state.offsets));
            CHECK_ZU(ashlar__pack_highest_end(&problem, state.offsets), state.plan_bytes);
            gains += k > 0 && state.plan_bytes < before;
        }
        end();
    }
    CHECK(gains > 40);
}

CASE(plans_are_the_same_however_they_are_asked_for) {
    begin(7);
    REQUIRE(ashlar__pack_valley_create(&state, &valley) == ASHLAR_OK);
    for (int k = 0; k < PLANS; k++) {
        ashlar__pack_valley_run(valley, 1);
    }
    const size_t bytes = state.plan_bytes;
    memcpy(first_best, state.offsets, sizeof first_best);
    end();
    begin(7);
    REQUIRE(ashlar__pack_valley_create(&state, &valley) == ASHLAR_OK);
    ashlar__pack_valley_run(valley, PLANS);
    CHECK_ZU(state.plan_bytes, bytes);
    CHECK(memcmp(first_best, state.offsets, sizeof first_best) == 0);
    end();
}

CASE(a_budget_that_is_over_leaves_the_best_plan) {
    begin(9);
    REQUIRE(ashlar__pack_valley_create(&state, &valley) == ASHLAR_OK);
    ashlar__pack_valley_run(valley, 1);
    const size_t bytes = state.plan_bytes;
    state.budget.is_stopped = true;
    ashlar__pack_valley_run(valley, PLANS);
    CHECK_ZU(state.plan_bytes, bytes);
    end();
}

CASE(without_host_memory_there_are_no_valleys_oom) {
    begin(3);
    for (size_t at = 1; at <= 11; at++) {
        HOST_FAILS_AT(at, CHECK(ashlar__pack_valley_create(&state, &valley) == ASHLAR_EHOSTMEM));
        CHECK(valley == NULL);
    }
    REQUIRE(ashlar__pack_valley_create(&state, &valley) == ASHLAR_OK);
    end();
}

RUN_CASES()
