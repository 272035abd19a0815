/*
 * test_rnn_gradients.c - every gradient of every cell against finite differences in double.
 */
#include "tests/rnn/layer/rnn_cpu_fixture.h"

static double dot(const double *a, const double *b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* The scalar whose gradient backward computes: y.dy + hy.dhy + cy.dcy over the valid steps. */
static double objective(const problem *p) {
    const ashlar_rnn_cpu_args *a = &p->args;
    const size_t width = p->layout.output;
    run_forward(p);
    double sum = dot(a->b.hy, a->b.dhy, p->state_count);
    if (p->layout.config.cell == ASHLAR_RNN_LSTM) {
        sum += dot(a->b.cy, a->b.dcy, p->cell_count);
    }
    for (size_t at = 0; at < a->steps * a->batch; at++) {
        if (at / a->batch < (size_t)a->lengths[at % a->batch]) {
            sum += dot((const double *)a->b.y + at * width, (const double *)a->b.dy + at * width,
                       width);
        }
    }
    return sum;
}

enum { PLACES = CHECK_SANITIZED(400, 40) };

static double worst_difference;
static size_t difference_count;

/*
 * Each gradient against a central difference of the objective in that element; of a tensor of many
 * elements every n-th, so that about PLACES are left. Smaller shapes leave out none.
 */
static void check_gradient(const problem *p, const void *values_const, const double *gradient,
                           size_t count, const char *name) {
    double *const values = (double *)(uintptr_t)values_const; /* our own memory, put back below */
    const double step = 1e-5;
    for (size_t i = 0; values != NULL && i < count; i += 1 + count / PLACES) {
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
    const ashlar_rnn_cpu_args *a = &p->args;
    run_forward(p);
    run_backward(p);
    check_gradient(p, a->b.x, a->b.dx, p->x_count, "dx");
    check_gradient(p, a->b.hx, a->b.dhx, p->state_count, "dhx");
    if (p->layout.config.cell == ASHLAR_RNN_LSTM) {
        check_gradient(p, a->b.cx, a->b.dcx, p->cell_count, "dcx");
    }
    check_gradient(p, a->b.weights, a->b.dweights, p->layout.elements, "dweights");
}

CASE(gradients_match_finite_differences) {
    for (size_t i = 0; i < KIND_COUNT; i++) {
        const kind k = kind_at(i);
        for (size_t s = 0; s < SHAPE_COUNT; s++) {
            problem p;
            REQUIRE(open_problem(&p, &SHAPES[s], &k, ASHLAR_F64, true));
            check_all_gradients(&p);
            drop_problems();
        }
    }
    printf("# %zu derivatives, worst relative error %.2g\n", difference_count, worst_difference);
}

/* More rows than are summed in one go, with ends of sequences in between. Without ReLU: of so many
 * sums one is always so near to its kink that a difference steps over it. */
CASE(weight_gradients_of_many_rows_match_too) {
    static const shape tall = {1, 70, 6, 2, 2, {70, 11, 70, 66, 70, 50}, true};
    for (size_t i = 0; i < KIND_COUNT; i++) {
        const kind k = kind_at(i);
        problem p;
        if (k.cell == ASHLAR_RNN_RELU) {
            continue;
        }
        REQUIRE(open_problem(&p, &tall, &k, ASHLAR_F64, true));
        run_forward(&p);
        run_backward(&p);
        check_gradient(&p, p.args.b.weights, p.args.b.dweights, p.layout.elements, "dweights");
        drop_problems();
    }
}

RUN_CASES()
