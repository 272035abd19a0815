/* rnn_prepared.c - packs weights once, for many passes or steps, and runs single time steps and
 * linear layers with them; compiled for each element type and instruction set (real.h). */
#include "rnn/layer/rnn_cpu.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "arena/compute/workers.h"
#include "rnn/layer/rnn_pass.h"
#include "arena/product/blas.h"
#include "arena/product/panel.h"

void gather_bias(const ashlar_rnn_layout *layout, size_t pseudo_layer, const real *weights,
                 real *bias) {
    const ashlar_rnn_view w = ashlar_rnn_layout_view(layout, pseudo_layer, ASHLAR_RNN_BW);
    const ashlar_rnn_view r = ashlar_rnn_layout_view(layout, pseudo_layer, ASHLAR_RNN_BR);
    memset(bias, 0, ashlar__rnn_gate_width(layout) * sizeof(real));
    for (size_t j = 0; j < w.rows; j++) {
        bias[j] = weights[w.offset + j];
    }
    for (size_t j = 0; j < r.rows; j++) {
        bias[ashlar__rnn_gate_column(layout, j)] += weights[r.offset + j];
    }
}

static void prepare_tensor(const ashlar_prepare_args *args, size_t pseudo_layer,
                           ashlar_rnn_tensor tensor, size_t offset) {
    const ashlar_rnn_view view = ashlar_rnn_layout_view(args->layout, pseudo_layer, tensor);
    if (view.rows > 0) {
        pack_matrix((matrix_packing){.trans = true,
                                     .is_bf16 = args->is_bf16,
                                     .columns = view.rows,
                                     .depth = view.cols,
                                     .weights = (const real *)args->weights + view.offset,
                                     .ld = view.cols,
                                     .panels = (char *)args->prepared + offset});
    }
}

static void prepare_stack(const ashlar_prepare_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE);
    for (size_t i = 0; i < args->layout->pseudo_layers; i++) {
        const ashlar_prepared_layer at = ashlar__rnn_prepared_layer(args->layout, args->is_bf16, i);
        gather_bias(args->layout, i, args->weights,
                    (real *)(void *)((char *)args->prepared + at.bias));
        prepare_tensor(args, i, ASHLAR_RNN_W, at.w);
        prepare_tensor(args, i, ASHLAR_RNN_R, at.r);
        prepare_tensor(args, i, ASHLAR_RNN_WP, at.wp);
    }
}

static void prepare_linear(const ashlar_prepared_linear *l) {
    pack_matrix((matrix_packing){.trans = true,
                                 .is_bf16 = l->is_bf16,
                                 .columns = l->args.out,
                                 .depth = l->args.in,
                                 .weights = l->args.weight,
                                 .ld = l->args.in,
                                 .panels = l->prepared});
}

/* ---- products of few rows ---- */

/* The multiplications that are worth another thread: a microsecond or two of them. A thread that
 * waits for its next piece spins (workers.h). */
enum { PIECE_PRODUCTS = 1 << 15, FACTORS = 2 };

/* c [B, columns] = or += a [B, depth] times a packed matrix. */
typedef struct packed_product {
    const void *panels;
    size_t depth;
    const real *a;
    bool adds;
    real *c;
    size_t ldc;
} packed_product;

/* One or two products that go to the same columns, which the threads share. If `step` is given, the
 * columns are a cell's gates, and the cell runs after the products. */
typedef struct products {
    bool is_bf16; /* the packed matrices are bf16 */
    size_t batch, columns, count, pieces;
    const real *bias; /* [columns], what c begins with; NULL: nothing */
    const cell_step *step; /* columns are the gates of a cell, which runs next; NULL: no cell */
    cell_function *cell;
    packed_product of[FACTORS];
} products;

/* Compute columns first .. end - 1 of all products; `first` is a multiple of PANEL. */
static void multiply_columns(const products *p, size_t first, size_t end) {
    for (size_t b = 0; p->bias != NULL && b < p->batch; b++) {
        memcpy(p->of[0].c + b * p->of[0].ldc + first, p->bias + first,
               (end - first) * sizeof(real));
    }
    for (size_t k = 0; k < p->count; k++) {
        const packed_product *const one = &p->of[k];
        const size_t at = first * one->depth; /* elements of the matrix before this piece */
        if (p->is_bf16) {
            multiply_bf16_panels(p->batch, end - first, one->depth, one->a, one->depth,
                                 (const uint32_t *)one->panels + at / 2, one->adds, one->c + first,
                                 one->ldc);
        } else {
            multiply_packed(p->batch, end - first, one->depth, one->a, one->depth,
                            (const real *)one->panels + at, one->adds, one->c + first, one->ldc,
                            false);
        }
    }
}

/* The column of `count` at which piece i begins. */
static size_t edge(const products *p, size_t count, size_t i) {
    return ashlar__blas_edge(count, PANEL, p->pieces, i);
}

static void run_piece(void *context, size_t i) {
    const products *const p = context;
    multiply_columns(p, edge(p, p->columns, i), edge(p, p->columns, i + 1));
}

/* Piece i computes all gates of some units, so the same thread can then run the cell for them
 * without waiting for others. That needs gates that begin where a panel begins. */
static void run_cell_piece(void *context, size_t i) {
    const products *const p = context;
    const size_t hidden = p->step->hidden;
    const size_t first = edge(p, hidden, i), end = edge(p, hidden, i + 1);
    cell_step step = *p->step;
    for (size_t gate = 0; gate < p->columns; gate += hidden) {
        multiply_columns(p, gate + first, gate + end);
    }
    step.unit = first;
    step.units = end - first;
    ASHLAR_CHECK2(end > first);
    p->cell(&step, (some_rows){0, p->batch});
}

/* How many threads should share the products, of at most `panels` pieces. */
static size_t count_pieces(const products *p, size_t panels) {
    const size_t threads = ashlar__workers_count();
    size_t depth = 0;
    for (size_t k = 0; k < p->count; k++) {
        depth += p->of[k].depth;
    }
    const size_t worth = p->batch * p->columns * depth / PIECE_PRODUCTS;
    const size_t most = threads < panels ? threads : panels;
    return worth < 1 ? 1 : worth < most ? worth : most;
}

static void run_products(products p) {
    if (p.step != NULL && p.step->hidden % PANEL == 0) {
        p.pieces = count_pieces(&p, p.step->hidden / PANEL);
        ashlar__workers_run(p.pieces, run_cell_piece, &p);
        return;
    }
    p.pieces = count_pieces(&p, ashlar__blas_units(p.columns, PANEL));
    ashlar__workers_run(p.pieces, run_piece, &p);
    if (p.step != NULL) {
        p.cell(p.step, (some_rows){0, p.batch});
    }
}

/* ---- a step ---- */

static const void *prepared_at(const ashlar_rnn_cpu_args *args, size_t offset) {
    return (const char *)args->b.prepared + offset;
}

/* Run layer l on x [B, in(l)]. Returns its output. */
static const real *step_layer(const ashlar_rnn_cpu_args *args, const ashlar_rnn_step_work *work,
                              size_t l, const real *x) {
    const ashlar_rnn_layout *const layout = args->layout;
    const ashlar_rnn_config *const config = &layout->config;
    const size_t hidden = config->hidden, state = layout->state, batch = args->batch;
    const size_t gate_rows = ashlar__rnn_gate_rows(layout);
    const size_t width = ashlar__rnn_gate_width(layout);
    const bool has_sums = config->cell == ASHLAR_RNN_GRU, is_projected = config->projection > 0;
    const bool is_lstm = config->cell == ASHLAR_RNN_LSTM;
    const ashlar_prepared_layer at = ashlar__rnn_prepared_layer(layout, args->is_bf16, l);
    real *const gates = in_work(args, work->gates), *const sums = in_work(args, work->sums);
    const real *const h = (const real *)args->b.hx + l * batch * state;
    real *const next_h = (real *)args->b.hy + l * batch * state;
    const cell_step step = {
        .hidden = hidden,
        .gate_stride = width,
        .bias = prepared_at(args, at.bias),
        .gates = gates,
        .sums = sums,
        .state = h,
        .cell = is_lstm ? (const real *)args->b.cx + l * batch * hidden : NULL,
        .next_cell = is_lstm ? (real *)args->b.cy + l * batch * hidden : NULL,
        .output = is_projected ? in_work(args, work->full) : next_h,
    };
    run_products((products){
        .is_bf16 = args->is_bf16,
        .batch = batch,
        .columns = gate_rows,
        .count = 2,
        .step = &step,
        .cell = cell_forward[config->cell],
        .of = {{prepared_at(args, at.w), l == 0 ? config->input : state, x, false, gates, width},
               {prepared_at(args, at.r), state, h, !has_sums, has_sums ? sums : gates,
                has_sums ? gate_rows : width}}});
    if (is_projected) {
        run_products((products){
            .is_bf16 = args->is_bf16,
            .batch = batch,
            .columns = state,
            .count = 1,
            .of = {{prepared_at(args, at.wp), hidden, step.output, false, next_h, state}}});
    }
    return next_h;
}

void single_step(const ashlar_rnn_cpu_args *args) {
    const ashlar_rnn_step_work work = ashlar__rnn_step_work(args->layout, args->batch);
    const real *x = args->b.x;
    for (size_t l = 0; l < args->layout->config.layers; l++) {
        x = step_layer(args, &work, l, x);
    }
    memcpy(args->b.y, x, args->batch * args->layout->state * sizeof(real));
}

static void run_linear(const ashlar_prepared_linear *l) {
    const ashlar_linear_args *const a = &l->args;
    run_products((products){.is_bf16 = l->is_bf16,
                            .batch = a->rows,
                            .columns = a->out,
                            .count = 1,
                            .bias = a->bias,
                            .of = {{l->prepared, a->in, a->x, a->bias != NULL, a->y, a->out}}});
}

const ashlar_rnn_loops ASHLAR_VARIANT(ashlar__rnn_loops) = {
    .passes = {[ASHLAR_RNN_FORWARD] = forward_pass,
               [ASHLAR_RNN_BACKWARD_DATA] = backward_data_pass,
               [ASHLAR_RNN_BACKWARD_WEIGHTS] = backward_weights_pass},
    .prepare = prepare_stack,
    .prepare_linear = prepare_linear,
    .linear = run_linear,
};
