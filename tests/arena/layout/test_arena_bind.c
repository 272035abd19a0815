/* test_arena_bind.c - which pointers and views an arena watches. */
#include "tests/arena/layout/arena_fixture.h"

/* Type by region: bf16 parameters and gradients, F32 moments and masters. */
CASE_WITH(a_bound_view_is_filled_in, set_up_all()) {
    static const ashlar_dtype types[ASHLAR_REGION_COUNT] = {ASHLAR_BF16, ASHLAR_BF16, ASHLAR_F32,
                                                            ASHLAR_F32, ASHLAR_F32};
    for (int region = 0; region < ASHLAR_REGION_COUNT; region++) {
        ashlar_tensor_view half, five;
        memset(&half, 0xff, sizeof half);
        memset(&five, 0xff, sizeof five);
        CHECK(ashlar_arena_bind_view(arena, (ashlar_region)region, HALF, &half) == ASHLAR_OK);
        CHECK(half.data == view_of((ashlar_region)region, HALF) && half.data != NULL);
        CHECK(half.dtype == types[region]);
        CHECK(half.rank == 2 && half.shape[0] == 5 && half.shape[1] == 7);
        CHECK(half.shape[2] == 0 && half.shape[3] == 0);
        if (region != ASHLAR_REGION_MASTER) {
            CHECK(ashlar_arena_bind_view(arena, (ashlar_region)region, FIVE, &five) == ASHLAR_OK);
            CHECK(five.dtype == ASHLAR_F64 && five.rank == 1 && five.shape[0] == 2);
            CHECK(ashlar_arena_unbind(arena, &five.data) == ASHLAR_OK);
        }
        CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
        CHECK(ashlar_arena_unbind(arena, &half.data) == ASHLAR_OK);
    }
}

CASE_WITH(a_view_that_is_not_there_cannot_be_bound, set_up_empty()) {
    void *pointer = &arena;
    ashlar_tensor_view view = {.data = &arena, .rank = 77};
    REQUIRE(declare_all(arena));
    CHECK(ashlar_arena_bind(arena, ASHLAR_REGION_PARAMETERS, 0, &pointer) == ASHLAR_EINVAL);
    REQUIRE(ashlar_arena_commit(arena, allocator, streams[0], 1 + 16) == ASHLAR_OK);
    CHECK_FAILS(ashlar_arena_bind(arena, ASHLAR_REGION_GRADIENTS, 0, &pointer), ASHLAR_EINVAL,
                "no region 1 or no tensor 0");
    CHECK(ashlar_arena_bind(arena, ASHLAR_REGION_MASTER, FOUR, &pointer) == ASHLAR_EINVAL);
    CHECK_FAILS(ashlar_arena_bind_view(arena, ASHLAR_REGION_PARAMETERS, TENSORS, &view),
                ASHLAR_EINVAL, "no tensor 6");
    CHECK(pointer == &arena && view.data == &arena && view.rank == 77);
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK); /* nothing is watched */
    tear_down_arena();
}

enum { MANY = 3000 };

/* Every one of them is watched, and after a while exactly those that are left. */
CASE_WITH(thousands_of_pointers_come_and_go, set_up_arena("memory=64MiB", 1)) {
    static void *pointers[MANY];
    size_t wrong = 0;
    for (size_t i = 0; i < MANY; i++) {
        wrong += ashlar_arena_bind(arena, ASHLAR_REGION_PARAMETERS, i % TENSORS, &pointers[i]) !=
                 ASHLAR_OK;
    }
    CHECK_ZU(arena->binding_count, MANY);
    CHECK(arena->binding_count <= arena->binding_capacity / 2);
    for (size_t i = 0; i < MANY; i += 1 + i % 3) {
        wrong += ashlar_arena_unbind(arena, &pointers[i]) != ASHLAR_OK;
        pointers[i] = NULL; /* an address that no bound one has */
    }
    CHECK_ZU(wrong, 0);
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
    for (size_t i = 0; i < MANY; i++) {
        void *const old = pointers[i];
        if (old != NULL) {
            pointers[i] = &arena;
            wrong += ashlar_arena_check(arena) != ASHLAR_EMOVED;
            wrong += strstr(ashlar_error_detail(), arena->tensors[i % TENSORS].name) == NULL;
            pointers[i] = old;
        }
        wrong += (ashlar__arena_find_binding(arena, &pointers[i]) != NULL) != (old != NULL);
    }
    CHECK_ZU(wrong, 0);
}

RUN_CASES()
