/* test_pack_cases.c - that the problems made from a seed are what they are said to be. */
#include "bench/replay/bench_pack.h"

#include "tests/check.h"
#include "tests/allocator/pack/pack_fixture.h"

enum { MANY = 20000, MOST = 33000, FEW = 200 };

static ashlar_pack_buffer buffers[MOST], others[MANY];
static size_t offsets[MOST];

/* Each beginning and each end has a time of its own, apart from the last one. */
CASE(training_steps_are_well_formed) {
    size_t throughout = 0, brief = 0;
    ashlar__pack_case_training(1, buffers, MANY);
    for (size_t i = 0; i < MANY; i++) {
        REQUIRE(buffers[i].begin < buffers[i].end);
        CHECK(buffers[i].bytes > 0 && buffers[i].bytes % 512 == 0);
        CHECK(i == 0 || buffers[i - 1].begin < buffers[i].begin);
        throughout += buffers[i].end - buffers[i].begin > MANY;
        brief += buffers[i].end - buffers[i].begin < 10;
    }
    CHECK(throughout > 100 && throughout < MANY / 10);
    CHECK(brief > MANY / 4 && brief < MANY * 3 / 4);
}

CASE(a_seed_is_a_problem) {
    ashlar__pack_case_training(5, buffers, FEW);
    ashlar__pack_case_training(5, others, FEW);
    CHECK(memcmp(buffers, others, FEW * sizeof *buffers) == 0);
    ashlar__pack_case_training(6, others, FEW);
    CHECK(memcmp(buffers, others, FEW * sizeof *buffers) != 0);
    ashlar__pack_case_training(6, others, 1); /* the smallest one */
    CHECK(others[0].begin < others[0].end);
    ashlar__pack_case_network(6, buffers, FEW);
    ashlar__pack_case_network(6, others, FEW);
    CHECK(memcmp(buffers, others, FEW * sizeof *buffers) == 0);
    ashlar__pack_case_network(7, others, FEW);
    CHECK(memcmp(buffers, others, FEW * sizeof *buffers) != 0);
    ashlar__pack_case_network(7, others, 1);
    CHECK(others[0].begin < others[0].end && others[0].bytes > 0);
}

CASE(training_steps_are_packed_close_to_the_bound) {
    for (uint64_t seed = 1; seed <= 5; seed++) {
        const ashlar_pack_options options = {.alignment = 512};
        ashlar_pack_result result;
        size_t bytes = 0;
        ashlar__pack_case_training(seed, buffers, MANY);
        REQUIRE(ashlar_pack(buffers, MANY, &options, offsets, &result) == ASHLAR_OK);
        CHECK(ashlar__pack_check(buffers, MANY, offsets, &bytes) == ASHLAR_OK);
        CHECK_ZU(bytes, result.plan_bytes);
        CHECK((double)bytes <= 1.03 * (double)result.bound_bytes);
    }
}

/* Of one seed the orders are far above the bound; the search is near it. */
CASE(networks_are_packed_close_to_the_bound) {
    enum { COUNT = 3000 };
    size_t greedy_count = 0, search_count = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        ashlar_pack_options options = {.alignment = 512};
        ashlar_pack_result greedy, searched;
        size_t bytes = 0;
        ashlar__pack_case_network(seed, buffers, COUNT);
        REQUIRE(ashlar_pack(buffers, COUNT, &options, offsets, &greedy) == ASHLAR_OK);
        options.capacity_bytes = greedy.bound_bytes + greedy.bound_bytes / 50;
        options.time_budget_ms = NO_HURRY_MS;
        REQUIRE(ashlar_pack(buffers, COUNT, &options, offsets, &searched) == ASHLAR_OK);
        CHECK(ashlar__pack_check(buffers, COUNT, offsets, &bytes) == ASHLAR_OK);
        CHECK_ZU(bytes, searched.plan_bytes);
        CHECK(searched.plan_bytes <= greedy.plan_bytes);
        greedy_count += greedy.plan_bytes <= options.capacity_bytes;
        search_count += searched.plan_bytes <= options.capacity_bytes;
    }
    CHECK(greedy_count < search_count);
    CHECK_ZU(search_count, 6);
}

static size_t pack_network(size_t count, uint64_t time_budget_ms) {
    const ashlar_pack_options options = {.alignment = 512, .time_budget_ms = time_budget_ms};
    ashlar_pack_result result = {0};
    size_t bytes = 0;
    CHECK(ashlar_pack(buffers, count, &options, offsets, &result) == ASHLAR_OK);
    CHECK(ashlar__pack_check(buffers, count, offsets, &bytes) == ASHLAR_OK);
    CHECK_ZU(bytes, result.plan_bytes);
    CHECK(result.is_optimal == (result.plan_bytes == result.bound_bytes));
    return bytes;
}

/* So many that a time budget goes to the search alone: its first plan is made however short it is.
 */
CASE(many_buffers_are_packed_without_a_greedy_order) {
    ashlar__pack_case_network(1, buffers, MOST);
    const size_t first = pack_network(MOST, 1);
    CHECK(pack_network(MOST, NO_HURRY_MS) <= first);
}

RUN_CASES()
