/*
 * test_optimizer_part.c - an optimizer of which each rank has a part: parts that cover the whole,
 * and the same bits as those of one optimizer.
 */
#include "tests/arena/optimizer/optimizer_fixture.h"

#include "arena/optimizer/optimizer_impl.h"

/* Every type, run boundaries by type and by each option, runs of several chunks of which some begin
 * anywhere, and a frozen tensor between. */
static const tensor_case wide_cases[] = {
    {"a", ASHLAR_F32, 3, {0}},
    {"no_decay", ASHLAR_F32, 170, {.has_no_decay = true}},
    {"large", ASHLAR_F32, 2 * ASHLAR_OPTIMIZER_CHUNK + 900, {0}},
    {"frozen", ASHLAR_F32, 100, {.is_frozen = true}},
    {"wide", ASHLAR_F64, ASHLAR_OPTIMIZER_CHUNK + 277, {0}},
    {"slow", ASHLAR_F64, 33, {.rate_scale = 0.25}},
    {"half", ASHLAR_F16, 2 * ASHLAR_OPTIMIZER_CHUNK + 77, {0}},
    {"brain", ASHLAR_BF16, 515, {.has_no_decay = true}},
    {"last", ASHLAR_F32, 65, {0}},
};

enum { WIDE_COUNT = sizeof wide_cases / sizeof wide_cases[0], STEPS = 3, RANKS_MOST = 64 };

static size_t bytes; /* of the parameters */
static image first;  /* before the steps ... */
static image whole;  /* ... and what one optimizer makes of it */
static ashlar_optimizer *parts[RANKS_MOST];

static bool open_wide(const ashlar_optimizer_config *config) {
    if (!open_optimizer_of("memory=16MiB", wide_cases, WIDE_COUNT, config)) {
        return false;
    }
    bytes = ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS);
    return true;
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

/* Half a chunk of the widest type away from equal parts, at most. */
CASE_WITH(parts_lie_side_by_side_and_are_as_equal_as_can_be, open_wide_adamw()) {
    const size_t units = bytes / ASHLAR_ARENA_ALIGN;
    const size_t most = ASHLAR_OPTIMIZER_CHUNK / 2 * sizeof(double) + ASHLAR_ARENA_ALIGN;
    for (size_t ranks = 1; ranks <= units + 3; ranks++) {
        size_t before = 0, states[ASHLAR_PART_STATES] = {0};
        for (size_t rank = 0; rank < ranks; rank++) {
            const ashlar_optimizer_part part =
                ashlar__optimizer_part_bounds(optimizer, rank, ranks);
            const size_t equal = bytes * (rank + 1) / ranks;
            CHECK_ZU(part.begin, before);
            CHECK(part.end + most >= equal && part.end <= equal + most);
            before = part.end;
            for (size_t i = 0; i < ASHLAR_PART_STATES; i++) {
                CHECK_ZU(part.states[i].begin, states[i]);
                states[i] = part.states[i].end;
            }
        }
        CHECK_ZU(before, bytes);
        for (size_t i = 0; i < ASHLAR_PART_STATES; i++) {
            const ashlar_region region =
                ashlar__optimizer_part_bounds(optimizer, 0, ranks).states[i].region;
            CHECK_ZU(states[i], ashlar_arena_region_bytes(arena, region));
        }
    }
}

/* ---- steps ---- */

/* The gradients of a step as a rank has them: of its own part the sums, elsewhere nothing that may
 * be read. */
static void draw_for(const ashlar_optimizer *of, unsigned step) {
    const ashlar_optimizer_part *part = ashlar__optimizer_part_of(of);
    unsigned char *gradients = ashlar_arena_region(arena, ASHLAR_REGION_GRADIENTS);
    memset(gradients, 0, bytes);
    draw(ASHLAR_REGION_GRADIENTS, step, 0.1);
    memset(gradients, 0xff, part->begin);
    memset(gradients + part->end, 0xff, bytes - part->end);
}

/* What a program does with the sums of all ranks: each has one addend that is not 0. */
static void add_sums(double *const sums[], size_t ranks, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t addends = 0;
        double sum = 0;
        for (size_t rank = 0; rank < ranks; rank++) {
            addends += sums[rank][i] > 0;
            sum += sums[rank][i];
        }
        CHECK_ZU(addends, 1);
        for (size_t rank = 0; rank < ranks; rank++) {
            sums[rank][i] = sum;
        }
    }
}

static void take_steps_in_parts(size_t ranks) {
    double *sums[RANKS_MOST];
    size_t count = 0;
    for (unsigned step = 1; step <= STEPS; step++) {
        for (size_t rank = 0; rank < ranks; rank++) {
            draw_for(parts[rank], step);
            CHECK(ashlar__optimizer_part_squares(parts[rank], streams[0], &sums[rank], &count) ==
                  ASHLAR_OK);
            wait_for(streams[0]);
        }
        add_sums(sums, ranks, count);
        for (size_t rank = 0; rank < ranks; rank++) {
            draw_for(parts[rank], step);
            CHECK(ashlar__optimizer_part_update(parts[rank], 0.05, 1, streams[0]) == ASHLAR_OK);
            wait_for(streams[0]);
        }
    }
}

/* What a part holds is what the whole optimizer has there. */
static void check_states(size_t rank, size_t ranks) {
    const ashlar_optimizer_part *part = ashlar__optimizer_part_of(parts[rank]);
    const ashlar_optimizer_part bounds = ashlar__optimizer_part_bounds(optimizer, rank, ranks);
    REQUIRE(part != NULL);
    CHECK(part->begin == bounds.begin && part->end == bounds.end);
    for (size_t i = 0; i < ASHLAR_PART_STATES; i++) {
        const ashlar_part_state *state = &part->states[i];
        const unsigned char *wanted = whole.bytes[state->region];
        CHECK((state->data != NULL) == (wanted != NULL && state->begin < state->end));
        CHECK(state->data == NULL ||
              memcmp(state->data, wanted + state->begin, state->end - state->begin) == 0);
    }
}

static void check_count(size_t ranks) {
    const uint64_t live = stats_now().live_bytes;
    memcpy(parameters(), first.bytes[ASHLAR_REGION_PARAMETERS], bytes);
    for (size_t rank = 0; rank < ranks; rank++) {
        parts[rank] = make_part(rank, ranks);
    }
    take_steps_in_parts(ranks);
    CHECK(memcmp(parameters(), whole.bytes[ASHLAR_REGION_PARAMETERS], bytes) == 0);
    for (size_t rank = 0; rank < ranks; rank++) {
        check_states(rank, ranks);
        ashlar_optimizer_destroy(parts[rank]);
    }
    CHECK(stats_now().live_bytes == live);
}

static void check_parts(const ashlar_optimizer_config *config) {
    static const size_t counts[] = {1, 2, 3, 7, RANKS_MOST};
    REQUIRE(open_wide(config));
    CHECK(ashlar__optimizer_part_of(optimizer) == NULL);
    take_image(&first);
    take_steps(optimizer);
    take_image(&whole);
    CHECK(!is_image(&first));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        check_count(counts[i]);
    }
    free_image(&first);
    free_image(&whole);
}

CASE(parts_of_adamw_have_the_bits_of_the_whole) {
    const ashlar_optimizer_config config = adamw(); /* clips: the norm is that of all gradients */
    check_parts(&config);
}

CASE(parts_of_sgd_have_the_bits_of_the_whole) {
    const ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_SGD);
    check_parts(&config);
}

CASE(parts_of_sgd_with_momentum_have_the_bits_of_the_whole) {
    ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_SGD);
    config.momentum = 0.9;
    check_parts(&config);
}

CASE(parts_of_rmsprop_have_the_bits_of_the_whole) {
    const ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_RMSPROP);
    check_parts(&config);
}

/* One rank's gradient is not a number: all skip the step. */
CASE_WITH(a_part_that_is_not_finite_makes_all_skip, open_wide_adamw()) {
    double *sums[2];
    size_t count = 0;
    for (size_t rank = 0; rank < 2; rank++) {
        parts[rank] = make_part(rank, 2);
        draw(ASHLAR_REGION_GRADIENTS, 1, 0.1);
        put(ASHLAR_REGION_GRADIENTS, 0, 1, NAN); /* in the first part */
        CHECK(ashlar__optimizer_part_squares(parts[rank], streams[0], &sums[rank], &count) ==
              ASHLAR_OK);
        wait_for(streams[0]);
    }
    take_image(&first);
    for (size_t i = 0; i < count; i++) {
        sums[0][i] = sums[1][i] += sums[0][i];
    }
    for (size_t rank = 0; rank < 2; rank++) {
        ashlar_optimizer_state state;
        CHECK(ashlar__optimizer_part_update(parts[rank], 0.05, 1, streams[0]) == ASHLAR_OK);
        CHECK(ashlar_optimizer_copy_state_to_host(parts[rank], &state, streams[0]) == ASHLAR_OK);
        wait_for(streams[0]);
        CHECK(state.is_skipped && state.step == 0);
        ashlar_optimizer_destroy(parts[rank]);
    }
    CHECK(is_image(&first));
    free_image(&first);
}

CASE_WITH(a_part_may_be_empty, open_wide_adamw()) {
    const size_t ranks = bytes / ASHLAR_ARENA_ALIGN + 1;
    ashlar_optimizer *part = make_part(0, ranks);
    const ashlar_optimizer_part *of = ashlar__optimizer_part_of(part);
    double *sums;
    size_t count;
    REQUIRE(of != NULL);
    CHECK(of->begin == of->end && of->states[0].data == NULL && of->states[2].data == NULL);
    take_image(&first);
    CHECK(ashlar__optimizer_part_squares(part, streams[0], &sums, &count) == ASHLAR_OK);
    CHECK(ashlar__optimizer_part_update(part, 0.05, 1, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    for (size_t i = 0; i < count; i++) {
        CHECK_NEAR(sums[i], 0, 0, 0);
    }
    CHECK(is_image(&first));
    free_image(&first);
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

CASE_WITH(a_step_of_a_part_refuses_what_one_of_the_whole_does, open_wide_adamw()) {
    ashlar_optimizer *part = make_part(0, 2);
    CHECK_FAILS(ashlar__optimizer_part_update(part, -1, 1, streams[0]), ASHLAR_EINVAL,
                "learning_rate -1");
    CHECK_FAILS(ashlar__optimizer_part_update(part, 0.1, 0, streams[0]), ASHLAR_EINVAL,
                "gradient_scale 0");
    ashlar_optimizer_destroy(part);
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
    for (uint64_t fill = 1; fill <= 2; fill++) { /* each state is filled */
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
        REQUIRE(ashlar__optimizer_take(&taken, &given) == ASHLAR_OK);
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
        REQUIRE(ashlar__optimizer_take(&taken, &given) == ASHLAR_OK);
        CHECK_NEAR(taken.learning_rate, 0.125, 0, 0);
        CHECK(taken.scale_interval == 7);
        given.learning_rate = -0.125; /* no default stands for what is wrong */
        CHECK_FAILS(ashlar__optimizer_take(&taken, &given), ASHLAR_EINVAL,
                    "learning_rate");
    }
}

RUN_CASES()
