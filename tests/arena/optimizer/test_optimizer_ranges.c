/*
 * test_optimizer_ranges.c - a step in parts, over any ranges of the arena.
 */
#include "tests/arena/optimizer/optimizer_fixture.h"

static reference r; /* too large for a stack */

/* The sum over several ranges: each adds to those before it. */
static void sum_of_ranges(const size_t *ends, size_t count) {
    for (size_t i = 0, begin = 0; i < count; begin = ends[i++]) {
        CHECK(ashlar_optimizer_sum(optimizer, begin, ends[i] - begin, streams[0]) == ASHLAR_OK);
    }
}

static void step_in_ranges(const size_t *ends, size_t count, unsigned gradients) {
    draw(ASHLAR_REGION_GRADIENTS, gradients, 1);
    sum_of_ranges(ends, count);
    CHECK(ashlar_optimizer_decide(optimizer, 1, streams[0]) == ASHLAR_OK);
    for (size_t i = count; i-- > 0;) {
        const size_t begin = i == 0 ? 0 : ends[i - 1];
        CHECK(ashlar_optimizer_update(optimizer, begin, ends[i] - begin, 0.05, streams[0]) ==
              ASHLAR_OK);
    }
    wait_for(streams[0]);
}

static void check_ranges(const size_t *ends, size_t count) {
    ashlar_optimizer_config config = adamw();
    REQUIRE(open_optimizer(&config));
    REQUIRE(ends[count - 1] == ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS));
    reference_open(&r, &config);
    for (int turn = 1; turn <= 2; turn++) {
        step_in_ranges(ends, count, (unsigned)turn);
        reference_step(&r, &config, turn, 0.05, 1);
        check_equal(&r);
        check_padding();
    }
    close_optimizer();
}

static size_t arena_bytes(void) {
    const ashlar_optimizer_config config = adamw();
    size_t bytes = 0;
    CHECK(open_optimizer(&config));
    bytes = ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS);
    close_optimizer();
    return bytes;
}

CASE(a_step_in_ranges_is_a_step) {
    const size_t all = arena_bytes();
    enum { LINES_MAX = 200 };
    REQUIRE(all / ASHLAR_ARENA_ALIGN < LINES_MAX);
    size_t ends[LINES_MAX];
    for (size_t lines = 1; lines < LINES_MAX; lines = lines * 3 + 1) {
        size_t count = 0;
        for (size_t end = lines * ASHLAR_ARENA_ALIGN; end < all;
             end += lines * ASHLAR_ARENA_ALIGN) {
            ends[count++] = end;
        }
        ends[count++] = all;
        check_ranges(ends, count);
    }
}

CASE(a_range_without_tensors_that_count_adds_nothing) {
    static const tensor_case tensors[] = {{"a", ASHLAR_F32, 64, {0}},
                                          {"ice", ASHLAR_F32, 128, {.is_frozen = true}},
                                          {"b", ASHLAR_F32, 64, {0}}};
    const ashlar_optimizer_config config = adamw();
    REQUIRE(open_optimizer_of("memory=16MiB", tensors, 3, &config));
    draw(ASHLAR_REGION_GRADIENTS, 1, 1);
    const size_t ranges[][2] = {{256, 512}, {256, 256}, {512, 256}, {0, 0}, {256, 0}, {1024, 0}};
    *ashlar_optimizer_sum_address(optimizer) = 5; /* of a step before: the first sum forgets it */
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        CHECK(ashlar_optimizer_sum(optimizer, ranges[i][0], ranges[i][1], streams[0]) == ASHLAR_OK);
        wait_for(streams[0]);
        CHECK(*ashlar_optimizer_sum_address(optimizer) == 0);
    }
    double b = 0;
    for (size_t i = 0; i < 64; i++) {
        b += pow(get(ASHLAR_REGION_GRADIENTS, 2, i), 2);
    }
    CHECK(ashlar_optimizer_sum(optimizer, 512, 512, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    CHECK_NEAR(*ashlar_optimizer_sum_address(optimizer), b, 0, 1e-14);
}

/* Whole numbers, whose squares have an exact sum. */
static double draw_whole_gradients(unsigned seed) {
    double sum = 0;
    for (size_t t = 0; t < case_count; t++) {
        for (size_t i = 0; i < cases[t].elements; i++) {
            const double value = (double)((i * 7 + t + seed) % 17) - 8;
            put(ASHLAR_REGION_GRADIENTS, t, i, value);
            sum += cases[t].options.is_frozen ? 0 : value * value;
        }
    }
    return sum;
}

/* A step that was given up leaves sums behind: those of the state that is put back do not count. */
CASE(a_state_that_is_put_back_begins_the_sum_anew) {
    const ashlar_optimizer_config config = adamw();
    REQUIRE(open_optimizer(&config));
    const size_t all = ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS);
    const ashlar_optimizer_state state = state_now();
    const double sum = draw_whole_gradients(1);
    CHECK(ashlar_optimizer_sum(optimizer, 0, 512, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_optimizer_copy_state_to_device(optimizer, &state, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_optimizer_sum(optimizer, 0, all, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    CHECK(*ashlar_optimizer_sum_address(optimizer) == sum);
}

RUN_CASES()
