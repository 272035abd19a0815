/*
 * test_lstm.c - the LSTM against its formula and finite differences; the memory that it needs.
 */
#include "lstm_fixture.h"

#include "blas.h"

/* One gate's sum, straight from the formula; gate 0..3 = i f g o. */
static double gate_sum(const problem *p, size_t layer, size_t gate, size_t unit, const double *x,
                       const double *h) {
    const double *weights = p->args.weights;
    const size_t hidden = p->layout.config.hidden;
    const size_t row = gate * hidden + unit;
    const ashlar_rnn_view w = ashlar_rnn_layout_view(&p->layout, layer, ASHLAR_RNN_W);
    const ashlar_rnn_view r = ashlar_rnn_layout_view(&p->layout, layer, ASHLAR_RNN_R);
    double sum = weights[ashlar_rnn_layout_view(&p->layout, layer, ASHLAR_RNN_BW).offset + row] +
                 weights[ashlar_rnn_layout_view(&p->layout, layer, ASHLAR_RNN_BR).offset + row];
    for (size_t j = 0; j < w.cols; j++) {
        sum += weights[w.offset + row * w.cols + j] * x[j];
    }
    for (size_t j = 0; j < hidden; j++) {
        sum += weights[r.offset + row * hidden + j] * h[j];
    }
    return sum;
}

/* One step of one layer of one sequence, in place in h and c. */
static void plain_step(const problem *p, size_t layer, const double *x, double *h, double *c) {
    double next[8];
    const size_t hidden = p->layout.config.hidden;
    for (size_t j = 0; j < hidden; j++) {
        const double i = sigmoid(gate_sum(p, layer, 0, j, x, h));
        const double f = sigmoid(gate_sum(p, layer, 1, j, x, h));
        const double g = tanh(gate_sum(p, layer, 2, j, x, h));
        const double o = sigmoid(gate_sum(p, layer, 3, j, x, h));
        c[j] = f * c[j] + i * g;
        next[j] = o * tanh(c[j]);
    }
    memcpy(h, next, hidden * sizeof *h);
}

/* Sequence b alone, step by step, layer by layer, compared with its part of the outputs. */
static void check_sequence(const problem *p, size_t b) {
    const ashlar_lstm_args *a = &p->args;
    const size_t hidden = p->layout.config.hidden, layers = p->layout.config.layers;
    double h[3][8] = {{0}}, c[3][8] = {{0}};
    const double *hx = a->hx, *cx = a->cx, *hy = a->hy, *cy = a->cy, *y = a->y;
    for (size_t l = 0; hx != NULL && l < layers; l++) {
        memcpy(h[l], hx + (l * a->batch + b) * hidden, hidden * sizeof **h);
        memcpy(c[l], cx + (l * a->batch + b) * hidden, hidden * sizeof **c);
    }
    for (size_t t = 0; t < a->steps; t++) {
        const size_t at = t * a->batch + b;
        const bool is_valid = t < (size_t)a->lengths[b];
        const double *x = (const double *)a->x + at * p->layout.config.input;
        for (size_t l = 0; is_valid && l < layers; l++) {
            plain_step(p, l, x, h[l], c[l]);
            x = h[l];
        }
        for (size_t j = 0; j < hidden; j++) {
            CHECK_NEAR(y[at * hidden + j], is_valid ? h[layers - 1][j] : 0.0,
                       is_valid ? 1e-13 : 0.0, 0);
        }
    }
    for (size_t l = 0; l < layers; l++) {
        for (size_t j = 0; j < hidden; j++) {
            CHECK_NEAR(hy[(l * a->batch + b) * hidden + j], h[l][j], 1e-13, 0);
            CHECK_NEAR(cy[(l * a->batch + b) * hidden + j], c[l][j], 1e-13, 0);
        }
    }
}

static void forward_is_the_formula_for_each_sequence_alone(void) {
    for (size_t s = 0; s < SHAPE_COUNT; s++) {
        for (int training = 0; training < 2; training++) {
            problem p;
            REQUIRE(open_problem(&p, &SHAPES[s], ASHLAR_F64, training != 0));
            run_forward(&p);
            for (size_t b = 0; b < SHAPES[s].batch; b++) {
                check_sequence(&p, b);
            }
            close_problem(&p);
        }
    }
}

static double dot(const double *a, const double *b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* The scalar whose gradient backward computes: y.dy + hy.dhy + cy.dcy over the valid steps. */
static double objective(const problem *p) {
    const ashlar_lstm_args *a = &p->args;
    const size_t hidden = p->layout.config.hidden;
    run_forward(p);
    double sum = dot(a->hy, a->dhy, p->state_count) + dot(a->cy, a->dcy, p->state_count);
    for (size_t at = 0; at < a->steps * a->batch; at++) {
        if (at / a->batch < (size_t)a->lengths[at % a->batch]) {
            sum += dot((const double *)a->y + at * hidden, (const double *)a->dy + at * hidden,
                       hidden);
        }
    }
    return sum;
}

static double worst_difference;
static size_t difference_count;

/* Each gradient against a central difference of the objective in that element. */
static void check_gradient(const problem *p, const void *values_const, const double *gradient,
                           size_t count, const char *name) {
    double *const values = (double *)(uintptr_t)values_const; /* our own memory, put back below */
    const double step = 1e-5;
    for (size_t i = 0; values != NULL && i < count; i++) {
        const double old = values[i];
        if (isnan(old)) {
            CHECK_NEAR(gradient[i], 0.0, 0, 0); /* padding */
            continue;
        }
        values[i] = old + step;
        const double above = objective(p);
        values[i] = old - step;
        const double below = objective(p);
        values[i] = old;
        const double error =
            fabs((above - below) / (2 * step) - gradient[i]) / fmax(1, fabs(gradient[i]));
        worst_difference = fmax(worst_difference, error);
        difference_count++;
        CHECK(error <= 1e-8);
        if (!(error <= 1e-8)) {
            printf("# %s[%zu]: error %g\n", name, i, error);
        }
    }
}

static void check_all_gradients(const problem *p) {
    const ashlar_lstm_args *a = &p->args;
    run_forward(p);
    run_backward(p);
    check_gradient(p, a->x, a->dx, p->x_count, "dx");
    check_gradient(p, a->hx, a->dhx, p->state_count, "dhx");
    check_gradient(p, a->cx, a->dcx, p->state_count, "dcx");
    check_gradient(p, a->weights, a->dweights, p->layout.elements, "dweights");
}

static void gradients_match_finite_differences(void) {
    for (size_t s = 0; s < SHAPE_COUNT; s++) {
        problem p;
        REQUIRE(open_problem(&p, &SHAPES[s], ASHLAR_F64, true));
        check_all_gradients(&p);
        close_problem(&p);
    }
    printf("# %zu derivatives, worst relative error %.2g\n", difference_count, worst_difference);
}

static void check_guards(const problem *p) {
    for (size_t i = 0; i < 2; i++) {
        size_t touched = 0;
        for (size_t at = 0; p->guards[i] != NULL && at < GUARD_BYTES; at++) {
            touched += p->guards[i][at] != GUARD;
        }
        CHECK_ZU(touched, 0);
    }
}

static void no_call_writes_past_its_scratch(void) {
    for (size_t s = 0; s < SHAPE_COUNT; s++) {
        for (int training = 0; training < 2; training++) {
            problem p;
            REQUIRE(open_problem(&p, &SHAPES[s], ASHLAR_F32, training != 0));
            run_forward(&p);
            if (training != 0) {
                run_backward(&p);
            }
            check_guards(&p);
            close_problem(&p);
        }
    }
}

static void sizes_never_shrink_when_a_batch_grows(void) {
    const ashlar_rnn_config config = {5, 7, 2, ASHLAR_F32};
    ashlar_rnn_layout layout;
    REQUIRE(ashlar_rnn_layout_init(&layout, &config) == ASHLAR_OK);
    for (size_t steps = 1; steps < 20; steps++) {
        for (size_t batch = 1; batch < 20; batch++) {
            for (int training = 0; training < 2; training++) {
                size_t reserve[3], work[3];
                const bool keeps = training != 0;
                REQUIRE(ashlar_lstm_sizes(&layout, steps, batch, keeps, &reserve[0], &work[0]) ==
                        ASHLAR_OK);
                REQUIRE(ashlar_lstm_sizes(&layout, steps + 1, batch, keeps, &reserve[1],
                                          &work[1]) == ASHLAR_OK);
                REQUIRE(ashlar_lstm_sizes(&layout, steps, batch + 1, keeps, &reserve[2],
                                          &work[2]) == ASHLAR_OK);
                CHECK(reserve[1] >= reserve[0] && reserve[2] >= reserve[0]);
                CHECK(work[1] >= work[0] && work[2] >= work[0]);
                CHECK((reserve[0] > 0) == keeps);
            }
        }
    }
}

static void impossible_sizes_are_refused_and_write_nothing(void) {
    const ashlar_rnn_config config = {5, 8, 1, ASHLAR_F64};
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
        {(size_t)1 << 31, 1, ashlar_gemm_fits((size_t)1 << 31, 1, 1) ? ASHLAR_OK
                                                                     : ASHLAR_EOVERFLOW},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int training = 0; training < 2; training++) {
            size_t reserve = 11, work = 22;
            CHECK(ashlar_lstm_sizes(&layout, cases[i].steps, cases[i].batch, training != 0,
                                    &reserve, &work) == cases[i].want);
            CHECK((reserve == 11 && work == 22) == (cases[i].want != ASHLAR_OK));
        }
    }
    CHECK_HAS(ashlar_error_detail(), "lower steps");
}

int main(void) {
    RUN(forward_is_the_formula_for_each_sequence_alone);
    RUN(gradients_match_finite_differences);
    RUN(no_call_writes_past_its_scratch);
    RUN(sizes_never_shrink_when_a_batch_grows);
    RUN(impossible_sizes_are_refused_and_write_nothing);
    return check_report();
}
