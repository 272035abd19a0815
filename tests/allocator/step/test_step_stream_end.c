/*
 * test_step_stream_end.c - streams that end as the headers allow, and what is left of them: steps,
 * plans, guards, marked blocks.
 *
 * Each case is a process of its own, since some of what it looks for ends one.
 */
#include "tests/allocator/step/step_fixture.h"

#include "tests/child.h"

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
static void plan_a_side_stream_that_ended(void) {
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

CASE(plan_memory_of_an_ended_stream_is_not_handed_out_under_anothers_work) {
    CHECK(child_passes(plan_a_side_stream_that_ended));
}

/* The same steps with handles that do not come back: the driver must not see the dead one. */
static void plan_beside_a_dead_handle(void) {
    CHECK(set_up_plans());
    for (int i = 0; i < 3; i++) {
        begin(1);
        const ashlar_stream side = new_stream();
        give_back(take_on(BIG, side));
        end_by_the_driver(side);
        give_back(take_on(BIG, streams[1]));
        end();
    }
}

CASE(a_plan_does_not_wait_on_the_handle_of_an_ended_stream) {
    CHECK(child_passes(plan_beside_a_dead_handle));
}

/* ---- guards ---- */

static void guard_a_block_of_an_ended_stream(ashlar_guard guard) {
    ashlar_config config;
    CHECK(set_up_device("memory=64MiB"));
    ashlar_config_init(&config);
    config.guard = guard;
    CHECK(ashlar_allocator_create_with(device, &config, &allocator) == ASHLAR_OK);
    check_at_end(tear_down);
    const ashlar_stream side = new_stream();
    unsigned char *ptr = take_on(1000, side), *freed = take_on(1000, side);
    give_back(freed);
    end_by_the_driver(side);
    give_back(ptr); /* live blocks stay valid */
    for (int i = 0; i < 4; i++) {
        give_back(take_on(1000, streams[0]));
    }
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
}

static void fill_a_block_of_an_ended_stream(void) {
    guard_a_block_of_an_ended_stream(ASHLAR_GUARD_FILL);
}

CASE(a_filled_block_may_outlive_its_stream) {
    CHECK(child_passes(fill_a_block_of_an_ended_stream));
}

/* ---- marked blocks ---- */

/* The key's plan moves on to the next main stream, with a block in it that is still live. */
static void free_a_marked_block_of_a_plan_that_moved_on(void) {
    CHECK(set_up_plans());
    begin(1);
    give_back(take_on(BIG, streams[0]));
    end();
    begin(1);
    unsigned char *ptr = take_on(BIG, streams[0]);
    CHECK_ZU(plans().misses[ASHLAR_PLAN_MISS_EXTRA], 0);
    end();
    CHECK_ZU(plans().hits, 1);
    CHECK(ashlar_record_stream(allocator, ptr, streams[1]) == ASHLAR_OK);
    ashlar_stream_destroy(device, streams[0]);
    streams[0] = new_stream();
    begin_on(2, 1);
    give_back(take_on(BIG, streams[2]));
    end();
    give_back(ptr);
    begin_on(2, 1);
    give_back(take_on(BIG, streams[2]));
    end();
}

CASE(a_marked_block_may_outlive_its_step_and_its_stream) {
    CHECK(child_passes(free_a_marked_block_of_a_plan_that_moved_on));
}

/* The plan's memory lies in the zone of a stream that ended, and is given up inside the trim. */
CASE(a_trim_behind_a_synchronisation_frees_the_memory_of_a_plan_that_moved) {
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

/* Two streams are behind it, one after the other in the allocator's list or the other way round. */
CASE(a_trim_frees_the_memory_of_a_plan_that_several_streams_used) {
    for (int first = 2; first < STREAMS; first++) {
        REQUIRE(set_up_steps("64MiB", NULL, 1));
        for (int i = STREAMS - 1; i >= 0; i--) {
            shadow_give(shadow_take(4096, WORK, i));
        }
        begin_on(1, 7);
        put(shadow_take(4096, WORK, 1));
        end();
        begin_on(1, 7);
        shadow *kept = shadow_take(4096, WORK, 1);
        end();
        order_streams(1, first);
        CHECK(ashlar_record_stream(allocator, kept->ptr, streams[first]) == ASHLAR_OK);
        shadow_move(kept, first == 2 ? 3 : 2);
        put(kept);
        CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
        CHECK(ashlar_plan_drop(allocator) == ASHLAR_OK);
        CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
        CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
        CHECK_ZU(reserved_bytes(), 0);
        tear_down_steps();
    }
}

RUN_CASES()
