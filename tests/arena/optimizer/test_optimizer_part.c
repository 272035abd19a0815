/*
 * test_optimizer_part.c - an optimizer of which each rank has a part: parts that cover the whole,
 * and the same bits as those of one optimizer.
 */
#include "tests/arena/optimizer/optimizer_fixture.h"

#include "arena/optimizer/optimizer_impl.h"

/* Run boundaries by type and by each option, more than one chunk, and a frozen tensor between. */
static const tensor_case wide_cases[] = {
    {"a", ASHLAR_F32, 3, {0}},
    {"no_decay", ASHLAR_F32, 170, {.has_no_decay = true}},
    {"large", ASHLAR_F32, ELEMENTS_MAX, {0}},
    {"frozen", ASHLAR_F32, 100, {.is_frozen = true}},
    {"wide", ASHLAR_F64, 277, {0}},
    {"slow", ASHLAR_F64, 33, {.rate_scale = 0.25}},
    {"last", ASHLAR_F32, 65, {0}},
};

enum { WIDE_COUNT = sizeof wide_cases / sizeof wide_cases[0], STEPS = 3, BYTES_MAX = 32768 };

static unsigned char first[BYTES_MAX], whole[BYTES_MAX]; /* parameters before and after STEPS */
static size_t bytes;                                     /* of them */

static bool open_wide(const ashlar_optimizer_config *config) {
    if (!open_optimizer_of("memory=16MiB", wide_cases, WIDE_COUNT, config)) {
        return false;
    }
    bytes = ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS);
    return bytes <= sizeof first;
}

static bool open_wide_adamw(void) {
    const ashlar_optimizer_config config = adamw();
    return open_wide(&config);
}

static unsigned char *parameters(void) {
    return ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS);
}

static void take_steps(ashlar_optimizer *by) {
    for (unsigned step = 1; step <= STEPS; step++) {
        draw(ASHLAR_REGION_GRADIENTS, step, 0.1);
        CHECK(ashlar_optimizer_step(by, 0.05, 1, streams[0]) == ASHLAR_OK);
        wait_for(streams[0]);
    }
}

static ashlar_optimizer *make_part(size_t rank, size_t ranks) {
    ashlar_optimizer *part = NULL;
    CHECK(ashlar__optimizer_create_part(arena, &opened, rank, ranks, streams[0], &part) ==
          ASHLAR_OK);
    return part;
}

/* ---- bounds ---- */

CASE_WITH(parts_lie_side_by_side_and_are_as_equal_as_can_be, open_wide_adamw()) {
    const size_t units = bytes / ASHLAR_ARENA_ALIGN;
    for (size_t ranks = 1; ranks <= units + 3; ranks++) {
        size_t before = 0;
        for (size_t rank = 0; rank < ranks; rank++) {
            size_t begin = 1, end = 0;
            ashlar__optimizer_part_bounds(arena, rank, ranks, &begin, &end);
            CHECK_ZU(begin, before);
            CHECK_ZU((end - begin) / ASHLAR_ARENA_ALIGN, units / ranks + (rank < units % ranks));
            before = end;
        }
        CHECK_ZU(before, bytes);
    }
}

/* ---- steps ---- */

/* The part's bytes are those of the whole optimizer, and all others are left alone. */
static void check_part(size_t rank, size_t ranks, unsigned moments) {
    ashlar_optimizer *part = make_part(rank, ranks);
    const ashlar_optimizer_part *of = ashlar__optimizer_part_of(part);
    size_t begin, end, wrong = 0;
    REQUIRE(of != NULL);
    ashlar__optimizer_part_bounds(arena, rank, ranks, &begin, &end);
    CHECK(of->begin == begin && of->end == end);
    CHECK((of->moments[0] != NULL) == ((moments & 1) != 0 && begin < end));
    CHECK((of->moments[1] != NULL) == ((moments & 2) != 0 && begin < end));
    memcpy(parameters(), first, bytes);
    take_steps(part);
    for (size_t i = 0; i < bytes; i++) {
        wrong += parameters()[i] != (i >= begin && i < end ? whole : first)[i];
    }
    CHECK_ZU(wrong, 0);
    ashlar_optimizer_destroy(part);
}

static void check_parts(const ashlar_optimizer_config *config, unsigned moments) {
    static const size_t counts[] = {1, 2, 3, 7};
    REQUIRE(open_wide(config));
    CHECK(ashlar__optimizer_part_of(optimizer) == NULL);
    memcpy(first, parameters(), bytes);
    take_steps(optimizer);
    memcpy(whole, parameters(), bytes);
    CHECK(memcmp(first, whole, bytes) != 0);
    const uint64_t live = stats_now().live_bytes;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (size_t rank = 0; rank < counts[i]; rank++) {
            check_part(rank, counts[i], moments);
            CHECK(stats_now().live_bytes == live);
        }
    }
}

CASE(parts_of_adamw_have_the_bits_of_the_whole) {
    const ashlar_optimizer_config config = adamw(); /* clips: the norm is that of all gradients */
    check_parts(&config, 3);
}

CASE(parts_of_sgd_have_the_bits_of_the_whole) {
    const ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_SGD);
    check_parts(&config, 0);
}

CASE(parts_of_sgd_with_momentum_have_the_bits_of_the_whole) {
    ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_SGD);
    config.momentum = 0.9;
    check_parts(&config, 1);
}

CASE(parts_of_rmsprop_have_the_bits_of_the_whole) {
    const ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_RMSPROP);
    check_parts(&config, 2);
}

CASE_WITH(a_part_may_be_empty, open_wide_adamw()) {
    const size_t ranks = bytes / ASHLAR_ARENA_ALIGN + 1;
    ashlar_optimizer *part = make_part(ranks - 1, ranks);
    const ashlar_optimizer_part *of = ashlar__optimizer_part_of(part);
    REQUIRE(of != NULL);
    CHECK(of->begin == of->end && of->moments[0] == NULL && of->moments[1] == NULL);
    memcpy(first, parameters(), bytes);
    take_steps(part);
    CHECK(memcmp(first, parameters(), bytes) == 0);
    ashlar_optimizer_destroy(part);
}

/* An arena may have moments that an algorithm has no use for. */
CASE(moments_that_are_not_needed_are_left_alone) {
    const ashlar_optimizer_config more = adamw(), sgd = defaults(ASHLAR_OPTIMIZER_SGD);
    REQUIRE(open_arena("memory=16MiB", wide_cases, WIDE_COUNT, ashlar_optimizer_regions(&more)));
    REQUIRE(ashlar_optimizer_create(arena, &sgd, streams[0], &optimizer) == ASHLAR_OK);
    wait_for(streams[0]);
    draw(ASHLAR_REGION_MOMENT1, 5, 1);
    const double before = get(ASHLAR_REGION_MOMENT1, 2, 7);
    CHECK(!(before >= 0 && before <= 0));
    take_steps(optimizer);
    CHECK_NEAR(get(ASHLAR_REGION_MOMENT1, 2, 7), before, 0, 0);
}

/* ---- refused ---- */

CASE_WITH(tensors_of_narrow_types_are_not_divided, open_adamw()) {
    ashlar_optimizer *part = NULL;
    const uint64_t live = stats_now().live_bytes;
    CHECK_FAILS(ashlar__optimizer_create_part(arena, &opened, 0, 2, streams[0], &part),
                ASHLAR_ENOTSUP, "half is of type");
    CHECK(part == NULL && stats_now().live_bytes == live);
}

CASE_WITH(a_part_that_cannot_be_made_leaves_nothing, open_wide_adamw()) {
    ashlar_optimizer *part = NULL;
    const uint64_t live = stats_now().live_bytes;
    ashlar_status status = ASHLAR_EHOSTMEM;
    for (unsigned long n = 1; status != ASHLAR_OK && n < 100; n++) {
        HOST_FAILS_AT(
            n, status = ashlar__optimizer_create_part(arena, &opened, 0, 2, streams[0], &part));
        CHECK((part != NULL) == (status == ASHLAR_OK));
        CHECK(part != NULL || stats_now().live_bytes == live);
    }
    CHECK(status == ASHLAR_OK);
    ashlar_optimizer_destroy(part);
    part = NULL;
    for (uint64_t fill = 1; fill <= 2; fill++) { /* each moment is filled */
        ashlar__driver_fail_at(device->driver, ASHLAR_DRIVER_FN_memset_d8_async, fill, CU_UNKNOWN);
        CHECK(ashlar__optimizer_create_part(arena, &opened, 0, 2, streams[0], &part) ==
              ASHLAR_EDRIVER);
        CHECK(part == NULL && stats_now().live_bytes == live);
    }
    ashlar__driver_fail_at(device->driver, -1, 0, CU_SUCCESS);
}

/* ---- what the program leaves out ---- */

CASE(a_field_that_is_given_is_kept_and_one_that_is_not_has_its_default) {
    for (int kind = 0; kind < ASHLAR_OPTIMIZER_COUNT; kind++) {
        const ashlar_optimizer_config want = defaults((ashlar_optimizer_kind)kind);
        ashlar_optimizer_config given = {.kind = (ashlar_optimizer_kind)kind}, taken;
        REQUIRE(ashlar__optimizer_take(&taken, &given, sizeof given) == ASHLAR_OK);
        CHECK(taken.is_complete);
        CHECK_NEAR(taken.learning_rate, want.learning_rate, 0, 0);
        CHECK_NEAR(taken.beta1, want.beta1, 0, 0);
        CHECK_NEAR(taken.beta2, want.beta2, 0, 0);
        CHECK_NEAR(taken.smoothing, want.smoothing, 0, 0);
        CHECK_NEAR(taken.epsilon, want.epsilon, 0, 0);
        CHECK_NEAR(taken.weight_decay, want.weight_decay, 0, 0);
        CHECK_NEAR(taken.scale_growth, want.scale_growth, 0, 0);
        CHECK_NEAR(taken.scale_backoff, want.scale_backoff, 0, 0);
        CHECK(taken.scale_interval == want.scale_interval);
        given.learning_rate = 0.125;
        given.scale_interval = 7;
        REQUIRE(ashlar__optimizer_take(&taken, &given, sizeof given) == ASHLAR_OK);
        CHECK_NEAR(taken.learning_rate, 0.125, 0, 0);
        CHECK(taken.scale_interval == 7);
        given.learning_rate = -0.125; /* no default stands for what is wrong */
        CHECK_FAILS(ashlar__optimizer_take(&taken, &given, sizeof given), ASHLAR_EINVAL,
                    "learning_rate");
    }
}

RUN_CASES()
