/* test_pack_cases.c - that problems like those of trainings are packed close to the bound. */
#include "bench/replay/bench_pack.h"

#include "tests/check.h"
#include "tests/allocator/pack/pack_fixture.h"

enum { MANY = 20000, MOST = 33000 };

static ashlar_pack_buffer buffers[MOST];
static size_t offsets[MOST];

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
