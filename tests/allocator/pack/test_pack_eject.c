/* test_pack_eject.c - plans by moving items: right, never worse with more moves, the same each
 * time.
 */
#include "allocator/pack/pack_eject.h"
#include "allocator/pack/pack_movable.h"

#include "tests/check.h"
#include "allocator/base/host.h"
#include "tests/allocator/pack/pack_fixture.h"

enum { COUNT = 150, ROUNDS = 12, MOVES = 2500 };

static ashlar_pack_buffer buffers[COUNT];
static size_t best[COUNT], trial[COUNT], first_best[COUNT];
static double keys[COUNT];
static uint32_t order[COUNT];
static ashlar_pack_items problem;
static ashlar_pack_options options;
static ashlar_pack_state state;
static ashlar_pack_eject *eject;

static void begin(uint64_t seed) {
    pack_seed = seed;
    draw_buffers(buffers, COUNT, 5000, 60);
    for (size_t i = 0; i < COUNT; i++) { /* most lives are short, some long */
        const uint64_t latest = buffers[i].begin + pack_draw(1, i % 5 == 0 ? 60 : 15);
        buffers[i].end = buffers[i].end < latest ? buffers[i].end : latest;
    }
    REQUIRE(ashlar__pack_items_init(&problem, buffers, COUNT, 1) == ASHLAR_OK);
    state = (ashlar_pack_state){.problem = &problem,
                                .target_bytes = problem.peak_bytes,
                                .plan_bytes = SIZE_MAX,
                                .offsets = best,
                                .trial = trial,
                                .order = order,
                                .keys = keys};
    ashlar__pack_budget_init(&state.budget, &options, problem.peak_bytes);
    REQUIRE(ashlar__pack_occupancy_create(problem.section_count, &state.occupancy) == ASHLAR_OK);
    REQUIRE(ashlar__pack_greedy(&state, SIZE_MAX) == ASHLAR_OK);
    REQUIRE(ashlar__pack_eject_create(&state, 1, &eject) == ASHLAR_OK);
}

static void end(void) {
    ashlar__pack_eject_destroy(eject);
    ashlar__pack_occupancy_destroy(state.occupancy);
    ashlar__pack_items_finish(&problem);
    eject = NULL;
}

/* Of all items that live at most so many sections. */
static uint64_t area_up_to(uint32_t life) {
    uint64_t area = 0;
    for (size_t i = 0; i < problem.count; i++) {
        const uint32_t own = problem.items[i].end - problem.items[i].first;
        area += own <= life ? own : 0;
    }
    return area;
}

CASE(the_longest_life_with_few_items_live_is_found) {
    for (uint64_t seed = 1; seed <= 10; seed++) {
        begin(seed);
        for (uint32_t live_count = 0; live_count < 20; live_count++) {
            uint32_t life = 1;
            while (life < problem.section_count &&
                   area_up_to(2 * life) <= (uint64_t)live_count * problem.section_count) {
                life *= 2;
            }
            CHECK_ZU(ashlar__pack_movable_life(&problem, live_count), life);
        }
        end();
    }
}

CASE(more_moves_are_never_worse) {
    enum { SEEDS = CHECK_SANITIZED(40, 5) };
    size_t gains = 0, greedy_sum = 0, sum = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        greedy_sum += state.plan_bytes - problem.peak_bytes;
        for (int k = 0; k < ROUNDS; k++) {
            const size_t before = state.plan_bytes;
            REQUIRE(ashlar__pack_eject_run(eject, MOVES) == ASHLAR_OK);
            CHECK(state.plan_bytes <= before && state.plan_bytes >= peak_of(buffers, COUNT));
            CHECK(is_plan(buffers, COUNT, 1, state.offsets));
            CHECK_ZU(ashlar__pack_highest_end(&problem, state.offsets), state.plan_bytes);
            gains += k > 0 && state.plan_bytes < before;
        }
        sum += state.plan_bytes - problem.peak_bytes;
        end();
    }
    CHECK(4 * gains > 3 * SEEDS);
    CHECK(3 * sum < greedy_sum); /* what is above the bound */
}

CASE(moves_are_the_same_however_they_are_asked_for) {
    for (uint64_t seed = 1; seed <= 5; seed++) {
        begin(seed);
        for (int k = 0; k < ROUNDS * MOVES; k += 25) {
            REQUIRE(ashlar__pack_eject_run(eject, 25) == ASHLAR_OK);
        }
        const size_t bytes = state.plan_bytes;
        memcpy(first_best, state.offsets, sizeof first_best);
        end();
        begin(seed);
        REQUIRE(ashlar__pack_eject_run(eject, (uint64_t)ROUNDS * MOVES) == ASHLAR_OK);
        CHECK_ZU(state.plan_bytes, bytes);
        CHECK(memcmp(first_best, state.offsets, sizeof first_best) == 0);
        end();
    }
}

CASE(a_budget_that_is_over_leaves_the_best_plan) {
    begin(9);
    REQUIRE(ashlar__pack_eject_run(eject, 100) == ASHLAR_OK);
    const size_t bytes = state.plan_bytes;
    state.budget.is_stopped = true;
    REQUIRE(ashlar__pack_eject_run(eject, MOVES) == ASHLAR_OK);
    CHECK_ZU(state.plan_bytes, bytes);
    end();
}

CASE(without_host_memory_the_best_plan_stays_oom) {
    for (size_t at = 1; at <= 40; at++) {
        ashlar_status status = ASHLAR_OK;
        begin(3);
        ashlar__pack_eject_destroy(eject);
        eject = NULL;
        HOST_FAILS_AT(at, status = ashlar__pack_eject_create(&state, 1, &eject);
                      status = status == ASHLAR_OK ? ashlar__pack_eject_run(eject, MOVES) : status);
        CHECK(status == ASHLAR_OK || status == ASHLAR_EHOSTMEM);
        CHECK(at > 16 || status == ASHLAR_EHOSTMEM);
        CHECK(is_plan(buffers, COUNT, 1, state.offsets));
        CHECK_ZU(ashlar__pack_highest_end(&problem, state.offsets), state.plan_bytes);
        end();
    }
}

RUN_CASES()
