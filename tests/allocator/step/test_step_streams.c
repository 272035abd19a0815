/* test_step_streams.c - steps on several streams: plan memories of each, blocks that others use. */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/step/step_fixture.h"

/* ---- blocks that several streams use ---- */

CASE_WITH(slots_of_two_streams_are_in_two_regions, set_up_plans()) {
    for (int i = 0; i < 2; i++) {
        begin(1);
        shadow *a = shadow_take(4096, WORK, 0), *b = shadow_take(4096, WORK, 1);
        put(a);
        put(b);
        end();
    }
    CHECK_ZU(plans().hits, 2);
    CHECK_ZU(plans().plan_bytes, 2 * 4096);
}

CASE_WITH(a_block_used_elsewhere_comes_back_when_that_is_done, set_up_plans()) {
    begin(1);
    CHAIN(4000);
    end();
    for (int i = 0; i < 2; i++) { /* freed on another stream; marked for one */
        begin(1);
        shadow *s = get(4000, WORK);
        if (i == 0) {
            shadow_move(s, 1);
        } else {
            shadow_share(s, 1);
        }
        put(s);
        end();
        CHECK_ZU(plans().hits, 2 * (uint64_t)i + 1);
        begin(1);
        CHAIN(4000); /* stream 1 is not done with it */
        end();
        check_misses(ASHLAR_PLAN_MISS_LIVE, (uint64_t)i + 1);
        wait_for(streams[1]);
        begin(1);
        CHAIN(4000);
        end();
        CHECK_ZU(plans().hits, 2 * (uint64_t)i + 2);
    }
}

/* Freed, read by stream 1 still, and stream 0 is known to be done with it. */
CASE_WITH(a_block_of_another_stream_only_is_not_the_regions, set_up_plans()) {
    begin(1);
    CHAIN(4000);
    end();
    begin(1);
    shadow *s = get(4000, WORK);
    shadow_share(s, 1);
    put(s);
    end();
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK); /* records events */
    wait_for(streams[0]);
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    begin(1);
    CHAIN(4000);
    end();
    check_misses(ASHLAR_PLAN_MISS_LIVE, 1);
    check_payloads();
}

CASE_WITH(the_ordinary_path_takes_no_block_of_a_region, set_up_plans()) {
    begin(1);
    CHAIN(4 * MIB);
    end();
    begin(1);
    shadow *s = get(4 * MIB, WORK);
    shadow_share(s, 1);
    put(s);
    end();
    shadow *other = shadow_take(3 * MIB, WORK, 2);
    CHECK_ZU(stats_now().served_waited, 0);
    begin(1);
    CHAIN(4 * MIB);
    end();
    check_misses(ASHLAR_PLAN_MISS_LIVE, 1);
    put(other);
    check_payloads();
}

CASE_WITH(a_seat_that_comes_back_is_its_streams_again, set_up_plans()) {
    begin(1);
    CHAIN(4000);
    end();
    begin(1);
    shadow *s = get(4000, WORK);
    shadow_move(s, 1);
    put(s);
    end();
    begin(1); /* asks, for the first time */
    end();
    wait_for(streams[1]);
    begin(1);
    s = get(4000, WORK);
    shadow_share(s, 1); /* is another stream than its own */
    put(s);
    end();
    begin(1);
    CHAIN(4000);
    end();
    check_misses(ASHLAR_PLAN_MISS_LIVE, 1);
    check_payloads();
}

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
