/* test_replicate.c - the same arena on another device: layout, contents, order, pointers. */
#include "tests/arena/layout/arena_fixture.h"

#include <ashlar/arena.h>

static ashlar_device *other;
static ashlar_allocator *other_memory;
static ashlar_stream other_streams[2];
static ashlar_arena *replica;

enum { ON_ONE = 0x21, ON_TWO = 0x42 };

static size_t live_blocks_of(ashlar_allocator *of) {
    ashlar_stats stats;
    ashlar_allocator_get_stats(of, &stats);
    return stats.live_blocks;
}

static void tear_down_two(void) {
    ashlar_arena_destroy(replica);
    replica = NULL;
    CHECK_ZU(live_blocks_of(other_memory), 0);
    CHECK(ashlar_allocator_check(other_memory) == ASHLAR_OK);
    ashlar_allocator_destroy(other_memory);
    ashlar_stream_destroy(other, other_streams[0]);
    ashlar_stream_destroy(other, other_streams[1]);
    ashlar_arena_destroy(arena);
    arena = NULL;
    CHECK_ZU(stats_now().live_blocks, 0);
    ashlar_device_close(other);
    tear_down();
}

/* Two devices; the arena is on the first, with options and buckets. */
static bool set_up_two(const char *spec, unsigned regions) {
    const ashlar_tensor_options frozen = {.is_frozen = true}, slow = {.rate_scale = 0.5};
    return set_up(spec) && ashlar_device_open("soft:1", &other) == ASHLAR_OK &&
           ashlar_allocator_create(other, &other_memory) == ASHLAR_OK &&
           ashlar_stream_create(other, &other_streams[0]) == ASHLAR_OK &&
           ashlar_stream_create(other, &other_streams[1]) == ASHLAR_OK &&
           ashlar_arena_create(&arena) == ASHLAR_OK && declare_all(arena) &&
           ashlar_arena_set_buckets(arena, 1, 3) == ASHLAR_OK &&
           ashlar_arena_set_options(arena, TWO, &frozen) == ASHLAR_OK &&
           ashlar_arena_set_options(arena, FIVE, &slow) == ASHLAR_OK &&
           ashlar_arena_commit(arena, allocator, streams[0], regions) == ASHLAR_OK &&
           check_at_end(tear_down_two);
}

static bool set_up_pair(unsigned regions) {
    return set_up_two("devices=2,memory=64MiB", regions);
}

static void wait_for_other(size_t i) {
    CHECK(ashlar_stream_synchronize(other, other_streams[i]) == ASHLAR_OK);
}

static ashlar_status replicate(unsigned regions) {
    return ashlar_arena_replicate(arena, streams[0], other_memory, other_streams[0], regions,
                                  &replica);
}

/* Queue a value for all of a tensor. */
static void fill(ashlar_region region, size_t tensor, unsigned char value, ashlar_stream stream) {
    queue_write(stream, view_of(region, tensor), bytes_in(region, tensor), value);
}

/* ---- layout ---- */

static void check_tensors(void) {
    CHECK_ZU(ashlar_arena_get_info(replica).tensor_count, TENSORS);
    for (size_t i = 0; i < TENSORS; i++) {
        ashlar_tensor_info mine, theirs;
        size_t found = TENSORS;
        ashlar_arena_tensor(arena, i, &mine);
        ashlar_arena_tensor(replica, i, &theirs);
        CHECK(strcmp(mine.name, theirs.name) == 0 && mine.name != theirs.name);
        CHECK(mine.dtype == theirs.dtype && mine.rank == theirs.rank);
        CHECK(memcmp(mine.shape, theirs.shape, sizeof mine.shape) == 0);
        CHECK(memcmp(mine.offset, theirs.offset, sizeof mine.offset) == 0);
        CHECK(mine.elements == theirs.elements && mine.bytes == theirs.bytes);
        CHECK(mine.options.is_frozen == theirs.options.is_frozen);
        CHECK(mine.options.rate_scale == theirs.options.rate_scale);
        CHECK(ashlar_arena_find(replica, mine.name, &found) == ASHLAR_OK && found == i);
    }
}

CASE_WITH(a_replica_has_the_layout_of_its_source, set_up_pair(ASHLAR_REGIONS_ALL)) {
    REQUIRE(replicate(ASHLAR_REGIONS_ALL) == ASHLAR_OK);
    check_tensors();
    CHECK_ZU(ashlar_arena_get_info(replica).regions, ASHLAR_REGIONS_ALL);
    CHECK(ashlar_arena_get_info(replica).allocator == other_memory);
    for (int region = 0; region < ASHLAR_REGION_COUNT; region++) {
        CHECK_ZU(ashlar_arena_get_info(replica).region_bytes[(ashlar_region)region],
                 ashlar_arena_get_info(arena).region_bytes[(ashlar_region)region]);
    }
    CHECK_ZU(ashlar_arena_get_info(arena).bucket_count, 5);
    CHECK_ZU(ashlar_arena_get_info(replica).bucket_count, 5);
    for (size_t i = 0; i < ashlar_arena_get_info(arena).bucket_count; i++) {
        ashlar_arena_bucket mine, theirs;
        ashlar_arena_get_bucket(arena, i, &mine);
        ashlar_arena_get_bucket(replica, i, &theirs);
        CHECK(mine.offset == theirs.offset && mine.bytes == theirs.bytes);
        CHECK_ZU(mine.bytes % (3 * 256), 0);
    }
    CHECK(ashlar_arena_check(replica) == ASHLAR_OK);
    CHECK_ZU(replica->binding_count, 0);
}

CASE_WITH(regions_that_are_not_there_are_refused, set_up_pair(1 + 4)) {
    CHECK_FAILS(replicate(3), ASHLAR_EINVAL, "the source has no gradients");
    CHECK_FAILS(replicate(1 + 4 + 16), ASHLAR_EINVAL, "the source has no masters");
    CHECK(replicate(4) == ASHLAR_EINVAL);
    CHECK_FAILS(replicate(0), ASHLAR_EINVAL, "no set with that of the parameters");
    CHECK(replicate(32 + 1) == ASHLAR_EINVAL);
    ashlar_arena *empty = NULL, *none = NULL;
    REQUIRE(ashlar_arena_create(&empty) == ASHLAR_OK);
    CHECK_FAILS(ashlar_arena_replicate(empty, streams[0], other_memory, other_streams[0], 1, &none),
                ASHLAR_EINVAL, "not committed");
    CHECK(none == NULL && replica == NULL && live_blocks_of(other_memory) == 0);
    ashlar_arena_destroy(empty);
}

/* ---- contents and order ---- */

/*
 * All of it: what was queued before on the source's stream is in the replica, what is queued there
 * afterwards is not. Nothing waits on the host until then.
 */
CASE(contents_are_those_between_what_came_before_and_after) {
    for (int seed = 1; seed <= 16; seed++) {
        REQUIRE(set_up_two(drawn_order("devices=2,memory=64MiB", seed), ASHLAR_REGIONS_ALL));
        for (int region = 0; region < ASHLAR_REGION_COUNT; region++) {
            fill((ashlar_region)region, HALF, (unsigned char)(ON_ONE + region), streams[0]);
        }
        const size_t copies = CALLS(memcpy_peer_async), fills = CALLS(memset_d8_async);
        const size_t waits = CALLS(stream_synchronize) + CALLS(event_synchronize);
        REQUIRE(replicate(ASHLAR_REGIONS_ALL) == ASHLAR_OK);
        CHECK_ZU(CALLS(memcpy_peer_async) - copies, ASHLAR_REGION_COUNT);
        CHECK_ZU(CALLS(memset_d8_async) - fills, 0);
        CHECK_ZU(CALLS(stream_synchronize) + CALLS(event_synchronize) - waits, 0);
        for (int region = 0; region < ASHLAR_REGION_COUNT; region++) {
            fill((ashlar_region)region, HALF, ON_TWO, streams[0]);
        }
        wait_for(streams[seed % 2]); /* the source first, or not */
        wait_for_other(0);
        for (int region = 0; region < ASHLAR_REGION_COUNT; region++) {
            CHECK(holds(ashlar_arena_view(replica, (ashlar_region)region, HALF),
                        bytes_in((ashlar_region)region, HALF), (unsigned char)(ON_ONE + region)));
        }
        wait_for(streams[0]);
        CHECK(holds(view_of(ASHLAR_REGION_PARAMETERS, HALF), 70, ON_TWO));
        CHECK(ashlar_arena_check_padding(replica, other_streams[0]) == ASHLAR_OK);
        tear_down_two();
    }
}

CASE(parameters_are_refreshed_by_one_copy_in_order) {
    for (int seed = 1; seed <= 16; seed++) {
        REQUIRE(set_up_two(drawn_order("devices=2,memory=64MiB", seed), 3));
        fill(ASHLAR_REGION_GRADIENTS, FOUR, 5, streams[0]);
        REQUIRE(replicate(3) == ASHLAR_OK);
        wait_for_other(0);
        fill(ASHLAR_REGION_PARAMETERS, FOUR, ON_ONE, streams[1]);
        fill(ASHLAR_REGION_GRADIENTS, FOUR, ON_ONE, streams[1]);
        const size_t copies = CALLS(memcpy_peer_async);
        CHECK(ashlar_arena_refresh(replica, other_streams[1], arena, streams[1]) == ASHLAR_OK);
        CHECK_ZU(CALLS(memcpy_peer_async) - copies, 1);
        fill(ASHLAR_REGION_PARAMETERS, FOUR, ON_TWO, streams[1]);
        wait_for(streams[seed % 2]);
        wait_for_other(0);
        wait_for_other(1);
        CHECK(holds(ashlar_arena_view(replica, ASHLAR_REGION_PARAMETERS, FOUR), 280, ON_ONE));
        CHECK(holds(ashlar_arena_view(replica, ASHLAR_REGION_GRADIENTS, FOUR), 280, 5));
        tear_down_two();
    }
}

CASE_WITH(a_replica_outlives_its_source, set_up_pair(1)) {
    fill(ASHLAR_REGION_PARAMETERS, FIVE, ON_ONE, streams[0]);
    REQUIRE(replicate(1) == ASHLAR_OK);
    ashlar_arena_destroy(arena);
    arena = NULL;
    wait_for_other(0);
    CHECK(holds(ashlar_arena_view(replica, ASHLAR_REGION_PARAMETERS, FIVE), 16, ON_ONE));
    CHECK(ashlar_arena_check(replica) == ASHLAR_OK);
    size_t tensor = 0;
    CHECK(ashlar_arena_find(replica, "five", &tensor) == ASHLAR_OK && tensor == FIVE);
}

CASE_WITH(an_arena_of_another_layout_refreshes_nothing, set_up_pair(1)) {
    const size_t shapes[][2] = {{70, 2}, {70, 3}, {69, 2}, {70, 2}}; /* of four and five */
    CHECK(replicate(1) == ASHLAR_OK);
    CHECK(ashlar_arena_refresh(arena, streams[0], arena, streams[0]) == ASHLAR_EINVAL);
    CHECK(ashlar_arena_refresh(arena, streams[0], replica, other_streams[0]) == ASHLAR_OK);
    for (size_t k = 0; k < 4; k++) {
        ashlar_arena *third = NULL;
        const ashlar_tensor_spec one = {
            .name = "x", .dtype = ASHLAR_F32, .rank = 1, .shape = {3}, .group_offset = 16};
        const ashlar_tensor_spec pair[] = {
            {.name = "y", .dtype = ASHLAR_F32, .rank = 2, .shape = {2, 5}, .group_offset = 72},
            {.name = "z", .dtype = ASHLAR_F32, .rank = 1, .shape = {16}}};
        REQUIRE(ashlar_arena_create(&third) == ASHLAR_OK);
        CHECK(ashlar_arena_add_group(third, 28, &one, 1, NULL) == ASHLAR_OK);
        CHECK(ashlar_arena_add_group(third, 112, pair, 2, NULL) == ASHLAR_OK);
        CHECK(ashlar_arena_add(third, "u", k == 3 ? ASHLAR_F16 : ASHLAR_BF16, 2, (size_t[]){5, 7},
                               NULL) == ASHLAR_OK);
        CHECK(ashlar_arena_add(third, "v", ASHLAR_F32, 1, &shapes[k][0], NULL) == ASHLAR_OK);
        CHECK(ashlar_arena_add(third, "w", ASHLAR_F64, 1, &shapes[k][1], NULL) == ASHLAR_OK);
        CHECK(ashlar_arena_set_buckets(third, 1, 3) == ASHLAR_OK);
        CHECK(ashlar_arena_refresh(third, streams[0], arena, streams[0]) == ASHLAR_EINVAL);
        CHECK(ashlar_arena_refresh(arena, streams[0], third, streams[0]) == ASHLAR_EINVAL);
        CHECK(ashlar_arena_commit(third, allocator, streams[0], 1) == ASHLAR_OK);
        /* Names make no difference, shapes and types do, although all places are the same. */
        const ashlar_status want = k == 0 ? ASHLAR_OK : ASHLAR_EINVAL;
        CHECK(ashlar_arena_refresh(third, streams[0], arena, streams[0]) == want);
        ashlar_arena_destroy(third);
    }
    CHECK_HAS(ashlar_error_detail(), "same layout");
}

/* ---- failures ---- */

static bool prepare(void) {
    return set_up_two("devices=2,memory=64MiB,mode=adversarial,seed=2", 3);
}

static ashlar_status replicate_two(void) {
    return replicate(3);
}

static void check_all_or_nothing(ashlar_status status) {
    CHECK((replica != NULL) == (status == ASHLAR_OK));
    CHECK_ZU(live_blocks_of(other_memory), status == ASHLAR_OK ? 2 : 0);
    if (status != ASHLAR_OK) {
        CHECK(replicate(3) == ASHLAR_OK);
    }
    wait_for_other(0);
    CHECK(ashlar_arena_check(replica) == ASHLAR_OK);
    tear_down_two();
}

CASE(whatever_fails_there_is_a_replica_or_nothing) {
    const fault_case all = {prepare, replicate_two, check_all_or_nothing};
    CHECK(run_with_all_faults(&all) > 30);
}

RUN_CASES()
