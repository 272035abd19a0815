/* rnn_forward.c - the RNN's forward pass over layers, directions and steps. */
#include "rnn/layer/rnn_cpu.h"

#include "allocator/base/check_level.h"
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
