/*
 * test_arena.c - commit, regions and their addresses, on a software device.
 */
#include "tests/arena/layout/arena_fixture.h"

/* Declared, and not committed. */
static bool set_up_declared(void) {
    return set_up_empty() && declare_all(arena) && check_at_end(tear_down_arena);
}

static ashlar_status commit(unsigned regions) {
    return ashlar_arena_commit(arena, allocator, streams[0], regions);
}

/* So that the places of one element differ in more than one bit of their address. */
CASE(large_regions_side_by_side_are_not_a_power_of_two_apart) {
    const size_t elements = (size_t)16 << 20;
    REQUIRE(set_up("memory=512MiB") && ashlar_arena_create(&arena) == ASHLAR_OK);
    CHECK(ashlar_arena_add(arena, "t", ASHLAR_F32, 1, &elements, NULL) == ASHLAR_OK);
    REQUIRE(commit(ASHLAR_REGIONS_ALL) == ASHLAR_OK);
    for (unsigned i = 1; i < ASHLAR_REGION_MASTER; i++) {
        const char *before = ashlar_arena_region(arena, (ashlar_region)(i - 1));
        const char *base = ashlar_arena_region(arena, (ashlar_region)i);
        const size_t apart = (size_t)(base > before ? base - before : before - base);
        CHECK(apart >= 4 * elements && apart % (4 * elements) != 0);
    }
    CHECK_ZU(ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_PARAMETERS], 4 * elements);
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
    tear_down_arena();
}

/* On memory that held something else before. */
CASE_WITH(commit_fills_every_region_with_zeros, set_up_declared()) {
    enum { ROOM = 16 << 10 };
    unsigned char *dirty = take(ROOM, streams[0]);
    CHECK(ashlar_fill(device, dirty, 0xab, ROOM, streams[0]) == ASHLAR_OK);
    give(dirty);
    REQUIRE(commit(ASHLAR_REGIONS_ALL) == ASHLAR_OK);
    CHECK(ashlar_arena_get_info(arena).allocator == allocator);
    wait_for(streams[0]);
    for (int region = 0; region < ASHLAR_REGION_COUNT; region++) {
        const unsigned char *base = ashlar_arena_region(arena, (ashlar_region)region);
        CHECK(base >= dirty && base < dirty + ROOM); /* else this shows nothing */
        CHECK(holds(base, ashlar_arena_get_info(arena).region_bytes[(ashlar_region)region], 0));
    }
}

CASE(an_arena_has_the_regions_it_was_committed_with) {
    for (unsigned regions = 1; regions <= ASHLAR_REGIONS_ALL; regions += 2) {
        REQUIRE(set_up_arena("memory=64MiB", regions));
        CHECK_ZU(ashlar_arena_get_info(arena).regions, regions);
        CHECK_ZU(stats_now().live_blocks, (size_t)__builtin_popcount(regions));
        for (size_t region = 0; region <= ASHLAR_REGION_COUNT; region++) {
            const bool is_there = (regions >> region & 1) != 0;
            CHECK((ashlar_arena_region(arena, (ashlar_region)region) != NULL) == is_there);
            CHECK((ashlar_arena_view(arena, (ashlar_region)region, HALF) != NULL) == is_there);
        }
        CHECK(ashlar_arena_region(arena, (ashlar_region)-1) == NULL);
        CHECK(ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, TENSORS) == NULL);
        CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
        tear_down_arena();
    }
}

CASE_WITH(a_commit_that_cannot_be_is_refused, set_up_declared()) {
    ashlar_arena *empty = NULL;
    REQUIRE(ashlar_arena_create(&empty) == ASHLAR_OK);
    CHECK_FAILS(ashlar_arena_commit(empty, allocator, streams[0], 1), ASHLAR_EINVAL,
                "without tensors");
    ashlar_arena_destroy(empty);
    ashlar_arena_destroy(NULL);
    CHECK_FAILS(commit(0), ASHLAR_EINVAL, "regions: 0x0");
    CHECK_FAILS(commit(32), ASHLAR_EINVAL, "regions: 0x20");
    CHECK_FAILS(ashlar_arena_extend(arena, streams[0], 1), ASHLAR_EINVAL, "not committed");
    CHECK_ZU(stats_now().alloc_count, 0);
    REQUIRE(commit(1) == ASHLAR_OK);
    CHECK_FAILS(commit(1), ASHLAR_EINVAL, "committed already");
    CHECK_FAILS(ashlar_arena_add(arena, "six", ASHLAR_F32, 1, &(size_t){1}, NULL), ASHLAR_EINVAL,
                "committed");
    CHECK_ZU(ashlar_arena_get_info(arena).regions, 1);
    CHECK_ZU(ashlar_arena_get_info(arena).tensor_count, TENSORS);
}

/* ---- failures ---- */

static ashlar_status commit_all(void) {
    return commit(ASHLAR_REGIONS_ALL);
}

/* A second try succeeds; blocks that were held for a moment are somebody else's then. */
static void check_commit(ashlar_status status) {
    void *others[8];
    if (status != ASHLAR_OK) {
        CHECK_ZU(arena->tensors[FIVE].info.offset[ASHLAR_LAYOUT_STORAGE], 0);
        CHECK_ZU(ashlar_arena_get_info(arena).regions, 0);
        CHECK_ZU(ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_PARAMETERS], 0);
        CHECK(ashlar_arena_get_info(arena).allocator == NULL);
        CHECK(ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS) == NULL);
        CHECK_ZU(stats_now().live_blocks, 0);
        CHECK(commit(1) == ASHLAR_OK);
        for (size_t i = 0; i < 8; i++) {
            others[i] = take(1536, streams[0]);
        }
        ashlar_arena_destroy(arena);
        arena = NULL;
        CHECK_ZU(stats_now().live_blocks, 8);
        for (size_t i = 0; i < 8; i++) {
            give(others[i]);
        }
    }
    tear_down_arena();
}

CASE(a_commit_that_failed_half_way_leaves_nothing_and_can_be_tried_again) {
    const fault_case all = {set_up_declared, commit_all, check_commit};
    CHECK(run_with_all_faults(&all) > ASHLAR_REGION_COUNT);
}

/* ---- further regions ---- */

CASE_WITH(further_regions_are_zero_and_the_old_ones_stay, set_up_arena("memory=64MiB", 1)) {
    unsigned char *parameters = ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS);
    wait_for(streams[0]);
    parameters[17] = 7;
    CHECK(ashlar_arena_extend(arena, streams[0], ASHLAR_REGIONS_ALL + 1) == ASHLAR_EINVAL);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_memset_d8_async, 2, CU_UNKNOWN);
    CHECK(ashlar_arena_extend(arena, streams[0], ASHLAR_REGIONS_ALL) == ASHLAR_EDRIVER);
    CHECK_ZU(ashlar_arena_get_info(arena).regions, 1);
    CHECK_ZU(stats_now().live_blocks, 1);
    CHECK(ashlar_arena_extend(arena, streams[0], ASHLAR_REGIONS_ALL) == ASHLAR_OK);
    CHECK_ZU(ashlar_arena_get_info(arena).regions, ASHLAR_REGIONS_ALL);
    CHECK(ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS) == parameters);
    CHECK(view_of(ASHLAR_REGION_MASTER, HALF) != NULL);
    CHECK(view_of(ASHLAR_REGION_MASTER, FOUR) == NULL);
    wait_for(streams[0]);
    CHECK(parameters[17] == 7);
    CHECK(ashlar_arena_zero(arena, ASHLAR_REGION_PARAMETERS, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    CHECK(parameters[17] == 0);
    CHECK(ashlar_arena_zero(arena, ASHLAR_REGION_COUNT, streams[0]) == ASHLAR_EINVAL);
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
}

CASE_WITH(regions_are_dropped_and_taken_anew, set_up_arena("memory=64MiB", 1)) {
    const unsigned more = ASHLAR_REGIONS_ALL & ~ASHLAR_REGIONS_INFERENCE;
    void *bound = NULL;
    const uint64_t live = stats_now().live_bytes;
    CHECK(ashlar_arena_extend(arena, streams[0], more) == ASHLAR_OK);
    CHECK(ashlar_arena_bind(arena, ASHLAR_REGION_MOMENT2, FOUR, &bound) == ASHLAR_OK);
    CHECK_FAILS(ashlar_arena_drop(arena, more), ASHLAR_EINVAL, "is bound to the second moments");
    CHECK(ashlar_arena_unbind(arena, &bound) == ASHLAR_OK);
    CHECK_FAILS(ashlar_arena_drop(arena, 1), ASHLAR_EINVAL, "without the parameters");
    CHECK_FAILS(ashlar_arena_drop(arena, ASHLAR_REGIONS_ALL + 1), ASHLAR_EINVAL, "no set");
    CHECK_ZU(ashlar_arena_get_info(arena).regions, ASHLAR_REGIONS_ALL);
    CHECK(ashlar_arena_drop(arena, more) == ASHLAR_OK);
    CHECK(ashlar_arena_drop(arena, more) == ASHLAR_OK);
    CHECK_ZU(ashlar_arena_get_info(arena).regions, ASHLAR_REGIONS_INFERENCE);
    CHECK_ZU(stats_now().live_bytes, live);
    CHECK(ashlar__arena_extend_on_host(arena, streams[0], more) == ASHLAR_OK);
    CHECK_ZU(ashlar_arena_get_info(arena).regions, ASHLAR_REGIONS_ALL);
    CHECK_ZU(stats_now().live_bytes, live);
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
    CHECK(ashlar_arena_drop(arena, more) == ASHLAR_OK);
    CHECK(ashlar_arena_extend(arena, streams[0], more) == ASHLAR_OK);
    CHECK(stats_now().live_bytes > live);
}

/* ---- memory of the program's ---- */

static _Alignas(ASHLAR_ARENA_ALIGN) unsigned char lent[4096];

static ashlar_status lend(ashlar_region region, unsigned char *memory, size_t bytes) {
    return ashlar_arena_lend(arena, region, memory, bytes);
}

CASE_WITH(lent_memory_is_used_as_it_is_and_stays_the_programs, set_up_declared()) {
    memset(lent, 7, sizeof lent);
    CHECK(lend(ASHLAR_REGION_PARAMETERS, lent, 1536) == ASHLAR_OK);
    CHECK(lend(ASHLAR_REGION_MASTER, lent + 2048, 512) == ASHLAR_OK);
    REQUIRE(commit(ASHLAR_REGIONS_TRAINING) == ASHLAR_OK);
    wait_for(streams[0]);
    CHECK(ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS) == lent);
    CHECK(view_of(ASHLAR_REGION_MASTER, HALF) == lent + 2048);
    CHECK(holds(lent, sizeof lent, 7));
    CHECK_ZU(stats_now().live_blocks, 1); /* the gradients */
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
    CHECK_FAILS(lend(ASHLAR_REGION_PARAMETERS, lent, 1536), ASHLAR_EINVAL, "has it already");
    CHECK(lend(ASHLAR_REGION_MOMENT1, lent, 1791) == ASHLAR_OK);
    CHECK_FAILS(ashlar_arena_extend(arena, streams[0], ASHLAR_REGIONS_ALL), ASHLAR_EINVAL,
                "the first moments need 1792 bytes, and got 1791");
    CHECK_ZU(stats_now().live_blocks, 1);
}

CASE_WITH(memory_that_cannot_be_lent_is_refused, set_up_declared()) {
    CHECK_FAILS(lend(ASHLAR_REGION_PARAMETERS, lent + 1, 1536), ASHLAR_EINVAL, "multiple of 256");
    CHECK_FAILS(lend(ASHLAR_REGION_PARAMETERS, NULL, 1536), ASHLAR_EINVAL, "the parameters at");
    CHECK_FAILS(lend(ASHLAR_REGION_COUNT, lent, 1536), ASHLAR_EINVAL, "region 5");
    CHECK(lend(ASHLAR_REGION_PARAMETERS, lent, 1535) == ASHLAR_OK);
    CHECK_FAILS(commit(ASHLAR_REGIONS_INFERENCE), ASHLAR_EINVAL, "got 1535");
    CHECK(lend(ASHLAR_REGION_PARAMETERS, lent, 1536) == ASHLAR_OK);
    CHECK(commit(ASHLAR_REGIONS_INFERENCE) == ASHLAR_OK);
}

RUN_CASES()
