/*
 * test_rnn_formula.c - the forward pass against the cells' formulas, step by step in double; and
 * the memory that passes need.
 *
 * The reference knows nothing of packed rows, products or gates side by side: it takes one
 * sequence, one layer, one direction and one unit at a time, straight from rnn_layout.h.
 */
#include "tests/rnn/layer/rnn_cpu_fixture.h"

#include "rnn/layer/dropout.h"
#include "rnn/layer/rnn_cpu.h"
#include "tests/check.h"
#include "tests/arena/product/set_fixture.h"

enum { STEPS_MAX = 9, WIDTH_MAX = 80, HIDDEN_MAX = 40 };

/* One part of a stack for one sequence: its state, and how to read its weights. */
typedef struct pseudo_layer {
    const problem *p;
    size_t layer, direction, at; /* at: which part */
    double h[HIDDEN_MAX], c[HIDDEN_MAX];
} pseudo_layer;

static double weight(const pseudo_layer *a, ashlar_rnn_tensor tensor, size_t row, size_t column) {
    const ashlar_rnn_view view = ashlar_rnn_layout_view(&a->p->layout, a->at, tensor);
    return view.rows == 0
               ? 0
               : ((const double *)a->p->args.b.weights)[view.offset + row * view.cols + column];
}

/* W x + bW of one gate, or R h + bR. */
static double input_sum(const pseudo_layer *a, size_t gate, size_t unit, const double *x) {
    const size_t row = gate * a->p->layout.config.hidden + unit;
    const size_t width = ashlar_rnn_layout_view(&a->p->layout, a->at, ASHLAR_RNN_W).cols;
    double sum = weight(a, ASHLAR_RNN_BW, row, 0);
    for (size_t j = 0; j < width; j++) {
        sum += weight(a, ASHLAR_RNN_W, row, j) * x[j];
    }
    return sum;
}

static double recurrent_sum(const pseudo_layer *a, size_t gate, size_t unit) {
    const size_t row = gate * a->p->layout.config.hidden + unit;
    double sum = weight(a, ASHLAR_RNN_BR, row, 0);
    for (size_t j = 0; j < a->p->layout.state; j++) {
        sum += weight(a, ASHLAR_RNN_R, row, j) * a->h[j];
    }
    return sum;
}

static double both_sums(const pseudo_layer *a, size_t gate, size_t unit, const double *x) {
    return input_sum(a, gate, unit, x) + recurrent_sum(a, gate, unit);
}

/* h' of one unit before a projection; c[unit] is updated. */
static double unit_step(pseudo_layer *a, size_t j, const double *x) {
    double in, forget, fresh, out, reset, update;
    switch (a->p->layout.config.cell) {
    case ASHLAR_RNN_LSTM:
        in = sigmoid(both_sums(a, 0, j, x));
        forget = sigmoid(both_sums(a, 1, j, x));
        fresh = tanh(both_sums(a, 2, j, x));
        out = sigmoid(both_sums(a, 3, j, x));
        a->c[j] = forget * a->c[j] + in * fresh;
        return out * tanh(a->c[j]);
    case ASHLAR_RNN_GRU:
        reset = sigmoid(both_sums(a, 0, j, x));
        update = sigmoid(both_sums(a, 1, j, x));
        fresh = tanh(input_sum(a, 2, j, x) + reset * recurrent_sum(a, 2, j));
        return (1 - update) * fresh + update * a->h[j];
    case ASHLAR_RNN_TANH:
        return tanh(both_sums(a, 0, j, x));
    case ASHLAR_RNN_RELU:
        return fmax(0, both_sums(a, 0, j, x));
    case ASHLAR_RNN_CELL_COUNT:
        break;
    }
    return (double)NAN;
}

static void plain_step(pseudo_layer *a, const double *x) {
    const size_t hidden = a->p->layout.config.hidden;
    double next[HIDDEN_MAX], projected[HIDDEN_MAX] = {0};
    for (size_t j = 0; j < hidden; j++) {
        next[j] = unit_step(a, j, x);
    }
    for (size_t i = 0; a->p->layout.config.projection > 0 && i < a->p->layout.state; i++) {
        for (size_t j = 0; j < hidden; j++) {
            projected[i] += weight(a, ASHLAR_RNN_WP, i, j) * next[j];
        }
    }
    memcpy(a->h, a->p->layout.config.projection > 0 ? projected : next, sizeof a->h);
}

/* What the next layer reads of an output: all of it, or in training what dropout leaves. */
static double after_dropout(const problem *p, size_t layer, size_t t, size_t b, size_t j,
                            double value) {
    const double rate = p->layout.config.dropout;
    if (rate == 0 || p->args.b.reserve == NULL) {
        return value;
    }
    const ashlar_dropout_row row = {
        .seed = p->args.dropout_seed, .layer = layer, .step = t, .sequence = b};
    uint32_t draws[ASHLAR_DROPOUT_DRAWS];
    ashlar__dropout_draw(&row, j / ASHLAR_DROPOUT_DRAWS, draws);
    return draws[j % ASHLAR_DROPOUT_DRAWS] / 0x1p32 < rate ? 0 : value / (1 - rate);
}

static void open_pseudo_layer(pseudo_layer *a, const problem *p, size_t layer, size_t direction,
                              size_t b) {
    const ashlar_rnn_layout *l = &p->layout;
    *a = (pseudo_layer){.p = p, .layer = layer, .direction = direction};
    a->at = layer * l->config.directions + direction;
    const size_t row = a->at * p->args.batch + b;
    if (p->args.b.hx != NULL) {
        memcpy(a->h, (const double *)p->args.b.hx + row * l->state, l->state * sizeof a->h[0]);
        memcpy(a->c, (const double *)p->args.b.cx + row * l->config.hidden,
               l->config.hidden * sizeof a->c[0]);
    }
}

static void check_last_states(const pseudo_layer *a, size_t b) {
    const ashlar_rnn_layout *l = &a->p->layout;
    const double *hy = a->p->args.b.hy, *cy = a->p->args.b.cy;
    const size_t row = a->at * a->p->args.batch + b;
    for (size_t j = 0; j < l->state; j++) {
        CHECK_NEAR(hy[row * l->state + j], a->h[j], 1e-13, 1e-13);
    }
    for (size_t j = 0; j < l->config.hidden; j++) {
        const double got = cy[row * l->config.hidden + j];
        if (l->config.cell == ASHLAR_RNN_LSTM) {
            CHECK_NEAR(got, a->c[j], 1e-13, 1e-13);
        } else {
            CHECK(isnan(got)); /* other cells do not touch cy */
        }
    }
}

/* Sequence b alone, layer by layer, compared with its part of the outputs. */
static void check_sequence(const problem *p, size_t b) {
    const ashlar_rnn_cpu_args *a = &p->args;
    const size_t length = (size_t)a->lengths[b], state = p->layout.state;
    double input[STEPS_MAX][WIDTH_MAX], output[STEPS_MAX][WIDTH_MAX] = {{0}};
    for (size_t l = 0; l < p->layout.config.layers; l++) {
        for (size_t t = 0; t < length; t++) {
            for (size_t j = 0; j < (l == 0 ? p->layout.config.input : p->layout.output); j++) {
                const size_t at = (t * a->batch + b) * p->layout.config.input + j;
                input[t][j] = l == 0 ? ((const double *)a->b.x)[at]
                                     : after_dropout(p, l, t, b, j, output[t][j]);
            }
        }
        for (size_t d = 0; d < p->layout.config.directions; d++) {
            pseudo_layer now;
            open_pseudo_layer(&now, p, l, d, b);
            for (size_t i = 0; i < length; i++) {
                const size_t t = d == 0 ? i : length - 1 - i;
                plain_step(&now, input[t]);
                memcpy(&output[t][d * state], now.h, state * sizeof now.h[0]);
            }
            check_last_states(&now, b);
        }
    }
    const double *y = a->b.y;
    for (size_t t = 0; t < a->steps; t++) {
        for (size_t j = 0; j < p->layout.output; j++) {
            const double got = y[(t * a->batch + b) * p->layout.output + j];
            CHECK_NEAR(got, t < length ? output[t][j] : 0, t < length ? 1e-13 : 0, 1e-13);
        }
    }
}

CASE(forward_is_the_formula_for_each_sequence_alone) {
    for (size_t i = 0; i < (size_t)KIND_COUNT * SHAPE_COUNT * 2; i++) {
        const kind k = kind_at(i / 2 % KIND_COUNT);
        const shape *s = &SHAPES[i / 2 / KIND_COUNT];
        problem p;
        REQUIRE(open_problem(&p, s, &k, ASHLAR_F64, i % 2 == 0));
        run_forward(&p);
        for (size_t b = 0; b < s->batch; b++) {
            check_sequence(&p, b);
        }
        drop_problems();
    }
}

/* More features than one call of the generator draws, and no multiple of them. */
CASE(wide_rows_are_the_formula_too) {
    const shape s = {2, 3, 2, 2, 37, {2, 3}, true};
    for (size_t i = 0; i < KIND_COUNT; i++) {
        const kind k = kind_at(i);
        problem p;
        REQUIRE(open_problem(&p, &s, &k, ASHLAR_F64, true));
        lessen_weights(&p);
        run_forward(&p);
        check_sequence(&p, 0);
        check_sequence(&p, 1);
        drop_problems();
    }
}

/* ---- memory that the passes need ---- */

static void check_sizes_grow(const kind *k) {
    const shape s = {.layers = 2, .input = 5, .hidden = 7};
    const ashlar_rnn_config config = config_of(&s, k, ASHLAR_F32);
    ashlar_rnn_layout layout;
    REQUIRE(ashlar_rnn_layout_init(&layout, &config) == ASHLAR_OK);
    for (size_t steps = 1; steps < 20; steps++) {
        for (size_t batch = 1; batch < 20; batch++) {
            for (int training = 0; training < 2; training++) {
                size_t reserve[3], work[3];
                const bool keeps = training != 0;
                REQUIRE(ashlar__rnn_cpu_sizes(&layout, steps, batch, keeps, &reserve[0],
                                              &work[0]) == ASHLAR_OK);
                REQUIRE(ashlar__rnn_cpu_sizes(&layout, steps + 1, batch, keeps, &reserve[1],
                                              &work[1]) == ASHLAR_OK);
                REQUIRE(ashlar__rnn_cpu_sizes(&layout, steps, batch + 1, keeps, &reserve[2],
                                              &work[2]) == ASHLAR_OK);
                CHECK(reserve[1] >= reserve[0] && reserve[2] >= reserve[0]);
                CHECK(work[1] >= work[0] && work[2] >= work[0]);
                CHECK((reserve[0] > 0) == keeps);
            }
        }
    }
}

CASE(sizes_never_shrink_when_a_batch_grows) {
    for (size_t i = 0; i < KIND_COUNT; i++) {
        const kind k = kind_at(i);
        check_sizes_grow(&k);
    }
}

CASE(impossible_sizes_are_refused_and_write_nothing) {
    const ashlar_rnn_config config = {.input = 5, .hidden = 8, .layers = 1, .dtype = ASHLAR_F64};
    ashlar_rnn_layout layout;
    REQUIRE(ashlar_rnn_layout_init(&layout, &config) == ASHLAR_OK);
    const struct {
        size_t steps, batch;
        ashlar_status want;
    } cases[] = {
        {0, 1, ASHLAR_EINVAL},
        {1, 0, ASHLAR_EINVAL},
        {SIZE_MAX, 1, ASHLAR_EOVERFLOW},
        {1, SIZE_MAX, ASHLAR_EOVERFLOW},
        {1, SIZE_MAX / 2 + 1, ASHLAR_EOVERFLOW},
        {SIZE_MAX / 2 + 1, 2, ASHLAR_EOVERFLOW},
        {(size_t)1 << 32, (size_t)1 << 32, ASHLAR_EOVERFLOW},
        {(size_t)1 << 31, (size_t)1 << 30, ASHLAR_EOVERFLOW}, /* 2^61 rows of 8 or 32 elements */
        {(size_t)1 << 28, (size_t)1 << 28, ASHLAR_EOVERFLOW}, /* 2^61 gates of 8 bytes */
        {(size_t)1 << 31, 1, ASHLAR_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int training = 0; training < 2; training++) {
            size_t reserve = 11, work = 22;
            CHECK(ashlar__rnn_cpu_sizes(&layout, cases[i].steps, cases[i].batch, training != 0,
                                        &reserve, &work) == cases[i].want);
            CHECK((reserve == 11 && work == 22) == (cases[i].want != ASHLAR_OK));
        }
    }
    CHECK_HAS(ashlar_error_detail(), "lower steps");
}

/* ---- the numbers that decide what is dropped ---- */

/* Block 0 of a group has the counter {group * lanes, sequence, step, layer}. */
static void check_answer(const uint32_t counter[4], const uint32_t key[2], const uint32_t want[4]) {
    const ashlar_dropout_row row = {.seed = (uint64_t)key[1] << 32 | key[0],
                                    .sequence = counter[1],
                                    .step = counter[2],
                                    .layer = counter[3]};
    uint32_t draws[ASHLAR_DROPOUT_DRAWS];
    ashlar__dropout_draw(&row, counter[0] / ASHLAR_DROPOUT_LANES, draws);
    const size_t lane = counter[0] % ASHLAR_DROPOUT_LANES;
    for (size_t i = 0; i < 4; i++) {
        CHECK_ZU(draws[i * ASHLAR_DROPOUT_LANES + lane], want[i]);
    }
}

/* The known answers of Philox 4x32-10 that its authors publish. */
CASE(the_generator_gives_its_known_answers) {
    check_answer((uint32_t[]){0, 0, 0, 0}, (uint32_t[]){0, 0},
                 (uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    check_answer((uint32_t[]){0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                 (uint32_t[]){0xffffffff, 0xffffffff},
                 (uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    check_answer((uint32_t[]){0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                 (uint32_t[]){0xa4093822, 0x299f31d0},
                 (uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

CASE(the_threshold_is_the_rate_in_32_bits) {
    CHECK_ZU(ashlar__dropout_threshold(0), 0);
    CHECK_ZU(ashlar__dropout_threshold(0.25), 0x40000000);
    CHECK_ZU(ashlar__dropout_threshold(1 - 0x1p-53), 0xffffffff);
}

RUN_CASES_OF_SET()
