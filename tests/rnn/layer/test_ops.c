/*
 * test_ops.c - embedding, linear layer, softmax and loss.
 *
 * In double; float is compared with it where a whole model is (test_model.c), and here where none
 * has the operation. Padding holds NaN, tokens and targets out of range.
 */
#include "rnn/layer/ops.h"

#include "tests/allocator/trace/numbers_fixture.h"

enum {
    STEPS = 4,
    BATCH = 3,
    ROWS = STEPS * BATCH,
    CLASSES = 19, /* two full groups of lanes and a rest */
    WIDTH = 5,
    LOGITS = ROWS * CLASSES,
};

static const int32_t LENGTHS[BATCH] = {2, 4, 1};
static const size_t VALID = 7;

static bool is_valid(size_t row) {
    return row / BATCH < (size_t)LENGTHS[row % BATCH];
}

/* As draw, with NaN in the padding of rows of `width` elements. */
static void draw_padded(float *single, double *wide, size_t count, size_t width) {
    for (size_t i = 0; i < count; i++) {
        single[i] = is_valid(i / width) ? (float)random_real() : NAN;
    }
    widen(single, wide, count);
}

static void draw_tokens(int32_t *tokens) {
    for (size_t row = 0; row < ROWS; row++) {
        tokens[row] = is_valid(row) ? (int32_t)(fabs(random_real()) * CLASSES) : -1;
    }
}

/* --- linear --- */

CASE(linear_forward_is_the_plain_sum) {
    float unused[ROWS * CLASSES];
    double x[ROWS * WIDTH], w[CLASSES * WIDTH], b[CLASSES], y[LOGITS], bare[LOGITS];
    draw(unused, x, ROWS * WIDTH);
    draw(unused, w, CLASSES * WIDTH);
    draw(unused, b, CLASSES);
    for (size_t i = 0; i < LOGITS; i++) {
        y[i] = bare[i] = (double)NAN;
    }
    ashlar_linear_args args = {.rows = ROWS, .in = WIDTH, .out = CLASSES, .x = x, .weight = w,
                               .bias = b, .y = y};
    ashlar__linear_forward_f64(&args);
    args.bias = NULL;
    args.y = bare;
    ashlar__linear_forward_f64(&args);
    for (size_t i = 0; i < LOGITS; i++) {
        double want = 0;
        for (size_t j = 0; j < WIDTH; j++) {
            want += x[i / CLASSES * WIDTH + j] * w[i % CLASSES * WIDTH + j];
        }
        CHECK_NEAR(bare[i], want, 1e-14, 0);
        CHECK_NEAR(y[i], want + b[i % CLASSES], 1e-14, 0);
    }
}

/* Want, by plain loops: dx = dy w, dw = old + dy^T x, db = old + column sums. */
static double plain_dx(const double *dy, const double *w, size_t i) {
    double sum = 0;
    for (size_t o = 0; o < CLASSES; o++) {
        sum += dy[i / WIDTH * CLASSES + o] * w[o * WIDTH + i % WIDTH];
    }
    return sum;
}

static double plain_dw(const double *dy, const double *x, size_t i) {
    double sum = 0;
    for (size_t row = 0; row < ROWS; row++) {
        sum += dy[row * CLASSES + i / WIDTH] * x[row * WIDTH + i % WIDTH];
    }
    return sum;
}

CASE(linear_backward_overwrites_dx_and_adds_the_rest) {
    float unused[LOGITS];
    double x[ROWS * WIDTH], w[CLASSES * WIDTH], dy[LOGITS];
    double dx[ROWS * WIDTH], dw[CLASSES * WIDTH], db[CLASSES];
    double old_dw[CLASSES * WIDTH], old_db[CLASSES];
    draw(unused, x, ROWS * WIDTH);
    draw(unused, w, CLASSES * WIDTH);
    draw(unused, dy, LOGITS);
    draw(unused, dw, CLASSES * WIDTH);
    draw(unused, db, CLASSES);
    memcpy(old_dw, dw, sizeof dw);
    memcpy(old_db, db, sizeof db);
    draw_padded(unused, dx, ROWS * WIDTH, WIDTH); /* NaN in places: dx must not be read */
    const ashlar_linear_args all = {.rows = ROWS,
                                    .in = WIDTH,
                                    .out = CLASSES,
                                    .x = x,
                                    .weight = w,
                                    .dy = dy,
                                    .dx = dx,
                                    .dweight = dw,
                                    .dbias = db};
    const ashlar_linear_args nothing = {.rows = ROWS, .in = WIDTH, .out = CLASSES, .x = x,
                                        .weight = w, .dy = dy};
    ashlar__linear_backward_f64(&all);
    ashlar__linear_backward_f64(&nothing);
    for (size_t i = 0; i < ROWS * WIDTH; i++) {
        CHECK_NEAR(dx[i], plain_dx(dy, w, i), 1e-14, 0);
    }
    for (size_t i = 0; i < CLASSES * WIDTH; i++) {
        CHECK_NEAR(dw[i], old_dw[i] + plain_dw(dy, x, i), 1e-14, 0);
    }
    for (size_t o = 0; o < CLASSES; o++) {
        double sum = old_db[o];
        for (size_t row = 0; row < ROWS; row++) {
            sum += dy[row * CLASSES + o];
        }
        CHECK_NEAR(db[o], sum, 1e-14, 0);
    }
}

/* --- loss and softmax --- */

typedef struct loss_case {
    float logits32[LOGITS], dlogits32[LOGITS];
    double logits[LOGITS], dlogits[LOGITS];
    int32_t targets[ROWS];
    ashlar_cross_entropy_args narrow, wide;
} loss_case;

static double loss_f64(ashlar_cross_entropy_args *args) {
    double loss = 0;
    args->loss = &loss;
    ashlar__cross_entropy_f64(args);
    return loss;
}

static double loss_f32(ashlar_cross_entropy_args *args) {
    double loss = 0;
    args->loss = &loss;
    ashlar__cross_entropy_f32(args);
    return loss;
}

static void open_loss(loss_case *c) {
    draw_padded(c->logits32, c->logits, LOGITS, CLASSES);
    draw_padded(c->dlogits32, c->dlogits, LOGITS, 1);
    draw_tokens(c->targets);
    c->wide = (ashlar_cross_entropy_args){.steps = STEPS,
                                          .batch = BATCH,
                                          .lengths = LENGTHS,
                                          .classes = CLASSES,
                                          .logits = c->logits,
                                          .targets = c->targets,
                                          .dlogits = c->dlogits};
    c->narrow = c->wide;
    c->narrow.logits = c->logits32;
    c->narrow.dlogits = c->dlogits32;
}

CASE(loss_gradient_matches_finite_differences) {
    loss_case c;
    open_loss(&c);
    loss_f64(&c.wide);
    loss_f32(&c.narrow);
    double worst = 0;
    ashlar_cross_entropy_args probe = c.wide;
    probe.dlogits = NULL;
    for (size_t i = 0; i < LOGITS; i++) {
        if (!is_valid(i / CLASSES)) {
            CHECK(c.dlogits[i] == 0 && c.dlogits32[i] == 0);
            continue;
        }
        const double old = c.logits[i], step = 1e-5;
        c.logits[i] = old + step;
        const double above = loss_f64(&probe);
        c.logits[i] = old - step;
        const double below = loss_f64(&probe);
        c.logits[i] = old;
        const double error = fabs((above - below) / (2 * step) - c.dlogits[i]);
        worst = fmax(worst, error);
        CHECK(error <= 1e-9);
        CHECK_NEAR((double)c.dlogits32[i], c.dlogits[i], 1e-7, 0);
    }
    printf("# %d derivatives, worst error %.2g\n", (int)VALID * CLASSES, worst);
}

CASE(ignored_targets_have_no_loss_and_no_gradient) {
    loss_case c;
    double losses[ROWS], sum = 0, counted = 0;
    open_loss(&c);
    c.targets[0] = -100;
    c.targets[BATCH] = -1;
    c.wide.losses = losses;
    const double loss = loss_f64(&c.wide);
    for (size_t row = 0; row < ROWS; row++) {
        const bool counts = is_valid(row) && c.targets[row] >= 0;
        double size = 0;
        for (size_t j = 0; j < CLASSES; j++) {
            size += fabs(c.dlogits[row * CLASSES + j]);
        }
        CHECK((losses[row] > 0) == counts && (size > 0) == counts);
        sum += losses[row];
        counted += counts;
    }
    CHECK(counted < (double)VALID);
    CHECK_NEAR(loss, sum / counted, 1e-14, 0);
}

CASE(squared_error_is_the_mean_of_squares_with_its_gradient) {
    enum { WIDE = 2, COUNT = 2 * 2 * WIDE };
    const int32_t lengths[] = {2, 1};
    const double targets[COUNT] = {1, 1, 1, 1, 1, 1, 1, 1};
    double outputs[COUNT] = {1, 2, 3, 4, -1, 0, (double)NAN, (double)NAN};
    double gradient[COUNT], losses[4], loss = 1;
    const double want[COUNT] = {0, 1, 2, 3, -2, -1, 0, 0}; /* differences */
    ashlar_squared_error_args args = {.steps = 2,
                                      .batch = 2,
                                      .lengths = lengths,
                                      .width = WIDE,
                                      .outputs = outputs,
                                      .targets = targets,
                                      .doutputs = gradient,
                                      .loss = &loss,
                                      .losses = losses};
    ashlar__squared_error_f64(&args);
    CHECK_NEAR(loss, 1 + 19.0 / 6, 1e-15, 0);
    CHECK(losses[0] == 1 && losses[1] == 13 && losses[2] == 5 && losses[3] == 0);
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_NEAR(gradient[i], 2 * want[i] / 6, 1e-15, 0);
    }
    float outputs32[COUNT], targets32[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        outputs32[i] = (float)outputs[i];
        targets32[i] = (float)targets[i];
    }
    args.outputs = args.doutputs = outputs32; /* in place */
    args.targets = targets32;
    args.weight = 0.5;
    ashlar__squared_error_f32(&args);
    for (size_t i = 0; i < COUNT; i++) {
        CHECK((double)outputs32[i] == want[i]);
    }
}

CASE(huge_logits_stay_finite) {
    loss_case c;
    open_loss(&c);
    for (size_t row = 0; row < ROWS; row++) {
        const size_t top = row % 2 == 0 ? 3 : CLASSES - 1; /* among the lanes, and after them */
        for (size_t j = 0; j < CLASSES; j++) {
            c.logits[row * CLASSES + j] = j == top ? 1000 : -1000;
            c.logits32[row * CLASSES + j] = j == top ? 1000 : -1000;
        }
        c.targets[row] = row == 0 ? 4 : (int32_t)top;
    }
    const double want = 2000.0 / (double)VALID;
    CHECK_NEAR(loss_f64(&c.wide), want, 1e-9, 0);
    CHECK_NEAR(loss_f32(&c.narrow), want, 1e-4, 0);
    CHECK_NEAR(c.dlogits[3], 1.0 / (double)VALID, 1e-12, 0);
    CHECK_NEAR((double)c.dlogits32[4], -1.0 / (double)VALID, 1e-7, 0);
}

CASE(softmax_sums_to_one_and_follows_the_temperature) {
    float logits32[2 * CLASSES];
    double logits[2 * CLASSES], probs[2 * CLASSES], widened[2 * CLASSES];
    draw(logits32, logits, 2 * CLASSES);
    logits32[CLASSES - 1] = 3; /* the largest in the rest after the lanes */
    logits[CLASSES - 1] = 3;
    ashlar_softmax_args args = {
        .rows = 2, .width = CLASSES, .x = logits, .y = probs, .temperature = 0.5};
    ashlar__softmax_f64(&args);
    args.x = args.y = logits32; /* in place */
    ashlar__softmax_f32(&args);
    widen(logits32, widened, 2 * CLASSES);
    for (size_t row = 0; row < 2; row++) {
        double sum = 0, total = 0;
        for (size_t j = 0; j < CLASSES; j++) {
            sum += exp(logits[row * CLASSES + j] / 0.5);
            total += probs[row * CLASSES + j];
        }
        CHECK_NEAR(total, 1.0, 1e-14, 0);
        for (size_t j = 0; j < CLASSES; j++) {
            const double want = exp(logits[row * CLASSES + j] / 0.5) / sum;
            CHECK_NEAR(probs[row * CLASSES + j], want, 1e-15, 1e-13);
            CHECK_NEAR(widened[row * CLASSES + j], want, 1e-8, 2e-6);
        }
    }
}

CASE(rows_shorter_than_the_lanes_work) {
    for (size_t classes = 1; classes < 18; classes++) {
        double logits[18], probs[18], sum = 0;
        int32_t length = 1, target = (int32_t)classes - 1;
        for (size_t j = 0; j < classes; j++) {
            logits[j] = random_real() - 800; /* the maximum must come from this row */
        }
        const ashlar_softmax_args args = {.rows = 1, .width = classes, .x = logits, .y = probs};
        ashlar__softmax_f64(&args);
        for (size_t j = 0; j < classes; j++) {
            sum += probs[j];
        }
        CHECK_NEAR(sum, 1.0, 1e-14, 0);
        ashlar_cross_entropy_args loss = {.steps = 1,
                                          .batch = 1,
                                          .lengths = &length,
                                          .classes = classes,
                                          .logits = logits,
                                          .targets = &target};
        CHECK_NEAR(loss_f64(&loss), -log(probs[classes - 1]), 1e-12, 0);
    }
}

/* --- weight of positions --- */

/* What micro-batches and pieces of time do: the sum over the parts is the whole. */
CASE(a_given_weight_replaces_the_mean) {
    loss_case c;
    open_loss(&c);
    double whole[LOGITS], apart[LOGITS];
    c.wide.dlogits = whole;
    const double mean = loss_f64(&c.wide);
    c.wide.dlogits = apart;
    c.wide.weight = 0.5;
    CHECK_NEAR(loss_f64(&c.wide), mean * (double)VALID * 0.5, 1e-13, 0);
    for (size_t i = 0; i < LOGITS; i++) {
        CHECK_NEAR(apart[i], whole[i] * (double)VALID * 0.5, 1e-14, 0);
    }
    CHECK_NEAR(loss_f32(&c.narrow), mean, 1e-6, 0);
}

CASE(the_weight_may_lie_in_memory) {
    loss_case c;
    open_loss(&c);
    double given[LOGITS], found[LOGITS], weight = 0.5;
    c.wide.dlogits = given;
    c.wide.weight = 0.5;
    const double wanted = loss_f64(&c.wide);
    c.wide.dlogits = found;
    c.wide.weight = 9;
    c.wide.weight_at = &weight;
    CHECK_NEAR(loss_f64(&c.wide), wanted, 0, 0);
    CHECK(memcmp(given, found, sizeof found) == 0);
    weight = 0; /* the mean, as ever */
    const double mean = loss_f64(&c.wide);
    c.wide.weight_at = NULL;
    c.wide.weight = 0;
    CHECK_NEAR(loss_f64(&c.wide), mean, 0, 0);
}

/* --- argmax --- */

CASE(argmax_takes_the_first_of_the_largest_and_never_nan) {
    enum { LABELS = 4, CASES = 5 };
    const double nan = (double)NAN;
    const double logits[CASES * LABELS] = {
        1, 3, 2, 3, -5, -6, -4, -7, nan, -2, -1, nan, 4, nan, 3, 2, nan, nan, nan, nan,
    };
    const int32_t want[CASES] = {1, 2, 2, 0, 0};
    float logits32[CASES * LABELS];
    int32_t labels[CASES], labels32[CASES];
    for (size_t i = 0; i < CASES * LABELS; i++) {
        logits32[i] = (float)logits[i];
    }
    ashlar__argmax_f64(&(ashlar_argmax_args){CASES, LABELS, logits, labels});
    ashlar__argmax_f32(&(ashlar_argmax_args){CASES, LABELS, logits32, labels32});
    for (size_t i = 0; i < CASES; i++) {
        CHECK(labels[i] == want[i] && labels32[i] == want[i]);
    }
}

RUN_CASES()
