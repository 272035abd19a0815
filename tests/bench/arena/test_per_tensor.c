/*
 * test_per_tensor.c - the scattered tensors that an arena is measured beside compute what it does.
 */
#include "bench/arena/bench_arena.h"

#include "tests/allocator/core/allocator_fixture.h"

#include "arena/compute/workers.h"

/* Odd sizes, one in several chunks. */
static const size_t sizes[] = {1, 63, 64, 65, 5000, 70000, 300, 4096, 4097, 2};
enum { SIZES = sizeof sizes / sizeof sizes[0], TENSORS = 80 };

static ashlar_arena *arena;
static ashlar_optimizer *optimizer;
static ashlar_per_tensor *scattered;

static void drop_all(void) {
    ashlar__per_tensor_destroy(scattered);
    scattered = NULL;
    ashlar_optimizer_destroy(optimizer);
    ashlar_arena_destroy(arena);
    optimizer = NULL;
    arena = NULL;
    ashlar_stats stats;
    ashlar_allocator_get_stats(allocator, &stats);
    CHECK_ZU((size_t)stats.live_blocks, 0);
}

static ashlar_status declare(void) {
    (void)check_at_end(drop_all);
    ashlar_status status = ashlar_arena_create(&arena);
    for (size_t i = 0; i < TENSORS && status == ASHLAR_OK; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%zu", i);
        status = ashlar_arena_add(arena, name, ASHLAR_F32, 1, &sizes[i % SIZES], NULL);
    }
    return status;
}

static ashlar_optimizer_config adamw(double clip_norm) {
    ashlar_optimizer_config config = {.kind = ASHLAR_OPTIMIZER_ADAMW, .clip_norm = clip_norm};
    CHECK(ashlar_optimizer_complete(&config) == ASHLAR_OK);
    return config;
}

static ashlar_status make_all(double clip_norm) {
    const ashlar_optimizer_config config = adamw(clip_norm);
    ashlar_status status = declare();
    if (status == ASHLAR_OK) {
        status = ashlar_arena_commit(arena, allocator, streams[0], ASHLAR_REGIONS_TRAINING);
    }
    if (status == ASHLAR_OK) {
        status = ashlar__arena_case_fill(arena, 3, streams[0]);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_optimizer_create(arena, &config, streams[0], &optimizer);
    }
    if (status == ASHLAR_OK) {
        status = ashlar__per_tensor_create(arena, &config, streams[0], &scattered);
    }
    return status;
}

static void synchronize(void) {
    CHECK(ashlar_stream_synchronize(device, streams[0]) == ASHLAR_OK);
}

static void *view_of(const ashlar_per_tensor *t, ashlar_region region, size_t i) {
    return region == ASHLAR_REGION_PARAMETERS  ? t->runs[i].parameters
           : region == ASHLAR_REGION_GRADIENTS ? (void *)(uintptr_t)t->runs[i].gradients
           : region == ASHLAR_REGION_MOMENT1   ? t->runs[i].moment1
                                               : t->runs[i].moment2;
}

/* Tensors of a region that are not the arena's to the last bit. */
static size_t different(const ashlar_per_tensor *per_tensor, ashlar_region region) {
    size_t count = 0;
    for (size_t i = 0; i < TENSORS; i++) {
        count += memcmp(ashlar_arena_view(arena, region, i), view_of(per_tensor, region, i),
                        sizes[i % SIZES] * sizeof(float)) != 0;
    }
    return count;
}

static void run_steps(void) {
    for (int step = 0; step < 3; step++) {
        CHECK(ashlar_optimizer_step(optimizer, 1e-2, 1, streams[0]) == ASHLAR_OK);
        CHECK(ashlar__per_tensor_step(scattered, 1e-2) == ASHLAR_OK);
    }
    synchronize();
}

CASE_WITH(steps_without_clipping_are_the_arenas_to_the_last_bit, set_up("memory=256MiB")) {
    CHECK(make_all(1e9) == ASHLAR_OK);
    CHECK_ZU(different(scattered, ASHLAR_REGION_PARAMETERS), 0);
    run_steps();
    CHECK_ZU(different(scattered, ASHLAR_REGION_PARAMETERS), 0);
    CHECK_ZU(different(scattered, ASHLAR_REGION_MOMENT1), 0);
    CHECK_ZU(different(scattered, ASHLAR_REGION_MOMENT2), 0);
}

CASE(flatten_brings_scattered_parameters_and_pointers_into_the_arena) {
    REQUIRE(set_up("memory=256MiB"));
    CHECK(make_all(0) == ASHLAR_OK);
    CHECK(ashlar_arena_zero(arena, ASHLAR_REGION_PARAMETERS, streams[0]) == ASHLAR_OK);
    CHECK(ashlar__per_tensor_flatten(scattered) == ASHLAR_OK);
    synchronize();
    CHECK_ZU(different(scattered, ASHLAR_REGION_PARAMETERS), 0);
    CHECK(*(float *)ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, 5) != 0);
    CHECK(scattered->pointers[7] == ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, 7));
    ashlar__per_tensor_scatter(scattered);
    CHECK(scattered->pointers[7] == view_of(scattered, ASHLAR_REGION_PARAMETERS, 7));
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
}

RUN_CASES_AFTER(ashlar__workers_set_count(2))
