/*
 * rnn_rows_template.h - copies of rows between a caller's tensors and packed ones, for one element
 * type (internal).
 *
 * rnn_f32.c and rnn_f64.c include it after real_f32.h or real_f64.h; it does not compile alone.
 * No loop outside this file knows of padding or of the callers' order of sequences.
 */
#ifndef ASHLAR_RNN_ROWS_TEMPLATE_H
#define ASHLAR_RNN_ROWS_TEMPLATE_H

#include <string.h>

#include "rnn/layer/dropout.h"
#include "rnn/layer/rnn_rows.h"

/* One pseudo-layer of one call. */
typedef struct pseudo_layer_view {
    size_t layer, direction;
    size_t input;  /* in(l) */
    size_t hidden; /* H */
    size_t state;  /* P */
    ashlar_rnn_view place[ASHLAR_RNN_TENSOR_COUNT];
    real *gates;    /* [N, K] */
    real *states;   /* [B + N, P] */
    real *cells;    /* [B + N, H] or [2B, H] */
    real *fulls;    /* [N, H] */
    real *doutputs; /* [N, P] */
} pseudo_layer_view;

/* At an offset of the map. */
static real *in_work(const ashlar_rnn_cpu_args *args, size_t offset) {
    return (real *)(void *)((char *)args->work + offset);
}

static pseudo_layer_view open_pseudo_layer(const ashlar_rnn_rows *batch,
                                           const ashlar_rnn_cpu_args *args, size_t layer,
                                           size_t direction) {
    const size_t pseudo_layer = layer * batch->layout->config.directions + direction;
    char *const slice = ashlar__rnn_rows_slice(batch, args, pseudo_layer);
    pseudo_layer_view view = {
        .layer = layer,
        .direction = direction,
        .hidden = batch->layout->config.hidden,
        .state = batch->layout->state,
        .gates = (real *)(void *)(slice + batch->map.gates),
        .states = (real *)(void *)(slice + batch->map.states),
        .cells = (real *)(void *)(slice + batch->map.cells),
        .fulls = (real *)(void *)(slice + batch->map.fulls),
        .doutputs = (real *)(void *)(slice + batch->map.doutputs),
    };
    for (int tensor = 0; tensor < ASHLAR_RNN_TENSOR_COUNT; tensor++) {
        view.place[tensor] =
            ashlar_rnn_layout_view(args->layout, pseudo_layer, (ashlar_rnn_tensor)tensor);
    }
    view.input = view.place[ASHLAR_RNN_W].cols;
    return view;
}

/* The first row of the states, or of the cells, that step t of a direction starts from. */
static size_t states_before(const ashlar_rnn_rows *batch, size_t direction, size_t t) {
    return ashlar__rnn_rows_state(batch, direction == 0 ? t : t + 1);
}

static size_t cells_before(const ashlar_rnn_rows *batch, size_t direction, size_t t) {
    return ashlar__rnn_rows_cell(batch, direction == 0 ? t : t + 1);
}

/* And of those that it leaves. */
static size_t states_after(const ashlar_rnn_rows *batch, size_t direction, size_t t) {
    return ashlar__rnn_rows_state(batch, direction == 0 ? t + 1 : t);
}

static size_t cells_after(const ashlar_rnn_rows *batch, size_t direction, size_t t) {
    return ashlar__rnn_rows_cell(batch, direction == 0 ? t + 1 : t);
}

/* A pseudo-layer's outputs as packed rows. Forward only: in reverse they lie apart. */
static const real *forward_outputs(const ashlar_rnn_rows *batch,
                                   const pseudo_layer_view *pseudo_layer) {
    return pseudo_layer->states + batch->batch * pseudo_layer->state;
}

/* The output of step t of sequence p. */
static const real *output_row(const ashlar_rnn_rows *batch, const pseudo_layer_view *pseudo_layer,
                              size_t t, size_t p) {
    return pseudo_layer->states +
           (states_after(batch, pseudo_layer->direction, t) + p) * pseudo_layer->state;
}

/* packed [N, width] = padded [T, B, width]; padded NULL = zeros. */
static void pack_rows(const ashlar_rnn_rows *batch, const real *padded, size_t width,
                      real *packed) {
    if (padded == NULL) {
        memset(packed, 0, batch->row_count * width * sizeof(real));
        return;
    }
    for (size_t t = 0; t < batch->steps; t++) {
        for (size_t p = 0; p < ashlar__rnn_rows_active(batch, t); p++) {
            memcpy(packed + (batch->start[t] + p) * width,
                   padded + (t * batch->batch + batch->order[p]) * width, width * sizeof(real));
        }
    }
}

/* padded [T, B, width] = packed [N, width], and zeros past each length. */
static void unpack_rows(const ashlar_rnn_rows *batch, const real *packed, size_t width,
                        real *padded) {
    for (size_t t = 0; t < batch->steps; t++) {
        for (size_t p = 0; p < batch->batch; p++) {
            real *row = padded + (t * batch->batch + batch->order[p]) * width;
            if (p < ashlar__rnn_rows_active(batch, t)) {
                memcpy(row, packed + (batch->start[t] + p) * width, width * sizeof(real));
            } else {
                memset(row, 0, width * sizeof(real));
            }
        }
    }
}

/* This pseudo-layer's columns of y [T, B, D*P], and zeros past each length. */
static void write_outputs(const ashlar_rnn_rows *batch, const pseudo_layer_view *pseudo_layer,
                          real *y) {
    const size_t width = batch->layout->output, bytes = pseudo_layer->state * sizeof(real);
    real *const columns = y + pseudo_layer->direction * pseudo_layer->state;
    for (size_t t = 0; t < batch->steps; t++) {
        for (size_t p = 0; p < batch->batch; p++) {
            real *row = columns + (t * batch->batch + batch->order[p]) * width;
            if (p < ashlar__rnn_rows_active(batch, t)) {
                memcpy(row, output_row(batch, pseudo_layer, t, p), bytes);
            } else {
                memset(row, 0, bytes);
            }
        }
    }
}

/* This pseudo-layer's columns of the next layer's input, packed [N, D*P]. */
static void join_outputs(const ashlar_rnn_rows *batch, const pseudo_layer_view *pseudo_layer,
                         real *input) {
    const size_t width = batch->layout->output;
    real *const columns = input + pseudo_layer->direction * pseudo_layer->state;
    for (size_t t = 0; t < batch->steps; t++) {
        for (size_t p = 0; p < ashlar__rnn_rows_active(batch, t); p++) {
            memcpy(columns + (batch->start[t] + p) * width, output_row(batch, pseudo_layer, t, p),
                   pseudo_layer->state * sizeof(real));
        }
    }
}

/* rows [N, D*P] times the mask between `layer` and the one below: an input, or its gradient. */
static void drop_rows(const ashlar_rnn_rows *batch, uint64_t seed, size_t layer, real *rows) {
    const size_t width = batch->layout->output;
    const double rate = batch->layout->config.dropout;
    const uint32_t threshold = ashlar__dropout_threshold(rate);
    const real scale = (real)(1 / (1 - rate));
    for (size_t t = 0; t < batch->steps; t++) {
        for (size_t p = 0; p < ashlar__rnn_rows_active(batch, t); p++) {
            real *const row = rows + (batch->start[t] + p) * width;
            const ashlar_dropout_row key = {
                .seed = seed, .layer = layer, .step = t, .sequence = batch->order[p]};
            for (size_t first = 0; first < width; first += ASHLAR_DROPOUT_DRAWS) {
                uint32_t draws[ASHLAR_DROPOUT_DRAWS];
                ashlar__dropout_draw(&key, first / ASHLAR_DROPOUT_DRAWS, draws);
                const size_t left = width - first;
                const size_t count = left < ASHLAR_DROPOUT_DRAWS ? left : ASHLAR_DROPOUT_DRAWS;
                for (size_t j = 0; j < count; j++) {
                    row[first + j] = draws[j] < threshold ? 0 : row[first + j] * scale;
                }
            }
        }
    }
}

/* ---- first and last states ---- */

/* Row of sequence p in states [L*D, B, width]. */
static size_t state_row(const ashlar_rnn_rows *batch, const pseudo_layer_view *pseudo_layer,
                        size_t p) {
    const size_t directions = batch->layout->config.directions;
    return (pseudo_layer->layer * directions + pseudo_layer->direction) * batch->batch +
           batch->order[p];
}

/* Put a row of `from`, or zeros where it is NULL. */
static void put_state(const real *from, size_t row, size_t width, real *to) {
    if (from == NULL) {
        memset(to, 0, width * sizeof(real));
    } else {
        memcpy(to, from + row * width, width * sizeof(real));
    }
}

/* Take a row to `to`, unless that is NULL. */
static void take_state(const real *from, real *to, size_t row, size_t width) {
    if (to != NULL) {
        memcpy(to + row * width, from, width * sizeof(real));
    }
}

/* The step at which sequence p begins (or ends) is one side of all its steps: 0, or its length. */
static size_t first_side(const pseudo_layer_view *pseudo_layer, size_t length) {
    return pseudo_layer->direction == 0 ? 0 : length;
}

static size_t last_side(const pseudo_layer_view *pseudo_layer, size_t length) {
    return pseudo_layer->direction == 0 ? length : 0;
}

static void read_first_states(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                              const pseudo_layer_view *pseudo_layer) {
    const bool has_cells = batch->layout->config.cell == ASHLAR_RNN_LSTM;
    for (size_t p = 0; p < batch->batch; p++) {
        const size_t side = first_side(pseudo_layer, (size_t)args->lengths[batch->order[p]]);
        const size_t row = state_row(batch, pseudo_layer, p);
        put_state(args->hx, row, pseudo_layer->state,
                  pseudo_layer->states +
                      (ashlar__rnn_rows_state(batch, side) + p) * pseudo_layer->state);
        if (has_cells) {
            put_state(args->cx, row, pseudo_layer->hidden,
                      pseudo_layer->cells +
                          (ashlar__rnn_rows_cell(batch, side) + p) * pseudo_layer->hidden);
        }
    }
}

static void write_last_states(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                              const pseudo_layer_view *pseudo_layer) {
    const bool has_cells = batch->layout->config.cell == ASHLAR_RNN_LSTM;
    for (size_t p = 0; p < batch->batch; p++) {
        const size_t side = last_side(pseudo_layer, (size_t)args->lengths[batch->order[p]]);
        const size_t row = state_row(batch, pseudo_layer, p);
        take_state(pseudo_layer->states +
                       (ashlar__rnn_rows_state(batch, side) + p) * pseudo_layer->state,
                   args->hy, row, pseudo_layer->state);
        if (has_cells) {
            take_state(pseudo_layer->cells +
                           (ashlar__rnn_rows_cell(batch, side) + p) * pseudo_layer->hidden,
                       args->cy, row, pseudo_layer->hidden);
        }
    }
}

/* dh [B, P] and dc [B, H] of the last states; dc is of the LSTM only. */
static void read_state_gradients(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                                 const pseudo_layer_view *pseudo_layer, real *dh, real *dc) {
    const bool has_cells = batch->layout->config.cell == ASHLAR_RNN_LSTM;
    for (size_t p = 0; p < batch->batch; p++) {
        const size_t row = state_row(batch, pseudo_layer, p);
        put_state(args->dhy, row, pseudo_layer->state, dh + p * pseudo_layer->state);
        if (has_cells) {
            put_state(args->dcy, row, pseudo_layer->hidden, dc + p * pseudo_layer->hidden);
        }
    }
}

static void write_state_gradients(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                                  const pseudo_layer_view *pseudo_layer, const real *dh,
                                  const real *dc) {
    const bool has_cells = batch->layout->config.cell == ASHLAR_RNN_LSTM;
    for (size_t p = 0; p < batch->batch; p++) {
        const size_t row = state_row(batch, pseudo_layer, p);
        take_state(dh + p * pseudo_layer->state, args->dhx, row, pseudo_layer->state);
        if (has_cells) {
            take_state(dc + p * pseudo_layer->hidden, args->dcx, row, pseudo_layer->hidden);
        }
    }
}

#endif /* ASHLAR_RNN_ROWS_TEMPLATE_H */
