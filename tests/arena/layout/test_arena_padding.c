/* test_arena_padding.c - bytes between tensors are zero, and the first that is not is found. */
#include "tests/arena/layout/arena_fixture.h"

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
                   i, ashlar_region_text(region), (const void *)(base + i),
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
        for (size_t i = 0; i < ashlar_arena_region_bytes(arena, region); i++) {
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

RUN_CASES()
