/*
 * test_step_life.c - streams that end or are captured, and threads that end, between steps and
 * within them.
 */
#include "tests/allocator/step/step_fixture.h"

#include <ashlar/allocator.h>

#include "tests/allocator/core/helper_fixture.h"

/* ---- streams ---- */

CASE_WITH(the_key_of_a_stream_that_is_gone_is_recorded_anew, set_up_plans()) {
    begin(1);
    CHAIN(4000, 8000);
    end();
    begin(1);
    shadow *carried = get(4000, WORK);
    end();
    renew_stream(0);
    begin(1);
    CHAIN(4000, 8000);
    end();
    put(carried);
    begin(1);
    CHAIN(4000, 8000);
    end();
    CHECK_ZU(plans().steps_recorded, 2);
    CHECK_ZU(plans().plan_count, 1);
    CHECK_ZU(plans().hits, 1 + 2);
    check_payloads();
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
 * Memory of a thread's own stream goes back in the second of two trims behind synchronisations:
 * that a wait of the legacy stream is over shows only once the event is past that the first one
 * recorded.
 */
static void check_two_trims_return_all(void) {
    CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    CHECK(ashlar_plan_drop(allocator) == ASHLAR_OK);
    for (int i = 0; i < 2; i++) {
        CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
        CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    }
    CHECK_ZU(reserved_bytes(), 0);
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
    enum { SEEDS = 12 };
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        REQUIRE(set_up_steps("64MiB", NULL, seed));
        REQUIRE(helper_start());
        plan_of_a_threads_stream();
        check_two_trims_return_all();
        helper_end();
        tear_down_steps();
    }
}

static void begin_only(void) {
    begin(1);
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
    helper_end();
}

#define BIG (4 * MIB)

static ashlar_stream new_stream(void) {
    ashlar_stream stream = NULL;
    CHECK(ashlar_stream_create(device, &stream) == ASHLAR_OK);
    return stream;
}

/* As a program does that has its streams from elsewhere. */
static void end_by_the_driver(ashlar_stream stream) {
    CHECK(ashlar_allocator_forget_stream(allocator, stream) == ASHLAR_OK);
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.stream_destroy(stream) == CU_SUCCESS);
    ashlar__device_leave(device);
}

static unsigned char *take_on(size_t bytes, ashlar_stream stream) {
    void *ptr = NULL;
    CHECK(ashlar_alloc(allocator, bytes, stream, &ptr) == ASHLAR_OK && ptr != NULL);
    return ptr;
}

static void give_back(void *ptr) {
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
}

/* ---- plans ---- */

/*
 * A side stream is made, used and ended within a step, and another stream gets its handle. What the
 * plan then takes as memory of the side stream must not be memory under which a third one runs.
 */
CASE(plan_memory_of_an_ended_stream_is_not_handed_out_under_anothers_work) {
    atomic_store(&payload_bad_count, 0);
    CHECK(set_up_device("memory=4GiB,mode=adversarial,seed=3," HANDLES_COME_BACK));
    CHECK(ashlar_allocator_create(device, &allocator) == ASHLAR_OK);
    check_at_end(tear_down);
    unsigned char *slow = take_on(BIG, streams[1]);
    begin(1);
    const ashlar_stream side = new_stream();
    give_back(take_on(BIG, side));
    end_by_the_driver(side);
    CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    const ashlar_stream next = new_stream();
    CHECK(next == side);
    unsigned char *kept = take_on(BIG, next); /* what the side stream had, whose work is over */
    queue_write(streams[1], slow, BIG, 1);
    give_back(slow); /* its work is not over */
    end();
    begin(1); /* recorded anew, since the side stream is gone */
    end();    /* and what was its memory is free again */
    unsigned char *own = take_on(BIG, streams[2]);
    queue_write(streams[2], own, BIG, 0xC3);
    wait_for(streams[2]);
    wait_for(streams[1]);
    queue_verify(streams[2], own, BIG, 0xC3);
    wait_for(streams[2]);
    CHECK(atomic_load(&payload_bad_count) == 0); /* nobody else has written there since */
    give_back(own);
    give_back(kept);
    ashlar_stream_destroy(device, next);
}

/* The plan's memory was used elsewhere, which the stream can no longer be made to wait for. */
CASE_WITH(a_stream_that_ended_waits_for_nothing_when_its_plan_memory_is_left, set_up_plans()) {
    for (int i = 0; i < 2; i++) {
        begin_on(1, 2);
        shadow *shared = shadow_take(65536, WORK, 1);
        shadow_share(shared, 2);
        put(shared);
        end();
    }
    begin_on(0, 3);
    shadow *kept = shadow_take(4096, WORK, 1);
    renew_stream(1);
    end();
    put(kept);
}

/* ---- marked blocks ---- */

CASE(a_trim_behind_a_synchronisation_frees_the_memory_of_a_plan_whose_stream_ended) {
    enum { SEEDS = 12 };
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        REQUIRE(set_up_steps("64MiB", NULL, seed));
        begin_on(1, 7);
        put(shadow_take(4096, WORK, 1));
        end();
        begin_on(1, 7);
        shadow *kept = shadow_take(4096, WORK, 1);
        shadow_move(kept, 2);
        renew_stream(1);
        end();
        begin_on(1, 7);
        end();
        put(kept);
        CHECK(ashlar_plan_drop(allocator) == ASHLAR_OK);
        CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
        CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
        CHECK_ZU(reserved_bytes(), 0);
        tear_down_steps();
    }
}

RUN_CASES()
