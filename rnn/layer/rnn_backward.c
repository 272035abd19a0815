/* rnn_backward.c - the RNN's backward passes over layers, directions and steps. */
#include "rnn/layer/rnn_cpu.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "arena/compute/workers.h"
#include "rnn/layer/rnn_factor.h"

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
