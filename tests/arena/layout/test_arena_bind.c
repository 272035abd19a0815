/* test_arena_bind.c - which pointers and views an arena watches. */
#include "tests/arena/layout/arena_fixture.h"

CASE_WITH(a_bound_pointer_is_set, set_up_arena("memory=64MiB", 3)) {
    void *two = NULL, *five = NULL, *gradient = NULL;
    CHECK(ashlar_arena_bind(arena, ASHLAR_REGION_PARAMETERS, TWO, &two) == ASHLAR_OK);
    CHECK(ashlar_arena_bind(arena, ASHLAR_REGION_PARAMETERS, FIVE, &five) == ASHLAR_OK);
    CHECK(ashlar_arena_bind(arena, ASHLAR_REGION_GRADIENTS, FIVE, &gradient) == ASHLAR_OK);
    CHECK(two == view_of(ASHLAR_REGION_PARAMETERS, TWO));
    CHECK(five == view_of(ASHLAR_REGION_PARAMETERS, FIVE));
    CHECK(gradient == view_of(ASHLAR_REGION_GRADIENTS, FIVE));
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
}

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

CASE(without_host_memory_nothing_is_bound) {
    unsigned long n = 1;
    for (bool failed = true; failed; n++) {
        void *pointer = &arena;
        REQUIRE(set_up_arena("memory=64MiB", 1));
        ashlar_status status;
        HOST_FAILS_AT(n,
                      status = ashlar_arena_bind(arena, ASHLAR_REGION_PARAMETERS, ONE, &pointer));
        failed = status != ASHLAR_OK;
        if (failed) {
            CHECK_FAILS(status, ASHLAR_EHOSTMEM, "tensor one");
            CHECK(pointer == &arena);
            CHECK(ashlar_arena_unbind(arena, &pointer) == ASHLAR_EINVAL);
            CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
            CHECK(ashlar_arena_bind(arena, ASHLAR_REGION_PARAMETERS, ONE, &pointer) == ASHLAR_OK);
        }
        tear_down_arena();
    }
    CHECK_ZU(n, 4); /* two allocations */
}

CASE_WITH(what_was_bound_before_is_bound_anew, set_up_arena("memory=64MiB", 3)) {
    void *pointer = NULL;
    CHECK(ashlar_arena_bind(arena, ASHLAR_REGION_PARAMETERS, ONE, &pointer) == ASHLAR_OK);
    CHECK(ashlar_arena_bind(arena, ASHLAR_REGION_GRADIENTS, FOUR, &pointer) == ASHLAR_OK);
    CHECK(pointer == view_of(ASHLAR_REGION_GRADIENTS, FOUR));
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
    CHECK_ZU(arena->binding_count, 1);
    CHECK(ashlar_arena_unbind(arena, &pointer) == ASHLAR_OK);
    CHECK(ashlar_arena_unbind(arena, &pointer) == ASHLAR_EINVAL);
}

CASE_WITH(one_tensor_may_be_bound_by_several_pointers, set_up_arena("memory=64MiB", 1)) {
    void *tied[2] = {NULL, NULL};
    CHECK(ashlar_arena_bind(arena, ASHLAR_REGION_PARAMETERS, ONE, &tied[0]) == ASHLAR_OK);
    CHECK(ashlar_arena_bind(arena, ASHLAR_REGION_PARAMETERS, ONE, &tied[1]) == ASHLAR_OK);
    CHECK(tied[0] == tied[1] && ashlar_arena_check(arena) == ASHLAR_OK);
    tied[1] = NULL;
    CHECK(ashlar_arena_check(arena) == ASHLAR_EMOVED);
    CHECK(ashlar_arena_unbind(arena, &tied[1]) == ASHLAR_OK);
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
    tied[0] = NULL;
    CHECK(ashlar_arena_check(arena) == ASHLAR_EMOVED);
}

CASE_WITH(an_unbound_pointer_may_go_anywhere, set_up_arena("memory=64MiB", 1)) {
    void *pointer = NULL;
    CHECK(ashlar_arena_unbind(arena, &pointer) == ASHLAR_EINVAL); /* none is bound at all */
    CHECK_HAS(ashlar_error_detail(), "not bound");
    CHECK(ashlar_arena_bind(arena, ASHLAR_REGION_PARAMETERS, ONE, &pointer) == ASHLAR_OK);
    CHECK(ashlar_arena_unbind(arena, &pointer) == ASHLAR_OK);
    CHECK(pointer == view_of(ASHLAR_REGION_PARAMETERS, ONE));
    pointer = NULL;
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
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
