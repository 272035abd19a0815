/* rnn_step.c - a step of the RNN: the point-wise half of each cell, the products with R and Wp, and
 * how threads share a pseudo-layer's steps.
 *
 * A pass needs R (and Wp) in each step, so it packs them once, or gets them prepared. Threads share
 * a pseudo-layer in one of two ways, with the same results to the last bit:
 *
 *     shards    a shard is some consecutive sequences; sequences are independent, so each shard's
 *               thread goes through all steps by itself
 *     pieces    with too few sequences for that, threads share the columns of each step's product:
 *               if possible a piece is all gates of some units, and runs the cell for them, too */
#include <string.h>

#include "allocator/base/check_level.h"
#include "arena/compute/workers.h"
#include "rnn/layer/rnn_pass.h"
#include "arena/product/blas.h"
#include "arena/product/panel.h"

/* Prefetch row p of gates for backward, which finds it where forward left it many steps ago: rows
 * are about a page apart, which processors do not prefetch across. */
static void prefetch_gates(const cell_step *s, size_t p, size_t end) {
    for (size_t j = 0; s->doutput != NULL && p < end && j < s->gate_stride; j += LINE) {
        ASHLAR_PREFETCH(s->gates + p * s->gate_stride + j);
    }
}

/* Define a cell's function. `row` is what it does to units u .. u + n - 1, of h, in row p; backward
 * functions always take whole rows. */
#define CELL_FUNCTION(name, row)                           \
    static void name(const cell_step *s, some_rows rows) { \
        const size_t h = s->hidden, u = s->unit;           \
        const size_t n = s->units > 0 ? s->units : h;      \
        (void)u, (void)n;                                  \
        for (size_t p = rows.first; p < rows.end; p++) {   \
            prefetch_gates(s, p + 1, rows.end);            \
            row;                                           \
        }                                                  \
    }

/* LSTM. A row of gates is i f g o. Forward replaces the gates' sums by their activations. */

static void lstm_forward_row(size_t hidden, size_t count, real *restrict gates,
                             const real *restrict bias, const real *restrict cell,
                             real *restrict next_cell, real *restrict output) {
    real *restrict in = gates;
    real *restrict forget = gates + hidden;
    real *restrict fresh = gates + 2 * hidden;
    real *restrict out = gates + 3 * hidden;
    for (size_t j = 0; j < count; j++) {
        const real i = real_sigmoid(in[j] + bias[j]);
        const real f = real_sigmoid(forget[j] + bias[hidden + j]);
        const real g = real_tanh(fresh[j] + bias[2 * hidden + j]);
        const real o = real_sigmoid(out[j] + bias[3 * hidden + j]);
        const real c = f * cell[j] + i * g;
        in[j] = i;
        forget[j] = f;
        fresh[j] = g;
        out[j] = o;
        next_cell[j] = c;
        output[j] = o * real_tanh(c);
    }
}

CELL_FUNCTION(lstm_forward, lstm_forward_row(h, n, s->gates + p * s->gate_stride + u, s->bias + u,
                                             s->cell + p * h + u, s->next_cell + p * h + u,
                                             s->output + p * h + u))

static void lstm_backward_row(size_t hidden, real *restrict gates, const real *restrict cell,
                              const real *restrict next_cell, const real *restrict doutput,
                              real *restrict dcell) {
    real *restrict in = gates;
    real *restrict forget = gates + hidden;
    real *restrict fresh = gates + 2 * hidden;
    real *restrict out = gates + 3 * hidden;
    for (size_t j = 0; j < hidden; j++) {
        const real i = in[j];
        const real f = forget[j];
        const real g = fresh[j];
        const real o = out[j];
        const real squashed = real_tanh(next_cell[j]);
        const real d_output = doutput[j];
        const real d_cell = dcell[j] + d_output * o * (1 - squashed * squashed);
        in[j] = d_cell * g * i * (1 - i);
        forget[j] = d_cell * cell[j] * f * (1 - f);
        fresh[j] = d_cell * i * (1 - g * g);
        out[j] = d_output * squashed * o * (1 - o);
        dcell[j] = d_cell * f;
    }
}

CELL_FUNCTION(lstm_backward,
              lstm_backward_row(h, s->gates + p * s->gate_stride, s->cell + p * h,
                                s->next_cell + p * h, s->doutput + p * h, s->dcell + p * h))

/* GRU. A row of gates is r z n u. u is R h + bR of gate n: the reset gate multiplies u before it is
 * added to the rest of n, so backward needs u by itself. */

static void gru_forward_row(size_t hidden, size_t count, real *restrict gates,
                            const real *restrict sums, const real *restrict bias,
                            const real *restrict state, real *restrict output) {
    real *restrict reset = gates;
    real *restrict update = gates + hidden;
    real *restrict fresh = gates + 2 * hidden;
    real *restrict recurrent = gates + 3 * hidden;
    for (size_t j = 0; j < count; j++) {
        const real r = real_sigmoid(reset[j] + sums[j] + bias[j]);
        const real z = real_sigmoid(update[j] + sums[hidden + j] + bias[hidden + j]);
        const real u = sums[2 * hidden + j] + bias[3 * hidden + j];
        const real n = real_tanh(fresh[j] + bias[2 * hidden + j] + r * u);
        reset[j] = r;
        update[j] = z;
        fresh[j] = n;
        recurrent[j] = u;
        output[j] = n + z * (state[j] - n);
    }
}

CELL_FUNCTION(gru_forward,
              gru_forward_row(h, n, s->gates + p * s->gate_stride + u, s->sums + p * 3 * h + u,
                              s->bias + u, s->state + p * h + u, s->output + p * h + u))

static void gru_backward_row(size_t hidden, real *restrict gates, real *restrict sums,
                             const real *restrict state, real *restrict doutput) {
    real *restrict reset = gates;
    real *restrict update = gates + hidden;
    real *restrict fresh = gates + 2 * hidden;
    real *restrict recurrent = gates + 3 * hidden;
    for (size_t j = 0; j < hidden; j++) {
        const real r = reset[j];
        const real z = update[j];
        const real n = fresh[j];
        const real d_output = doutput[j];
        const real d_n = d_output * (1 - z) * (1 - n * n);
        const real d_r = d_n * recurrent[j] * r * (1 - r);
        const real d_z = d_output * (state[j] - n) * z * (1 - z);
        const real d_u = d_n * r;
        reset[j] = sums[j] = d_r;
        update[j] = sums[hidden + j] = d_z;
        fresh[j] = d_n;
        recurrent[j] = sums[2 * hidden + j] = d_u;
        doutput[j] = d_output * z;
    }
}

CELL_FUNCTION(gru_backward, gru_backward_row(h, s->gates + p * s->gate_stride, s->sums + p * 3 * h,
                                             s->state + p * h, s->doutput + p * h))

/* A cell of one gate: h' = `value`, a function of `sum`. Backward computes the derivative from the
 * output, so forward keeps nothing in the row of gates. */
#define SIMPLE_CELL(name, value, gradient)                                                         \
    static void name##_forward_row(size_t count, const real *restrict gates,                       \
                                   const real *restrict bias, real *restrict output) {             \
        for (size_t j = 0; j < count; j++) {                                                       \
            const real sum = gates[j] + bias[j];                                                   \
            output[j] = (value);                                                                   \
        }                                                                                          \
    }                                                                                              \
    static void name##_backward_row(size_t hidden, real *restrict gates,                           \
                                    const real *restrict outputs, const real *restrict doutputs) { \
        for (size_t j = 0; j < hidden; j++) {                                                      \
            const real output = outputs[j], doutput = doutputs[j];                                 \
            gates[j] = (gradient);                                                                 \
        }                                                                                          \
    }                                                                                              \
    CELL_FUNCTION(name##_forward, name##_forward_row(n, s->gates + p * s->gate_stride + u,         \
                                                     s->bias + u, s->output + p * h + u))          \
    CELL_FUNCTION(name##_backward, name##_backward_row(h, s->gates + p * s->gate_stride,           \
                                                       s->output + p * h, s->doutput + p * h))

SIMPLE_CELL(tanh, real_tanh(sum), (1 - output * output) * doutput)
/* A NaN stays a NaN, because it is not below 0. */
SIMPLE_CELL(relu, (sum < 0 ? 0 : sum), (output > 0 ? doutput : 0))

/* Built from the list of cells: a cell without a NAME_ line here does not compile. */
#define NAME_LSTM(half) lstm_##half
#define NAME_GRU(half) gru_##half
#define NAME_TANH(half) tanh_##half
#define NAME_RELU(half) relu_##half
#define FORWARD(name, gates, text) [ASHLAR_RNN_##name] = NAME_##name(forward),
#define BACKWARD(name, gates, text) [ASHLAR_RNN_##name] = NAME_##name(backward),
cell_function *const cell_forward[] = {ASHLAR_RNN_CELL_MAP(FORWARD)};
ASHLAR_TABLE_IS_FULL(cell_forward, ASHLAR_RNN_CELL_COUNT);
static cell_function *const cell_backward[] = {ASHLAR_RNN_CELL_MAP(BACKWARD)};
ASHLAR_TABLE_IS_FULL(cell_backward, ASHLAR_RNN_CELL_COUNT);

/* The least elements that are worth a thread: to pack them takes tens of microseconds. */
enum { PACKED_LEAST = 1 << 16 };

/* Pack panels `first` .. `end` - 1. */
static void pack_some(void *context, size_t first, size_t end) {
    const matrix_packing *const m = context;
    const size_t column = first * PANEL, last = end * PANEL;
    const size_t columns = (last < m->columns ? last : m->columns) - column;
    const real *const from = m->weights + column * (m->trans ? m->ld : 1);
    if (m->is_bf16) {
        pack_bf16_panels(columns, m->depth, from, m->ld,
                         (uint32_t *)m->panels + column * m->depth / 2);
    } else {
        pack_panels(m->trans, columns, m->depth, from, m->ld, m->depth * PANEL,
                    (real *)m->panels + column * m->depth);
    }
}

void pack_matrix(matrix_packing m) {
    ASHLAR_ASSERT(m.trans || !m.is_bf16);
    ashlar__workers_share(ashlar__blas_units(m.columns, PANEL),
                          PACKED_LEAST / (m.depth * PANEL + 1) + 1, pack_some, &m);
}

/* A right factor of a pseudo-layer with its panels: the prepared ones, or panels packed now if the
 * batch has enough steps. prepared, work: offsets in bytes of either. */
static factor open_factor(const layer_run *run, const ashlar_rnn_cpu_args *args,
                          ashlar_rnn_tensor tensor, size_t prepared, size_t work) {
    const ashlar_rnn_view view = run->part->place[tensor];
    const bool trans = run->is_forward;
    factor f = {
        .trans = trans,
        .columns = trans ? view.rows : view.cols,
        .depth = trans ? view.cols : view.rows,
        .weights = (const real *)args->b.weights + view.offset,
        .ld = view.cols,
    };
    f.pieces = ashlar__rnn_rows_pieces(run->batch, f.columns * f.depth);
    if (run->is_forward && args->b.prepared != NULL) {
        f.panels = in_prepared(args, prepared);
    } else if (run->batch->is_packed && f.columns > 0) {
        f.panels = in_work(args, work);
        pack_matrix((matrix_packing){.trans = trans,
                                     .columns = f.columns,
                                     .depth = f.depth,
                                     .weights = f.weights,
                                     .ld = f.ld,
                                     .panels = in_work(args, work)});
    }
    return f;
}

static void multiply_parts(size_t count, size_t columns, size_t depth, const real *a, size_t lda,
                           const real *panels, bool adds, real *c, size_t ldc) {
    for (size_t p = 0; p < depth; p += DEPTH) {
        const size_t deep = depth - p < DEPTH ? depth - p : DEPTH;
        for (size_t i = 0; i < count; i += CACHED_ROWS) {
            const left_rows rows = {.at = a + i * lda + p, .row = lda, .column = 1};
            const right_panels right = {.at = panels + p * PANEL, .stride = depth * PANEL};
            multiply_panels(count - i < CACHED_ROWS ? count - i : CACHED_ROWS, columns, deep, rows,
                            right, adds || p > 0, c + i * ldc, ldc);
        }
    }
}

/* With one row, reading the factor takes most of the time. So it takes few panels at a time, each
 * in its whole depth: that reads memory in order. */
void multiply_packed(size_t count, size_t columns, size_t depth, const real *a, size_t lda,
                     const real *panels, bool adds, real *c, size_t ldc, bool backwards) {
    const size_t most = count == 1 && depth > DEPTH ? ROW_PANELS * PANEL : columns;
    for (size_t n = 0; n < columns; n += most) {
        const size_t first = backwards ? (columns - 1 - n) / most * most : n;
        multiply_parts(count, columns - first < most ? columns - first : most, depth, a, lda,
                       panels + first * depth, adds, c + first, ldc);
    }
}

/* A product of step t: c = or += a * f, for the given rows of a and c, which lie `lda` and `ldc`
 * elements apart. */
typedef struct step_product {
    const factor *f;
    size_t t;
    some_rows rows;
    const real *a;
    size_t lda;
    bool adds;
    real *c;
    size_t ldc;
} step_product;

static bool is_backwards(const step_product *p) {
    return p->t % 2 != 0;
}

/* Multiply columns `column` .. `end` - 1. */
static void multiply_columns(const step_product *p, size_t column, size_t end) {
    const factor *const f = p->f;
    multiply_packed(count_rows(p->rows), end - column, f->depth, p->a + p->rows.first * p->lda,
                    p->lda, f->panels + column * f->depth, p->adds,
                    p->c + p->rows.first * p->ldc + column, p->ldc, is_backwards(p));
}

static void multiply_piece(void *context, size_t i) {
    const step_product *const p = context;
    const size_t columns = p->f->columns, pieces = p->f->pieces;
    multiply_columns(p, ashlar__blas_edge(columns, PANEL, pieces, i),
                     ashlar__blas_edge(columns, PANEL, pieces, i + 1));
}

/* Every other step takes the columns in reverse order, to begin with those that the step before
 * read last, which are still in the cache. */
static void multiply_step(const step_product *p) {
    const factor *const f = p->f;
    if (f->panels != NULL) {
        ashlar__workers_run(f->pieces, multiply_piece, (void *)(uintptr_t)p); /* *p is only read */
    } else {
        REAL(ashlar__gemm)
        (false, f->trans, count_rows(p->rows), f->columns, f->depth, p->a + p->rows.first * p->lda,
         p->lda, f->weights, f->ld, p->adds, p->c + p->rows.first * p->ldc, p->ldc);
    }
}

/* The cell's part of a step on some rows, which `pieces` pieces share. */
typedef struct cell_rows {
    cell_function *function;
    const cell_step *step;
    some_rows rows;
    size_t pieces;
} cell_rows;

static void run_piece(void *context, size_t i) {
    const cell_rows *const c = context;
    const size_t first = c->rows.first, count = count_rows(c->rows);
    c->function(c->step, (some_rows){first + ashlar__blas_edge(count, 1, c->pieces, i),
                                     first + ashlar__blas_edge(count, 1, c->pieces, i + 1)});
}

/* Run the cell's part of a step on the given rows. Threads share it as they share the step's
 * product. */
static void run_cell(const layer_run *run, cell_function *function, const cell_step *step,
                     some_rows rows) {
    const size_t count = count_rows(rows), most = run->recurrent.pieces;
    cell_rows c = {.function = function, .step = step, .rows = rows};
    c.pieces = count < most ? count : most;
    ashlar__workers_run(c.pieces, run_piece, &c);
}

/* A product whose columns are a cell's gates, and the cell. */
typedef struct gates_and_cell {
    const step_product *product;
    const cell_step *step;
    cell_function *function;
} gates_and_cell;

/* Piece i multiplies the columns of all gates of some units, then runs the cell for these. */
static void run_units(void *context, size_t i) {
    const gates_and_cell *const g = context;
    const step_product *const p = g->product;
    const size_t columns = p->f->columns, pieces = p->f->pieces;
    cell_step step = *g->step;
    step.units = step.hidden / pieces;
    step.unit = i * step.units;
    for (size_t done = 0; done < columns; done += step.hidden) {
        const size_t gate = is_backwards(p) ? columns - step.hidden - done : done;
        multiply_columns(p, gate + step.unit, gate + step.unit + step.units);
    }
    g->function(&step, p->rows);
}

/* Multiply with R, and run a forward function of a cell on the same rows.
 *
 * A thread that runs the cell for the gates that it has computed finds them in its cache, and waits
 * for no other thread. That needs equal pieces that are whole panels in every gate. */
static void multiply_and_run_cell(const layer_run *run, const step_product *p,
                                  cell_function *function, const cell_step *step) {
    const factor *const f = p->f;
    if (f->panels != NULL && f->pieces > 1 && step->hidden % (f->pieces * PANEL) == 0) {
        gates_and_cell g = {p, step, function};
        ashlar__workers_run(f->pieces, run_units, &g);
        return;
    }
    multiply_step(p);
    run_cell(run, function, step, p->rows);
}

static void forward_step(const layer_run *run, cell_step step, some_rows rows, size_t t) {
    const ashlar_rnn_rows *const batch = run->batch;
    const size_t hidden = run->part->hidden, state = run->part->state;
    const bool has_sums = batch->split < batch->gate_rows;
    const bool is_projected = run->project.columns > 0;
    real *const after = step.output;
    if (is_projected) {
        step.output = batch->training ? run->part->fulls + batch->start[t] * hidden : run->full;
    }
    const step_product gates = {.f = &run->recurrent,
                                .t = t,
                                .rows = rows,
                                .a = step.state,
                                .lda = state,
                                .adds = !has_sums,
                                .c = has_sums ? step.sums : step.gates,
                                .ldc = has_sums ? batch->gate_rows : batch->gate_stride};
    multiply_and_run_cell(run, &gates, cell_forward[batch->layout->config.cell], &step);
    if (is_projected) {
        multiply_step(&(step_product){.f = &run->project,
                                      .t = t,
                                      .rows = rows,
                                      .a = step.output,
                                      .lda = hidden,
                                      .c = after,
                                      .ldc = state});
    }
}

/* For each row p in `rows`: into[p] += from[p], `width` elements each. Rows of `into` lie `width`
 * apart, those of `from` `stride` apart. */
static void add_rows(real *restrict into, const real *restrict from, size_t stride, some_rows rows,
                     size_t width) {
    for (size_t p = rows.first; p < rows.end; p++) {
        for (size_t j = 0; j < width; j++) {
            into[p * width + j] += from[p * stride + j];
        }
    }
}

/* Returns the gradient of h' before the projection. With a projection, the gradient of its output
 * is also copied to `doutputs`, for backward_weights; without one, the result is dh itself. */
static real *backward_projection(const layer_run *run, some_rows rows, size_t t) {
    const size_t state = run->part->state, hidden = run->part->hidden;
    if (run->project.columns == 0) {
        return run->dh;
    }
    real *const kept = run->part->doutputs + run->batch->start[t] * state;
    for (size_t p = rows.first; p < rows.end; p++) {
        memcpy(kept + p * state, run->dh + p * state, state * sizeof(real));
    }
    multiply_step(&(step_product){.f = &run->project,
                                  .t = t,
                                  .rows = rows,
                                  .a = run->dh,
                                  .lda = state,
                                  .c = run->full,
                                  .ldc = hidden});
    return run->full;
}

static void backward_step(const layer_run *run, cell_step step, some_rows rows, size_t t) {
    const ashlar_rnn_rows *const batch = run->batch;
    const size_t state = run->part->state, output = batch->layout->output;
    const bool has_sums = batch->split < batch->gate_rows;
    add_rows(run->dh, run->dy + batch->start[t] * output, output, rows, state);
    step.doutput = backward_projection(run, rows, t);
    run_cell(run, cell_backward[batch->layout->config.cell], &step, rows);
    /* Set only the rows of dh whose sequences run at this step. The other rows keep their gradient:
     * in the forward direction that of the last state, since the sequence's steps are still to
     * come; in reverse that of the first state, since its steps are over. For the GRU the product
     * is added, since dh already has a part of the gradient. */
    multiply_step(&(step_product){.f = &run->recurrent,
                                  .t = t,
                                  .rows = rows,
                                  .a = has_sums ? step.sums : step.gates,
                                  .lda = has_sums ? batch->gate_rows : batch->gate_stride,
                                  .adds = has_sums,
                                  .c = run->dh,
                                  .ldc = state});
}

static cell_step open_step(const layer_run *run, size_t t) {
    const ashlar_rnn_rows *const batch = run->batch;
    const layer_part *const part = run->part;
    const size_t hidden = part->hidden, state = part->state;
    const size_t before = side_before(part->direction, t), after = side_after(part->direction, t);
    return (cell_step){
        .hidden = hidden,
        .gate_stride = batch->gate_stride,
        .bias = run->bias,
        .gates = part->gates + batch->start[t] * batch->gate_stride,
        .sums = run->sums,
        .state = part->states + ashlar__rnn_rows_state(batch, before) * state,
        .cell = part->cells + ashlar__rnn_rows_cell(batch, before) * hidden,
        .next_cell = part->cells + ashlar__rnn_rows_cell(batch, after) * hidden,
        .output = part->states + ashlar__rnn_rows_state(batch, after) * state,
        .dcell = run->dc,
    };
}

static void run_shard(void *context, size_t shard) {
    const layer_run *const run = context;
    const ashlar_rnn_rows *const batch = run->batch;
    const size_t first = ashlar__rnn_rows_edge(batch, shard);
    const size_t end = ashlar__rnn_rows_edge(batch, shard + 1);
    for (size_t i = 0; i < batch->steps; i++) {
        const bool is_ascending = run->is_forward == (run->part->direction == 0);
        const size_t t = is_ascending ? i : batch->steps - 1 - i;
        const size_t active = ashlar__rnn_rows_active(batch, t);
        const some_rows rows = {first, end < active ? end : active};
        if (count_rows(rows) > 0) {
            (run->is_forward ? forward_step : backward_step)(run, open_step(run, t), rows, t);
        }
    }
}

void run_layer(layer_run run, const ashlar_rnn_cpu_args *args) {
    const ashlar_rnn_map *const map = &run.batch->map;
    const ashlar_prepared_layer at =
        ashlar__rnn_prepared_layer(run.batch->layout, false, pseudo_layer_of(run.batch, run.part));
    run.sums = in_work(args, map->sums);
    run.full = in_work(args, map->full);
    run.recurrent = open_factor(&run, args, ASHLAR_RNN_R, at.r, map->recurrent);
    run.project = open_factor(&run, args, ASHLAR_RNN_WP, at.wp, map->project);
    ashlar__workers_run(run.batch->shards, run_shard, &run);
}
