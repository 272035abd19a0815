/*
 * test_step_shared.c - planned blocks that several streams use: which addresses their slots share,
 * what a step waits for before it has them again, and what that costs.
 */
#include "tests/allocator/step/step_fixture.h"

#include "tests/thread.h"

/* A block that stream 1 reads, one that stream 2 frees, and one of the step's own stream. */
static void step_of_three(uint64_t key) {
    begin(key);
    shadow *read = get(4096, WORK), *moved = get(8192, WORK);
    shadow_share(read, 1);
    put(read);
    CHAIN(2048);
    shadow_move(moved, 2);
    put(moved);
    end();
}

CASE_WITH(what_several_streams_use_is_planned, set_up_plans()) {
    for (int i = 0; i < 20; i++) {
        step_of_three(1);
    }
    CHECK_ZU(plans().slot_count, 3);
    CHECK_ZU(plans().hits, 3 * 19);
    CHECK_ZU(plans().unplanned + misses_now(), 0);
    check_payloads();
}

CASE_WITH(its_address_is_another_blocks_in_no_step, set_up_plans()) {
    unsigned char *first = NULL;
    for (int i = 0; i < 4; i++) {
        begin(1);
        shadow *shared = get(4096, WORK);
        unsigned char *ptr = shared->ptr;
        shadow_share(shared, 1);
        put(shared);
        shadow *next = get(4096, WORK);
        CHECK(next->ptr != ptr);
        CHECK(i < 2 || ptr == first);
        first = ptr;
        put(next);
        end();
    }
    CHECK_ZU(plans().plan_bytes, 2 * 4096);
    CHECK_ZU(plans().bound_bytes, 4096); /* no more is live at once */
}

/* ---- what it costs ---- */

enum { BLOCKS = 12 };

/* Blocks of two streams, each used by one of two others. */
static void step_of_pairs(size_t bytes) {
    begin(1);
    for (int i = 0; i < BLOCKS; i++) {
        void *ptr = NULL;
        const ashlar_stream own = streams[i % 2], user = streams[2 + i / 2 % 2];
        CHECK(ashlar_alloc(allocator, bytes, own, &ptr) == ASHLAR_OK);
        if (i < BLOCKS / 2) {
            CHECK(ashlar_record_stream(allocator, ptr, user) == ASHLAR_OK);
            CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
        } else {
            CHECK(ashlar_free_on(allocator, ptr, user) == ASHLAR_OK);
        }
    }
    end();
}

CASE(a_step_makes_one_event_a_stream_and_one_wait_a_pair_however_many_blocks) {
    const size_t sizes[] = {1000, 320 * KIB}; /* the plan holds them all, but in as many handles */
    for (size_t i = 0; i < 2; i++) {
        REQUIRE(set_up_plans());
        step_of_pairs(sizes[i]);
        step_of_pairs(sizes[i]);
        for (int step = 0; step < 3; step++) {
            const size_t events = CALLS(event_record), waits = CALLS(stream_wait_event);
            const ashlar_driver_counts before = counts_now();
            step_of_pairs(sizes[i]);
            CHECK_ZU(CALLS(event_record), events + 2);
            CHECK_ZU(CALLS(stream_wait_event), waits + 4);
            CHECK_ZU(counts_now().memory, before.memory);
            CHECK_ZU(counts_now().wait, before.wait);
        }
        CHECK_ZU(plans().hits, BLOCKS * 4);
        tear_down_steps();
    }
}

CASE_WITH(uses_that_are_over_are_not_waited_for, set_up_plans()) {
    step_of_three(1);
    step_of_three(1);
    CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK); /* asks */
    const size_t waits = CALLS(stream_wait_event);
    begin(1);
    CHECK_ZU(CALLS(stream_wait_event), waits);
    end();
}

/* ---- streams that end, threads, memory that is lent ---- */

/* No event comes behind what a stream did that ended while none could be recorded. */
CASE_WITH(memory_that_a_lost_stream_used_is_given_up, set_up_plans()) {
    step_of_three(1);
    begin(1);
    shadow *s = get(4096, WORK);
    unsigned char *ptr = s->ptr;
    shadow_share(s, 1);
    put(s);
    DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_event_record, 1, CU_UNKNOWN,
                    ashlar_stream_destroy(device, streams[1]));
    end();
    CHECK(ashlar_stream_create(device, &streams[1]) == ASHLAR_OK);
    begin(1);
    s = get(4096, WORK);
    CHECK(s->ptr != ptr);
    put(s);
    end();
    CHECK_ZU(plans().hits, 2);
    check_payloads();
}

/* Each is live alone, but as many slots as the step has blocks would be too much. */
CASE(what_is_too_much_for_the_device_is_left_to_the_ordinary_path) {
    REQUIRE(set_up_steps("16MiB", NULL, 2));
    for (int i = 0; i < 4; i++) {
        begin(1);
        CHAIN(1 * MIB);
        for (int k = 0; k < 6; k++) {
            shadow *s = get(4 * MIB, WORK);
            shadow_share(s, 1);
            put(s);
        }
        end();
    }
    CHECK_ZU(plans().plan_bytes, 1 * MIB);
    CHECK_ZU(plans().hits, 3);
    CHECK_ZU(plans().unplanned, 3 * 6);
    tear_down_steps();
}

/* ---- blocks that several streams use ---- */

CASE_WITH(a_region_that_no_slot_is_in_is_given_back, set_up_plans()) {
    const ashlar_plan_options options = {.build_after = 1, .rerecord_after = 1};
    CHECK(ashlar_plan_set_options(allocator, &options) == ASHLAR_OK);
    begin(1);
    put(shadow_take(4 * MIB, WORK, 1));
    CHAIN(1 * MIB);
    end();
    CHECK_ZU(plans().memory_bytes, 5 * MIB);
    begin(1);
    put(get(1000, ASHLAR_TAG_BATCH)); /* diverges, and is recorded anew */
    end();
    begin(1);
    shadow *kept = shadow_take(4 * MIB, WORK, 1);
    CHAIN(1 * MIB);
    end();
    CHECK_ZU(plans().memory_bytes, 1 * MIB);
    put(kept);
}

/* Of one key, on ever other streams: what is merged would have too many. */
CASE(steps_of_one_key_may_be_on_any_number_of_streams_in_all) {
    enum { MANY = 2 * ASHLAR_PLAN_STREAMS_MAX };
    const ashlar_plan_options options = {.build_after = 4, .search_ms = 1};
    ashlar_stream many[MANY];
    REQUIRE(set_up_plans());
    CHECK(ashlar_plan_set_options(allocator, &options) == ASHLAR_OK);
    for (int i = 0; i < MANY; i++) {
        REQUIRE(ashlar_stream_create(device, &many[i]) == ASHLAR_OK);
    }
    for (int step = 0; step < 8; step++) {
        begin(1);
        for (int i = 0; i < MANY / 2 - 1; i++) {
            void *ptr = NULL;
            const ashlar_stream stream = many[(step * 4 + i) % MANY];
            CHECK(ashlar_alloc(allocator, 4096, stream, &ptr) == ASHLAR_OK);
            CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
        }
        end();
    }
    CHECK(plans().steps_recorded > 4);
    for (int i = 0; i < MANY; i++) {
        ashlar_stream_destroy(device, many[i]);
    }
}

RUN_CASES()
