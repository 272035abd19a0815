/*
 * test_lstm.c - the LSTM against its formula, finite differences, and itself in float.
 *
 * Every batch here has NaN in the padding of x and dy, and NaN in each output before a call: what
 * reaches a result, or was not written, is seen.
 */
#include "check.h"

#include <stdint.h>
#include <stdlib.h>

#include "blas.h"
#include "lstm_cpu.h"

enum {
    MAX_BATCH = 6,
    MAX_TENSORS = 18,
    GUARD_BYTES = 64,
    GUARD = 0x5a,
};

static uint64_t random_state = 88172645463325252u;

static double random_real(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) * 0x1p-52 - 1;
}

typedef struct shape {
    size_t layers, steps, batch, input, hidden;
    int32_t lengths[MAX_BATCH];
    bool has_state;
} shape;

static const shape SHAPES[] = {
    {1, 1, 1, 1, 1, {1}, true},
    {1, 4, 1, 3, 2, {4}, false},
    {1, 5, 3, 3, 4, {2, 5, 1}, true},
    {2, 4, 4, 2, 3, {4, 4, 4, 4}, true},
    {2, 6, 4, 5, 3, {1, 4, 2, 4}, false}, /* no sequence reaches T */
    {2, 5, 6, 3, 5, {3, 5, 5, 1, 3, 2}, true},
    {3, 4, 3, 2, 2, {2, 4, 3}, true},
    {3, 3, 2, 4, 3, {3, 1}, false},
    {2, 9, 2, 1, 8, {9, 9}, true}, /* rows much wider than x, then much narrower */
    {2, 9, 2, 40, 1, {9, 9}, true},
};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof *SHAPES };

/* One problem in one element type: all tensors of ashlar_lstm_args, exactly as large as needed. */
typedef struct problem {
    ashlar_rnn_layout layout;
    ashlar_lstm_args args;
    size_t item; /* bytes of an element */
    size_t x_count, y_count, state_count;
    unsigned char *guards[2]; /* GUARD_BYTES behind work and behind reserve */
    void *owned[MAX_TENSORS];
    size_t owned_count;
} problem;

static double get(const void *data, size_t item, size_t i) {
    return item == sizeof(float) ? (double)((const float *)data)[i] : ((const double *)data)[i];
}

static void set(void *data, size_t item, size_t i, double value) {
    if (item == sizeof(float)) {
        ((float *)data)[i] = (float)value;
    } else {
        ((double *)data)[i] = value;
    }
}

static void fill(void *data, size_t item, size_t count, double value) {
    for (size_t i = 0; i < count; i++) {
        set(data, item, i, value);
    }
}

/* Also floats are drawn as floats, so that both types can get the same numbers. */
static void *tensor(problem *p, size_t count, double scale) {
    void *data = aligned_alloc(64, (count * p->item + 63) / 64 * 64);
    p->owned[p->owned_count++] = data;
    for (size_t i = 0; i < count; i++) {
        set(data, p->item, i, scale == 0 ? (double)NAN : (double)(float)(scale * random_real()));
    }
    return data;
}

/* Scratch of exactly `bytes`, NaN, with a guard behind it. */
static void *scratch(problem *p, size_t bytes, unsigned char **guard) {
    char *const data = tensor(p, (bytes + GUARD_BYTES) / p->item, 0);
    *guard = (unsigned char *)data + bytes;
    memset(*guard, GUARD, GUARD_BYTES);
    return data;
}

/* NaN past the lengths of data [T, B, width]. */
static void spoil_padding(const problem *p, void *data, size_t width) {
    for (size_t at = 0; at < p->args.steps * p->args.batch; at++) {
        if (at / p->args.batch >= (size_t)p->args.lengths[at % p->args.batch]) {
            for (size_t j = 0; j < width; j++) {
                set(data, p->item, at * width + j, (double)NAN);
            }
        }
    }
}

static bool open_problem(problem *p, const shape *s, ashlar_dtype dtype, bool training) {
    const ashlar_rnn_config config = {s->input, s->hidden, s->layers, dtype};
    size_t reserve_bytes, work_bytes;
    *p = (problem){.item = ashlar_dtype_bytes(dtype)};
    if (ashlar_rnn_layout_init(&p->layout, &config) != ASHLAR_OK ||
        ashlar_lstm_sizes(&p->layout, s->steps, s->batch, training, &reserve_bytes,
                          &work_bytes) != ASHLAR_OK) {
        return false;
    }
    p->x_count = s->steps * s->batch * s->input;
    p->y_count = s->steps * s->batch * s->hidden;
    p->state_count = s->layers * s->batch * s->hidden;
    ashlar_lstm_args *a = &p->args;
    *a = (ashlar_lstm_args){
        .layout = &p->layout, .steps = s->steps, .batch = s->batch, .lengths = s->lengths};
    random_state = 0x9e3779b97f4a7c15u; /* the same numbers for every type of one shape */
    void *const x = tensor(p, p->x_count, 1);
    void *const dy = tensor(p, p->y_count, 1);
    spoil_padding(p, x, s->input);
    spoil_padding(p, dy, s->hidden);
    a->x = x;
    a->dy = dy;
    a->weights = tensor(p, p->layout.elements, 0.7);
    a->dhy = tensor(p, p->state_count, 1);
    a->dcy = tensor(p, p->state_count, 1);
    a->hx = s->has_state ? tensor(p, p->state_count, 1) : NULL;
    a->cx = s->has_state ? tensor(p, p->state_count, 1) : NULL;
    a->y = tensor(p, p->y_count, 0);
    a->hy = tensor(p, p->state_count, 0);
    a->cy = tensor(p, p->state_count, 0);
    a->dx = tensor(p, p->x_count, 0);
    a->dhx = tensor(p, p->state_count, 0);
    a->dcx = tensor(p, p->state_count, 0);
    a->dweights = tensor(p, p->layout.elements, 0);
    fill(a->dweights, p->item, p->layout.elements, 0);
    a->reserve = training ? scratch(p, reserve_bytes, &p->guards[1]) : NULL;
    a->work = scratch(p, work_bytes, &p->guards[0]);
    return true;
}

static void close_problem(problem *p) {
    for (size_t i = 0; i < p->owned_count; i++) {
        free(p->owned[i]);
    }
}

static void run_forward(const problem *p) {
    if (p->item == sizeof(float)) {
        ashlar_lstm_forward_f32(&p->args);
    } else {
        ashlar_lstm_forward_f64(&p->args);
    }
}

static void run_backward(const problem *p) {
    if (p->item == sizeof(float)) {
        ashlar_lstm_backward_data_f32(&p->args);
        ashlar_lstm_backward_weights_f32(&p->args);
    } else {
        ashlar_lstm_backward_data_f64(&p->args);
        ashlar_lstm_backward_weights_f64(&p->args);
    }
}

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

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
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

/* dhx and dcx exist also where hx and cx are NULL: the same as with states of zeros. */
static void no_initial_state_is_a_state_of_zeros(void) {
    problem with, without;
    shape s = SHAPES[5];
    REQUIRE(open_problem(&with, &s, ASHLAR_F64, true));
    fill((void *)(uintptr_t)with.args.hx, with.item, with.state_count, 0);
    fill((void *)(uintptr_t)with.args.cx, with.item, with.state_count, 0);
    s.has_state = false;
    REQUIRE(open_problem(&without, &s, ASHLAR_F64, true));
    run_forward(&with);
    run_backward(&with);
    run_forward(&without);
    run_backward(&without);
    const size_t bytes = with.state_count * with.item;
    CHECK(memcmp(with.args.y, without.args.y, with.y_count * with.item) == 0);
    CHECK(memcmp(with.args.dhx, without.args.dhx, bytes) == 0);
    CHECK(memcmp(with.args.dcx, without.args.dcx, bytes) == 0);
    close_problem(&with);
    close_problem(&without);
}

static void missing_output_gradients_are_zeros(void) {
    problem zeros, missing;
    REQUIRE(open_problem(&zeros, &SHAPES[5], ASHLAR_F64, true));
    REQUIRE(open_problem(&missing, &SHAPES[5], ASHLAR_F64, true));
    fill((void *)(uintptr_t)zeros.args.dy, zeros.item, zeros.y_count, 0);
    fill((void *)(uintptr_t)zeros.args.dcy, zeros.item, zeros.state_count, 0);
    missing.args.dy = NULL;
    missing.args.dcy = NULL;
    run_forward(&zeros);
    run_backward(&zeros);
    run_forward(&missing);
    run_backward(&missing);
    CHECK(memcmp(zeros.args.dx, missing.args.dx, zeros.x_count * zeros.item) == 0);
    CHECK(memcmp(zeros.args.dhx, missing.args.dhx, zeros.state_count * zeros.item) == 0);
    CHECK(get(zeros.args.dhx, zeros.item, 0) != 0); /* dhy alone still counts */
    close_problem(&zeros);
    close_problem(&missing);
}

static void unwanted_outputs_change_no_other(void) {
    problem all, few;
    REQUIRE(open_problem(&all, &SHAPES[6], ASHLAR_F32, true));
    REQUIRE(open_problem(&few, &SHAPES[6], ASHLAR_F32, true));
    few.args.hy = few.args.cy = few.args.dx = few.args.dhx = few.args.dcx = NULL;
    run_forward(&all);
    run_backward(&all);
    run_forward(&few);
    run_backward(&few);
    const size_t bytes = all.layout.elements * all.item;
    CHECK(memcmp(all.args.y, few.args.y, all.y_count * all.item) == 0);
    CHECK(memcmp(all.args.dweights, few.args.dweights, bytes) == 0);
    close_problem(&all);
    close_problem(&few);
}

static void weight_gradients_accumulate(void) {
    problem once, twice;
    REQUIRE(open_problem(&once, &SHAPES[5], ASHLAR_F64, true));
    REQUIRE(open_problem(&twice, &SHAPES[5], ASHLAR_F64, true));
    run_forward(&once);
    run_backward(&once);
    for (int i = 0; i < 2; i++) {
        run_forward(&twice);
        run_backward(&twice);
    }
    for (size_t i = 0; i < once.layout.elements; i++) {
        const double want = 2 * get(once.args.dweights, once.item, i);
        CHECK_NEAR(get(twice.args.dweights, twice.item, i), want, 1e-13, 1e-13);
    }
    close_problem(&once);
    close_problem(&twice);
}

static void inference_gives_the_bits_of_training(void) {
    for (size_t s = 0; s < SHAPE_COUNT; s++) {
        problem training, inference;
        REQUIRE(open_problem(&training, &SHAPES[s], ASHLAR_F32, true));
        REQUIRE(open_problem(&inference, &SHAPES[s], ASHLAR_F32, false));
        run_forward(&training);
        run_forward(&inference);
        const size_t bytes = training.state_count * training.item;
        CHECK(memcmp(training.args.y, inference.args.y, training.y_count * training.item) == 0);
        CHECK(memcmp(training.args.hy, inference.args.hy, bytes) == 0);
        CHECK(memcmp(training.args.cy, inference.args.cy, bytes) == 0);
        close_problem(&training);
        close_problem(&inference);
    }
}

static void check_close(const problem *narrow, const void *got, const problem *wide,
                        const void *want, size_t count) {
    for (size_t i = 0; i < count; i++) {
        CHECK_NEAR(get(got, narrow->item, i), get(want, wide->item, i), 2e-5, 2e-5);
    }
}

static void states_may_be_updated_in_place(void) {
    problem apart, in_place;
    REQUIRE(open_problem(&apart, &SHAPES[6], ASHLAR_F32, false));
    REQUIRE(open_problem(&in_place, &SHAPES[6], ASHLAR_F32, false));
    in_place.args.hy = (void *)(uintptr_t)in_place.args.hx;
    in_place.args.cy = (void *)(uintptr_t)in_place.args.cx;
    run_forward(&apart);
    run_forward(&in_place);
    const size_t bytes = apart.state_count * apart.item;
    CHECK(memcmp(apart.args.y, in_place.args.y, apart.y_count * apart.item) == 0);
    CHECK(memcmp(apart.args.hy, in_place.args.hy, bytes) == 0);
    CHECK(memcmp(apart.args.cy, in_place.args.cy, bytes) == 0);
    close_problem(&apart);
    close_problem(&in_place);
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

static void float_agrees_with_double(void) {
    static const shape wide_shape = {2, 20, 5, 37, 50, {20, 3, 11, 20, 7}, true};
    problem f, d;
    REQUIRE(open_problem(&f, &wide_shape, ASHLAR_F32, true));
    REQUIRE(open_problem(&d, &wide_shape, ASHLAR_F64, true));
    run_forward(&f);
    run_backward(&f);
    run_forward(&d);
    run_backward(&d);
    check_close(&f, f.args.y, &d, d.args.y, f.y_count);
    check_close(&f, f.args.hy, &d, d.args.hy, f.state_count);
    check_close(&f, f.args.cy, &d, d.args.cy, f.state_count);
    check_close(&f, f.args.dx, &d, d.args.dx, f.x_count);
    check_close(&f, f.args.dhx, &d, d.args.dhx, f.state_count);
    check_close(&f, f.args.dcx, &d, d.args.dcx, f.state_count);
    check_close(&f, f.args.dweights, &d, d.args.dweights, f.layout.elements);
    close_problem(&f);
    close_problem(&d);
}

static void the_same_call_gives_the_same_bits(void) {
    static const shape s = {2, 12, 4, 33, 64, {12, 3, 9, 12}, true};
    problem first, second;
    REQUIRE(open_problem(&first, &s, ASHLAR_F32, true));
    REQUIRE(open_problem(&second, &s, ASHLAR_F32, true));
    run_forward(&first);
    run_backward(&first);
    run_forward(&second);
    run_backward(&second);
    CHECK(memcmp(first.args.y, second.args.y, first.y_count * first.item) == 0);
    CHECK(memcmp(first.args.dx, second.args.dx, first.x_count * first.item) == 0);
    CHECK(memcmp(first.args.dweights, second.args.dweights,
                 first.layout.elements * first.item) == 0);
    close_problem(&first);
    close_problem(&second);
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
    RUN(no_initial_state_is_a_state_of_zeros);
    RUN(missing_output_gradients_are_zeros);
    RUN(unwanted_outputs_change_no_other);
    RUN(weight_gradients_accumulate);
    RUN(inference_gives_the_bits_of_training);
    RUN(states_may_be_updated_in_place);
    RUN(no_call_writes_past_its_scratch);
    RUN(float_agrees_with_double);
    RUN(the_same_call_gives_the_same_bits);
    RUN(sizes_never_shrink_when_a_batch_grows);
    RUN(impossible_sizes_are_refused_and_write_nothing);
    return check_report();
}
