/*
 * test_text_model.c - the character model in windows of time, which begin with the states of the
 * one before and let no gradient out, at once and in chunks: losses add up, and gradients are the
 * slopes of the loss.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include <math.h>

#include <ashlar/arena.h>

#include "rnn/model/text_model.h"

enum { T = 13, B = 4, CLASSES = 19, GRADIENTS_MAX = 1 << 14 };

/* Unsorted; one sequence ends in the first window whatever the border. */
static const int32_t LENGTHS[B] = {5, 2, 13, 1};

static ashlar_model *model;
static ashlar_arena *arena;
static int32_t *words; /* device: tokens, targets [T, B], lengths [B] */
static double *loss;   /* device */
static unsigned char *set;

static void close_case(void) {
    check_forget(close_case);
    give(set);
    give(words);
    give(loss);
    ashlar_model_destroy(model);
    CHECK_ZU(stats_now().live_blocks, 0);
    tear_down();
}

static bool open_case(const ashlar_text_model_config *config) {
    const ashlar_model_batch shape = {.steps = 1, .batch = B};
    ashlar_model_need need;
    if (!set_up("memory=64MiB") ||
        ashlar__text_model_create(allocator, streams[1], config, ASHLAR_REGIONS_ALL, &model) !=
            ASHLAR_OK ||
        ashlar_model_init(model, ASHLAR_INIT_ASHLAR, 3, streams[1]) != ASHLAR_OK ||
        ashlar_model_get_need(model, ASHLAR_WALK_TRAIN, &shape, &need) != ASHLAR_OK) {
        return false;
    }
    arena = ashlar_model_arena(model);
    words = (int32_t *)(void *)take((2 * T + 1) * B * sizeof *words, streams[1]);
    loss = (double *)(void *)take(sizeof *loss, streams[1]);
    set = take(need.carried_bytes, streams[1]);
    memset(set, 0xff, need.carried_bytes); /* NaN: it must be written */
    for (int32_t i = 0; i < 2 * T * B; i++) {
        const bool is_padding = i / B % T >= LENGTHS[i % B];
        words[i] = is_padding ? -7 : (i * 31 + i / 7) % CLASSES;
    }
    return check_at_end(close_case);
}

/* Some steps of the batch, in chunks or at once. */
typedef struct window {
    size_t first, steps, chunk;
    const void *before;
    void *after;
} window;

static double run(const window *w) {
    int32_t lengths[B], *const at = words + 2 * T * B;
    const void *const inputs[] = {words + w->first * B, words + (T + w->first) * B};
    for (size_t b = 0; b < B; b++) {
        const int32_t left = LENGTHS[b] - (int32_t)w->first;
        at[b] = left < 0 ? 0 : left > (int32_t)w->steps ? (int32_t)w->steps : left;
        lengths[b] = at[b] == 0 ? 1 : at[b];
    }
    const ashlar_model_batch batch = {.batch = B,
                                      .steps = w->steps,
                                      .lengths = lengths,
                                      .lengths_at = at,
                                      .inputs = inputs,
                                      .loss = loss,
                                      .weight = 0.125,
                                      .seed = 99,
                                      .chunk = w->chunk,
                                      .before = w->before,
                                      .after = w->after};
    *loss = 0;
    CHECK(ashlar_arena_zero(arena, ASHLAR_REGION_GRADIENTS, streams[1]) == ASHLAR_OK);
    CHECK(ashlar_model_run(model, ASHLAR_WALK_TRAIN, &batch, streams[1]) == ASHLAR_OK);
    wait_for(streams[1]);
    return *loss;
}

/* In every tensor, at a few places. */
static void check_slopes(const window *w) {
    static double gradients[GRADIENTS_MAX];
    const size_t bytes = ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_GRADIENTS];
    REQUIRE(bytes <= sizeof gradients);
    (void)run(w);
    memcpy(gradients, ashlar_arena_region(arena, ASHLAR_REGION_GRADIENTS), bytes);
    for (size_t tensor = 0; tensor < ashlar_arena_get_info(arena).tensor_count; tensor++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, tensor, &info);
        for (size_t i = 0; i < info.elements; i += 1 + info.elements / 5) {
            double *weight =
                (double *)ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, tensor) + i;
            const size_t at =
                (size_t)(weight - (double *)ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS));
            const double kept = *weight, h = 1e-5;
            *weight = kept + h;
            const double above = run(w);
            *weight = kept - h;
            const double below = run(w);
            *weight = kept;
            CHECK_NEAR(gradients[at], (above - below) / (2 * h), 1e-9, 1e-6);
        }
    }
}

/* The second window's gradients are those of its own loss, with the states it began with. */
static void check_windows(size_t border, size_t chunk) {
    const window rest = {.first = border, .steps = T - border, .chunk = chunk, .before = set};
    const double whole = run(&(window){.steps = T});
    const double first = run(&(window){.steps = border, .chunk = chunk, .after = set});
    CHECK_NEAR(first + run(&rest), whole, 0, 1e-12);
    check_slopes(&rest);
}

static ashlar_text_model_config config_of(int i) {
    return (ashlar_text_model_config){.classes = CLASSES,
                                      .embedding = 17,
                                      .hidden = 18,
                                      .layers = 2,
                                      .dtype = ASHLAR_F64,
                                      .cell = (ashlar_rnn_cell)(i % ASHLAR_RNN_CELL_COUNT),
                                      .projection = i == ASHLAR_RNN_CELL_COUNT ? 7 : 0};
}

CASE(states_go_on_and_gradients_do_not) {
    static const size_t borders[] = {1, 2, 5, 7, 12};
    for (int i = 0; i <= ASHLAR_RNN_CELL_COUNT; i++) {
        const ashlar_text_model_config config = config_of(i);
        REQUIRE(open_case(&config));
        for (size_t b = 0; b < sizeof borders / sizeof borders[0]; b++) {
            check_windows(borders[b], b % 2 == 0 ? 0 : 3);
        }
        close_case();
    }
}

/* In chunks: both forward passes of one drop the same. */
CASE(with_dropout_gradients_are_the_slopes_of_the_loss) {
    for (int i = 0; i <= ASHLAR_RNN_CELL_COUNT; i++) {
        ashlar_text_model_config config = config_of(i);
        config.dropout = 0.3;
        if (config.cell == ASHLAR_RNN_RELU) {
            continue; /* has no slope at 0, where dropout puts it */
        }
        REQUIRE(open_case(&config));
        check_slopes(&(window){.steps = T, .chunk = 4});
        close_case();
    }
}

CASE(its_tensors_have_pytorchs_names) {
    const ashlar_text_model_config config = config_of(0);
    static const char *const names[] = {"embedding.weight", "lstm.weight_ih_l0", "linear.bias"};
    REQUIRE(open_case(&config));
    const size_t last = ashlar_arena_get_info(arena).tensor_count - 1, at[] = {0, 1, last};
    for (size_t i = 0; i < 3; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, at[i], &info);
        CHECK(strcmp(info.name, names[i]) == 0 && info.rank == (i == 2 ? 1 : 2));
    }
}

RUN_CASES()
