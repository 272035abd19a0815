/*
 * test_arena.c - commit, regions and their addresses, on a software device.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include "arena/layout/arena_impl.h"

static ashlar_arena *arena;

static void finish(void) {
    ashlar_arena_destroy(arena);
    arena = NULL;
    CHECK_ZU(stats_now().live_blocks, 0);
    tear_down();
}

/* "one" [3], then a group of "two" [2, 5] at 64 and "three" [8] at 0, then "four" [70]. */
static bool set_up_declared(void) {
    const ashlar_tensor_spec specs[] = {
        {.name = "two", .dtype = ASHLAR_F32, .rank = 2, .shape = {2, 5}, .group_offset = 64},
        {.name = "three", .dtype = ASHLAR_F32, .rank = 1, .shape = {16}}};
    return set_up("memory=64MiB") && ashlar_arena_create(&arena) == ASHLAR_OK &&
           ashlar_arena_add(arena, "one", ASHLAR_F32, 1, &(size_t){3}, NULL) == ASHLAR_OK &&
           ashlar_arena_add_group(arena, 104, specs, 2, NULL) == ASHLAR_OK &&
           ashlar_arena_add(arena, "four", ASHLAR_F32, 1, &(size_t){70}, NULL) == ASHLAR_OK &&
           check_at_end(finish);
}

enum { REGION_BYTES = 1024, TENSORS = 4 };
enum { ALL = ASHLAR_REGIONS_ALL & ~ASHLAR_REGION_BIT(ASHLAR_REGION_MASTER) }; /* all fp32 */
static const size_t OFFSETS[TENSORS] = {0, 256 + 64, 256, 512};

static bool commit(unsigned regions) {
    return ashlar_arena_commit(arena, allocator, streams[0], regions) == ASHLAR_OK;
}

CASE_WITH(every_region_has_the_same_offsets, set_up_declared()) {
    REQUIRE(commit(ASHLAR_REGIONS_ALL));
    CHECK_ZU(ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS), REGION_BYTES);
    CHECK_ZU(ashlar_arena_regions(arena), ALL);
    CHECK(ashlar_arena_allocator(arena) == allocator);
    for (int region = 0; region < ASHLAR_REGION_MASTER; region++) {
        CHECK_ZU(ashlar_arena_region_bytes(arena, (ashlar_region)region), REGION_BYTES);
        char *base = ashlar_arena_region(arena, (ashlar_region)region);
        CHECK(base != NULL);
        for (size_t i = 0; i < TENSORS; i++) {
            ashlar_tensor_info info;
            ashlar_arena_tensor(arena, i, &info);
            CHECK_ZU(info.offset[ASHLAR_LAYOUT_STORAGE], OFFSETS[i]);
            CHECK(ashlar_arena_view(arena, (ashlar_region)region, i) == base + OFFSETS[i]);
        }
        for (int other = 0; other < region; other++) {
            char *earlier = ashlar_arena_region(arena, (ashlar_region)other);
            CHECK(base >= earlier + REGION_BYTES || earlier >= base + REGION_BYTES);
        }
    }
}

/* So that the places of one element differ in more than one bit of their address. */
CASE_WITH(large_regions_side_by_side_are_not_a_power_of_two_apart, set_up("memory=512MiB")) {
    const size_t elements = (size_t)16 << 20;
    REQUIRE(ashlar_arena_create(&arena) == ASHLAR_OK);
    CHECK(ashlar_arena_add(arena, "t", ASHLAR_F32, 1, &elements, NULL) == ASHLAR_OK);
    REQUIRE(commit(ALL));
    for (unsigned i = 1; i < ASHLAR_REGION_MASTER; i++) {
        const char *before = ashlar_arena_region(arena, (ashlar_region)(i - 1));
        const char *base = ashlar_arena_region(arena, (ashlar_region)i);
        const size_t apart = (size_t)(base > before ? base - before : before - base);
        CHECK(apart % (4 * elements) != 0);
    }
    CHECK_ZU(ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS), 4 * elements);
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
    finish();
}

/* On memory that held something else before. */
CASE_WITH(commit_fills_every_region_with_zeros, set_up_declared()) {
    unsigned char *dirty = take(8 * REGION_BYTES, streams[0]);
    CHECK(ashlar_fill(device, dirty, 0xab, 8 * REGION_BYTES, streams[0]) == ASHLAR_OK);
    give(dirty);
    REQUIRE(commit(ASHLAR_REGIONS_ALL));
    wait_for(streams[0]);
    for (int region = 0; region < ASHLAR_REGION_MASTER; region++) {
        const unsigned char *base = ashlar_arena_region(arena, (ashlar_region)region);
        CHECK(base >= dirty && base < dirty + 8 * REGION_BYTES); /* else this shows nothing */
        size_t wrong = 0;
        for (size_t i = 0; i < REGION_BYTES; i++) {
            wrong += base[i] != 0;
        }
        CHECK_ZU(wrong, 0);
    }
}

CASE(an_arena_has_the_regions_it_was_committed_with) {
    for (unsigned regions = 1; regions <= ASHLAR_REGIONS_ALL; regions += 2) {
        const unsigned there = regions & ALL; /* no narrow tensor, no master */
        REQUIRE(set_up_declared());
        REQUIRE(commit(regions));
        CHECK_ZU(ashlar_arena_regions(arena), there);
        CHECK_ZU(stats_now().live_blocks, (size_t)__builtin_popcount(there));
        for (size_t region = 0; region <= ASHLAR_REGION_COUNT; region++) {
            const bool is_there = (there >> region & 1) != 0;
            CHECK((ashlar_arena_region(arena, (ashlar_region)region) != NULL) == is_there);
            CHECK((ashlar_arena_view(arena, (ashlar_region)region, 1) != NULL) == is_there);
        }
        CHECK(ashlar_arena_region(arena, (ashlar_region)-1) == NULL);
        CHECK(ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, TENSORS) == NULL);
        CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
        finish();
    }
}

CASE_WITH(a_commit_that_cannot_be_is_refused, set_up_declared()) {
    ashlar_arena *empty = NULL;
    REQUIRE(ashlar_arena_create(&empty) == ASHLAR_OK);
    CHECK_FAILS(ashlar_arena_commit(empty, allocator, streams[0], 1), ASHLAR_EINVAL,
                "without tensors");
    ashlar_arena_destroy(empty);
    ashlar_arena_destroy(NULL);
    CHECK_FAILS(ashlar_arena_commit(arena, allocator, streams[0], 0), ASHLAR_EINVAL,
                "regions: 0x0");
    CHECK_FAILS(ashlar_arena_commit(arena, allocator, streams[0], 32), ASHLAR_EINVAL,
                "regions: 0x20");
    CHECK_ZU(stats_now().alloc_count, 0);
    REQUIRE(commit(1));
    CHECK_FAILS(ashlar_arena_commit(arena, allocator, streams[0], 1), ASHLAR_EINVAL,
                "committed already");
    CHECK_ZU(ashlar_arena_regions(arena), 1);
}

CASE_WITH(nothing_is_declared_after_commit, set_up_declared()) {
    REQUIRE(commit(1));
    CHECK_FAILS(ashlar_arena_add(arena, "five", ASHLAR_F32, 1, &(size_t){1}, NULL), ASHLAR_EINVAL,
                "committed");
    CHECK_ZU(ashlar_arena_tensor_count(arena), TENSORS);
}

static void check_uncommitted(void) {
    ashlar_tensor_info info;
    ashlar_arena_tensor(arena, 3, &info);
    CHECK_ZU(info.offset[ASHLAR_LAYOUT_STORAGE], 0);
    CHECK_ZU(ashlar_arena_regions(arena), 0);
    CHECK_ZU(ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS), 0);
    CHECK(ashlar_arena_allocator(arena) == NULL);
    CHECK(ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS) == NULL);
    CHECK_ZU(stats_now().live_blocks, 0);
}

/* The n-th fill, then the first mapping, then host memory; each time a second try succeeds. */
CASE(a_commit_that_failed_half_way_leaves_nothing_and_can_be_tried_again) {
    for (uint64_t n = 1; n <= ASHLAR_REGION_MASTER; n++) {
        REQUIRE(set_up_declared());
        ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_memset_d8_async, n, CU_INVALID_HANDLE);
        CHECK(ashlar_arena_commit(arena, allocator, streams[0], ALL) == ASHLAR_EDRIVER);
        check_uncommitted();
        CHECK(commit(ALL));
        finish();
    }
    REQUIRE(set_up_declared());
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_mem_create, 1, CU_INVALID_VALUE);
    CHECK(ashlar_arena_commit(arena, allocator, streams[0], ALL) == ASHLAR_EDRIVER);
    check_uncommitted();
    CHECK(commit(ALL));
    finish();
    REQUIRE(set_up_declared());
    HOST_FAILS_AT(1,
                  CHECK(ashlar_arena_commit(arena, allocator, streams[0], ALL) == ASHLAR_EHOSTMEM));
    check_uncommitted();
    CHECK(commit(ALL));
}

/* What the failed commit held for a moment is somebody else's now, and stays it. */
CASE_WITH(a_commit_that_failed_forgets_the_blocks_it_gave_back, set_up_declared()) {
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_memset_d8_async, 3, CU_UNKNOWN);
    CHECK(ashlar_arena_commit(arena, allocator, streams[0], ALL) == ASHLAR_EDRIVER);
    REQUIRE(commit(1));
    void *others[8];
    for (size_t i = 0; i < 8; i++) {
        others[i] = take(REGION_BYTES, streams[0]);
    }
    ashlar_arena_destroy(arena);
    arena = NULL;
    CHECK_ZU(stats_now().live_blocks, 8);
    for (size_t i = 0; i < 8; i++) {
        give(others[i]);
    }
}

RUN_CASES()
