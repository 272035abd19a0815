/* test_arena_map.c - the printed map of an arena. */
#include "tests/allocator/core/allocator_fixture.h"

#include <ashlar/arena.h>

static ashlar_arena *arena;

static void finish(void) {
    ashlar_arena_destroy(arena);
    arena = NULL;
    tear_down();
}

static bool set_up_arena(void) {
    const size_t matrix[] = {4, 100};
    return set_up("memory=16MiB") && ashlar_arena_create(&arena) == ASHLAR_OK &&
           ashlar_arena_add(arena, "weight", ASHLAR_BF16, 2, matrix, NULL) == ASHLAR_OK &&
           ashlar_arena_add(arena, "bias", ASHLAR_F32, 1, &(size_t){4}, NULL) == ASHLAR_OK &&
           ashlar_arena_add(arena, "table", ASHLAR_F32, 1, &(size_t){64}, NULL) == ASHLAR_OK &&
           ashlar_arena_set_options(
               arena, 1, &(ashlar_tensor_options){.has_no_decay = true, .rate_scale = 0.5}) ==
               ASHLAR_OK &&
           ashlar_arena_set_options(arena, 2, &(ashlar_tensor_options){.is_frozen = true}) ==
               ASHLAR_OK &&
           check_at_end(finish);
}

CASE_WITH(further_regions_are_zero_and_the_old_ones_stay, set_up_arena()) {
    CHECK_FAILS(ashlar_arena_extend(arena, streams[0], 1), ASHLAR_EINVAL, "not committed");
    REQUIRE(ashlar_arena_commit(arena, allocator, streams[0], 1) == ASHLAR_OK);
    unsigned char *parameters = ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS);
    wait_for(streams[0]);
    parameters[7] = 7;
    CHECK(ashlar_arena_extend(arena, streams[0], ASHLAR_REGIONS_ALL + 1) == ASHLAR_EINVAL);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_memset_d8_async, 2, CU_UNKNOWN);
    CHECK(ashlar_arena_extend(arena, streams[0], ASHLAR_REGIONS_ALL) == ASHLAR_EDRIVER);
    CHECK_ZU(ashlar_arena_regions(arena), 1);
    CHECK_ZU(stats_now().live_blocks, 1);
    CHECK(ashlar_arena_extend(arena, streams[0], ASHLAR_REGIONS_ALL) == ASHLAR_OK);
    CHECK_ZU(ashlar_arena_regions(arena), ASHLAR_REGIONS_ALL);
    CHECK(ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS) == parameters);
    CHECK(ashlar_arena_view(arena, ASHLAR_REGION_MASTER, 0) != NULL);
    CHECK(ashlar_arena_view(arena, ASHLAR_REGION_MASTER, 1) == NULL);
    wait_for(streams[0]);
    CHECK(parameters[7] == 7);
    CHECK(ashlar_arena_zero(arena, ASHLAR_REGION_PARAMETERS, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    CHECK(parameters[7] == 0);
    CHECK(ashlar_arena_zero(arena, ASHLAR_REGION_COUNT, streams[0]) == ASHLAR_EINVAL);
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
}

RUN_CASES()
