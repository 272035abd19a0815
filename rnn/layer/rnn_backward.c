/* rnn_backward.c - the RNN's backward passes over layers, directions and steps. */
#include "rnn/layer/rnn_cpu.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "arena/compute/workers.h"
#include "rnn/layer/cell_step.h"
#include "rnn/layer/rnn_factor.h"
#include "rnn/layer/rnn_part.h"

/* Built from the list of cells: a cell without a BACKWARD_OF_ line here does not compile. */
#define BACKWARD_OF_LSTM lstm_backward
#define BACKWARD_OF_GRU gru_backward
#define BACKWARD_OF_TANH tanh_backward
#define BACKWARD_OF_RELU relu_backward
#define CELL_BACKWARD(name, gates, text) [ASHLAR_RNN_##name] = BACKWARD_OF_##name,
static cell_function *const backward_cells[] = {ASHLAR_RNN_CELL_MAP(CELL_BACKWARD)};
ASHLAR_TABLE_IS_FULL(backward_cells, ASHLAR_RNN_CELL_COUNT);

/* ---- to the data ---- */

/* What all steps of one pseudo-layer need. */
typedef struct backward_run {
    const ashlar_rnn_rows *batch;
    const pseudo_layer_view *pseudo_layer;
    const real *dy;   /* this pseudo-layer's columns of [N, D*P] */
    real *sums;       /* [B, G*H] */
    real *full;       /* [B, H] */
    real *dh;         /* [B, P] gradient of h: in, of the last states; out, of the first states */
    real *dc;         /* [B, H] gradient of c, likewise */
    factor recurrent; /* R */
    factor project;   /* Wp, with a projection */
} backward_run;

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

/*
 * The gradient of h' before the projection; without a projection, dh itself. With one, the gradient
 * after it is also copied to `doutputs`, for backward_weights.
 */
static real *backward_projection(const backward_run *run, some_rows rows, size_t t) {
    const size_t state = run->pseudo_layer->state, hidden = run->pseudo_layer->hidden;
    if (run->project.columns == 0) {
        return run->dh;
    }
    real *const kept = run->pseudo_layer->doutputs + run->batch->start[t] * state;
    for (size_t p = rows.first; p < rows.end; p += rows.stride) {
        memcpy(kept + p * state, run->dh + p * state, state * sizeof(real));
    }
    multiply_some(&run->project, rows, run->dh, state, false, run->full, hidden);
    return run->full;
}

static void backward_step(const backward_run *run, some_rows rows, size_t t) {
    const ashlar_rnn_rows *const batch = run->batch;
    const pseudo_layer_view *const pseudo_layer = run->pseudo_layer;
    const size_t hidden = pseudo_layer->hidden, state = pseudo_layer->state,
                 before = side_before(pseudo_layer->direction, t),
                 after = side_after(pseudo_layer->direction, t);
    const size_t output = batch->layout->output;
    const bool has_sums = batch->split < batch->gate_rows;
    add_rows(run->dh, run->dy + batch->start[t] * output, output, rows, state);
    const cell_step step = {
        .hidden = hidden,
        .gates = pseudo_layer->gates + batch->start[t] * batch->gate_width,
        .sums = run->sums,
        .state = pseudo_layer->states + ashlar__rnn_rows_state(batch, before) * state,
        .cell = pseudo_layer->cells + ashlar__rnn_rows_cell(batch, before) * hidden,
        .next_cell = pseudo_layer->cells + ashlar__rnn_rows_cell(batch, after) * hidden,
        .output = pseudo_layer->states + ashlar__rnn_rows_state(batch, after) * state,
        .doutput = backward_projection(run, rows, t),
        .dcell = run->dc,
    };
    backward_cells[batch->layout->config.cell](&step, rows);
    /*
     * Set only the rows of dh whose sequences run at this step. The other rows keep their gradient:
     * forward, that of the last state, since the sequence's steps are still to come; in reverse,
     * that of the first state, since they are over. For the GRU the product is added, since dh
     * already has a part of the gradient.
     */
    multiply_some(&run->recurrent, rows, has_sums ? step.sums : step.gates,
                  has_sums ? batch->gate_rows : batch->gate_width, has_sums, run->dh, state);
}

static void backward_shard(void *context, size_t strand) {
    const backward_run *const run = context;
    const ashlar_rnn_rows *const batch = run->batch;
    for (size_t i = 0; i < batch->steps; i++) {
        const size_t t = run->pseudo_layer->direction == 0 ? batch->steps - 1 - i : i;
        const some_rows rows = {strand, batch->shards, ashlar__rnn_rows_active(batch, t)};
        if (count_rows(rows) > 0) {
            backward_step(run, rows, t);
        }
    }
}

static void backward_pseudo_layer(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                                  const pseudo_layer_view *pseudo_layer, const real *dy) {
    real *const own[] = {in_work(args, batch->map.dh), in_work(args, batch->map.dc)};
    backward_run run = {
        .batch = batch,
        .pseudo_layer = pseudo_layer,
        .dy = dy + pseudo_layer->direction * pseudo_layer->state,
        .sums = in_work(args, batch->map.sums),
        .full = in_work(args, batch->map.full),
        .dh = own[0],
        .dc = own[1],
        .recurrent = open_factor(batch, args->b.weights, pseudo_layer->place[ASHLAR_RNN_R], false,
                                 in_work(args, batch->map.recurrent)),
        .project = open_factor(batch, args->b.weights, pseudo_layer->place[ASHLAR_RNN_WP], false,
                               in_work(args, batch->map.project)),
    };
    read_states(batch, args, pseudo_layer, STATE_GRADIENTS,
                (const void *const[]){args->b.dhy, args->b.dcy}, own);
    ashlar__workers_run(batch->shards, backward_shard, &run);
    write_states(batch, args, pseudo_layer, STATE_GRADIENTS, own,
                 (void *const[]){args->b.dhx, args->b.dcx});
}

void ASHLAR_VARIANT(ashlar__rnn_backward_data)(const ashlar_rnn_cpu_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE && args->b.reserve != NULL);
    const ashlar_rnn_rows batch = ashlar__rnn_rows_open(args, true);
    const ashlar_rnn_config *config = &args->layout->config;
    const real *const weights = args->b.weights;
    real *const flow = in_work(args, batch.map.rows);
    pack_rows(&batch, args->b.dy, batch.layout->output, flow);
    for (size_t l = config->layers; l-- > 0;) {
        for (size_t d = 0; d < config->directions; d++) {
            const pseudo_layer_view pseudo_layer = open_pseudo_layer(&batch, args, l, d);
            backward_pseudo_layer(&batch, args, &pseudo_layer, flow);
        }
        /* Overwrite `flow` only now, when both directions have read it. */
        for (size_t d = 0; d < config->directions && (l > 0 || args->b.dx != NULL); d++) {
            const pseudo_layer_view pseudo_layer = open_pseudo_layer(&batch, args, l, d);
            REAL(ashlar__gemm)
            (false, false, batch.row_count, pseudo_layer.input, batch.gate_rows, pseudo_layer.gates,
             batch.gate_width, weights + pseudo_layer.place[ASHLAR_RNN_W].offset,
             pseudo_layer.input, d > 0, flow, pseudo_layer.input);
        }
        if (l > 0 && batch.is_dropping) {
            drop_rows(&batch, *kept_seed(&batch, args), l, flow);
        }
    }
    if (args->b.dx != NULL) {
        unpack_rows(&batch, flow, config->input, args->b.dx);
    }
}

/* ---- to the weights ---- */

/*
 * Add rows first .. end - 1 of R's gradient to dr: the sum over all steps of (columns of gate
 * gradients)^T (states before the step).
 */
static void add_recurrent(const ashlar_rnn_rows *batch, const pseudo_layer_view *pseudo_layer,
                          size_t first, size_t end, real *dr) {
    const size_t width = pseudo_layer->state;
    const real *const gates = pseudo_layer->gates + recurrent_column(batch, first);
    size_t from = 0;
    for (size_t t = 0; first < end && t < batch->steps; t++) {
        /*
         * Several steps share one product if their rows are adjacent. Their gate rows always are.
         * The rows of the states before them are adjacent if the direction is reverse, or if no
         * sequence ended in between.
         */
        const size_t before = t == 0 ? batch->batch : ashlar__rnn_rows_active(batch, t - 1);
        const bool touches =
            pseudo_layer->direction > 0 || ashlar__rnn_rows_active(batch, t) == before;
        if (t + 1 < batch->steps && touches) {
            continue;
        }
        REAL(ashlar__gemm)
        (true, false, end - first, width, batch->start[t + 1] - batch->start[from],
         gates + batch->start[from] * batch->gate_width, batch->gate_width,
         pseudo_layer->states +
             ashlar__rnn_rows_state(batch, side_before(pseudo_layer->direction, from)) * width,
         width, true, dr + first * width, width);
        from = t + 1;
    }
}

/* sum [width] += the sum of n rows. */
static void add_columns(const real *restrict rows, size_t n, size_t width, real *restrict sum) {
    for (size_t row = 0; row < n; row++) {
        for (size_t j = 0; j < width; j++) {
            sum[j] += rows[row * width + j];
        }
    }
}

/* Add the biases' gradients: that of a bias is the sum of its column of gate gradients. */
static void add_bias(const ashlar_rnn_rows *batch, const pseudo_layer_view *pseudo_layer,
                     real *restrict sum, real *restrict dweights) {
    const ashlar_rnn_view w = pseudo_layer->place[ASHLAR_RNN_BW],
                          r = pseudo_layer->place[ASHLAR_RNN_BR];
    memset(sum, 0, batch->gate_width * sizeof(real));
    add_columns(pseudo_layer->gates, batch->row_count, batch->gate_width, sum);
    for (size_t j = 0; j < w.rows; j++) {
        dweights[w.offset + j] += sum[j];
    }
    for (size_t j = 0; j < r.rows; j++) {
        dweights[r.offset + j] += sum[recurrent_column(batch, j)];
    }
}

static void backward_pseudo_layer_weights(const ashlar_rnn_rows *batch,
                                          const ashlar_rnn_cpu_args *args,
                                          const pseudo_layer_view *pseudo_layer,
                                          const real *input) {
    real *const dweights = args->b.dweights;
    real *const dr = dweights + pseudo_layer->place[ASHLAR_RNN_R].offset;
    const ashlar_rnn_view project = pseudo_layer->place[ASHLAR_RNN_WP];
    REAL(ashlar__gemm)
    (true, false, batch->gate_rows, pseudo_layer->input, batch->row_count, pseudo_layer->gates,
     batch->gate_width, input, pseudo_layer->input, true,
     dweights + pseudo_layer->place[ASHLAR_RNN_W].offset, pseudo_layer->input);
    add_recurrent(batch, pseudo_layer, 0, batch->split, dr);
    add_recurrent(batch, pseudo_layer, batch->split, batch->gate_rows, dr);
    add_bias(batch, pseudo_layer, in_work(args, batch->map.bias), dweights);
    if (project.rows > 0) {
        REAL(ashlar__gemm)
        (true, false, pseudo_layer->state, pseudo_layer->hidden, batch->row_count,
         pseudo_layer->doutputs, pseudo_layer->state, pseudo_layer->fulls, pseudo_layer->hidden,
         true, dweights + project.offset, pseudo_layer->hidden);
    }
}

/* The input of layer l, as forward left it in the reserve. */
static const real *kept_input(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                              size_t l) {
    if (batch->is_joined) {
        return joined_input(batch, args, l);
    }
    const pseudo_layer_view below = open_pseudo_layer(batch, args, l - 1, 0);
    return forward_outputs(batch, &below);
}

void ASHLAR_VARIANT(ashlar__rnn_backward_weights)(const ashlar_rnn_cpu_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE && args->b.reserve != NULL);
    const ashlar_rnn_rows batch = ashlar__rnn_rows_open(args, true);
    const ashlar_rnn_config *config = &args->layout->config;
    real *const rows = in_work(args, batch.map.rows);
    pack_rows(&batch, args->b.x, config->input, rows);
    for (size_t l = 0; l < config->layers; l++) {
        const real *const input = l == 0 ? rows : kept_input(&batch, args, l);
        for (size_t d = 0; d < config->directions; d++) {
            const pseudo_layer_view pseudo_layer = open_pseudo_layer(&batch, args, l, d);
            backward_pseudo_layer_weights(&batch, args, &pseudo_layer, input);
        }
    }
}
