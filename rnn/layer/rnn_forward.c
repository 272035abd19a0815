/* rnn_forward.c - the RNN's forward pass over layers, directions and steps. */
#include "rnn/layer/rnn_cpu.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "arena/compute/workers.h"
#include "rnn/layer/cell_step.h"
#include "rnn/layer/rnn_factor.h"
#include "rnn/layer/rnn_part.h"

/* Built from the list of cells: a cell without a FORWARD_OF_ line here does not compile. */
#define FORWARD_OF_LSTM lstm_forward
#define FORWARD_OF_GRU gru_forward
#define FORWARD_OF_TANH tanh_forward
#define FORWARD_OF_RELU relu_forward
#define CELL_FORWARD(name, gates, text) [ASHLAR_RNN_##name] = FORWARD_OF_##name,
static cell_function *const forward_cells[] = {ASHLAR_RNN_CELL_MAP(CELL_FORWARD)};
ASHLAR_TABLE_IS_FULL(forward_cells, ASHLAR_RNN_CELL_COUNT);

/* bias [K] = for each column of gates, the sum of all biases that are added to it. */
static void gather_bias(const ashlar_rnn_rows *batch, const pseudo_layer_view *pseudo_layer,
                        const real *weights, real *bias) {
    const ashlar_rnn_view w = pseudo_layer->place[ASHLAR_RNN_BW],
                          r = pseudo_layer->place[ASHLAR_RNN_BR];
    memset(bias, 0, batch->gate_width * sizeof(real));
    for (size_t j = 0; j < w.rows; j++) {
        bias[j] = weights[w.offset + j];
    }
    for (size_t j = 0; j < r.rows; j++) {
        bias[recurrent_column(batch, j)] += weights[r.offset + j];
    }
}

/* What all steps of one pseudo-layer need. */
typedef struct forward_run {
    const ashlar_rnn_rows *batch;
    const pseudo_layer_view *pseudo_layer;
    const real *bias; /* [K] */
    real *sums;       /* [B, G*H] */
    real *full;       /* [B, H], inference with a projection */
    factor recurrent; /* R^T */
    factor project;   /* Wp^T, with a projection */
} forward_run;

static void forward_step(const forward_run *run, some_rows rows, size_t t) {
    const ashlar_rnn_rows *const batch = run->batch;
    const pseudo_layer_view *const pseudo_layer = run->pseudo_layer;
    const size_t hidden = pseudo_layer->hidden, state = pseudo_layer->state,
                 before = side_before(pseudo_layer->direction, t),
                 next = side_after(pseudo_layer->direction, t);
    const bool has_sums = batch->split < batch->gate_rows;
    const bool is_projected = run->project.columns > 0;
    real *const after = pseudo_layer->states + ashlar__rnn_rows_state(batch, next) * state;
    real *const fulls =
        batch->training ? pseudo_layer->fulls + batch->start[t] * hidden : run->full;
    const cell_step step = {
        .hidden = hidden,
        .bias = run->bias,
        .gates = pseudo_layer->gates + batch->start[t] * batch->gate_width,
        .sums = run->sums,
        .state = pseudo_layer->states + ashlar__rnn_rows_state(batch, before) * state,
        .cell = pseudo_layer->cells + ashlar__rnn_rows_cell(batch, before) * hidden,
        .next_cell = pseudo_layer->cells + ashlar__rnn_rows_cell(batch, next) * hidden,
        .output = is_projected ? fulls : after,
    };
    multiply_some(&run->recurrent, rows, step.state, state, !has_sums,
                  has_sums ? step.sums : step.gates,
                  has_sums ? batch->gate_rows : batch->gate_width);
    forward_cells[batch->layout->config.cell](&step, rows);
    if (is_projected) {
        multiply_some(&run->project, rows, fulls, hidden, false, after, state);
    }
}

static void forward_shard(void *context, size_t strand) {
    const forward_run *const run = context;
    const ashlar_rnn_rows *const batch = run->batch;
    for (size_t i = 0; i < batch->steps; i++) {
        const size_t t = run->pseudo_layer->direction == 0 ? i : batch->steps - 1 - i;
        const some_rows rows = {strand, batch->shards, ashlar__rnn_rows_active(batch, t)};
        if (count_rows(rows) > 0) {
            forward_step(run, rows, t);
        }
    }
}

/* Run one pseudo-layer, from its layer's input [N, in] to its last states. */
static void forward_pseudo_layer(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                                 const pseudo_layer_view *pseudo_layer, const real *input) {
    const real *const weights = args->b.weights;
    real *const bias = in_work(args, batch->map.bias);
    real *const own[] = {pseudo_layer->states, pseudo_layer->cells};
    /* Read the input before writing any states: in inference they may share its memory. */
    REAL(ashlar__gemm)
    (false, true, batch->row_count, batch->gate_rows, pseudo_layer->input, input,
     pseudo_layer->input, weights + pseudo_layer->place[ASHLAR_RNN_W].offset, pseudo_layer->input,
     false, pseudo_layer->gates, batch->gate_width);
    gather_bias(batch, pseudo_layer, weights, bias);
    read_states(batch, args, pseudo_layer, FIRST_STATES,
                (const void *const[]){args->b.hx, args->b.cx}, own);
    forward_run run = {
        .batch = batch,
        .pseudo_layer = pseudo_layer,
        .bias = bias,
        .sums = in_work(args, batch->map.sums),
        .full = in_work(args, batch->map.full),
        .recurrent = open_factor(batch, weights, pseudo_layer->place[ASHLAR_RNN_R], true,
                                 in_work(args, batch->map.recurrent)),
        .project = open_factor(batch, weights, pseudo_layer->place[ASHLAR_RNN_WP], true,
                               in_work(args, batch->map.project)),
    };
    ashlar__workers_run(batch->shards, forward_shard, &run);
    write_states(batch, args, pseudo_layer, LAST_STATES, own,
                 (void *const[]){args->b.hy, args->b.cy});
}

/* The input of layer l > 0, made from the outputs of layer l - 1. */
static const real *make_input(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                              size_t l) {
    if (!batch->is_joined) {
        const pseudo_layer_view below = open_pseudo_layer(batch, args, l - 1, 0);
        return forward_outputs(batch, &below);
    }
    real *const input = joined_input(batch, args, l);
    for (size_t d = 0; d < batch->layout->config.directions; d++) {
        const pseudo_layer_view below = open_pseudo_layer(batch, args, l - 1, d);
        join_outputs(batch, &below, input);
    }
    if (batch->is_dropping) {
        drop_rows(batch, args->dropout_seed, l, input);
    }
    return input;
}

void ASHLAR_VARIANT(ashlar__rnn_forward)(const ashlar_rnn_cpu_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE);
    const ashlar_rnn_rows batch = ashlar__rnn_rows_open(args, args->b.reserve != NULL);
    const ashlar_rnn_config *config = &args->layout->config;
    real *const rows = in_work(args, batch.map.rows);
    const real *input = rows;
    pack_rows(&batch, args->b.x, config->input, rows);
    if (batch.is_dropping) {
        *kept_seed(&batch, args) = args->dropout_seed;
    }
    for (size_t l = 0; l < config->layers; l++) {
        input = l == 0 ? input : make_input(&batch, args, l);
        for (size_t d = 0; d < config->directions; d++) {
            const pseudo_layer_view pseudo_layer = open_pseudo_layer(&batch, args, l, d);
            forward_pseudo_layer(&batch, args, &pseudo_layer, input);
        }
    }
    for (size_t d = 0; d < config->directions; d++) {
        const pseudo_layer_view pseudo_layer =
            open_pseudo_layer(&batch, args, config->layers - 1, d);
        write_outputs(&batch, &pseudo_layer, args->b.y);
    }
}
