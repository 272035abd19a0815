/*
 * test_ops_elements.c - a model's engine's operations and the losses on the CPU: results by plain
 * formulas, gradients by differences, in both types.
 */
#include "tests/rnn/layer/ops_elements_fixture.h"

static double wide[OPERAND_COUNT][COUNT_MAX], before[COUNT_MAX];
static float narrow[OPERAND_COUNT][COUNT_MAX];
static int32_t targets[ROWS];
static double loss, losses[ROWS];
static const size_t WIDTHS[] = {1, 5, 37, 40};
enum { WIDTH_COUNT = sizeof WIDTHS / sizeof *WIDTHS };

static operands near_operands(bool is_f64, size_t width) {
    operands o = {.width = width,
                  .lengths = LENGTHS,
                  .targets = targets,
                  .seed_at = &SEED_MORE,
                  .weight_at = WEIGHTS,
                  .scale = &SCALE,
                  .loss = &loss,
                  .losses = losses};
    for (int i = 0; i < OPERAND_COUNT; i++) {
        o.of[i] = is_f64 ? (void *)wide[i] : (void *)narrow[i];
    }
    return o;
}

/* Numbers that a float has, in both types. */
static operands drawn_operands(size_t width) {
    const operands o = near_operands(true, width);
    for (int i = 0; i < OPERAND_COUNT; i++) {
        draw_operand((operand)i, width, wide[i]);
        for (size_t k = 0; k < room_of(width); k++) {
            wide[i][k] = (double)(float)wide[i][k];
        }
    }
    derive_operands(&o);
    draw_targets(width, targets);
    return o;
}

/* Run a case, and return what is in OUT after it, as doubles. */
static void run(const op_case *c, operands *o, int v, bool is_f64, double *out) {
    const size_t room = room_of(o->width);
    operands here = *o;
    memcpy(wide[OUT], o->is_in_place ? wide[c->place] : before, room * sizeof(double));
    loss = 1;
    if (!is_f64) {
        here = near_operands(false, o->width);
        here.adds = o->adds;
        here.is_in_place = o->is_in_place;
        here.is_loss_only = o->is_loss_only;
        for (size_t k = 0; k < OPERAND_COUNT * room; k++) {
            narrow[k / room][k % room] = (float)wide[k / room][k % room];
        }
    }
    c->near(&here, v, is_f64);
    for (size_t i = 0; i < room; i++) {
        out[i] = is_f64 ? wide[OUT][i] : (double)narrow[OUT][i];
    }
}

static void check_result(case_number number, operands *o, int v) {
    const op_case *const c = &op_cases[number];
    for (int type = 0; type < 2; type++) {
        const double near = type == 0 ? 1e-13 : 2e-6;
        static double out[COUNT_MAX];
        run(c, o, v, type == 0, out);
        for (size_t i = 0; i < c->count(o); i++) {
            const double want = plain_result(number, o, v, i);
            const double old = o->adds || isnan(want) ? before[i] : 0;
            if (!isnan(want) || !isnan(old)) {
                CHECK_NEAR(out[i], (isnan(want) ? 0 : want) + old, 4 * near, near);
            }
        }
    }
}

/* Written over what cannot be read, added to, and in the place of an input. */
CASE(results_are_those_of_plain_formulas) {
    for (size_t w = 0; w < WIDTH_COUNT; w++) {
        for (int number = 0; number < CASE_cross_entropy; number++) {
            const op_case *const c = &op_cases[number];
            for (int mode = 0; mode < 3; mode++) {
                operands o = drawn_operands(WIDTHS[w]);
                o.adds = mode == 1;
                o.is_in_place = mode == 2;
                for (size_t i = 0; i < room_of(o.width); i++) {
                    before[i] = mode == 0 ? (double)NAN : (double)(float)random_real();
                }
                for (int v = 0; v < c->variants && (mode != 1 || c->may_add) &&
                                (mode != 2 || c->place != OPERAND_COUNT);
                     v++) {
                    check_result((case_number)number, &o, v);
                }
            }
        }
    }
}

/* ---- gradients ---- */

/* The sum of the results, each times OTHER. */
static double weighed(case_number number, operands *o, int v) {
    static double out[COUNT_MAX];
    double sum = 0;
    run(&op_cases[number], o, v, true, out);
    for (size_t i = 0; i < op_cases[number].count(o); i++) {
        sum += out[i] * wide[OTHER][i];
    }
    return is_loss(number) ? loss : sum;
}

/* By input i. */
static double slope_of(case_number number, operands *o, int v, size_t i) {
    const double old = wide[IN][i], old_padded = wide[PADDED][i], step = 1e-5;
    wide[IN][i] = old + step;
    wide[PADDED][i] = old_padded + step;
    const double above = weighed(number, o, v);
    wide[IN][i] = old - step;
    wide[PADDED][i] = old_padded - step;
    const double below = weighed(number, o, v);
    wide[IN][i] = old;
    wide[PADDED][i] = old_padded;
    return (above - below) / (2 * step);
}

/* An operation, the one for its gradient, and which operand that has in the place of IN. */
static const struct {
    case_number forward;
    int forward_variant;
    case_number back;
    int back_variant;
    operand takes;
} gradients[] = {
    {CASE_map, ASHLAR_MAP_TANH, CASE_map, ASHLAR_MAP_TANH_BACK, OUT},
    {CASE_map, ASHLAR_MAP_RELU, CASE_map, ASHLAR_MAP_RELU_BACK, OUT},
    {CASE_map, ASHLAR_MAP_SIGMOID, CASE_map, ASHLAR_MAP_SIGMOID_BACK, OUT},
    {CASE_softmax, 0, CASE_softmax_back, 0, OUT},
    {CASE_drop, 1, CASE_drop, 1, OTHER},
    {CASE_pool, 0, CASE_pool_back, 0, IN},
    {CASE_pool, 1, CASE_pool_back, 1, IN},
    {CASE_pool, 2, CASE_pool_back, 2, IN},
    {CASE_pool, 3, CASE_pool_back, 3, IN},
    {CASE_pool, 4, CASE_pool_back, 4, IN},
    {CASE_pool, 5, CASE_pool_back, 5, IN},
};

static operands drawn_without_ties(void) {
    const operands o = drawn_operands(37);
    for (size_t i = 0; i < 2 * BATCH; i++) {
        wide[IN][i * 37] = random_real();
    }
    derive_operands(&o);
    return o;
}

CASE(gradients_are_those_of_differences) {
    for (size_t g = 0; g < sizeof gradients / sizeof *gradients; g++) {
        operands o = drawn_without_ties();
        static double slopes[COUNT_MAX], out[COUNT_MAX], in[COUNT_MAX];
        for (size_t i = 0; i < ROWS * o.width; i++) {
            slopes[i] = slope_of(gradients[g].forward, &o, gradients[g].forward_variant, i);
        }
        run(&op_cases[gradients[g].forward], &o, gradients[g].forward_variant, true, out);
        memcpy(in, gradients[g].takes == OUT ? out : wide[gradients[g].takes], sizeof in);
        memcpy(wide[IN], in, sizeof in);
        run(&op_cases[gradients[g].back], &o, gradients[g].back_variant, true, out);
        for (size_t i = 0; i < ROWS * o.width; i++) {
            CHECK_NEAR(out[i], slopes[i], 1e-7, 0);
        }
    }
}

/* ---- losses ---- */

/* With their gradients in `out`, or alone. */
static void check_losses(case_number number, operands *o, int v, bool is_f64, double *out) {
    const bool is_entropy = number == CASE_cross_entropy;
    double sum = 0;
    run(&op_cases[number], o, v, is_f64, out);
    for (size_t row = 0; row < ROWS; row++) {
        const double plain = is_entropy ? plain_entropy(o, v, row) : plain_elements(o, v, row);
        const double want = isnan(plain) ? 0 : plain;
        CHECK_NEAR(losses[row], want, is_f64 ? 1e-12 : 1e-5, 1e-6);
        sum += want;
    }
    CHECK_NEAR(loss, 1 + sum * plain_weight(o, is_entropy, v), is_f64 ? 1e-12 : 1e-5, 0);
}

static void check_loss(case_number number, operands *o, int v) {
    static double of_f32[COUNT_MAX], out[COUNT_MAX];
    o->is_loss_only = true;
    check_losses(number, o, v, false, out);
    check_losses(number, o, v, true, out);
    o->is_loss_only = false;
    check_losses(number, o, v, false, of_f32);
    check_losses(number, o, v, true, out);
    for (size_t i = 0; i < ROWS * o->width; i++) {
        CHECK_NEAR(of_f32[i], out[i], 1e-6, 1e-5);
        if (plain_position(o, number == CASE_cross_entropy, v, i / o->width) == 0) {
            CHECK(out[i] == 0);
        } else {
            CHECK_NEAR(out[i], SCALE * slope_of(number, o, v, i), 1e-7, 0);
        }
    }
}

/* Of rows that are shorter than the lanes, too. */
CASE(losses_are_pytorchs_with_weights_masks_and_smoothing) {
    const case_number numbers[] = {CASE_cross_entropy, CASE_squared_error};
    static const size_t widths[] = {1, 5, 19};
    for (size_t n = 0; n < 6; n++) {
        const case_number number = numbers[n % 2];
        for (int v = 0; v < op_cases[number].variants; v++) {
            operands o = drawn_operands(widths[n / 2]);
            check_loss(number, &o, v);
            o.is_in_place = true;
            check_loss(number, &o, v);
        }
    }
}

/* The largest logit of a row comes from the row itself, be it far above 0 or far below. */
CASE(huge_logits_stay_finite) {
    static const double highs[] = {1000, -1000};
    for (int i = 0; i < 4; i++) {
        static double out[COUNT_MAX];
        operands o = drawn_operands(i < 2 ? 5 : 19);
        size_t counted = 0;
        for (size_t row = 0; row < ROWS; row++) { /* tops among the lanes, and after them */
            const size_t top = row % 2 == 0 ? 3 : o.width - 1;
            for (size_t j = 0; j < o.width && is_inside(row); j++) {
                wide[PADDED][row * o.width + j] = highs[i % 2] - (j == top ? 0 : 2000);
            }
            counted += is_inside(row) && targets[row] >= 0;
            targets[row] = row == 0 ? 2 : targets[row] < 0 ? -1 : (int32_t)top;
        }
        for (int type = 0; type < 2; type++) {
            const double near = type == 0 ? 1e-12 : 1e-7;
            run(&op_cases[CASE_cross_entropy], &o, 0, type == 0, out);
            CHECK_NEAR(loss, 1 + 2000 / (double)counted, 0, near);
            CHECK_NEAR(out[3], SCALE / (double)counted, near, near);
            CHECK_NEAR(out[2], -SCALE / (double)counted, near, near);
        }
    }
}

/* ---- parts of a batch, lengths ---- */

CASE(a_part_of_a_batch_drops_what_the_whole_would) {
    enum { WIDTH = 37, PART = BATCH / 2 };
    operands o = drawn_operands(WIDTH);
    double part_in[STEPS * PART * WIDTH], part_out[STEPS * PART * WIDTH];
    ashlar_drop_args whole = drop_args(&o, 0);
    whole.first = 0;
    whole.stride = 0; /* 1 */
    ashlar__drop_f64(&whole);
    for (size_t part = 0; part < 2; part++) {
        for (size_t i = 0; i < STEPS * PART * WIDTH; i++) {
            const size_t row = i / WIDTH, b = row % PART * 2 + part;
            part_in[i] = wide[IN][(row / PART * BATCH + b) * WIDTH + i % WIDTH];
        }
        ashlar_drop_args args = whole;
        args.batch = PART;
        args.first = part;
        args.stride = 2;
        args.a = part_in;
        args.out = part_out;
        ashlar__drop_f64(&args);
        size_t dropped = 0;
        for (size_t i = 0; i < STEPS * PART * WIDTH; i++) {
            const size_t row = i / WIDTH, b = row % PART * 2 + part;
            CHECK(part_out[i] == wide[OUT][(row / PART * BATCH + b) * WIDTH + i % WIDTH]);
            dropped += part_out[i] == 0;
        }
        CHECK_NEAR((double)dropped / (STEPS * PART * WIDTH), RATE, 0.1, 0);
    }
}

CASE(lengths_are_clipped_to_a_piece_of_time) {
    int32_t lengths[BATCH] = {9, 0, 5, 4}, out[BATCH];
    ashlar_clip_lengths_args args = {
        .batch = BATCH, .first = 3, .steps = 4, .least = 1, .lengths = lengths, .out = out};
    ashlar__clip_lengths_f32(&args);
    CHECK(out[0] == 4 && out[1] == 1 && out[2] == 2 && out[3] == 1);
    args.least = 0;
    args.out = lengths; /* in place */
    ashlar__clip_lengths_f64(&args);
    CHECK(lengths[0] == 4 && lengths[1] == 0 && lengths[2] == 2 && lengths[3] == 1);
    args.lengths = NULL;
    args.whole = 5;
    ashlar__clip_lengths_f64(&args);
    CHECK(lengths[0] == 2 && lengths[3] == 2);
}

RUN_CASES()
