/*
 * test_step_life.c - streams that end or are captured, and threads that end, between steps and
 * within them.
 */
#include "tests/allocator/step/step_fixture.h"

#include <ashlar/graph_pool.h>

#include "tests/allocator/core/helper_fixture.h"

/* ---- streams ---- */

CASE_WITH(a_plan_follows_its_stream_to_the_next, set_up_plans()) {
    begin(1);
    CHAIN(4000, 8000);
    end();
    begin(1);
    shadow *carried = get(4000, WORK);
    end();
    renew_stream(0);
    begin(1);
    CHAIN(4000, 8000); /* both meet what is live */
    end();
    put(carried);
    begin(1);
    CHAIN(4000, 8000);
    end();
    CHECK_ZU(plans().steps_recorded, 1);
    CHECK_ZU(plans().hits, 1 + 2);
    check_payloads();
}

CASE_WITH(what_follows_a_stream_is_the_next_ones, set_up_plans()) {
    begin(1);
    CHAIN(4000);
    end();
    renew_stream(0);
    for (int i = 0; i < 2; i++) {
        begin(1);
        shadow *s = get(4000, WORK);
        s->is_home = false; /* freed on its own stream, by name */
        put(s);
        end();
    }
    CHECK_ZU(plans().hits, 2);
    CHECK_ZU(stats_now().shared_bytes, 0);
}

CASE_WITH(a_step_needs_streams_whose_ends_are_told, set_up_plans()) {
    ashlar_allocator_watch_streams(allocator);
    for (int i = 0; i < 3; i++) {
        begin(1);
        CHAIN(4000, 8000);
        end();
    }
    CHECK(plans().steps_recorded == 0 && plans().steps_replayed == 0);
    CHECK_ZU(plans().steps_declined, 3);
}

/* Its streams may end before it does: no memory is taken for them. */
CASE_WITH(a_step_in_which_watching_begins_is_not_planned, set_up_plans()) {
    begin(1);
    CHAIN(4000, 8000);
    ashlar_allocator_watch_streams(allocator);
    end();
    CHECK(ashlar_plan_build(allocator) == ASHLAR_OK);
    CHECK(plans().plan_count == 0 && plans().memory_bytes == 0);
}

/* A key's step had blocks on both, and there was no memory for its plan. */
CASE(blocks_of_two_streams_that_become_one_do_not_overlap) {
    const ashlar_plan_options by_hand = {.build_after = ASHLAR_PLAN_BUILD_NEVER};
    shadow *blocks[3];
    REQUIRE(set_up_plans());
    CHECK(ashlar_plan_set_options(allocator, &by_hand) == ASHLAR_OK);
    for (int step = 0; step < 3; step++) {
        begin_on(step == 0 ? 0 : 1, 1);
        for (int i = 0; i < 3 && step != 1; i++) {
            blocks[i] = shadow_take(i == 0 ? 8 * MIB : 4 * MIB, WORK, step == 0 && i == 0 ? 0 : 1);
        }
        for (int i = 0; i < 3 && step != 1; i++) {
            put(blocks[i]);
        }
        end();
        if (step == 0) {
            for (int i = 0; i < 2; i++) {
                CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
                CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
            }
            CHECK(ashlar_allocator_set_limit(allocator, 1) == ASHLAR_OK);
            CHECK(ashlar_plan_build(allocator) == ASHLAR_ENOMEM);
            CHECK(ashlar_allocator_set_limit(allocator, 0) == ASHLAR_OK);
            renew_stream(0);
        }
        CHECK(step == 0 || ashlar_plan_build(allocator) == ASHLAR_OK);
    }
    tear_down_steps();
}

/* While a step is recorded, records of streams that are gone are looked for. */
CASE_WITH(streams_may_end_while_a_step_is_recorded, set_up_plans()) {
    for (uint64_t key = 1; key <= 3; key++) {
        begin(key);
        for (int k = 0; k < 40; k++) {
            put(shadow_take(1000, WORK, 1));
            renew_stream(1);
        }
        end();
    }
    CHECK_ZU(plans().steps_recorded, 3);
}

CASE(a_captured_stream_is_served_from_its_pool) {
    for (int within = 0; within < 2; within++) {
        ashlar_graph_pool *pool = NULL;
        REQUIRE(set_up_plans());
        for (int i = 0; i < 2; i++) {
            begin(1);
            put(shadow_take(1000, WORK, 0));
            put(shadow_take(4000, WORK, 1));
            end();
        }
        CHECK_ZU(plans().hits, 2);
        if (within == 1) {
            begin(1);
        }
        CHECK(ashlar_graph_pool_begin(allocator, streams[1], &pool) == ASHLAR_OK);
        if (within == 0) {
            begin(1);
        }
        put(shadow_take(1000, WORK, 0));
        put(shadow_take(4000, WORK, 1));
        end();
        CHECK_ZU(plans().hits, 3);
        CHECK_ZU(misses_now(), 1);
        begin_on(1, 2); /* the main one is captured */
        end();
        CHECK_ZU(plans().steps_declined, 1);
        ashlar_graph_pool_end(pool);
        CHECK(ashlar_graph_pool_release(pool, streams[1]) == ASHLAR_OK);
        begin(1);
        put(shadow_take(1000, WORK, 0));
        put(shadow_take(4000, WORK, 1));
        end();
        CHECK_ZU(plans().hits, 5);
        tear_down_steps();
    }
}

CASE_WITH(a_stream_with_plans_of_its_own_takes_no_others, set_up_plans()) {
    begin_on(0, 1);
    put(shadow_take(4 * MIB, WORK, 0));
    end();
    begin_on(1, 2);
    put(shadow_take(1 * MIB, WORK, 1));
    end();
    renew_stream(0);
    for (int i = 0; i < 2; i++) {
        begin_on(1, 1);
        put(shadow_take(2 * MIB, WORK, 1));
        end();
    }
    CHECK_ZU(plans().hits, 1);
    CHECK_ZU(plans().plan_count, 2); /* stream 0's is gone, and its plan memory */
    CHECK_ZU(plans().memory_bytes, 2 * MIB);
}

CASE_WITH(a_plan_of_a_side_stream_that_is_gone_is_recorded_anew, set_up_plans()) {
    for (int i = 0; i < 4; i++) {
        begin(1);
        put(shadow_take(1000, WORK, 1));
        end();
        if (i == 1) {
            renew_stream(1);
        }
    }
    CHECK_ZU(plans().steps_recorded, 2);
    CHECK_ZU(plans().hits, 2);
}

/* ---- threads ---- */

static ashlar_stream per_thread(void) {
    return (ashlar_stream)(uintptr_t)CU_STREAM_PER_THREAD;
}

static void step_on_own_stream(void) {
    CHECK(ashlar_step_begin(allocator, per_thread(), 5) == ASHLAR_OK);
    void *ptr = NULL;
    CHECK(ashlar_alloc(allocator, 4 * MIB, per_thread(), &ptr) == ASHLAR_OK);
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
    CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
}

CASE_WITH(a_thread_takes_the_plans_of_its_own_stream_with_it, set_up_plans()) {
    for (int i = 0; i < 2; i++) {
        REQUIRE(helper_start());
        CHECK(helper_do(step_on_own_stream));
        CHECK(helper_do(step_on_own_stream));
        CHECK_ZU(plans().hits, (uint64_t)i + 1);
        CHECK_ZU(plans().memory_bytes, 4 * MIB);
        helper_end();
        CHECK_ZU(plans().plan_count, 0);
        CHECK_ZU(plans().memory_bytes, 0);
    }
}

static void begin_and_take(void) {
    begin(1);
    CHECK(get(4000, WORK) != NULL);
}

CASE_WITH(a_thread_that_ends_within_a_step_leaves_its_blocks, set_up_plans()) {
    REQUIRE(helper_start());
    CHECK(helper_do(begin_and_take)); /* recorded: in vain */
    helper_end();
    CHECK_ZU(plans().steps_recorded, 0);
    shadow_give_all();
    begin(1);
    CHAIN(4000);
    end();
    REQUIRE(helper_start());
    CHECK(helper_do(begin_and_take));
    helper_end();
    CHECK_ZU(plans().steps_replayed, 1);
    begin(1);
    CHAIN(4000);
    end();
    check_misses(ASHLAR_PLAN_MISS_LIVE, 1);
    CHECK(ashlar_plan_drop(allocator) == ASHLAR_OK);
}

/*
 * Memory of a thread's own stream goes back in the second of two trims behind synchronisations,
 * whatever a plan's late block waits for: that stream's work and a wait of the legacy stream, which
 * shows only once the event is past that the first trim recorded there.
 */
static unsigned char *late_block;

static void leave_a_block_for_two_streams(void) {
    const ashlar_stream legacy = NULL;
    void *ptr = NULL, *own = NULL;
    begin(1);
    CHECK(ashlar_alloc_tagged(allocator, 4096, WORK, streams[0], &ptr) == ASHLAR_OK);
    CHECK(ashlar_record_stream(allocator, ptr, legacy) == ASHLAR_OK);
    CHECK(ashlar_alloc(allocator, 4096, per_thread(), &own) == ASHLAR_OK); /* in an ended zone */
    end();
    CHECK_ZU(plans().hits, 1);
    CHECK(ashlar_free_on(allocator, own, per_thread()) == ASHLAR_OK);
    late_block = ptr;
}

static void check_two_trims_return_all(void) {
    CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    CHECK(ashlar_plan_drop(allocator) == ASHLAR_OK);
    for (int i = 0; i < 2; i++) {
        CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
        CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    }
    CHECK_ZU(reserved_bytes(), 0);
}

static void plan_in_the_zone_of_a_threads_stream(void) {
    begin(1);
    CHAIN(128 * KIB);
    end();
    renew_stream(0);
    begin(1);
    end(); /* moves the plan memory to the new stream, in a zone that the next stream takes over */
    CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    CHECK(helper_do(leave_a_block_for_two_streams));
    CHECK(ashlar_free(allocator, late_block) == ASHLAR_OK);
}

/* Blocks so small that the free records no event behind the legacy stream's use. */
static void leave_a_block_of_own_stream(void) {
    for (int i = 0; i < 2; i++) {
        void *ptr = NULL;
        CHECK(ashlar_step_begin(allocator, per_thread(), 5) == ASHLAR_OK);
        CHECK(ashlar_alloc(allocator, 4096, per_thread(), &ptr) == ASHLAR_OK);
        if (i == 1) {
            CHECK(ashlar_record_stream(allocator, ptr, NULL) == ASHLAR_OK);
            CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
        }
        CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
        if (i == 0) {
            CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
        }
    }
    CHECK_ZU(plans().hits, 1);
}

static void plan_of_a_threads_stream(void) {
    void *ptr = NULL; /* makes the legacy stream known first, and so asked last */
    CHECK(ashlar_alloc(allocator, 4096, NULL, &ptr) == ASHLAR_OK);
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
    CHECK(helper_do(leave_a_block_of_own_stream));
}

CASE(a_plan_with_memory_of_a_threads_stream_goes_in_two_trims) {
    static void (*const ways[])(void) = {plan_in_the_zone_of_a_threads_stream,
                                         plan_of_a_threads_stream};
    enum { SEEDS = 12 };
    for (uint64_t i = 0; i < 2 * SEEDS; i++) {
        REQUIRE(set_up_steps("64MiB", NULL, 1 + i / 2));
        REQUIRE(helper_start());
        ways[i % 2]();
        check_two_trims_return_all();
        helper_end();
        tear_down_steps();
    }
}

static void begin_only(void) {
    begin(1);
}

static void begin_empty(void) {
    begin(3);
}

static void take_and_end(void) {
    CHAIN(4000);
    end();
}

/* A plan without slots has no plan memory that would show it. */
CASE_WITH(a_plan_lasts_as_long_as_steps_are_on_it, set_up_plans()) {
    begin(1);
    end();
    REQUIRE(helper_start());
    CHECK(helper_do(begin_only));
    ashlar_plan_record_next(allocator, 1);
    begin(1);
    CHAIN(4000);
    end();
    CHECK_ZU(plans().slot_count, 0); /* not yet */
    CHECK(helper_do(take_and_end));
    check_misses(ASHLAR_PLAN_MISS_EXTRA, 1);
    CHECK_ZU(plans().slot_count, 1);
    begin(3);
    end();
    CHECK(helper_do(begin_empty));
    renew_stream(0);
    begin_on(2, 2);
    end();
    begin_on(2, 3); /* would forget what was the first stream's */
    end();
    CHECK_ZU(plans().steps_declined, 1);
    helper_end();
}

CASE_WITH(two_steps_are_not_in_one_region, set_up_plans()) {
    begin(1);
    CHAIN(4000);
    end();
    REQUIRE(helper_start());
    CHECK(helper_do(begin_and_take));
    begin(1);
    CHAIN(4000);
    end();
    CHECK_ZU(plans().steps_declined, 1);
    helper_end();
}

RUN_CASES()
