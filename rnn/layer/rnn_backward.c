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
    multiply_some(&run->project, t, rows, run->dh, state, false, run->full, hidden);
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
    multiply_some(&run->recurrent, t, rows, has_sums ? step.sums : step.gates,
                  has_sums ? batch->gate_rows : batch->gate_stride, has_sums, run->dh, state);
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

/* Add rows first .. end - 1 of R's gradient to dr: the sum over all steps of (columns of gate
 * gradients)^T (states before the step). */
static void add_recurrent(const ashlar_rnn_rows *batch, const layer_part *part, size_t first,
                          size_t end, real *dr) {
    const size_t width = part->state;
    const real *const gates = part->gates + recurrent_column(batch, first);
    size_t from = 0;
    for (size_t t = 0; first < end && t < batch->steps; t++) {
        /* Several steps share one product if their rows are adjacent. Their gate rows always are.
         * The rows of the states before them are adjacent if the direction is reverse, or if no
         * sequence ended in between. */
        const size_t before = t == 0 ? batch->batch : ashlar__rnn_rows_active(batch, t - 1);
        const bool touches = part->direction > 0 || ashlar__rnn_rows_active(batch, t) == before;
        if (t + 1 < batch->steps && touches) {
            continue;
        }
        REAL(ashlar__gemm)
        (true, false, end - first, width, batch->start[t + 1] - batch->start[from],
         gates + batch->start[from] * batch->gate_stride, batch->gate_stride,
         part->states + ashlar__rnn_rows_state(batch, side_before(part->direction, from)) * width,
         width, true, dr + first * width, width);
        from = t + 1;
    }
}

/* The sums of all columns of gate gradients. Threads share the columns, so that each sum is in the
 * order of the rows; ADDED_LEAST elements are about ten microseconds of work. */
enum { ADDED_LEAST = 1 << 15 };

typedef struct column_sums {
    const real *rows;
    size_t count, width, stride; /* rows lie `stride` elements apart */
    real *sum;                   /* [width] */
} column_sums;

static void add_columns(void *context, size_t first, size_t end) {
    const column_sums *const c = context;
    const size_t columns = end - first;
    real *restrict const sum = c->sum + first;
    memset(sum, 0, columns * sizeof(real));
    for (size_t row = 0; row < c->count; row++) {
        const real *restrict const from = c->rows + row * c->stride + first;
        for (size_t j = 0; j < columns; j++) {
            sum[j] += from[j];
        }
    }
}

/* Add the biases' gradients. A bias's gradient is the sum of its column of gate gradients. */
static void add_bias(const ashlar_rnn_rows *batch, const layer_part *part, real *restrict sum,
                     real *restrict dweights) {
    const ashlar_rnn_view w = part->place[ASHLAR_RNN_BW], r = part->place[ASHLAR_RNN_BR];
    column_sums c = {part->gates, batch->row_count, batch->gate_width, batch->gate_stride, sum};
    ashlar__workers_share_columns(c.count, c.width, sizeof(real), ADDED_LEAST, add_columns, &c);
    for (size_t j = 0; j < w.rows; j++) {
        dweights[w.offset + j] += sum[j];
    }
    for (size_t j = 0; j < r.rows; j++) {
        dweights[r.offset + j] += sum[recurrent_column(batch, j)];
    }
}

static void backward_pseudo_layer_weights(const ashlar_rnn_rows *batch,
                                          const ashlar_rnn_cpu_args *args, const layer_part *part,
                                          const real *input) {
    real *const dweights = args->b.dweights;
    real *const dr = dweights + part->place[ASHLAR_RNN_R].offset;
    const ashlar_rnn_view project = part->place[ASHLAR_RNN_WP];
    REAL(ashlar__gemm)
    (true, false, batch->gate_rows, part->input, batch->row_count, part->gates, batch->gate_stride,
     input, part->input, true, dweights + part->place[ASHLAR_RNN_W].offset, part->input);
    add_recurrent(batch, part, 0, batch->split, dr);
    add_recurrent(batch, part, batch->split, batch->gate_rows, dr);
    add_bias(batch, part, in_work(args, batch->map.bias), dweights);
    if (project.rows > 0) {
        REAL(ashlar__gemm)
        (true, false, part->state, part->hidden, batch->row_count, part->doutputs, part->state,
         part->fulls, part->hidden, true, dweights + project.offset, part->hidden);
    }
}

/* The input of layer l, as forward left it in the reserve. */
static const real *kept_input(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                              size_t l) {
    if (batch->is_joined) {
        return joined_input(batch, args, l);
    }
    const layer_part below = open_pseudo_layer(batch, args, l - 1, 0);
    return forward_outputs(batch, &below);
}

void ASHLAR_VARIANT(ashlar__rnn_backward_weights)(const ashlar_rnn_cpu_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE && args->b.reserve != NULL);
    const ashlar_rnn_rows batch = ashlar__rnn_rows_open(args, true);
    const ashlar_rnn_config *config = &args->layout->config;
    const real *rows = NULL; /* of layer 0's input */
    const size_t first = args->only_layer == 0 ? 0 : args->only_layer - 1;
    const size_t end = args->only_layer == 0 ? config->layers : args->only_layer;
    if (first == 0) {
        rows = packed_rows(&batch, args->b.x, config->input, in_work(args, batch.map.rows));
    }
    for (size_t l = first; l < end; l++) {
        const real *const input = l == 0 ? rows : kept_input(&batch, args, l);
        for (size_t d = 0; d < config->directions; d++) {
            const layer_part part = open_pseudo_layer(&batch, args, l, d);
            backward_pseudo_layer_weights(&batch, args, &part, input);
        }
    }
}
