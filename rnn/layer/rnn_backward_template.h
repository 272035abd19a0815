/*
 * rnn_backward_template.h - the RNN's backward passes over layers, directions and steps, for one
 * element type (internal; see rnn_rows_template.h).
 */
#ifndef ASHLAR_RNN_BACKWARD_TEMPLATE_H
#define ASHLAR_RNN_BACKWARD_TEMPLATE_H

#include "rnn/layer/rnn_forward_template.h"

static cell_function *const backward_cells[] = {
    [ASHLAR_RNN_LSTM] = lstm_backward,
    [ASHLAR_RNN_GRU] = gru_backward,
    [ASHLAR_RNN_TANH] = tanh_backward,
    [ASHLAR_RNN_RELU] = relu_backward,
};
ASHLAR_TABLE_IS_FULL(backward_cells, ASHLAR_RNN_CELL_COUNT);

/* ---- to the data ---- */

/* A whole part: what all its steps need. */
typedef struct backward_run {
    const ashlar_rnn_rows *batch;
    const part_view *part;
    const real *dy;   /* this part's columns of [N, D*P] */
    real *sums;       /* [B, G*H] */
    real *full;       /* [B, H] */
    real *dh;         /* [B, P]: in, of the last states; out, of the first ones */
    real *dc;         /* [B, H], the same */
    factor recurrent; /* R */
    factor project;   /* Wp, with a projection */
} backward_run;

/* into [n, width] += from, whose rows are `stride` apart. */
static void add_rows(real *restrict into, const real *restrict from, size_t stride, some_rows rows,
                     size_t width) {
    for (size_t p = rows.first; p < rows.end; p += rows.stride) {
        for (size_t j = 0; j < width; j++) {
            into[p * width + j] += from[p * stride + j];
        }
    }
}

/* The gradient of h' before the projection, if there is one; that after it is kept. */
static real *backward_projection(const backward_run *run, some_rows rows, size_t t) {
    const size_t state = run->part->state, hidden = run->part->hidden;
    if (run->project.columns == 0) {
        return run->dh;
    }
    real *const kept = run->part->doutputs + run->batch->start[t] * state;
    for (size_t p = rows.first; p < rows.end; p += rows.stride) {
        memcpy(kept + p * state, run->dh + p * state, state * sizeof(real));
    }
    multiply_some(&run->project, rows, run->dh, state, false, run->full, hidden);
    return run->full;
}

static void backward_step(const backward_run *run, some_rows rows, size_t t) {
    const ashlar_rnn_rows *const batch = run->batch;
    const part_view *const part = run->part;
    const size_t hidden = part->hidden, state = part->state, direction = part->direction;
    const size_t output = batch->layout->output;
    const bool has_sums = batch->split < batch->gate_rows;
    add_rows(run->dh, run->dy + batch->start[t] * output, output, rows, state);
    const cell_step step = {
        .hidden = hidden,
        .gates = part->gates + batch->start[t] * batch->kept,
        .sums = run->sums,
        .state = part->states + states_before(batch, direction, t) * state,
        .cell = part->cells + cells_before(batch, direction, t) * hidden,
        .next_cell = part->cells + cells_after(batch, direction, t) * hidden,
        .output = part->states + states_after(batch, direction, t) * state,
        .doutput = backward_projection(run, rows, t),
        .dcell = run->dc,
    };
    backward_cells[batch->layout->config.cell](&step, rows);
    /*
     * Rows of sequences that do not run keep their gradient: forward that of their last state,
     * whose step is still to come, in reverse that of their first state, whose step is over. What
     * the GRU has left in dh by itself stays there.
     */
    multiply_some(&run->recurrent, rows, has_sums ? step.sums : step.gates,
                  has_sums ? batch->gate_rows : batch->kept, has_sums, run->dh, state);
}

static void backward_strand(void *context, size_t strand) {
    const backward_run *const run = context;
    const ashlar_rnn_rows *const batch = run->batch;
    for (size_t i = 0; i < batch->steps; i++) {
        const size_t t = run->part->direction == 0 ? batch->steps - 1 - i : i;
        const some_rows rows = {strand, batch->strands, ashlar_rnn_rows_active(batch, t)};
        if (count_rows(rows) > 0) {
            backward_step(run, rows, t);
        }
    }
}

static void backward_part(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                          const part_view *part, const real *dy) {
    backward_run run = {
        .batch = batch,
        .part = part,
        .dy = dy + part->direction * part->state,
        .sums = in_work(args, batch->map.sums),
        .full = in_work(args, batch->map.full),
        .dh = in_work(args, batch->map.dh),
        .dc = in_work(args, batch->map.dc),
        .recurrent = open_factor(batch, args->weights, part->place[ASHLAR_RNN_R], false,
                                 in_work(args, batch->map.recurrent)),
        .project = open_factor(batch, args->weights, part->place[ASHLAR_RNN_WP], false,
                               in_work(args, batch->map.project)),
    };
    read_state_gradients(batch, args, part, run.dh, run.dc);
    ashlar_workers_run(batch->strands, backward_strand, &run);
    write_state_gradients(batch, args, part, run.dh, run.dc);
}

static void backward_data_pass(const ashlar_rnn_cpu_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE && args->reserve != NULL);
    const ashlar_rnn_rows batch = ashlar_rnn_rows_open(args, true);
    const ashlar_rnn_config *config = &args->layout->config;
    const real *const weights = args->weights;
    real *const flow = in_work(args, batch.map.rows);
    pack_rows(&batch, args->dy, batch.layout->output, flow);
    for (size_t l = config->layers; l-- > 0;) {
        for (size_t d = 0; d < config->directions; d++) {
            const part_view part = open_part(&batch, args, l, d);
            backward_part(&batch, args, &part, flow);
        }
        /* Only now: `flow` was read by both directions. */
        for (size_t d = 0; d < config->directions && (l > 0 || args->dx != NULL); d++) {
            const part_view part = open_part(&batch, args, l, d);
            REAL(ashlar_gemm)
            (false, false, batch.row_count, part.input, batch.gate_rows, 1, part.gates, batch.kept,
             weights + part.place[ASHLAR_RNN_W].offset, part.input, d > 0, flow, part.input);
        }
        if (l > 0 && batch.is_dropping) {
            drop_rows(&batch, *kept_seed(&batch, args), l, flow);
        }
    }
    if (args->dx != NULL) {
        unpack_rows(&batch, flow, config->input, args->dx);
    }
}

/* ---- to the weights ---- */

/*
 * dr += the rows first .. end-1 of R's gradient: the sum over the steps of (columns of gate
 * gradients)^T (states before the step).
 */
static void add_recurrent(const ashlar_rnn_rows *batch, const part_view *part, size_t first,
                          size_t end, real *dr) {
    const size_t width = part->state;
    const real *const gates = part->gates + recurrent_column(batch, first);
    size_t from = 0;
    for (size_t t = 0; first < end && t < batch->steps; t++) {
        /*
         * Gate rows of steps t and t + 1 always touch; the rows of the states before them do in
         * reverse, and forward when no sequence ended in between. Such steps are one product.
         */
        const size_t before = t == 0 ? batch->batch : ashlar_rnn_rows_active(batch, t - 1);
        const bool touches = part->direction > 0 || ashlar_rnn_rows_active(batch, t) == before;
        if (t + 1 < batch->steps && touches) {
            continue;
        }
        REAL(ashlar_gemm)
        (true, false, end - first, width, batch->start[t + 1] - batch->start[from], 1,
         gates + batch->start[from] * batch->kept, batch->kept,
         part->states + states_before(batch, part->direction, from) * width, width, 1,
         dr + first * width, width);
        from = t + 1;
    }
}

/* sum [width] += the sum of the rows. */
static void add_columns(const real *restrict rows, size_t n, size_t width, real *restrict sum) {
    for (size_t row = 0; row < n; row++) {
        for (size_t j = 0; j < width; j++) {
            sum[j] += rows[row * width + j];
        }
    }
}

/* Each bias is added to a column of gates, so its gradient is that of the column. */
static void add_bias(const ashlar_rnn_rows *batch, const part_view *part, real *restrict sum,
                     real *restrict dweights) {
    const ashlar_rnn_view w = part->place[ASHLAR_RNN_BW], r = part->place[ASHLAR_RNN_BR];
    memset(sum, 0, batch->kept * sizeof(real));
    add_columns(part->gates, batch->row_count, batch->kept, sum);
    for (size_t j = 0; j < w.rows; j++) {
        dweights[w.offset + j] += sum[j];
    }
    for (size_t j = 0; j < r.rows; j++) {
        dweights[r.offset + j] += sum[recurrent_column(batch, j)];
    }
}

static void backward_part_weights(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                                  const part_view *part, const real *input) {
    real *const dweights = args->dweights;
    real *const dr = dweights + part->place[ASHLAR_RNN_R].offset;
    const ashlar_rnn_view project = part->place[ASHLAR_RNN_WP];
    REAL(ashlar_gemm)
    (true, false, batch->gate_rows, part->input, batch->row_count, 1, part->gates, batch->kept,
     input, part->input, 1, dweights + part->place[ASHLAR_RNN_W].offset, part->input);
    add_recurrent(batch, part, 0, batch->split, dr);
    add_recurrent(batch, part, batch->split, batch->gate_rows, dr);
    add_bias(batch, part, in_work(args, batch->map.bias), dweights);
    if (project.rows > 0) {
        REAL(ashlar_gemm)
        (true, false, part->state, part->hidden, batch->row_count, 1, part->doutputs, part->state,
         part->fulls, part->hidden, 1, dweights + project.offset, part->hidden);
    }
}

/* The input of layer l as forward left it in the reserve. */
static const real *kept_input(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                              size_t l) {
    if (batch->is_joined) {
        return joined_input(batch, args, l);
    }
    const part_view below = open_part(batch, args, l - 1, 0);
    return forward_outputs(batch, &below);
}

static void backward_weights_pass(const ashlar_rnn_cpu_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE && args->reserve != NULL);
    const ashlar_rnn_rows batch = ashlar_rnn_rows_open(args, true);
    const ashlar_rnn_config *config = &args->layout->config;
    real *const rows = in_work(args, batch.map.rows);
    pack_rows(&batch, args->x, config->input, rows);
    for (size_t l = 0; l < config->layers; l++) {
        const real *const input = l == 0 ? rows : kept_input(&batch, args, l);
        for (size_t d = 0; d < config->directions; d++) {
            const part_view part = open_part(&batch, args, l, d);
            backward_part_weights(&batch, args, &part, input);
        }
    }
}

#endif /* ASHLAR_RNN_BACKWARD_TEMPLATE_H */
