/* test_step_keys.c - when the steps of a key are recorded, merged and planned, and plans dropped.
 */
#include "tests/allocator/step/step_fixture.h"

CASE_WITH(a_plan_is_built_after_so_many_steps_or_when_asked, set_up_plans()) {
    const ashlar_plan_options options = {.build_after = 3};
    CHECK(ashlar_plan_set_options(allocator, &options) == ASHLAR_OK);
    for (int i = 0; i < 3; i++) {
        CHECK_ZU(plans().plan_count, 0);
        begin(1);
        CHAIN(1000);
        end();
    }
    CHECK_ZU(plans().plan_count, 1);
    CHECK_ZU(plans().steps_recorded, 3);
    const ashlar_plan_options by_hand = {.build_after = ASHLAR_PLAN_BUILD_NEVER};
    CHECK(ashlar_plan_set_options(allocator, &by_hand) == ASHLAR_OK);
    begin(2);
    CHAIN(1000);
    end();
    CHECK_ZU(plans().plan_count, 1);
    CHECK(ashlar_plan_build(allocator) == ASHLAR_OK);
    CHECK_ZU(plans().plan_count, 2);
    CHECK(ashlar_plan_set_options(allocator, NULL) == ASHLAR_OK);
    begin(3);
    end();
    CHECK_ZU(plans().plan_count, 3);
}

CASE_WITH(a_step_recorded_besides_is_merged, set_up_plans()) {
    for (size_t i = 0; i < 2; i++) {
        begin(1);
        CHAIN(1000 + 4000 * i, 2000 - 1000 * i);
        end();
        ashlar_plan_record_next(allocator, i == 0 ? 1 : 77);
    }
    CHECK_ZU(plans().steps_recorded, 2);
    begin(1);
    CHAIN(5000, 2000);
    end();
    CHECK_ZU(plans().hits, 2);
}

CASE_WITH(a_key_that_diverges_is_recorded_anew_if_so_asked, set_up_plans()) {
    const ashlar_plan_options options = {.build_after = 1, .rerecord_after = 2};
    CHECK(ashlar_plan_set_options(allocator, &options) == ASHLAR_OK);
    begin(1);
    CHAIN(8 * MIB);
    end();
    for (int i = 0; i < 3; i++) { /* a step without a miss begins the count anew */
        begin(1);
        put(get(1000, ASHLAR_TAG_BATCH));
        end();
        begin(1);
        CHAIN(1000);
        end();
    }
    CHECK_ZU(plans().steps_recorded, 1);
    for (int i = 0; i < 3; i++) {
        begin(1);
        put(get(1000, ASHLAR_TAG_BATCH));
        end();
    }
    CHECK_ZU(plans().steps_recorded, 2);
    CHECK_ZU(plans().plan_bytes, 1024); /* the old recording is gone */
    begin(1);
    put(get(1000, ASHLAR_TAG_BATCH));
    end();
    check_misses(ASHLAR_PLAN_MISS_TAG, 5);
}

CASE_WITH(keys_of_one_stream_share_its_region, set_up_plans()) {
    for (uint64_t key = 1; key <= 3; key++) {
        begin(key);
        CHAIN(key * MIB);
        end();
    }
    CHECK_ZU(plans().plan_count, 3);
    CHECK_ZU(plans().plan_bytes, 3 * MIB);
    for (uint64_t key = 1; key <= 3; key++) {
        begin(key);
        CHAIN(key * MIB);
        end();
    }
    CHECK_ZU(plans().hits, 3);
}

CASE_WITH(the_memory_of_a_dropped_plan_is_free_but_for_live_blocks, set_up_plans()) {
    begin(1);
    CHAIN(4 * MIB);
    end();
    begin(1);
    shadow *s = get(4 * MIB, WORK);
    CHECK_FAILS(ashlar_plan_drop(allocator), ASHLAR_EINVAL, "under way");
    CHECK(ashlar_plan_build(allocator) == ASHLAR_EINVAL);
    end();
    CHECK(ashlar_plan_drop(allocator) == ASHLAR_OK);
    CHECK_ZU(plans().plan_count, 0);
    CHECK_ZU(plans().memory_bytes, 0);
    shadow_verify(s);
    put(s);
    begin(2);
    CHAIN(4 * MIB);
    end();
    CHECK_ZU(stats_now().reserved_bytes, 4 * MIB);
}

/* Two blocks, of which the first lives on while the second comes and goes. */
static void step_of_two(size_t first_bytes, size_t second_bytes) {
    begin(1);
    shadow *first = get(first_bytes, WORK);
    put(get(second_bytes, WORK));
    put(first);
    end();
}

/* Paired in their order, the blocks would be the larger ones of both steps: 16 MiB for 9. */
CASE_WITH(steps_that_one_plan_would_serve_too_dearly_have_none, set_up_plans()) {
    const ashlar_plan_options options = {.build_after = 2};
    CHECK(ashlar_plan_set_options(allocator, &options) == ASHLAR_OK);
    step_of_two(8 * MIB, 1 * MIB);
    step_of_two(1 * MIB, 8 * MIB);
    CHECK_ZU(plans().steps_recorded, 2);
    CHECK_ZU(plans().steps_apart, 1);
    CHECK(ashlar_plan_build(allocator) == ASHLAR_OK);
    CHECK_ZU(plans().plan_count, 0);
    step_of_two(8 * MIB, 1 * MIB);
    CHECK_ZU(plans().steps_recorded, 2);
    CHECK_ZU(stats_now().reserved_peak_bytes, 10 * MIB);
}

/* A plan that serves one of them is given up when another is found to be too different. */
CASE_WITH(a_plan_goes_when_a_step_is_recorded_that_it_cannot_serve, set_up_plans()) {
    step_of_two(8 * MIB, 1 * MIB);
    CHECK_ZU(plans().plan_count, 1);
    ashlar_plan_record_next(allocator, 1);
    step_of_two(1 * MIB, 8 * MIB);
    CHECK_ZU(plans().plan_count, 0);
    CHECK_ZU(plans().memory_bytes, 0);
    CHECK_ZU(stats_now().reserved_peak_bytes, 10 * MIB);
}

RUN_CASES()
