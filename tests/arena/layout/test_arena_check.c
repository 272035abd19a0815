/* test_arena_check.c - each way of losing contiguity that arena.h promises to find, padding that
 * was written, and which pointers and views are watched. */
#include "tests/arena/layout/arena_fixture.h"

static void check_finds(const char *message) {
    CHECK_FAILS(ashlar_arena_check(arena), ASHLAR_EMOVED, message);
}

/* ---- pointers ---- */

/* With the view of `tensor` at `ptr`, the check says so with both addresses, and what is there. */
static void check_place(ashlar_region region, size_t tensor, void *ptr, const char *place) {
    void *pointer = NULL;
    char message[160];
    CHECK(ashlar_arena_bind(arena, region, tensor, &pointer) == ASHLAR_OK);
    (void)snprintf(message, sizeof message,
                   "tensor %s (%s) was placed at %p, its view points to %p; that is %s",
                   arena->tensors[tensor].name, ashlar__region_text(region), pointer, ptr, place);
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
    pointer = ptr;
    check_finds(message);
    CHECK(pointer == ptr); /* it is looked at, not mended */
    CHECK(ashlar_arena_unbind(arena, &pointer) == ASHLAR_OK);
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
}

CASE_WITH(a_view_replaced_by_null_or_foreign_memory_is_found, set_up_arena("memory=64MiB", 3)) {
    unsigned char *foreign = take(4096, streams[0]);
    check_place(ASHLAR_REGION_PARAMETERS, TWO, NULL, "NULL");
    check_place(ASHLAR_REGION_GRADIENTS, FIVE, foreign, "none of the arena's memory");
    check_place(ASHLAR_REGION_PARAMETERS, ONE, &arena, "none of the arena's memory");
    check_place(ASHLAR_REGION_PARAMETERS, FOUR, (void *)UINTPTR_MAX, "none of the arena's memory");
    check_place(ASHLAR_REGION_PARAMETERS, FOUR, (void *)1, "none of the arena's memory");
    give(foreign);
}

CASE_WITH(a_view_moved_onto_another_tensor_is_found_with_both_names, set_up_all()) {
    unsigned char *const three = view_of(ASHLAR_REGION_PARAMETERS, THREE);
    check_place(ASHLAR_REGION_PARAMETERS, TWO, three, "0 bytes into tensor three (parameters)");
    check_place(ASHLAR_REGION_PARAMETERS, ONE, three + 63,
                "63 bytes into tensor three (parameters)");
    check_place(ASHLAR_REGION_GRADIENTS, THREE, three, "0 bytes into tensor three (parameters)");
    check_place(ASHLAR_REGION_PARAMETERS, THREE, three + 4,
                "4 bytes into tensor three (parameters)");
    check_place(ASHLAR_REGION_MOMENT1, ONE, view_of(ASHLAR_REGION_MOMENT2, FOUR) + 279,
                "279 bytes into tensor four (second moments)");
    check_place(ASHLAR_REGION_MASTER, HALF, view_of(ASHLAR_REGION_MOMENT1, HALF) + 139,
                "139 bytes into tensor half (first moments)");
    check_place(ASHLAR_REGION_PARAMETERS, ONE, view_of(ASHLAR_REGION_MASTER, HALF) + 139,
                "139 bytes into tensor half (masters)");
}

CASE_WITH(a_view_moved_into_padding_is_found, set_up_all()) {
    unsigned char *const base = ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS);
    unsigned char *const master = ashlar_arena_region(arena, ASHLAR_REGION_MASTER);
    check_place(ASHLAR_REGION_PARAMETERS, TWO, base + 28, "padding of the parameters, or");
    check_place(ASHLAR_REGION_PARAMETERS, ONE, base + 1535, "padding of the parameters, or");
    check_place(ASHLAR_REGION_PARAMETERS, ONE, base + 4, "padding of the parameters, or");
    check_place(ASHLAR_REGION_PARAMETERS, TWO, base + 320, "padding of the parameters, or");
    check_place(ASHLAR_REGION_MASTER, HALF, master + 140, "padding of the masters, or");
    check_place(ASHLAR_REGION_PARAMETERS, ONE, base + 1536, /* the next block, or none */
                base + 1536 == ashlar_arena_region(arena, ASHLAR_REGION_GRADIENTS)
                    ? "padding of the gradients, or"
                    : "none of the arena's memory");
}

/* ---- views ---- */

CASE_WITH(a_view_of_another_type_is_found, set_up_all()) {
    ashlar_tensor_view view;
    CHECK(ashlar_arena_bind_view(arena, ASHLAR_REGION_MASTER, HALF, &view) == ASHLAR_OK);
    view.dtype = ASHLAR_BF16;
    check_finds("tensor half (masters) has type F32, its view type BF16");
    view.dtype = (ashlar_dtype)99;
    check_finds("its view type unknown (99)");
    CHECK(ashlar_arena_bind_view(arena, ASHLAR_REGION_MASTER, HALF, &view) == ASHLAR_OK);
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
}

CASE_WITH(a_view_of_another_shape_is_found_in_each_dimension, set_up_arena("memory=64MiB", 2 + 1)) {
    ashlar_tensor_view view, old;
    CHECK(ashlar_arena_bind_view(arena, ASHLAR_REGION_GRADIENTS, TWO, &view) == ASHLAR_OK);
    old = view;
    view.rank = 1;
    check_finds("tensor two (gradients) has rank 2, its view rank 1");
    for (size_t d = 0; d < ASHLAR_RANK_MAX; d++) {
        char message[100];
        view = old;
        CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
        view.shape[d] += 3;
        (void)snprintf(message, sizeof message,
                       "tensor two (gradients) has %zu in dimension %zu, its view %zu;",
                       old.shape[d], d, view.shape[d]);
        check_finds(message);
    }
}

/* ---- the arena's own account, as a stray write would leave it ---- */

CASE_WITH(a_damaged_description_is_found, set_up_arena("memory=64MiB", 1)) {
    size_t *const fields[] = {
        &arena->groups[2].offset[0],       &arena->groups[3].offset[ASHLAR_LAYOUT_MASTER],
        &arena->groups[1].padded,          &arena->bytes[ASHLAR_LAYOUT_STATE],
        &arena->tensors[TWO].group_offset, &arena->tensors[TWO].info.offset[ASHLAR_LAYOUT_STATE],
        &arena->tensors[TWO].info.bytes,   &arena->tensors[TWO].info.shape[1],
        &arena->tensors[HALF].info.rank,   &arena->order[1]};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        *fields[i] ^= 256;
        check_finds("the arena's own description has changed");
        *fields[i] ^= 256;
        CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
    }
    arena->tensors[HALF].info.dtype = ASHLAR_F16; /* of the same size */
    check_finds("the arena's own description has changed");
    arena->tensors[HALF].info.dtype = ASHLAR_BF16;
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
}

/* ---- regions ---- */

CASE_WITH(an_arena_that_is_not_committed_cannot_be_checked, set_up_empty()) {
    REQUIRE(declare_all(arena));
    CHECK_FAILS(ashlar_arena_check(arena), ASHLAR_EINVAL, "not committed");
    tear_down_arena();
}

CASE(a_region_freed_by_others_is_found_and_does_not_keep_the_rest) {
    for (int region = 0; region < ASHLAR_REGION_COUNT; region++) {
        char message[80];
        REQUIRE(set_up_all());
        give(ashlar_arena_region(arena, (ashlar_region)region));
        (void)snprintf(message, sizeof message, "the %s have lost their block",
                       ashlar__region_text((ashlar_region)region));
        check_finds(message);
        tear_down_arena();
    }
}

CASE_WITH(a_region_in_a_block_too_small_is_found, set_up_arena("memory=64MiB", 3)) {
    void *const right = arena->regions[1];
    arena->regions[1] = take(512, streams[0]);
    check_finds("the gradients need 1536 bytes, their block has 512");
    give(arena->regions[1]);
    arena->regions[1] = right;
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
}

/* ---- padding ---- */

/* Whether a tensor has this byte of a region; *before: the one in front of it, or NULL. */
static bool is_of_a_tensor(ashlar_region region, const unsigned char *byte, const char **before) {
    const unsigned char *nearest = NULL;
    *before = NULL;
    for (size_t i = 0; i < TENSORS; i++) {
        const unsigned char *begin = view_of(region, i);
        if (begin == NULL || begin > byte) {
            continue;
        }
        if (byte < begin + bytes_in(region, i)) {
            return true;
        }
        if (begin > nearest) {
            nearest = begin;
            *before = arena->tensors[i].name;
        }
    }
    return false;
}

static void check_message(ashlar_region region, size_t i, const char *before) {
    char message[160];
    const unsigned char *base = ashlar_arena_region(arena, region);
    (void)snprintf(message, sizeof message, "byte %zu of the %s (%p) is 0x80, in the padding %s%s;",
                   i, ashlar__region_text(region), (const void *)(base + i),
                   before != NULL ? "behind tensor " : "before the first tensor",
                   before != NULL ? before : "");
    CHECK_HAS(ashlar_error_detail(), message);
}

/* Of every region, one at a time. */
CASE_WITH(every_byte_of_padding_is_watched_and_no_other, set_up_all()) {
    wait_for(streams[0]);
    size_t padding = 0;
    for (int r = 0; r < ASHLAR_REGION_COUNT; r++) {
        const ashlar_region region = (ashlar_region)r;
        unsigned char *base = ashlar_arena_region(arena, region);
        for (size_t i = 0; i < ashlar_arena_get_info(arena).region_bytes[region]; i++) {
            const char *before = NULL;
            const bool is_padding = !is_of_a_tensor(region, base + i, &before);
            base[i] = 0x80;
            const ashlar_status status = ashlar_arena_check_padding(arena, streams[1]);
            CHECK(status == (is_padding ? ASHLAR_EDAMAGE : ASHLAR_OK));
            if (is_padding) {
                check_message(region, i, before);
                padding++;
            }
            base[i] = 0;
        }
    }
    /* Tensors have 482 bytes and half has 70 in storage, and twice that elsewhere. */
    CHECK_ZU(padding, 2 * (1536 - 482) + 2 * (1792 - 552) + (512 - 140));
}

CASE(the_look_comes_behind_what_is_queued_on_its_stream) {
    REQUIRE(set_up_arena("memory=64MiB,mode=adversarial,seed=4", 3));
    unsigned char *const stray = view_of(ASHLAR_REGION_GRADIENTS, FOUR) + 280;
    CHECK(ashlar_arena_check_padding(arena, streams[0]) == ASHLAR_OK); /* zeros are queued there */
    queue_write(streams[2], stray, 1, 7);
    CHECK(ashlar_arena_check_padding(arena, streams[0]) == ASHLAR_OK);
    CHECK_FAILS(ashlar_arena_check_padding(arena, streams[2]), ASHLAR_EDAMAGE,
                "is 0x07, in the padding behind tensor four");
}

CASE_WITH(an_arena_without_padding_has_nothing_to_look_at, set_up_empty()) {
    CHECK_FAILS(ashlar_arena_check_padding(arena, streams[0]), ASHLAR_EINVAL, "not committed");
    CHECK(ashlar_arena_add(arena, "a", ASHLAR_F32, 1, &(size_t){64}, NULL) == ASHLAR_OK);
    CHECK(ashlar_arena_add(arena, "b", ASHLAR_F16, 1, &(size_t){128}, NULL) == ASHLAR_OK);
    REQUIRE(ashlar_arena_commit(arena, allocator, streams[0], ASHLAR_REGIONS_ALL) == ASHLAR_OK);
    const size_t allocs = stats_now().alloc_count;
    CHECK(ashlar_arena_check_padding(arena, streams[0]) == ASHLAR_OK);
    CHECK_ZU(stats_now().alloc_count, allocs);
    tear_down_arena();
}

/* ---- failures ---- */

static bool prepare(void) {
    return set_up_arena("memory=64MiB", 3);
}

static ashlar_status look(void) {
    return ashlar_arena_check_padding(arena, streams[1]);
}

static void check_nothing_is_left(ashlar_status status) {
    (void)status;
    CHECK_ZU(stats_now().live_blocks, 2);
    CHECK(ashlar_arena_check_padding(arena, streams[1]) == ASHLAR_OK);
    tear_down_arena();
}

CASE(whatever_fails_nothing_is_left_behind) {
    const fault_case all = {prepare, look, check_nothing_is_left};
    CHECK(run_with_all_faults(&all) > 10);
}

/* ---- which pointers and views are watched ---- */

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
