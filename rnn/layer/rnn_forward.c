/* rnn_forward.c - the RNN's forward pass over layers, directions and steps. */
#include <string.h>

#include "allocator/base/check_level.h"
#include "arena/compute/workers.h"
#include "rnn/layer/rnn_cpu.h"
#include "rnn/layer/rnn_factor.h"
#include "rnn/layer/rnn_prepare.h"

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

/* Multiply a pseudo-layer's input [N, in] with W. Returns the bias [K] of its gates. */
static const real *multiply_input(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                                  const layer_part *part, const real *input) {
    if (args->b.prepared != NULL) {
        const ashlar_prepared_layer at =
            ashlar__rnn_prepared_layer(batch->layout, false, pseudo_layer_of(batch, part));
        REAL(ashlar__gemm_panels)
        (batch->row_count, batch->gate_rows, part->input, input, part->input,
         in_prepared(args, at.w), false, part->gates, batch->gate_stride);
        return in_prepared(args, at.bias);
    }
    const real *const weights = args->b.weights;
    real *const bias = in_work(args, batch->map.bias);
    REAL(ashlar__gemm)
    (false, true, batch->row_count, batch->gate_rows, part->input, input, part->input,
     weights + part->place[ASHLAR_RNN_W].offset, part->input, false, part->gates,
     batch->gate_stride);
    gather_bias(batch->layout, pseudo_layer_of(batch, part), weights, bias);
    return bias;
}

/* Run one pseudo-layer, from its layer's input [N, in] to its last states. */
static void forward_pseudo_layer(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                                 const layer_part *part, const real *input) {
    real *const own[] = {part->states, part->cells};
    /* Read the input before writing any states: in inference they may share its memory. */
    const real *const bias = multiply_input(batch, args, part, input);
    read_states(batch, args, part, FIRST_STATES, (const void *const[]){args->b.hx, args->b.cx},
                own);
    run_layer((layer_run){.batch = batch,
                          .part = part,
                          .is_forward = true,
                          .run_step = forward_step,
                          .bias = bias},
              args);
    write_states(batch, args, part, LAST_STATES, own, (void *const[]){args->b.hy, args->b.cy});
}

/* The input of layer l > 0, made from the outputs of layer l - 1. */
static const real *make_input(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                              size_t l) {
    if (!batch->is_joined) {
        const layer_part below = open_pseudo_layer(batch, args, l - 1, 0);
        return forward_outputs(batch, &below);
    }
    real *const input = joined_input(batch, args, l);
    for (size_t d = 0; d < batch->layout->config.directions; d++) {
        const layer_part below = open_pseudo_layer(batch, args, l - 1, d);
        join_outputs(batch, &below, input);
    }
    if (batch->is_dropping) {
        drop_rows(batch, args, args->dropout_seed, l, input);
    }
    return input;
}

void ASHLAR_VARIANT(ashlar__rnn_forward)(const ashlar_rnn_cpu_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE);
    const ashlar_rnn_rows batch = ashlar__rnn_rows_open(args, args->b.reserve != NULL);
    const ashlar_rnn_config *config = &args->layout->config;
    const real *input =
        packed_rows(&batch, args->b.x, config->input, in_work(args, batch.map.rows));
    if (batch.is_dropping) {
        *kept_seed(&batch, args) = args->dropout_seed;
    }
    for (size_t l = 0; l < config->layers; l++) {
        input = l == 0 ? input : make_input(&batch, args, l);
        for (size_t d = 0; d < config->directions; d++) {
            const layer_part part = open_pseudo_layer(&batch, args, l, d);
            forward_pseudo_layer(&batch, args, &part, input);
        }
    }
    for (size_t d = 0; d < config->directions; d++) {
        const layer_part part = open_pseudo_layer(&batch, args, config->layers - 1, d);
        write_outputs(&batch, &part, args->b.y);
    }
}

/* ---- rnn backward ---- */

/*
 * The RNN's backward passes over layers, directions and steps.
 */

/* For each row p in `rows`: into[p] += from[p], `width` elements each. Rows of `into` lie `width`
 * apart, those of `from` `stride` apart. */
static void add_rows(real *restrict into, const real *restrict from, size_t stride, some_rows rows,
                     size_t width) {
    for (size_t p = rows.first; p < rows.end; p += rows.stride) {
        for (size_t j = 0; j < width; j++) {
            into[p * width + j] += from[p * stride + j];
        }
    }
}

/* Returns the gradient of h' before the projection; without a projection, dh itself. With one, the
 * gradient of the projection's output is also copied to `doutputs`, for backward_weights. */
static real *backward_projection(const layer_run *run, some_rows rows, size_t t) {
    const size_t state = run->part->state, hidden = run->part->hidden;
    if (run->project.columns == 0) {
        return run->dh;
    }
    real *const kept = run->part->doutputs + run->batch->start[t] * state;
    for (size_t p = rows.first; p < rows.end; p += rows.stride) {
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

static void backward_pseudo_layer(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                                  const layer_part *part, const real *dy) {
    real *const own[] = {in_work(args, batch->map.dh), in_work(args, batch->map.dc)};
    read_states(batch, args, part, STATE_GRADIENTS, (const void *const[]){args->b.dhy, args->b.dcy},
                own);
    run_layer((layer_run){.batch = batch,
                          .part = part,
                          .run_step = backward_step,
                          .dy = dy + part->direction * part->state,
                          .dh = own[0],
                          .dc = own[1]},
              args);
    write_states(batch, args, part, STATE_GRADIENTS, own,
                 (void *const[]){args->b.dhx, args->b.dcx});
}

void ASHLAR_VARIANT(ashlar__rnn_backward_data)(const ashlar_rnn_cpu_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE && args->b.reserve != NULL);
    const ashlar_rnn_rows batch = ashlar__rnn_rows_open(args, true);
    const ashlar_rnn_config *config = &args->layout->config;
    const real *const weights = args->b.weights;
    real *const rows = in_work(args, batch.map.rows);
    const real *flow = packed_rows(&batch, args->b.dy, batch.layout->output, rows);
    for (size_t l = config->layers; l-- > 0;) {
        for (size_t d = 0; d < config->directions; d++) {
            const layer_part part = open_pseudo_layer(&batch, args, l, d);
            backward_pseudo_layer(&batch, args, &part, flow);
        }
        /* Overwrite the rows only now, when both directions have read them. */
        real *const into = l == 0 && is_dense(&batch) ? args->b.dx : rows;
        for (size_t d = 0; d < config->directions && (l > 0 || args->b.dx != NULL); d++) {
            const layer_part part = open_pseudo_layer(&batch, args, l, d);
            REAL(ashlar__gemm)
            (false, false, batch.row_count, part.input, batch.gate_rows, part.gates,
             batch.gate_stride, weights + part.place[ASHLAR_RNN_W].offset, part.input, d > 0, into,
             part.input);
        }
        if (l > 0 && batch.is_dropping) {
            drop_rows(&batch, args, *kept_seed(&batch, args), l, into);
        }
        flow = into;
    }
    if (args->b.dx != NULL && !is_dense(&batch)) {
        unpack_rows(&batch, flow, config->input, args->b.dx);
    }
}
