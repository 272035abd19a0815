/*
 * test_rnn_prepared.c - single steps with prepared weights have the bits of one long forward pass,
 * whatever the batch and the threads; so has a prepared linear layer behind them.
 */
#include "tests/rnn/layer/rnn_cpu_fixture.h"

#include "arena/compute/convert.h"
#include "arena/compute/workers.h"
#include "rnn/layer/ops.h"
#include "tests/arena/product/set_fixture.h"

enum { STEPS = 6 };

/* How the steps run. */
typedef struct way {
    size_t classes, threads;
    bool is_bf16; /* fp32 matrices are prepared as bf16 */
} way;

/* What they leave: logits [STEPS, B, V], and the last states. */
typedef struct results {
    char *logits;
    void *h, *c;
} results;

/* A linear layer behind a stack, for all steps. */
static ashlar_linear_args head_of(problem *p, size_t classes) {
    const size_t rows = STEPS * p->args.batch, in = p->layout.output;
    return (ashlar_linear_args){.rows = rows,
                                .in = in,
                                .out = classes,
                                .x = p->args.b.y,
                                .weight = tensor(p, classes * in, 0.3),
                                .bias = tensor(p, classes, 0.3),
                                .y = tensor(p, rows * classes, 0)};
}

/* Returns whether every pass was one that runs as a step. */
static bool run_steps(problem *p, const ashlar_linear_args *head, const way *w, results *out) {
    const ashlar_dtype dtype = p->layout.config.dtype;
    const ashlar_rnn_loops *const loops = ashlar__rnn_loops_of(dtype);
    const size_t batch = p->args.batch, x_bytes = batch * p->layout.config.input * p->item;
    const bool is_lstm = p->layout.config.cell == ASHLAR_RNN_LSTM;
    void *const h[] = {tensor(p, p->state_count, 0), tensor(p, p->state_count, 0)};
    void *const c[] = {tensor(p, p->cell_count, 0), tensor(p, p->cell_count, 0)};
    size_t reserve, work;
    bool are_steps = true;
    ashlar_prepared_linear linear = {.args = *head, .dtype = dtype, .is_bf16 = w->is_bf16};
    linear.args.rows = batch;
    linear.args.x = tensor(p, batch * head->in, 0);
    linear.prepared = scratch(p, ashlar__linear_prepared_bytes(&linear));
    loops->prepare_linear(&linear);
    ashlar_prepare_args prepare = {
        .layout = &p->layout, .is_bf16 = w->is_bf16, .weights = p->args.b.weights};
    prepare.prepared = scratch(p, ashlar__rnn_prepared_bytes(&p->layout, w->is_bf16));
    loops->prepare(&prepare);
    CHECK(ashlar__rnn_cpu_sizes(&p->layout, 1, batch, false, &reserve, &work) == ASHLAR_OK);
    ashlar_rnn_cpu_args args = {.layout = &p->layout,
                                .steps = 1,
                                .batch = batch,
                                .is_bf16 = w->is_bf16,
                                .b = {.work = scratch(p, work),
                                      .y = (void *)(uintptr_t)linear.args.x,
                                      .prepared = prepare.prepared}};
    for (size_t t = 0; t < STEPS; t++) {
        args.b.x = (const char *)p->args.b.x + t * x_bytes;
        args.b.hx = t == 0 ? p->args.b.hx : h[t % 2];
        args.b.hy = h[1 - t % 2];
        args.b.cx = !is_lstm ? NULL : t == 0 ? p->args.b.cx : c[t % 2];
        args.b.cy = is_lstm ? c[1 - t % 2] : NULL;
        are_steps &= ashlar__rnn_is_step(&args);
        loops->passes[ASHLAR_RNN_FORWARD](&args);
        linear.args.y = out->logits + t * batch * head->out * p->item;
        loops->linear(&linear);
    }
    out->h = h[STEPS % 2];
    out->c = c[STEPS % 2];
    return are_steps;
}

static void round_values(const void *values, size_t first, size_t count) {
    float *const from = (float *)(uintptr_t)values + first;
    for (size_t i = 0; i < count; i++) {
        from[i] = ashlar__float_from_bf16(ashlar__bf16_from_float(from[i]));
    }
}

/* Round the elements of all matrices, and not the biases. */
static void round_matrices(const problem *p, const ashlar_linear_args *head) {
    static const ashlar_rnn_tensor matrices[] = {ASHLAR_RNN_W, ASHLAR_RNN_R, ASHLAR_RNN_WP};
    for (size_t i = 0; i < 3 * p->layout.config.layers; i++) {
        const ashlar_rnn_view view = ashlar_rnn_layout_view(&p->layout, i / 3, matrices[i % 3]);
        round_values(p->args.b.weights, view.offset, view.rows * view.cols);
    }
    round_values(head->weight, 0, head->out * head->in);
}

static void check_steps(const shape *s, const kind *k, ashlar_dtype dtype, const way *w) {
    problem p;
    REQUIRE(open_problem(&p, s, k, dtype, false));
    lessen_weights(&p);
    const ashlar_linear_args head = head_of(&p, w->classes);
    results got = {.logits = tensor(&p, head.rows * head.out, 0)};
    ashlar__workers_set_count(w->threads);
    CHECK(run_steps(&p, &head, w, &got));
    ashlar__workers_set_count(1);
    if (w->is_bf16) {
        round_matrices(&p, &head);
    }
    run_forward(&p);
    (dtype == ASHLAR_F32 ? ashlar__linear_forward_f32 : ashlar__linear_forward_f64)(&head);
    ashlar__workers_set_count(0);
    CHECK(memcmp(got.logits, head.y, head.rows * head.out * p.item) == 0);
    CHECK(memcmp(got.h, p.args.b.hy, p.state_count * p.item) == 0);
    CHECK(k->cell != ASHLAR_RNN_LSTM || memcmp(got.c, p.args.b.cy, p.cell_count * p.item) == 0);
    drop_problems();
}

/* ---- cases ---- */

/* Widths of whole panels, in which a cell is cut, and others; more columns than one depth. */
static const size_t WIDTHS[][2] = {{7, 5}, {33, 64}, {300, 96}, {3, 288}, {64, 258}};
enum { WIDTH_COUNT = sizeof WIDTHS / sizeof WIDTHS[0] };

/* Every sequence of STEPS steps. */
static shape shape_of(size_t i, size_t layers, size_t batch) {
    shape s = {.layers = layers,
               .steps = STEPS,
               .batch = batch,
               .input = WIDTHS[i % WIDTH_COUNT][0],
               .hidden = WIDTHS[i % WIDTH_COUNT][1],
               .has_state = true};
    for (size_t b = 0; b < batch; b++) {
        s.lengths[b] = STEPS;
    }
    return s;
}

static void check_cells_with(ashlar_dtype dtype, size_t batch, size_t threads, bool is_bf16) {
    for (unsigned i = 0; i < 4 * (unsigned)ASHLAR_RNN_CELL_COUNT * WIDTH_COUNT;
         i += CHECK_SANITIZED(1, CHECK_SHARE(7, 23))) {
        const shape s = shape_of(i, 1 + i % 3, batch);
        const kind k = {.cell = (ashlar_rnn_cell)(i / WIDTH_COUNT / 4),
                        .bias = (ashlar_rnn_bias)(i / WIDTH_COUNT % 4),
                        .directions = 1};
        check_steps(&s, &k, dtype, &(way){19 + i % 80, threads, is_bf16});
    }
}

static void check_cells(ashlar_dtype dtype, size_t batch, size_t threads) {
    check_cells_with(dtype, batch, threads, false);
}

CASE(steps_have_the_bits_of_a_pass_with_every_cell_and_bias) {
    check_cells(ASHLAR_F32, 1, 1);
    check_cells(ASHLAR_F64, 1, 1);
}

CASE(so_they_do_with_any_batch) {
    check_cells(ASHLAR_F32, 2, 1);
    check_cells(ASHLAR_F32, 5, 1);
    check_cells(ASHLAR_F32, 16, 1);
    check_cells(ASHLAR_F64, 3, 1);
}

CASE(and_with_any_number_of_threads) {
    check_cells(ASHLAR_F32, 1, 2);
    check_cells(ASHLAR_F32, 1, 5);
    check_cells(ASHLAR_F32, 16, 3);
    check_cells(ASHLAR_F64, 4, 2);
}

static const kind PROJECTED = {.cell = ASHLAR_RNN_LSTM, .directions = 1, .is_projected = true};

CASE(and_with_a_projection) {
    for (size_t i = 0; i < 3 * WIDTH_COUNT; i++) {
        const shape s = shape_of(i, 1 + i % 3, 1 + i % 4);
        check_steps(&s, &PROJECTED, i % 2 == 0 ? ASHLAR_F32 : ASHLAR_F64,
                    &(way){70, 1 + i % 3, false});
    }
}

CASE(matrices_prepared_as_bf16_give_the_bits_of_matrices_rounded_so) {
    check_cells_with(ASHLAR_F32, 1, 1, true);
    check_cells_with(ASHLAR_F32, 1, 3, true);
    check_cells_with(ASHLAR_F32, 2, 1, true);
    check_cells_with(ASHLAR_F32, 16, 2, true);
    for (size_t i = 0; i < WIDTH_COUNT; i++) {
        const shape s = shape_of(i, 2, 1 + i);
        check_steps(&s, &PROJECTED, ASHLAR_F32, &(way){70, 1 + i % 3, true});
    }
}

RUN_CASES_OF_SET()
