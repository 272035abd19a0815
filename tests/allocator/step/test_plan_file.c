/*
 * test_plan_file.c - that plans which were saved serve the first step after a load, and that plans
 * of something else are refused.
 */
#include "tests/allocator/step/plan_file_fixture.h"

/* Two blocks that overlap in time and one that takes the first one's place; one outlives all: that
 * of SMALL_BODY. */
static const script small = {.ops = {{.block = 0, .bytes = 1000, .tag = ASHLAR_TAG_USER},
                                     {.block = 1, .bytes = 512, .tag = ASHLAR_TAG_BATCH},
                                     {.block = 0, .is_free = true},
                                     {.block = 2, .bytes = 300, .tag = ASHLAR_TAG_WEIGHTS},
                                     {.block = 3, .bytes = 700, .tag = ASHLAR_TAG_USER},
                                     {.block = 3, .is_free = true},
                                     {.block = 1, .is_free = true}},
                             .count = 7,
                             .block_count = 4};

static bool save_small(void) {
    play(&small, 7, streams[0]);
    return ashlar_plan_save(allocator, path, PRINT) == ASHLAR_OK;
}

/* ---- what a load does ---- */

CASE_WITH(a_file_is_as_its_description_says, set_up_plans()) {
    write_sealed(SMALL_BODY);
    const size_t bytes = read_text(text);
    REQUIRE(load() == ASHLAR_OK);
    (void)unlink(path);
    REQUIRE(ashlar_plan_save(allocator, path, PRINT) == ASHLAR_OK);
    CHECK(names_in_folder() == 1);
    CHECK(bytes == read_text(again) && memcmp(text, again, bytes) == 0);
    if (strcmp(text, again) != 0) {
        printf("# %s", again);
    }
    play(&small, 7, streams[0]); /* of which it is the file, but for the offsets */
    const ashlar_plan_stats now = plans();
    CHECK(now.hits == 3 && now.unplanned == 1 && ashlar_plan_miss_total(&now) == 0 &&
          now.steps_recorded == 0);
}

CASE(the_first_step_after_a_load_is_replayed) {
    script first, second;
    draw_state = 11;
    draw_script(&first, 1);
    draw_script(&second, 3);
    REQUIRE(set_up_plans());
    play(&first, 1, streams[0]);
    play(&second, 2, streams[0]);
    const ashlar_plan_stats before = plans();
    REQUIRE(ashlar_plan_save(allocator, path, PRINT) == ASHLAR_OK);
    REQUIRE(renew_allocator());
    ashlar_stream order[STREAMS];
    const size_t stream_count = streams_by_use(&second, streams[0], order);
    const ashlar_status status = ashlar_plan_load(allocator, order, stream_count, path, PRINT);
    CHECK(status == ASHLAR_OK && stream_count == 3);
    ashlar_plan_stats now = plans();
    CHECK(now.plan_count == 2 && now.slot_count == before.slot_count && now.slot_count > 10);
    CHECK(now.plan_bytes == before.plan_bytes && now.bound_bytes == before.bound_bytes);
    CHECK(now.memory_bytes == before.memory_bytes);
    check_all();
    play(&first, 1, streams[0]);
    play(&second, 2, streams[0]);
    now = plans();
    CHECK(now.steps_recorded == 0 && now.steps_replayed == 2 && ashlar_plan_miss_total(&now) == 0);
    CHECK_ZU(now.hits, now.slot_count);
    /* A plan that was loaded is merged with what is recorded later, as any other. */
    ashlar_plan_record_next(allocator, 1);
    play(&second, 1, streams[0]);
    play(&first, 1, streams[0]);
    play(&second, 1, streams[0]);
    now = plans();
    CHECK(now.steps_recorded == 1 && now.steps_replayed == 4 && ashlar_plan_miss_total(&now) == 0);
    CHECK(ashlar_plan_drop(allocator) == ASHLAR_OK);
    CHECK_ZU(plans().memory_bytes, 0);
}

static uint64_t driver_calls(void) {
    ashlar_stats stats;
    ashlar_allocator_get_stats(allocator, &stats);
    return stats.driver_calls;
}

CASE(a_replay_after_a_load_calls_the_driver_for_nothing) {
    REQUIRE(set_up_plans() && save_small() && renew_allocator());
    REQUIRE(load() == ASHLAR_OK);
    void *outliving = NULL; /* its size class has memory, for the one that is not planned */
    CHECK(ashlar_alloc(allocator, 300, streams[0], &outliving) == ASHLAR_OK);
    CHECK(ashlar_free(allocator, outliving) == ASHLAR_OK);
    const uint64_t calls = driver_calls();
    play(&small, 7, streams[0]);
    CHECK_ZU(driver_calls(), calls);
    const ashlar_plan_stats now = plans();
    CHECK(now.hits == 3 && now.unplanned == 1 && ashlar_plan_miss_total(&now) == 0);
}

/* Streams of an image are numbered by their first use, and given in that order. */
CASE(streams_are_bound_in_the_order_of_the_file) {
    const script s = {.ops = {{.block = 0, .bytes = 5000, .stream = 3},
                              {.block = 1, .bytes = 6000, .stream = 1},
                              {.block = 0, .stream = 3, .is_free = true},
                              {.block = 1, .stream = 1, .is_free = true}},
                      .count = 4,
                      .block_count = 2};
    REQUIRE(set_up_plans());
    play(&s, 5, streams[2]);
    REQUIRE(ashlar_plan_save(allocator, path, NULL) == ASHLAR_OK && renew_allocator());
    const ashlar_stream order[] = {streams[2], streams[3], streams[1]};
    REQUIRE(ashlar_plan_load(allocator, order, 3, path, "") == ASHLAR_OK);
    play(&s, 5, streams[2]);
    ashlar_plan_stats now = plans();
    CHECK(now.hits == 2 && ashlar_plan_miss_total(&now) == 0 && now.steps_recorded == 0);
    REQUIRE(renew_allocator());
    const ashlar_stream others[] = {streams[2], streams[1], streams[3]};
    REQUIRE(ashlar_plan_load(allocator, others, 3, path, NULL) == ASHLAR_OK);
    play(&s, 5, streams[2]);
    now = plans();
    CHECK(now.steps_replayed == 1 && now.hits < 2 && ashlar_plan_miss_total(&now) > 0);
}

/* Several keys and streams, steps merged, sizes changed, blocks that are not planned. */
static void record_much(uint64_t seed) {
    static script s;
    draw_state = seed;
    const uint64_t keys = 1 + draw(3);
    for (uint64_t key = 0; key < keys; key++) {
        const ashlar_stream main_stream = streams[draw(STREAMS)];
        for (size_t steps = 1 + draw(3); steps > 0; steps--) {
            ashlar_plan_record_next(allocator, key << 60 | key);
            draw_script(&s, 1 + (int)draw(STREAMS));
            play(&s, key << 60 | key, main_stream);
        }
    }
}

CASE(a_load_and_another_save_give_the_same_bytes) {
    for (uint64_t seed = 1; seed <= 25; seed++) {
        REQUIRE(set_up_plans());
        record_much(seed);
        const ashlar_plan_stats before = plans();
        CHECK(ashlar_plan_save(allocator, path, PRINT) == ASHLAR_OK);
        const size_t bytes = read_text(text);
        REQUIRE(renew_allocator());
        const ashlar_status status = load();
        CHECK(status == ASHLAR_OK);
        const ashlar_plan_stats now = plans();
        CHECK(now.plan_count == before.plan_count && now.slot_count == before.slot_count);
        CHECK(now.plan_bytes == before.plan_bytes && now.bound_bytes == before.bound_bytes);
        (void)unlink(path);
        CHECK(ashlar_plan_save(allocator, path, PRINT) == ASHLAR_OK);
        CHECK(bytes > 100 && bytes < TEXT_BYTES - 1);
        CHECK(read_text(again) == bytes && memcmp(text, again, bytes) == 0);
        tear_down();
    }
}

/* ---- what is refused ---- */

CASE(plans_of_something_else_are_refused) {
    REQUIRE(set_up_plans() && save_small() && renew_allocator());
    CHECK_FAILS(ashlar_plan_load(allocator, streams, 1, path, "rnn 2x513"), ASHLAR_EINVAL,
                "/file:2: the plans are of 'rnn 2x512, \"batch 16\"'");
    CHECK_HAS(ashlar_error_detail(), "not of 'rnn 2x513'");
    CHECK(ashlar_plan_load(allocator, streams, 1, path, NULL) == ASHLAR_EINVAL);
    CHECK_FAILS(ashlar_plan_load(allocator, streams, 0, path, PRINT), ASHLAR_EINVAL,
                "for 1 streams; 0 were given");
    CHECK(allocator->planner.keys == NULL);
    CHECK(ashlar_plan_load(allocator, streams, 1, path, PRINT) == ASHLAR_OK);
}

CASE(streams_that_are_the_same_are_refused) {
    const ashlar_stream one_by_two_names[] = {NULL, streams[0], (ashlar_stream)(uintptr_t)1};
    REQUIRE(set_up_plans());
    write_sealed("ashlar-plan,2\nfingerprint," PRINT "\nplans,512,3,1\n"
                 "key,1,1,0,1,1,1\npart,0,512,512\nalloc,1,0,0,0,1,0\n");
    CHECK_FAILS(ashlar_plan_load(allocator, one_by_two_names, 3, path, PRINT), ASHLAR_EINVAL,
                "numbers 0 and 2 are the same");
    CHECK(allocator->planner.keys == NULL);
}

CASE_WITH(streams_with_steps_are_refused_and_others_are_not, set_up_plans() && save_small()) {
    CHECK_FAILS(ashlar_plan_load(allocator, &streams[0], 1, path, PRINT), ASHLAR_EINVAL,
                "key 7 has steps on one of these streams already");
    CHECK_HAS(ashlar_error_detail(), "ashlar_plan_drop()");
    CHECK(ashlar_plan_load(allocator, &streams[1], 1, path, PRINT) == ASHLAR_OK);
    CHECK_ZU(plans().plan_count, 2);
    play(&small, 7, streams[0]);
    ashlar_plan_stats now = plans();
    CHECK(now.hits == 3 && ashlar_plan_miss_total(&now) == 0);
    /* A stream that a plan uses beside its own is one with steps, too. */
    const script s = {
        .ops = {{.block = 0, .bytes = 9, .stream = 2}, {.block = 0, .stream = 2, .is_free = true}},
        .count = 2,
        .block_count = 1};
    play(&s, 8, streams[0]);
    CHECK_FAILS(ashlar_plan_load(allocator, &streams[2], 1, path, PRINT), ASHLAR_EINVAL,
                "key 8 has steps");
    CHECK(ashlar_plan_drop(allocator) == ASHLAR_OK);
    CHECK(ashlar_plan_load(allocator, &streams[0], 1, path, PRINT) == ASHLAR_OK);
    play(&small, 7, streams[0]);
    now = plans();
    CHECK(now.hits == 6 && ashlar_plan_miss_total(&now) == 0 && now.steps_recorded == 2);
}

/* One block on one stream. */
static script one_on(int stream) {
    return (script){.ops = {{.block = 0, .bytes = 9, .stream = stream},
                            {.block = 0, .stream = stream, .is_free = true}},
                    .count = 2,
                    .block_count = 1};
}

static void check_has_steps(int stream) {
    CHECK_FAILS(ashlar_plan_load(allocator, &streams[stream], 1, path, PRINT), ASHLAR_EINVAL,
                "key 8 has steps");
}

/* A key's own stream, those of its recording, and those of a plan that is older than that. */
CASE(every_stream_of_a_key_has_steps) {
    const script on_1 = one_on(1), on_2 = one_on(2);
    const ashlar_plan_options later = {.build_after = ASHLAR_PLAN_BUILD_NEVER, .rerecord_after = 1};
    REQUIRE(set_up_plans());
    write_sealed(SMALL_BODY);
    CHECK(ashlar_plan_set_options(allocator, &later) == ASHLAR_OK);
    play(&on_1, 8, streams[0]);
    check_has_steps(0);
    check_has_steps(1);
    REQUIRE(ashlar_plan_build(allocator) == ASHLAR_OK);
    play(&on_2, 8, streams[0]); /* diverges: to be recorded anew */
    play(&on_2, 8, streams[0]);
    CHECK(plans().steps_recorded == 2 && plans().steps_replayed == 1);
    check_has_steps(1);
    check_has_steps(2);
    CHECK(ashlar_plan_load(allocator, &streams[3], 1, path, PRINT) == ASHLAR_OK);
}

CASE_WITH(a_step_under_way_is_refused, set_up_plans() && save_small()) {
    const size_t bytes = read_text(text);
    CHECK(ashlar_step_begin(allocator, streams[0], 7) == ASHLAR_OK);
    CHECK(ashlar_plan_save(allocator, path, "other") == ASHLAR_EINVAL);
    CHECK_FAILS(ashlar_plan_load(allocator, &streams[1], 1, path, PRINT), ASHLAR_EINVAL,
                "a step is under way");
    CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    CHECK(read_text(again) == bytes && memcmp(text, again, bytes) == 0);
    CHECK_ZU(plans().plan_count, 1);
}

CASE_WITH(a_missing_file_or_a_folder_is_named, set_up_plans()) {
    (void)unlink(path);
    check_refused(ASHLAR_EIO, "/file: No such file");
    CHECK_FAILS(ashlar_plan_load(allocator, streams, 1, folder, PRINT), ASHLAR_EIO,
                "no regular file");
    write_bytes("", 0);
    check_refused(ASHLAR_EFORMAT, "/file:1: the file is cut off here");
}

CASE_WITH(nothing_is_loaded_where_steps_are_not_replayed, set_up_plans() && save_small()) {
    ashlar_allocator_destroy(allocator);
    ashlar_config config;
    ashlar_config_init(&config);
    config.guard = ASHLAR_GUARD_FILL;
    REQUIRE(ashlar_allocator_create_with(device, &config, &allocator) == ASHLAR_OK);
    CHECK(load() == ASHLAR_OK);
    CHECK_ZU(plans().plan_count, 0);
    CHECK(ashlar_plan_load(allocator, streams, 1, path, "other") == ASHLAR_EINVAL);
}

/* ---- what is not saved ---- */

CASE_WITH(what_has_no_plan_is_not_saved, set_up_plans()) {
    const ashlar_plan_options later = {.search_ms = ASHLAR_PLAN_SEARCH_NONE,
                                       .build_after = ASHLAR_PLAN_BUILD_NEVER};
    write_bytes("old", 3);
    CHECK_FAILS(ashlar_plan_save(allocator, path, PRINT), ASHLAR_EINVAL, "0 keys have plans");
    CHECK(ashlar_plan_set_options(allocator, &later) == ASHLAR_OK);
    play(&small, 7, streams[0]);
    CHECK_FAILS(ashlar_plan_save(allocator, path, PRINT), ASHLAR_EINVAL, "ashlar_plan_build()");
    CHECK(read_text(text) == 3 && names_in_folder() == 1);
    CHECK(ashlar_plan_build(allocator) == ASHLAR_OK);
    CHECK(ashlar_plan_save(allocator, path, PRINT) == ASHLAR_OK);
    /* Recorded since: the plan is of the first step alone. */
    ashlar_plan_record_next(allocator, 7);
    play(&small, 7, streams[0]);
    CHECK_FAILS(ashlar_plan_save(allocator, path, PRINT), ASHLAR_EINVAL,
                "key 7 was recorded, but not planned since");
}

CASE(what_had_no_memory_for_its_plan_is_not_saved) {
    const script large = {.ops = {{.block = 0, .bytes = 40 * MIB}, {.block = 0, .is_free = true}},
                          .count = 2,
                          .block_count = 1};
    const ashlar_plan_options later = {.search_ms = ASHLAR_PLAN_SEARCH_NONE,
                                       .build_after = ASHLAR_PLAN_BUILD_NEVER};
    REQUIRE(set_up_plans());
    CHECK(ashlar_plan_set_options(allocator, &later) == ASHLAR_OK);
    play(&large, 7, streams[0]);
    for (int i = 0; i < 2; i++) {
        CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
        CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    }
    CHECK(ashlar_allocator_set_limit(allocator, 20 * MIB) == ASHLAR_OK);
    CHECK(ashlar_plan_build(allocator) == ASHLAR_ENOMEM);
    CHECK_FAILS(ashlar_plan_save(allocator, path, PRINT), ASHLAR_EINVAL, "key 7 has no plan");
    CHECK(ashlar_allocator_set_limit(allocator, 0) == ASHLAR_OK);
    CHECK(ashlar_plan_build(allocator) == ASHLAR_OK);
    CHECK(ashlar_plan_save(allocator, path, PRINT) == ASHLAR_OK);
}

CASE_WITH(a_fingerprint_is_one_short_line, set_up_plans()) {
    static char longest[ASHLAR_PLAN_FINGERPRINT_MAX + 2];
    play(&small, 7, streams[0]);
    memset(longest, 'x', sizeof longest - 1);
    CHECK_FAILS(ashlar_plan_save(allocator, path, longest), ASHLAR_EINVAL,
                "fingerprint: 4001 bytes");
    CHECK(ashlar_plan_save(allocator, path, "a\nb") == ASHLAR_EINVAL);
    CHECK_FAILS(ashlar_plan_save(allocator, path, "a\x7f"), ASHLAR_EINVAL, "at byte 1");
    longest[ASHLAR_PLAN_FINGERPRINT_MAX] = '\0';
    CHECK(ashlar_plan_save(allocator, path, longest) == ASHLAR_OK);
    CHECK(renew_allocator());
    CHECK(ashlar_plan_load(allocator, streams, 1, path, longest) == ASHLAR_OK);
    CHECK(renew_allocator());
    longest[ASHLAR_PLAN_FINGERPRINT_MAX - 1] = 'y';
    CHECK(ashlar_plan_load(allocator, streams, 1, path, longest) == ASHLAR_EINVAL);
}

RUN_CASES_IN_FOLDER()
