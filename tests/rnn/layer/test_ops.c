/* test_ops.c - the linear layer and the likeliest class; test_ops_elements.c has the rest. */
#include "rnn/layer/ops.h"

#include "tests/allocator/trace/numbers_fixture.h"

enum { ROWS = 12, CLASSES = 19, WIDTH = 5, LOGITS = ROWS * CLASSES };

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
    for (size_t i = 0; i < ROWS * WIDTH; i++) {
        dx[i] = (double)NAN; /* must not be read */
    }
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
