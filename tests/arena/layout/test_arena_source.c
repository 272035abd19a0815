/* test_arena_source.c - regions in memory of the caller's, as ncclMemAlloc() gives it. */
#include "tests/allocator/core/allocator_fixture.h"

#include <ashlar/replica.h>

#include "arena/layout/arena_impl.h"

enum { ELEMENTS = 5000, TAKES_MOST = 8 };

/* What the source has given and got back. */
typedef struct record {
    void *data[TAKES_MOST];
    size_t bytes[TAKES_MOST], taken, given, failing_at, shift;
} record;

static record log_of;
static ashlar_arena *arena;

static ashlar_status take_foreign(void *context, ashlar_region region, size_t bytes, void **data) {
    record *r = context;
    (void)region;
    if (r->taken + 1 == r->failing_at) {
        return ashlar__fail(ASHLAR_EIO, "the source has nothing left");
    }
    unsigned char *memory = take_memory(device, bytes + r->shift);
    CHECK(r->taken < TAKES_MOST);
    r->data[r->taken] = memory;
    r->bytes[r->taken++] = bytes;
    *data = memory + r->shift;
    return ASHLAR_OK;
}

static void give_foreign(void *context, ashlar_region region, void *data, size_t bytes) {
    record *r = context;
    size_t i = 0;
    (void)region;
    while (i < r->taken && (char *)r->data[i] + r->shift != data) {
        i++;
    }
    REQUIRE(i < r->taken);
    CHECK_ZU(bytes, r->bytes[i]);
    give_memory(device, r->data[i]);
    r->data[i] = NULL;
    r->given++;
}

static const ashlar_region_source foreign = {&log_of, take_foreign, give_foreign};

static void finish(void) {
    ashlar_arena_destroy(arena);
    arena = NULL;
    CHECK_ZU(log_of.given, log_of.taken);
    CHECK_ZU(stats_now().live_blocks, 0);
    tear_down();
}

static bool set_up_declared(void) {
    log_of = (record){0};
    return set_up("memory=64MiB") && ashlar_arena_create(&arena) == ASHLAR_OK &&
           ashlar_arena_add(arena, "w", ASHLAR_F32, 1, &(size_t){ELEMENTS}, NULL) == ASHLAR_OK &&
           check_at_end(finish);
}

static ashlar_status commit_all(void) {
    return ashlar_arena_commit(arena, allocator, streams[0], ASHLAR_REGIONS_ALL);
}

CASE_WITH(regions_lie_where_the_source_says, set_up_declared()) {
    REQUIRE(ashlar_arena_set_source(arena, &foreign) == ASHLAR_OK);
    REQUIRE(commit_all() == ASHLAR_OK);
    CHECK_ZU(log_of.taken, 4); /* all fp32: no masters */
    CHECK_ZU(stats_now().live_blocks, 0);
    CHECK(ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS) == log_of.data[0]);
    wait_for(streams[0]);
    CHECK(((float *)log_of.data[0])[ELEMENTS - 1] == 0); /* it is cleared as blocks are */
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
    CHECK(ashlar_arena_check_padding(arena, streams[0]) == ASHLAR_OK);
}

CASE_WITH(regions_added_later_are_the_source_s_too, set_up_declared()) {
    REQUIRE(ashlar_arena_set_source(arena, &foreign) == ASHLAR_OK);
    REQUIRE(ashlar_arena_commit(arena, allocator, streams[0], ASHLAR_REGIONS_INFERENCE) ==
            ASHLAR_OK);
    CHECK_ZU(log_of.taken, 1);
    CHECK(ashlar_arena_extend(arena, streams[0], ASHLAR_REGIONS_ALL) == ASHLAR_OK);
    CHECK_ZU(log_of.taken, 4);
}

CASE_WITH(a_replica_s_regions_are_the_allocator_s, set_up_declared()) {
    ashlar_arena *copy = NULL;
    REQUIRE(ashlar_arena_set_source(arena, &foreign) == ASHLAR_OK && commit_all() == ASHLAR_OK);
    REQUIRE(ashlar_arena_replicate(arena, streams[0], allocator, streams[1],
                                   ASHLAR_REGIONS_INFERENCE, &copy) == ASHLAR_OK);
    CHECK_ZU(log_of.taken, 4);
    CHECK_ZU(stats_now().live_blocks, 1);
    ashlar_arena_destroy(copy);
    wait_for(streams[1]);
}

/* Each take in turn: what was taken before it goes back. */
CASE_WITH(a_source_that_fails_leaves_nothing, set_up_declared()) {
    REQUIRE(ashlar_arena_set_source(arena, &foreign) == ASHLAR_OK);
    for (size_t n = 1; n <= 4; n++) {
        log_of = (record){.failing_at = n};
        CHECK_FAILS(commit_all(), ASHLAR_EIO, "nothing left");
        CHECK_ZU(log_of.taken, n - 1);
        CHECK_ZU(log_of.given, n - 1);
        CHECK_ZU(ashlar_arena_regions(arena), 0);
    }
    log_of = (record){0};
    CHECK(commit_all() == ASHLAR_OK);
}

CASE_WITH(memory_that_is_not_aligned_is_refused, set_up_declared()) {
    log_of.shift = 128;
    REQUIRE(ashlar_arena_set_source(arena, &foreign) == ASHLAR_OK);
    CHECK_FAILS(commit_all(), ASHLAR_EINVAL, "give a multiple of 256");
    CHECK_ZU(log_of.given, 1);
}

CASE_WITH(a_source_that_cannot_be_is_refused, set_up_declared()) {
    CHECK_FAILS(ashlar_arena_set_source(arena, &(ashlar_region_source){.take = take_foreign}),
                ASHLAR_EINVAL, "it needs both");
    CHECK_FAILS(ashlar_arena_set_source(arena, &(ashlar_region_source){.give = give_foreign}),
                ASHLAR_EINVAL, "it needs both");
    REQUIRE(commit_all() == ASHLAR_OK);
    CHECK_FAILS(ashlar_arena_set_source(arena, &foreign), ASHLAR_EINVAL, "committed already");
}

RUN_CASES()
