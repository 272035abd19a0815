/* rnn_decode.c - packs weights once, for many passes or steps, and runs a language model's time
 * steps with them; compiled for each element type and instruction set (real.h). */
#include "rnn/layer/rnn_cpu.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "arena/compute/workers.h"
#include "rnn/layer/rnn_pass.h"
#include "rnn/product/blas.h"
#include "rnn/product/panel.h"

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

static void *in_packed(const ashlar_decode_model *m, size_t offset) {
    return (char *)m->packed + offset;
}

static void *linear_panels(const ashlar_decode_model *m) {
    return in_packed(m, ashlar__rnn_prepared_bytes(m->layout, m->is_bf16));
}

static void pack_model(const ashlar_decode_model *m) {
    const size_t state = m->layout->state;
    ASHLAR_ASSERT(m->layout->config.dtype == REAL_DTYPE && m->layout->config.directions == 1);
    prepare_stack(&(ashlar_prepare_args){
        .layout = m->layout, .is_bf16 = m->is_bf16, .weights = m->stack, .prepared = m->packed});
    pack_matrix((matrix_packing){.trans = true,
                                 .is_bf16 = m->is_bf16,
                                 .columns = m->classes,
                                 .depth = state,
                                 .weights = m->weight,
                                 .ld = state,
                                 .panels = linear_panels(m)});
}

/* ---- a step ---- */

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
    p->cell(&step, (some_rows){0, 1, p->batch});
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
        p.cell(p.step, (some_rows){0, 1, p.batch});
    }
}

static real *work_at(const ashlar_decode_args *args, size_t offset) {
    return (real *)(void *)((char *)args->work + offset);
}

/* Run layer l on x [B, in(l)]. Returns its output. */
static const real *run_layer_once(const ashlar_decode_args *args, const ashlar_decode_work *work,
                                  size_t l, const real *x) {
    const ashlar_decode_model *const m = &args->model;
    const ashlar_rnn_config *const config = &m->layout->config;
    const size_t hidden = config->hidden, state = m->layout->state, batch = args->batch;
    const size_t gate_rows = ashlar__rnn_gate_rows(m->layout);
    const size_t width = ashlar__rnn_gate_width(m->layout);
    const bool has_sums = config->cell == ASHLAR_RNN_GRU, is_projected = config->projection > 0;
    const bool is_lstm = config->cell == ASHLAR_RNN_LSTM;
    const ashlar_prepared_layer at = ashlar__rnn_prepared_layer(m->layout, m->is_bf16, l);
    real *const gates = work_at(args, work->gates), *const sums = work_at(args, work->sums);
    const real *const h = (const real *)args->h + l * batch * state;
    real *const next_h = (real *)args->next_h + l * batch * state;
    const cell_step step = {
        .hidden = hidden,
        .gate_stride = width,
        .bias = in_packed(m, at.bias),
        .gates = gates,
        .sums = sums,
        .state = h,
        .cell = is_lstm ? (const real *)args->c + l * batch * hidden : NULL,
        .next_cell = is_lstm ? (real *)args->next_c + l * batch * hidden : NULL,
        .output = is_projected ? work_at(args, work->full) : next_h,
    };
    run_products((products){
        .is_bf16 = m->is_bf16,
        .batch = batch,
        .columns = gate_rows,
        .count = 2,
        .step = &step,
        .cell = cell_forward[config->cell],
        .of = {{in_packed(m, at.w), l == 0 ? config->input : state, x, false, gates, width},
               {in_packed(m, at.r), state, h, !has_sums, has_sums ? sums : gates,
                has_sums ? gate_rows : width}}});
    if (is_projected) {
        run_products(
            (products){.is_bf16 = m->is_bf16,
                       .batch = batch,
                       .columns = state,
                       .count = 1,
                       .of = {{in_packed(m, at.wp), hidden, step.output, false, next_h, state}}});
    }
    return next_h;
}

static void step_model(const ashlar_decode_args *args) {
    const ashlar_decode_model *const m = &args->model;
    const ashlar_rnn_config *const config = &m->layout->config;
    const ashlar_decode_work work = ashlar__decode_work(m->layout, args->batch);
    const size_t layers = config->layers, input = config->input;
    real *const rows = work_at(args, work.x);
    for (size_t b = 0; b < args->batch; b++) {
        const size_t token = (size_t)args->tokens[b];
        ASHLAR_ASSERT(token < m->classes);
        memcpy(rows + b * input, (const real *)m->table + token * input, input * sizeof(real));
    }
    const real *x = rows;
    for (size_t l = 0; l < layers; l++) {
        x = run_layer_once(args, &work, l, x);
    }
    run_products((products){
        .is_bf16 = m->is_bf16,
        .batch = args->batch,
        .columns = m->classes,
        .count = 1,
        .bias = m->bias,
        .of = {{linear_panels(m), m->layout->state, x, true, args->logits, m->classes}}});
}

const ashlar_rnn_loops ASHLAR_VARIANT(ashlar__rnn_loops) = {
    .passes = {[ASHLAR_RNN_FORWARD] = forward_pass,
               [ASHLAR_RNN_BACKWARD_DATA] = backward_data_pass,
               [ASHLAR_RNN_BACKWARD_WEIGHTS] = backward_weights_pass},
    .prepare = prepare_stack,
    .decoder = {.pack = pack_model, .step = step_model},
};
