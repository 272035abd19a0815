/* rnn_factor.c - packs a matrix of the weights once, and multiplies the rows of steps with it. */
#include "rnn/layer/rnn_factor.h"

#include "arena/compute/workers.h"
#include "rnn/layer/rnn_prepare.h"
#include "rnn/product/blas_impl.h"
#include "rnn/product/panel.h"

/* A right factor of a pseudo-layer, and its panels: prepared ones, or packed into `work` if the
 * batch has enough steps. Offsets in bytes. */
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

/* Each product of one row reads the whole factor. It takes few columns at a time, so that it reads
 * on from where it is. */
void multiply_packed(size_t count, size_t columns, size_t depth, const real *a, size_t lda,
                     const real *panels, bool adds, real *c, size_t ldc, bool backwards) {
    const size_t most = count == 1 && depth > DEPTH ? ROW_PANELS * PANEL : columns;
    for (size_t n = 0; n < columns; n += most) {
        const size_t first = backwards ? (columns - 1 - n) / most * most : n;
        multiply_parts(count, columns - first < most ? columns - first : most, depth, a, lda,
                       panels + first * depth, adds, c + first, ldc);
    }
}

static bool is_backwards(const step_product *p) {
    return p->t % 2 != 0;
}

/* Multiply columns `column` .. `end` - 1. */
static void multiply_columns(const step_product *p, size_t column, size_t end) {
    const factor *const f = p->f;
    multiply_packed(count_rows(p->rows), end - column, f->depth, p->a + p->rows.first * p->lda,
                    p->rows.stride * p->lda, f->panels + column * f->depth, p->adds,
                    p->c + p->rows.first * p->ldc + column, p->rows.stride * p->ldc,
                    is_backwards(p));
}

static void multiply_piece(void *context, size_t i) {
    const step_product *const p = context;
    const size_t columns = p->f->columns, pieces = p->f->pieces;
    multiply_columns(p, ashlar__blas_edge(columns, PANEL, pieces, i),
                     ashlar__blas_edge(columns, PANEL, pieces, i + 1));
}

void multiply_step(const step_product *p) {
    const factor *const f = p->f;
    if (f->panels != NULL) {
        ashlar__workers_run(f->pieces, multiply_piece, (void *)(uintptr_t)p); /* only read */
    } else {
        REAL(ashlar__gemm)
        (false, f->trans, count_rows(p->rows), f->columns, f->depth, p->a + p->rows.first * p->lda,
         p->rows.stride * p->lda, f->weights, f->ld, p->adds, p->c + p->rows.first * p->ldc,
         p->rows.stride * p->ldc);
    }
}

/* The cell's part of a step on some rows. Each of `pieces` pieces takes every pieces-th row. */
typedef struct cell_rows {
    cell_function *function;
    const cell_step *step;
    some_rows rows;
    size_t pieces;
} cell_rows;

static void run_piece(void *context, size_t i) {
    const cell_rows *const c = context;
    const size_t stride = c->rows.stride;
    c->function(c->step, (some_rows){c->rows.first + i * stride, c->pieces * stride, c->rows.end});
}

void run_cell(const layer_run *run, cell_function *function, const cell_step *step,
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

/* Piece i: the same units of every gate, then their cell. */
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

/* A thread that runs the cell for the gates that it has computed finds them in its cache, and waits
 * for no other thread. That needs pieces of whole panels in every gate, and equal ones. */
void multiply_and_run_cell(const layer_run *run, const step_product *p, cell_function *function,
                           const cell_step *step) {
    const factor *const f = p->f;
    if (f->panels != NULL && f->pieces > 1 && step->hidden % (f->pieces * PANEL) == 0) {
        gates_and_cell g = {p, step, function};
        ashlar__workers_run(f->pieces, run_units, &g);
        return;
    }
    multiply_step(p);
    run_cell(run, function, step, p->rows);
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

static void run_shard(void *context, size_t strand) {
    const layer_run *const run = context;
    const ashlar_rnn_rows *const batch = run->batch;
    for (size_t i = 0; i < batch->steps; i++) {
        const bool is_ascending = run->is_forward == (run->part->direction == 0);
        const size_t t = is_ascending ? i : batch->steps - 1 - i;
        const some_rows rows = {strand, batch->shards, ashlar__rnn_rows_active(batch, t)};
        if (count_rows(rows) > 0) {
            run->run_step(run, open_step(run, t), rows, t);
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
