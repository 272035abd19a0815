/* test_step.c - steps that are recorded and replayed: when a key is recorded, merged and planned,
 * what the plan serves, and why not. */
#include "tests/allocator/step/step_fixture.h"

/* ---- what is served ---- */

/* Forward keeps, backward frees in the opposite order, with a workspace for each layer. */
enum { LAYERS = 6 };

static void train(size_t bytes) {
    shadow *kept[LAYERS], *work;
    for (int i = 0; i < LAYERS; i++) {
        kept[i] = get(bytes + (size_t)i * 4096, ASHLAR_TAG_ACTIVATIONS);
        work = get(2 * bytes, WORK);
        put(work);
    }
    for (int i = LAYERS - 1; i >= 0; i--) {
        work = get(3 * bytes, WORK);
        put(kept[i]);
        put(work);
    }
}

CASE_WITH(a_step_like_the_recorded_one_is_served_from_the_plan, set_up_plans()) {
    begin(1);
    train(100 * KIB);
    end();
    CHECK_ZU(plans().plan_count, 1);
    CHECK_ZU(plans().slot_count, 3 * LAYERS);
    const uint64_t calls = driver_calls();
    for (int i = 0; i < 3; i++) {
        begin(1);
        train(100 * KIB - (size_t)i * 10000);
        end();
    }
    const ashlar_plan_stats stats = plans();
    CHECK_ZU(stats.steps_recorded, 1);
    CHECK_ZU(stats.steps_replayed, 3);
    CHECK_ZU(stats.hits, 3 * 3 * LAYERS);
    CHECK_ZU(stats.miss_count, 0);
    CHECK_ZU(driver_calls(), calls);
    CHECK(stats.plan_bytes >= stats.bound_bytes && stats.plan_bytes <= stats.memory_bytes);
    CHECK_ZU(stats_now().served_planned, stats.hits);
}

CASE_WITH(a_step_within_another_is_part_of_it, set_up_plans()) {
    for (int i = 0; i < 2; i++) {
        begin(1);
        CHAIN(1000);
        begin(2);
        CHAIN(2000);
        CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
        CHAIN(3000);
        end();
    }
    CHECK_ZU(plans().plan_count, 1);
    CHECK_ZU(plans().hits, 3);
    CHECK_FAILS(ashlar_step_end(allocator), ASHLAR_EINVAL, "no step of this thread");
}

CASE_WITH(the_default_stream_may_have_either_name, set_up_plans()) {
    const ashlar_stream names[] = {NULL, (ashlar_stream)(uintptr_t)CU_STREAM_LEGACY};
    for (size_t i = 0; i < 4; i++) {
        void *ptr = NULL;
        CHECK(ashlar_step_begin(allocator, names[i % 2], 1) == ASHLAR_OK);
        CHECK(ashlar_alloc(allocator, 1000, names[i / 2], &ptr) == ASHLAR_OK);
        CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
        end();
    }
    CHECK_ZU(plans().hits, 3);
}

/* ---- what is not, and why ---- */

static void record_and_begin(void) {
    begin(1);
    CHAIN(1000, 2000, 3000);
    end();
    begin(1);
}

CASE_WITH(the_reason_of_a_miss_is_told, set_up_plans()) {
    record_and_begin();
    CHAIN(9000, 1000, 2000, 3000);
    end();
    check_misses(ASHLAR_PLAN_MISS_BYTES, 1);
    CHECK_ZU(plans().hits, 3);
    tear_down_steps();
    REQUIRE(set_up_plans());
    record_and_begin();
    put(get(1000, ASHLAR_TAG_BATCH));
    CHAIN(1000, 2000, 3000);
    end();
    check_misses(ASHLAR_PLAN_MISS_TAG, 1);
    tear_down_steps();
    REQUIRE(set_up_plans());
    record_and_begin();
    put(shadow_take(1000, WORK, 1));
    CHAIN(1000, 2000, 3000);
    end();
    check_misses(ASHLAR_PLAN_MISS_STREAM, 1);
    tear_down_steps();
    REQUIRE(set_up_plans());
    record_and_begin();
    CHAIN(1000, 2000, 3000, 500);
    end();
    check_misses(ASHLAR_PLAN_MISS_EXTRA, 1);
    tear_down_steps();
    REQUIRE(set_up_plans());
    record_and_begin();
    shadow *late = get(1000, WORK);
    shadow *other = get(2000, WORK);
    CHECK(late != NULL && other != NULL);
    put(late);
    put(other);
    CHAIN(3000);
    end();
    check_misses(ASHLAR_PLAN_MISS_LIVE, 1);
    CHECK_ZU(plans().hits, 2);
}

CASE_WITH(what_is_left_out_is_passed_over, set_up_plans()) {
    begin(1);
    for (int i = 0; i < 200; i++) {
        put(get(1000, ASHLAR_TAG_BATCH)); /* one run of alike ones */
    }
    for (size_t i = 0; i < ASHLAR_PLAN_LOOK_AHEAD - 1; i++) {
        put(get(512 * (i + 1), ASHLAR_TAG_BATCH));
    }
    CHAIN(1000);
    end();
    begin(1);
    CHAIN(1000);
    end();
    CHECK_ZU(plans().hits, 1);
    begin(2);
    for (size_t i = 0; i < 2 * ASHLAR_PLAN_LOOK_AHEAD; i++) {
        put(get(512 * (i + 1), ASHLAR_TAG_BATCH));
    }
    CHAIN(1000);
    end();
    begin(2);
    CHAIN(1000); /* too far */
    end();
    CHECK_ZU(plans().hits, 1);
    check_misses(ASHLAR_PLAN_MISS_TAG, 1);
}

/* ---- beginnings and ends ---- */

CASE(where_there_are_no_caches_steps_are_nothing) {
    for (int guard = 0; guard < 2; guard++) {
        ashlar_config config = steps_config();
        config.cache_bytes = guard == 0 ? ASHLAR_CACHE_NONE : config.cache_bytes;
        config.guard = guard == 0 ? ASHLAR_GUARD_OFF : ASHLAR_GUARD_FILL;
        REQUIRE(set_up_steps("64MiB", &config, 1));
        for (int i = 0; i < 2; i++) {
            begin(1);
            CHAIN(1000);
            end();
        }
        CHECK_ZU(plans().steps_recorded + plans().steps_replayed + plans().steps_declined, 0);
        CHECK(ashlar_plan_build(allocator) == ASHLAR_OK);
        CHECK(ashlar_plan_drop(allocator) == ASHLAR_OK);
        tear_down_steps();
    }
}

/* ---- what is told of blocks ---- */

CASE_WITH(a_wrong_pointer_into_a_region_is_told_exactly, set_up_plans()) {
    begin(1);
    CHAIN(4000);
    end();
    begin(1);
    shadow *s = get(4000, WORK);
    size_t usable = 0;
    CHECK(ashlar_usable_bytes(allocator, s->ptr, &usable) == ASHLAR_OK);
    CHECK_ZU(usable, 4096);
    CHECK_FAILS(ashlar_free(allocator, s->ptr + 512), ASHLAR_EPOINTER, "512 bytes inside a block");
    CHECK_FAILS(ashlar_free(allocator, s->ptr + 4096), ASHLAR_EPOINTER, "never handed out");
    void *ptr = s->ptr;
    put(s);
    CHECK_FAILS(ashlar_free(allocator, ptr), ASHLAR_EPOINTER, "freed before");
    end();
}

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

RUN_CASES()
