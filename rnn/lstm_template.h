/*
 * lstm_template.h - the LSTM for one element type (internal).
 *
 * lstm_f32.c and lstm_f64.c include it after real_f32.h or real_f64.h; it does not compile alone.
 * Everything runs on packed rows (lstm_batch.h): no loop here knows of padding but the copies in
 * and out. `restrict` and the absence of branches let the loops over a row vectorise.
 */
#ifndef ASHLAR_LSTM_TEMPLATE_H
#define ASHLAR_LSTM_TEMPLATE_H

#include <string.h>

#include "check_level.h"
#include "lstm_batch.h"

/* One layer of one call. */
typedef struct layer_view {
    size_t input;          /* in(l) */
    size_t hidden;         /* H */
    size_t gate_width;     /* 4H */
    ashlar_rnn_view place[ASHLAR_RNN_TENSOR_COUNT];
    real *gates;           /* [N, 4H] */
    real *states;          /* [B + N, H] */
    real *cells;           /* [B + N, H] or [2B, H] */
} layer_view;

static layer_view open_layer(const ashlar_lstm_batch *batch, const ashlar_lstm_args *args,
                             size_t l) {
    const ashlar_lstm_slice slice = ashlar_lstm_slice_at(batch, args, l);
    layer_view layer = {
        .hidden = batch->hidden,
        .gate_width = ASHLAR_LSTM_GATES * batch->hidden,
        .gates = slice.gates,
        .states = slice.hidden,
        .cells = slice.cells,
    };
    for (int tensor = 0; tensor < ASHLAR_RNN_TENSOR_COUNT; tensor++) {
        layer.place[tensor] = ashlar_rnn_layout_view(args->layout, l, (ashlar_rnn_tensor)tensor);
    }
    layer.input = layer.place[ASHLAR_RNN_W].cols;
    return layer;
}

/* The layer's outputs, which are the next layer's input: its states without the initial ones. */
static real *layer_output(const ashlar_lstm_batch *batch, const layer_view *layer) {
    return layer->states + batch->batch * layer->hidden;
}

/* packed [N, width] = padded [T, B, width]; padded NULL = zeros. */
static void pack_rows(const ashlar_lstm_batch *batch, const real *padded, size_t width,
                      real *packed) {
    if (padded == NULL) {
        memset(packed, 0, batch->row_count * width * sizeof(real));
        return;
    }
    for (size_t t = 0; t < batch->steps; t++) {
        for (size_t p = 0; p < ashlar_lstm_active(batch, t); p++) {
            memcpy(packed + (batch->start[t] + p) * width,
                   padded + (t * batch->batch + batch->order[p]) * width, width * sizeof(real));
        }
    }
}

/* padded [T, B, width] = packed [N, width], and zeros past each length. */
static void unpack_rows(const ashlar_lstm_batch *batch, const real *packed, size_t width,
                        real *padded) {
    for (size_t t = 0; t < batch->steps; t++) {
        for (size_t p = 0; p < batch->batch; p++) {
            real *row = padded + (t * batch->batch + batch->order[p]) * width;
            if (p < ashlar_lstm_active(batch, t)) {
                memcpy(row, packed + (batch->start[t] + p) * width, width * sizeof(real));
            } else {
                memset(row, 0, width * sizeof(real));
            }
        }
    }
}

/* sorted [B, H] = layer l of states [L, B, H]; states NULL = zeros. */
static void sort_states(const ashlar_lstm_batch *batch, const real *states, size_t l,
                        real *sorted) {
    const size_t width = batch->hidden;
    if (states == NULL) {
        memset(sorted, 0, batch->batch * width * sizeof(real));
        return;
    }
    for (size_t p = 0; p < batch->batch; p++) {
        memcpy(sorted + p * width, states + (l * batch->batch + batch->order[p]) * width,
               width * sizeof(real));
    }
}

/* Row p of states [L, B, H], layer l; NULL when they are not wanted. */
static void write_state(const ashlar_lstm_batch *batch, real *states, size_t l, size_t p,
                        const real *row) {
    if (states != NULL) {
        memcpy(states + (l * batch->batch + batch->order[p]) * batch->hidden, row,
               batch->hidden * sizeof(real));
    }
}

/* gates: in, the products; out, the activations. bias: bW + bR. */
static void forward_cell(size_t hidden, real *restrict gates, const real *restrict bias,
                         const real *restrict cell, real *restrict next_cell,
                         real *restrict output) {
    real *restrict in = gates;
    real *restrict forget = gates + hidden;
    real *restrict fresh = gates + 2 * hidden;
    real *restrict out = gates + 3 * hidden;
    for (size_t j = 0; j < hidden; j++) {
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

static void forward_steps(const ashlar_lstm_batch *batch, const layer_view *layer, const real *r,
                          const real *bias) {
    const size_t hidden = layer->hidden;
    const size_t width = layer->gate_width;
    for (size_t t = 0; t < batch->steps; t++) {
        const size_t active = ashlar_lstm_active(batch, t);
        real *gates = layer->gates + batch->start[t] * width;
        const real *states = layer->states + ashlar_lstm_state_row(batch, t) * hidden;
        real *outputs = layer->states + ashlar_lstm_state_row(batch, t + 1) * hidden;
        const real *cells = layer->cells + ashlar_lstm_cell_row(batch, t) * hidden;
        real *next_cells = layer->cells + ashlar_lstm_cell_row(batch, t + 1) * hidden;
        REAL(ashlar_gemm)(false, true, active, width, hidden, 1, states, hidden, r, hidden, 1,
                          gates, width);
        for (size_t p = 0; p < active; p++) {
            forward_cell(hidden, gates + p * width, bias, cells + p * hidden,
                         next_cells + p * hidden, outputs + p * hidden);
        }
    }
}

/* hy and cy: what each sequence's own last step left. */
static void write_last_states(const ashlar_lstm_batch *batch, const ashlar_lstm_args *args,
                              const layer_view *layer, size_t l) {
    const size_t hidden = layer->hidden;
    for (size_t p = 0; p < batch->batch; p++) {
        const size_t length = (size_t)args->lengths[batch->order[p]];
        write_state(batch, args->hy, l, p,
                    layer->states + (ashlar_lstm_state_row(batch, length) + p) * hidden);
        write_state(batch, args->cy, l, p,
                    layer->cells + (ashlar_lstm_cell_row(batch, length) + p) * hidden);
    }
}

void REAL(ashlar_lstm_forward)(const ashlar_lstm_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE);
    const ashlar_lstm_batch batch = ashlar_lstm_batch_open(args, args->reserve != NULL);
    const real *const weights = args->weights;
    char *const work = args->work;
    real *const rows = (real *)(void *)(work + batch.map.rows);
    real *const bias = (real *)(void *)(work + batch.map.bias);
    const real *input = rows;
    pack_rows(&batch, args->x, batch.input, rows);
    for (size_t l = 0; l < batch.layers; l++) {
        const layer_view layer = open_layer(&batch, args, l);
        const real *const w = weights + layer.place[ASHLAR_RNN_W].offset;
        const real *const bw = weights + layer.place[ASHLAR_RNN_BW].offset;
        const real *const br = weights + layer.place[ASHLAR_RNN_BR].offset;
        /* First of all: in inference the states about to be written are this input. */
        REAL(ashlar_gemm)(false, true, batch.row_count, layer.gate_width, layer.input, 1, input,
                          layer.input, w, layer.input, 0, layer.gates, layer.gate_width);
        for (size_t j = 0; j < layer.gate_width; j++) {
            bias[j] = bw[j] + br[j];
        }
        sort_states(&batch, args->hx, l, layer.states);
        sort_states(&batch, args->cx, l, layer.cells);
        forward_steps(&batch, &layer, weights + layer.place[ASHLAR_RNN_R].offset, bias);
        write_last_states(&batch, args, &layer, l);
        input = layer_output(&batch, &layer);
    }
    unpack_rows(&batch, input, batch.hidden, args->y);
}

/* gates: in, the activations; out, the gradients of their sums. dc: in, of c'; out, of c. */
static void backward_cell(size_t hidden, real *restrict gates, const real *restrict cell,
                          const real *restrict next_cell, const real *restrict dy,
                          const real *restrict dh, real *restrict dc) {
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
        const real d_output = dy[j] + dh[j];
        const real d_cell = dc[j] + d_output * o * (1 - squashed * squashed);
        in[j] = d_cell * g * i * (1 - i);
        forget[j] = d_cell * cell[j] * f * (1 - f);
        fresh[j] = d_cell * i * (1 - g * g);
        out[j] = d_output * squashed * o * (1 - o);
        dc[j] = d_cell * f;
    }
}

/* dh, dc [B, H]: in, of the last states; out, of the initial ones. dy [N, H]. */
static void backward_steps(const ashlar_lstm_batch *batch, const layer_view *layer, const real *r,
                           const real *dy, real *dh, real *dc) {
    const size_t hidden = layer->hidden;
    const size_t width = layer->gate_width;
    for (size_t t = batch->steps; t-- > 0;) {
        const size_t active = ashlar_lstm_active(batch, t);
        const size_t first = batch->start[t];
        real *gates = layer->gates + first * width;
        const real *cells = layer->cells + ashlar_lstm_cell_row(batch, t) * hidden;
        const real *next_cells = layer->cells + ashlar_lstm_cell_row(batch, t + 1) * hidden;
        for (size_t p = 0; p < active; p++) {
            backward_cell(hidden, gates + p * width, cells + p * hidden, next_cells + p * hidden,
                          dy + (first + p) * hidden, dh + p * hidden, dc + p * hidden);
        }
        /* Rows from `active` on keep the gradient of their last state until their step comes. */
        REAL(ashlar_gemm)(false, false, active, hidden, width, 1, gates, width, r, hidden, 0, dh,
                          hidden);
    }
}

void REAL(ashlar_lstm_backward_data)(const ashlar_lstm_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE && args->reserve != NULL);
    const ashlar_lstm_batch batch = ashlar_lstm_batch_open(args, true);
    const real *const weights = args->weights;
    char *const work = args->work;
    real *const flow = (real *)(void *)(work + batch.map.rows);
    real *const dh = (real *)(void *)(work + batch.map.dh);
    real *const dc = (real *)(void *)(work + batch.map.dc);
    pack_rows(&batch, args->dy, batch.hidden, flow);
    for (size_t l = batch.layers; l-- > 0;) {
        const layer_view layer = open_layer(&batch, args, l);
        sort_states(&batch, args->dhy, l, dh);
        sort_states(&batch, args->dcy, l, dc);
        backward_steps(&batch, &layer, weights + layer.place[ASHLAR_RNN_R].offset, flow, dh, dc);
        for (size_t p = 0; p < batch.batch; p++) {
            write_state(&batch, args->dhx, l, p, dh + p * batch.hidden);
            write_state(&batch, args->dcx, l, p, dc + p * batch.hidden);
        }
        if (l > 0 || args->dx != NULL) {
            REAL(ashlar_gemm)(false, false, batch.row_count, layer.input, layer.gate_width, 1,
                              layer.gates, layer.gate_width,
                              weights + layer.place[ASHLAR_RNN_W].offset, layer.input, 0, flow,
                              layer.input);
        }
    }
    if (args->dx != NULL) {
        unpack_rows(&batch, flow, batch.input, args->dx);
    }
}

/* dr [4H, H] += sum over the steps of (gate gradients)^T (previous states). */
static void add_recurrent(const ashlar_lstm_batch *batch, const layer_view *layer, real *dr) {
    size_t first = 0;
    for (size_t t = 0; t < batch->steps; t++) {
        /*
         * Gate rows of steps t and t + 1 always touch; the rows of their previous states do when
         * no sequence ended in between. Such steps are one product.
         */
        const size_t before = t == 0 ? batch->batch : ashlar_lstm_active(batch, t - 1);
        if (t + 1 < batch->steps && ashlar_lstm_active(batch, t) == before) {
            continue;
        }
        REAL(ashlar_gemm)(true, false, layer->gate_width, layer->hidden,
                          batch->start[t + 1] - batch->start[first], 1,
                          layer->gates + batch->start[first] * layer->gate_width,
                          layer->gate_width,
                          layer->states + ashlar_lstm_state_row(batch, first) * layer->hidden,
                          layer->hidden, 1, dr, layer->hidden);
        first = t + 1;
    }
}

/* Both biases enter the same sum, so one gradient is added to both. */
static void add_bias(const ashlar_lstm_batch *batch, const layer_view *layer, real *restrict sum,
                     real *restrict dbw, real *restrict dbr) {
    const size_t width = layer->gate_width;
    const real *restrict gates = layer->gates;
    memset(sum, 0, width * sizeof(real));
    for (size_t row = 0; row < batch->row_count; row++) {
        for (size_t j = 0; j < width; j++) {
            sum[j] += gates[row * width + j];
        }
    }
    for (size_t j = 0; j < width; j++) {
        dbw[j] += sum[j];
        dbr[j] += sum[j];
    }
}

void REAL(ashlar_lstm_backward_weights)(const ashlar_lstm_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE && args->reserve != NULL);
    const ashlar_lstm_batch batch = ashlar_lstm_batch_open(args, true);
    real *const dweights = args->dweights;
    char *const work = args->work;
    real *const rows = (real *)(void *)(work + batch.map.rows);
    real *const sum = (real *)(void *)(work + batch.map.bias);
    const real *input = rows;
    pack_rows(&batch, args->x, batch.input, rows);
    for (size_t l = 0; l < batch.layers; l++) {
        const layer_view layer = open_layer(&batch, args, l);
        REAL(ashlar_gemm)(true, false, layer.gate_width, layer.input, batch.row_count, 1,
                          layer.gates, layer.gate_width, input, layer.input, 1,
                          dweights + layer.place[ASHLAR_RNN_W].offset, layer.input);
        add_recurrent(&batch, &layer, dweights + layer.place[ASHLAR_RNN_R].offset);
        add_bias(&batch, &layer, sum, dweights + layer.place[ASHLAR_RNN_BW].offset,
                 dweights + layer.place[ASHLAR_RNN_BR].offset);
        input = layer_output(&batch, &layer);
    }
}

#endif /* ASHLAR_LSTM_TEMPLATE_H */
