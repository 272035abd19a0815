/*
 * test_structures_zero.c - public structures whose fields are left 0, and flags and constants that
 * nobody knows.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include <ashlar/ashlar.h>

#include "allocator/core/allocator_impl.h"

enum { WIDTH = 64 };

static ashlar_arena *arena;
static ashlar_optimizer *optimizer;
static ashlar_rnn *rnn;
static void *memory; /* of the device */

static ashlar_status keep_status(void *context, void *data, size_t elements, ashlar_dtype dtype,
                                 ashlar_stream stream) {
    (void)context, (void)data, (void)elements, (void)dtype, (void)stream;
    return ASHLAR_OK;
}

static ashlar_status broadcast(void *context, void *data, size_t elements, ashlar_dtype dtype,
                               size_t root, ashlar_stream stream) {
    (void)root;
    return keep_status(context, data, elements, dtype, stream);
}

static void close_all(void) {
    check_forget(close_all);
    ashlar_rnn_destroy(rnn);
    ashlar_optimizer_destroy(optimizer);
    ashlar_arena_destroy(arena);
    give(memory);
    tear_down();
}

static const ashlar_optimizer_config ADAM = {.kind = ASHLAR_OPTIMIZER_ADAM, .loss_scale = 4};

static ashlar_arena *make_arena(unsigned regions) {
    const size_t shape[] = {WIDTH};
    ashlar_arena *made = NULL;
    CHECK(ashlar_arena_create(&made) == ASHLAR_OK);
    CHECK(ashlar_arena_add(made, "w", ASHLAR_F32, 1, shape, NULL) == ASHLAR_OK);
    CHECK(ashlar_arena_commit(made, allocator, streams[0], regions) == ASHLAR_OK);
    return made;
}

static bool set_up_all(void) {
    const ashlar_rnn_config config = {.input = 1, .hidden = 1, .layers = 1};
    if (!set_up_cached("memory=64MiB", MIB)) {
        return false;
    }
    memory = take(MIB, streams[0]);
    arena = make_arena(ASHLAR_REGIONS_ALL);
    CHECK(ashlar_optimizer_create(arena, &ADAM, streams[0], &optimizer) == ASHLAR_OK);
    CHECK(ashlar_rnn_create(device, &config, &rnn) == ASHLAR_OK);
    check_forget(tear_down);
    return check_at_end(close_all);
}

/* ---- zero is the default ---- */

CASE_WITH(a_plan_whose_other_options_are_zero_is_built, set_up_all()) {
    const ashlar_plan_options options = {.rerecord_after = 5};
    CHECK(ashlar_plan_set_options(allocator, &options) == ASHLAR_OK);
    for (int step = 0; step < 2; step++) {
        CHECK(ashlar_step_begin(allocator, streams[0], 1) == ASHLAR_OK);
        give(take(3 * KIB, streams[0]));
        CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    }
    ashlar_plan_stats stats;
    ashlar_plan_get_stats(allocator, &stats);
    CHECK(stats.plan_count == 1 && stats.hits == 1);
}

CASE_WITH(options_that_are_all_zero_are_the_defaults, set_up_device("memory=64MiB")) {
    static const ashlar_config zero;
    char line[512], initial[512];
    ashlar_config config;
    ashlar_config_init(&config);
    CHECK(ashlar_config_format(&zero, line, sizeof line, NULL) == ASHLAR_OK);
    CHECK(ashlar_config_format(&config, initial, sizeof initial, NULL) == ASHLAR_OK);
    CHECK(strcmp(line, initial) == 0);
    ashlar_allocator *made = NULL;
    REQUIRE(ashlar_allocator_create_with(device, &zero, &made) == ASHLAR_OK);
    CHECK(made->cache_bytes == 2 * MIB); /* a 32nd of the device */
    CHECK(made->heap.range.limit_bytes == 64 * MIB && made->heap.range.handle_bytes == 2 * MIB);
    ashlar_allocator_destroy(made);
    ashlar_pack_result result;
    CHECK(ashlar_pack(NULL, 0, &(ashlar_pack_options){0}, NULL, &result) == ASHLAR_OK);
    const ashlar_schedule falling = {.kind = ASHLAR_SCHEDULE_STEP, .rate = 1, .step_size = 1};
    CHECK(ashlar_schedule_check(&falling) == ASHLAR_OK);
    CHECK_NEAR(ashlar_schedule_rate(&falling, 2), 0.1, 1e-15, 0);
    ashlar_rnn_layout layout;
    CHECK(ashlar_rnn_layout_init(
              &layout, &(ashlar_rnn_config){.input = 1, .hidden = 1, .layers = 1}) == ASHLAR_OK);
    CHECK(layout.config.directions == 1 && layout.gates == 4);
}

/* The parameters after two steps from the same beginning. */
static void train(const ashlar_optimizer_config *config, unsigned char *parameters) {
    ashlar_arena *own = make_arena(ashlar_optimizer_regions(config));
    ashlar_optimizer *made = NULL;
    REQUIRE(ashlar_optimizer_create(own, config, streams[0], &made) == ASHLAR_OK);
    void *at = ashlar_arena_region(own, ASHLAR_REGION_PARAMETERS);
    CHECK(ashlar_fill(device, at, 0x3f, WIDTH * 4, streams[0]) == ASHLAR_OK);
    for (int step = 0; step < 2; step++) {
        void *gradients = ashlar_arena_region(own, ASHLAR_REGION_GRADIENTS);
        CHECK(ashlar_fill(device, gradients, (unsigned char)(0x3c + step), WIDTH * 4, streams[0]) ==
              ASHLAR_OK);
        CHECK(ashlar_optimizer_step(made, ashlar_optimizer_learning_rate(made), 1, streams[0]) ==
              ASHLAR_OK);
    }
    CHECK(ashlar_copy_to_host(device, parameters, at, WIDTH * 4, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    ashlar_optimizer_destroy(made);
    ashlar_arena_destroy(own);
}

CASE_WITH(an_optimizer_of_a_kind_alone_has_its_defaults, set_up_all()) {
    for (int kind = 0; kind < ASHLAR_OPTIMIZER_COUNT; kind++) {
        unsigned char alone[WIDTH * 4], filled[WIDTH * 4];
        ashlar_optimizer_config config = {.kind = (ashlar_optimizer_kind)kind};
        train(&config, alone);
        ashlar_optimizer_defaults((ashlar_optimizer_kind)kind, &config);
        train(&config, filled);
        CHECK(memcmp(alone, filled, sizeof alone) == 0);
    }
    ashlar_optimizer_config config; /* where all is filled in, a 0 is a 0 */
    unsigned char decayed[WIDTH * 4], kept[WIDTH * 4];
    ashlar_optimizer_defaults(ASHLAR_OPTIMIZER_ADAMW, &config);
    train(&config, decayed);
    config.weight_decay = 0;
    train(&config, kept);
    CHECK(memcmp(decayed, kept, sizeof kept) != 0);
    config.learning_rate = 0;
    CHECK_FAILS(ashlar_optimizer_check(&config), ASHLAR_EINVAL, "learning_rate");
}

CASE_WITH(a_state_that_is_all_zero_begins_anew, set_up_all()) {
    const ashlar_optimizer_state zero = {0};
    ashlar_optimizer_state state;
    CHECK(ashlar_optimizer_copy_state_to_device(optimizer, &zero, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_optimizer_copy_state_to_host(optimizer, &state, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    CHECK(state.step == 0 && state.loss_scale == ADAM.loss_scale);
}

/* ---- flags and constants that this version does not know ---- */

CASE_WITH(unknown_flags_are_refused, set_up_all()) {
    ashlar_arena *other = NULL;
    const unsigned unknown = ASHLAR_REGIONS_ALL + 1;
    const size_t shape[] = {WIDTH};
    CHECK(ashlar_arena_create(&other) == ASHLAR_OK);
    CHECK(ashlar_arena_add(other, "w", ASHLAR_F32, 1, shape, NULL) == ASHLAR_OK);
    CHECK_FAILS(ashlar_arena_commit(other, allocator, streams[0], unknown | 1), ASHLAR_EINVAL,
                "regions");
    ashlar_arena_destroy(other);
    CHECK_FAILS(ashlar_arena_extend(arena, streams[0], unknown), ASHLAR_EINVAL, "regions");
    CHECK_FAILS(
        ashlar_arena_replicate(arena, streams[0], allocator, streams[0], unknown | 1, &other),
        ASHLAR_EINVAL, "regions");
    CHECK_FAILS(ashlar_checkpoint_save(arena, "/dev/null", 4, NULL, 0, streams[0]), ASHLAR_EINVAL,
                "flags");
}

CASE_WITH(unknown_constants_are_refused, set_up_all()) {
    void *ptr = NULL;
    ashlar_reducer *reducer;
    const ashlar_collectives collectives = {.broadcast = broadcast, .all_reduce = keep_status};
    const ashlar_flatten_item item = {0, &memory};
    CHECK_FAILS(ashlar_alloc_tagged(allocator, 64, ASHLAR_TAG_COUNT, streams[0], &ptr),
                ASHLAR_EINVAL, "tag");
    CHECK_FAILS(ashlar_allocator_set_seal_policy(allocator, (ashlar_seal_policy)3, NULL, NULL),
                ASHLAR_EINVAL, "seal policy: 3");
    CHECK_FAILS(
        ashlar_allocator_write_trace(allocator, ASHLAR_TRACE_FORMAT_COUNT, "/dev/null", NULL),
        ASHLAR_EINVAL, "");
    CHECK_FAILS(ashlar_arena_zero(arena, ASHLAR_REGION_COUNT, streams[0]), ASHLAR_EINVAL, "region");
    CHECK_FAILS(ashlar_arena_bind(arena, ASHLAR_REGION_COUNT, 0, &ptr), ASHLAR_EINVAL, "region");
    CHECK_FAILS(ashlar_arena_flatten(arena, ASHLAR_REGION_COUNT, &item, 1, NULL, streams[0], NULL),
                ASHLAR_EINVAL, "region");
    CHECK(ashlar_arena_region(arena, ASHLAR_REGION_COUNT) == NULL &&
          ashlar_arena_region_bytes(arena, ASHLAR_REGION_COUNT) == 0);
    CHECK_FAILS(
        ashlar_reducer_create(arena, &collectives, ASHLAR_REDUCTION_COUNT, streams[0], &reducer),
        ASHLAR_EINVAL, "reduction");
    CHECK_FAILS(ashlar_optimizer_check(&(ashlar_optimizer_config){.kind = ASHLAR_OPTIMIZER_COUNT}),
                ASHLAR_EINVAL, "kind");
    CHECK_FAILS(ashlar_schedule_check(&(ashlar_schedule){.kind = ASHLAR_SCHEDULE_COUNT, .rate = 1}),
                ASHLAR_EINVAL, "kind");
    const ashlar_rnn_config wrong[] = {
        {.input = 1, .hidden = 1, .layers = 1, .dtype = ASHLAR_DTYPE_COUNT},
        {.input = 1, .hidden = 1, .layers = 1, .cell = ASHLAR_RNN_CELL_COUNT},
        {.input = 1, .hidden = 1, .layers = 1, .bias = ASHLAR_RNN_BIAS_COUNT},
        {.input = 1, .hidden = 1, .layers = 1, .math = ASHLAR_RNN_MATH_COUNT},
        {.input = 1, .hidden = 1, .layers = 1, .algorithm = ASHLAR_RNN_ALGORITHM_COUNT},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ashlar_rnn_layout layout;
        CHECK_FAILS(ashlar_rnn_layout_init(&layout, &wrong[i]), ASHLAR_EINVAL, "rnn");
    }
}

RUN_CASES()
