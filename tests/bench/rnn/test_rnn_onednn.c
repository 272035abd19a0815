/*
 * test_rnn_onednn.c - the CPU's passes beside oneDNN's, from the same packed weights.
 */
#include "tests/rnn/layer/rnn_cpu_fixture.h"

#include "bench/rnn/rnn_onednn.h"

/* Sequences of one length: oneDNN has no others. */
static const shape EVEN_SHAPES[] = {
    {1, 1, 1, 1, 1, {1}, false},
    {1, 7, 3, 5, 9, {7, 7, 7}, false},
    {2, 5, 6, 17, 16, {5, 5, 5, 5, 5, 5}, false},
    {3, 12, 2, 24, 40, {12, 12}, false},
    {2, 9, 1, 64, 64, {9}, false},
    {1, 20, 5, 33, 130, {20, 20, 20, 20, 20}, false},
};
enum { EVEN_COUNT = sizeof EVEN_SHAPES / sizeof *EVEN_SHAPES };

/* Of each tensor's largest element. */
static const double limit = 1e-5;

static void check_close(const char *what, const float *got, const float *want, size_t count) {
    double largest = 0, worst = 0;
    for (size_t i = 0; i < count; i++) {
        const double size = fabs((double)want[i]), gap = fabs((double)got[i] - (double)want[i]);
        largest = size > largest ? size : largest;
        worst = gap > worst || isnan(gap) ? gap : worst;
    }
    if (!(worst <= limit * largest)) {
        printf("# %s: %g of %g\n", what, worst, largest);
    }
    CHECK(largest > 0);
    CHECK(worst <= limit * largest);
}

static float *zeros(problem *p, size_t count) {
    float *const data = tensor(p, count, 0);
    fill(data, sizeof *data, count, 0);
    return data;
}

static void check_shape(const shape *s, const kind *k, bool training) {
    problem p;
    ashlar_onednn *net = NULL;
    REQUIRE(open_problem(&p, s, k, ASHLAR_F32, training));
    REQUIRE(ashlar__onednn_has(&p.layout));
    REQUIRE(ashlar__onednn_create(&p.layout, s->steps, s->batch, training, &net) == ASHLAR_OK);
    p.args.b.dhy = p.args.b.dcy = NULL;
    lessen_weights(&p); /* with many units, weights of this size multiply what floats lose */
    float *const y = zeros(&p, p.y_count), *const dx = zeros(&p, p.x_count);
    float *const dweights = zeros(&p, p.layout.elements);
    run_forward(&p);
    CHECK(ashlar__onednn_forward(net, p.args.b.x, p.args.b.weights, y) == ASHLAR_OK);
    check_close("y", p.args.b.y, y, p.y_count);
    if (!training) {
        float *const again = zeros(&p, p.y_count);
        CHECK(ashlar__onednn_prepare(net, p.args.b.weights) == ASHLAR_OK);
        CHECK(ashlar__onednn_forward(net, p.args.b.x, NULL, again) == ASHLAR_OK);
        CHECK(memcmp(again, y, p.y_count * p.item) == 0);
    }
    if (training) {
        run_backward(&p);
        CHECK(ashlar__onednn_backward(net, p.args.b.dy, dx, dweights) == ASHLAR_OK);
        check_close("dx", p.args.b.dx, dx, p.x_count);
        check_close("dweights", p.args.b.dweights, dweights, p.layout.elements);
    }
    ashlar__onednn_destroy(net);
    drop_problems();
}

static void check_cell(ashlar_rnn_cell cell) {
    SKIP_IF(ashlar__onednn_name() == NULL, "this build has no oneDNN");
    for (size_t i = 0; i < EVEN_COUNT; i++) {
        for (size_t directions = 1; directions <= 2; directions++) {
            const kind k = {.cell = cell, .directions = directions};
            check_shape(&EVEN_SHAPES[i], &k, true);
            check_shape(&EVEN_SHAPES[i], &k, false);
        }
    }
}

CASE(the_lstm_is_onednns) {
    check_cell(ASHLAR_RNN_LSTM);
}

CASE(the_gru_is_onednns_with_linear_before_reset) {
    check_cell(ASHLAR_RNN_GRU);
}

int main(void) {
    ashlar__onednn_set_threads(1); /* its threads spin, and the other tests want the processors */
    check_run_cases();
    return check_report();
}
