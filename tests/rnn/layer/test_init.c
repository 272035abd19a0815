/* test_init.c - the first values of weights: their distributions, by either rule, and what is not
 * drawn stays. */
#include "tests/allocator/core/allocator_fixture.h"

#include <math.h>

#include <ashlar/model.h>
#include <ashlar/rnn.h>

enum { INPUT = 40, HIDDEN = 64, CLASSES = 90, WIDTH = 50, PARTS = 4 };

static ashlar_arena *arena;
static ashlar_rnn_layout layout;
static ashlar_part parts[PARTS]; /* table, stack, linear with bias, weight alone */
static size_t other;             /* a tensor of no part */

static void close_arena(void) {
    check_forget(close_arena);
    ashlar_arena_destroy(arena);
    tear_down();
}

static bool add(const char *name, size_t rank, size_t rows, size_t cols, size_t *tensor) {
    return ashlar_arena_add(arena, name, ASHLAR_F32, rank, (size_t[]){rows, cols}, tensor) ==
           ASHLAR_OK;
}

static bool open_arena(ashlar_rnn_cell cell, ashlar_rnn_bias bias) {
    const ashlar_rnn_config config = {
        .input = INPUT, .hidden = HIDDEN, .layers = 2, .cell = cell, .bias = bias};
    const ashlar_part_kind kinds[PARTS] = {ASHLAR_PART_EMBEDDING, ASHLAR_PART_RNN,
                                           ASHLAR_PART_LINEAR, ASHLAR_PART_WEIGHT};
    size_t at[PARTS], ignored;
    const bool is_open =
        set_up("memory=64MiB") && ashlar_rnn_layout_init(&layout, &config) == ASHLAR_OK &&
        ashlar_arena_create(&arena) == ASHLAR_OK && add("t", 2, CLASSES, WIDTH, &at[0]) &&
        ashlar_rnn_declare(arena, "r", &layout, &at[1]) == ASHLAR_OK &&
        add("l.weight", 2, CLASSES, HIDDEN, &at[2]) && add("l.bias", 1, CLASSES, 0, &ignored) &&
        add("w", 2, WIDTH, 16, &at[3]) && add("other", 1, 7, 0, &other) &&
        ashlar_arena_commit(arena, allocator, streams[0], ASHLAR_REGIONS_INFERENCE) == ASHLAR_OK &&
        check_at_end(close_arena);
    for (size_t i = 0; i < PARTS; i++) {
        parts[i] = (ashlar_part){kinds[i], at[i], i == 1 ? &layout : NULL};
    }
    return is_open;
}

static ashlar_status init(ashlar_init_rule rule, size_t count, uint64_t seed) {
    const ashlar_status status = ashlar_init_weights(arena, rule, parts, count, seed, streams[0]);
    wait_for(streams[0]);
    return status;
}

static const float *values(size_t tensor) {
    return ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, tensor);
}

/* Mean, deviation and the largest value of some elements, in units of `bound`. */
typedef struct moments {
    double mean, deviation, most;
} moments;

static moments moments_of(const float *v, size_t count, double bound) {
    moments m = {0};
    for (size_t i = 0; i < count; i++) {
        const double value = (double)v[i] / bound;
        m.mean += value / (double)count;
        m.deviation += value * value / (double)count;
        m.most = fmax(m.most, fabs(value));
    }
    m.deviation = sqrt(m.deviation - m.mean * m.mean);
    return m;
}

static void check_uniform(const float *v, size_t count, double bound) {
    const moments m = moments_of(v, count, bound);
    CHECK_NEAR(m.mean, 0, 4 / sqrt(3.0 * (double)count), 0);
    CHECK_NEAR(m.deviation, 1 / sqrt(3.0), 0, 4 / sqrt((double)count));
    CHECK(m.most <= 1 && m.most > 0.9);
}

CASE_WITH(both_rules_draw_stacks_and_linear_layers_uniformly, open_arena(ASHLAR_RNN_GRU, 0)) {
    for (int rule = 0; rule < ASHLAR_INIT_RULE_COUNT; rule++) {
        REQUIRE(init((ashlar_init_rule)rule, PARTS, 1) == ASHLAR_OK);
        check_uniform(values(parts[1].first), layout.elements, 1 / sqrt(HIDDEN));
        check_uniform(values(parts[2].first), (size_t)CLASSES * HIDDEN, 1 / sqrt(HIDDEN));
        check_uniform(values(parts[2].first + 1), CLASSES, 1 / sqrt(HIDDEN));
        check_uniform(values(parts[3].first), (size_t)WIDTH * 16, 1 / sqrt(16));
    }
}

CASE_WITH(tables_are_uniform_by_our_rule_and_normal_by_pytorchs, open_arena(ASHLAR_RNN_GRU, 0)) {
    const size_t count = (size_t)CLASSES * WIDTH;
    REQUIRE(init(ASHLAR_INIT_ASHLAR, 1, 2) == ASHLAR_OK);
    check_uniform(values(parts[0].first), count, sqrt(3.0));
    REQUIRE(init(ASHLAR_INIT_PYTORCH, 1, 2) == ASHLAR_OK);
    const moments m = moments_of(values(parts[0].first), count, 1);
    CHECK_NEAR(m.mean, 0, 0.06, 0);
    CHECK_NEAR(m.deviation, 1, 0.05, 0);
    size_t beyond = 0; /* two deviations: 4.55 % */
    for (size_t i = 0; i < count; i++) {
        beyond += fabsf(values(parts[0].first)[i]) > 2;
    }
    CHECK(beyond > count * 3 / 100 && beyond < count * 6 / 100);
}

/* How far the forget gate's biases of layer 0 lie above the others. */
static double forget_mean(ashlar_rnn_tensor tensor) {
    const ashlar_rnn_view bias = ashlar_rnn_layout_view(&layout, 0, tensor);
    return moments_of(values(parts[1].first) + bias.offset + HIDDEN, HIDDEN, 1).mean;
}

CASE(our_rule_raises_one_bias_of_each_forget_gate) {
    static const struct {
        ashlar_rnn_cell cell;
        ashlar_rnn_bias bias;
        ashlar_rnn_tensor raised, other;
    } stacks[] = {
        {ASHLAR_RNN_LSTM, ASHLAR_RNN_BIAS_DOUBLE, ASHLAR_RNN_BW, ASHLAR_RNN_BR},
        {ASHLAR_RNN_LSTM, ASHLAR_RNN_BIAS_RECURRENT, ASHLAR_RNN_BR, ASHLAR_RNN_TENSOR_COUNT},
        {ASHLAR_RNN_GRU, ASHLAR_RNN_BIAS_DOUBLE, ASHLAR_RNN_TENSOR_COUNT, ASHLAR_RNN_BW},
    };
    for (size_t i = 0; i < 3; i++) {
        REQUIRE(open_arena(stacks[i].cell, stacks[i].bias));
        REQUIRE(init(ASHLAR_INIT_ASHLAR, PARTS, 3) == ASHLAR_OK);
        if (stacks[i].raised != ASHLAR_RNN_TENSOR_COUNT) {
            CHECK_NEAR(forget_mean(stacks[i].raised), 1, 0.05, 0);
        }
        if (stacks[i].other != ASHLAR_RNN_TENSOR_COUNT) {
            CHECK_NEAR(forget_mean(stacks[i].other), 0, 0.05, 0);
        }
        REQUIRE(init(ASHLAR_INIT_PYTORCH, PARTS, 3) == ASHLAR_OK);
        if (stacks[i].raised != ASHLAR_RNN_TENSOR_COUNT) {
            CHECK_NEAR(forget_mean(stacks[i].raised), 0, 0.05, 0);
        }
        close_arena();
    }
    REQUIRE(open_arena(ASHLAR_RNN_LSTM, ASHLAR_RNN_BIAS_NONE));
    CHECK(init(ASHLAR_INIT_ASHLAR, PARTS, 3) == ASHLAR_OK);
}

CASE_WITH(tensors_of_no_part_and_padding_stay, open_arena(ASHLAR_RNN_LSTM, 0)) {
    float *kept = ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, other);
    for (size_t i = 0; i < 7; i++) {
        kept[i] = 42;
    }
    CHECK(init(ASHLAR_INIT_ASHLAR, PARTS, 4) == ASHLAR_OK);
    for (size_t i = 0; i < 7; i++) {
        CHECK((double)kept[i] == 42);
    }
    CHECK(ashlar_arena_check_padding(arena, streams[0]) == ASHLAR_OK);
}

CASE_WITH(a_part_that_is_not_there_is_refused_by_number, open_arena(ASHLAR_RNN_LSTM, 0)) {
    ashlar_part bad[] = {parts[1], parts[2], parts[0], parts[0], parts[1], parts[0]};
    bad[0].first++;       /* in the middle of a stack */
    bad[1].first = other; /* no matrix, and nothing behind it */
    bad[2].first = 1000;  /* no tensor */
    bad[3].kind = ASHLAR_PART_KIND_COUNT;
    bad[4].layout = NULL;
    bad[5].kind = ASHLAR_PART_LINEAR; /* no bias behind it */
    const float before = values(parts[0].first)[0];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const ashlar_part two[] = {parts[0], bad[i]};
        CHECK_FAILS(ashlar_init_weights(arena, 0, two, 2, 1, streams[0]), ASHLAR_EINVAL, "part 1");
    }
    wait_for(streams[0]);
    CHECK(values(parts[0].first)[0] == before); /* nothing was drawn */
    CHECK_FAILS(ashlar_init_weights(arena, ASHLAR_INIT_RULE_COUNT, parts, 1, 1, streams[0]),
                ASHLAR_EINVAL, "no rule");
    ashlar_arena *bare = NULL;
    REQUIRE(ashlar_arena_create(&bare) == ASHLAR_OK);
    CHECK_FAILS(ashlar_init_weights(bare, 0, parts, 1, 1, streams[0]), ASHLAR_EINVAL, "committed");
    ashlar_arena_destroy(bare);
    HOST_FAILS_AT(1, CHECK(init(0, 1, 1) == ASHLAR_EHOSTMEM));
}

RUN_CASES()
