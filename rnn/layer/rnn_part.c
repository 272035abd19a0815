/* rnn_part.c - copies rows between a caller's tensors and packed ones. */
#include "rnn/layer/rnn_part.h"

#include <string.h>

#include "rnn/layer/dropout.h"

void pack_rows(const ashlar_rnn_rows *batch, const real *padded, size_t width, real *packed) {
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

void unpack_rows(const ashlar_rnn_rows *batch, const real *packed, size_t width, real *padded) {
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

void write_outputs(const ashlar_rnn_rows *batch, const pseudo_layer_view *pseudo_layer, real *y) {
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

void join_outputs(const ashlar_rnn_rows *batch, const pseudo_layer_view *pseudo_layer,
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

void drop_rows(const ashlar_rnn_rows *batch, uint64_t seed, size_t layer, real *rows) {
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

/* The row of sequence p in the caller's states [L*D, B, width]. */
static size_t state_row(const ashlar_rnn_rows *batch, const pseudo_layer_view *pseudo_layer,
                        size_t p) {
    const size_t directions = batch->layout->config.directions;
    return (pseudo_layer->layer * directions + pseudo_layer->direction) * batch->batch +
           batch->order[p];
}

/* Copy row `row` of `from` to `to`; zeros if `from` is NULL. */
static void put_state(const real *from, size_t row, size_t width, real *to) {
    if (from == NULL) {
        memset(to, 0, width * sizeof(real));
    } else {
        memcpy(to, from + row * width, width * sizeof(real));
    }
}

/* Copy `from` to row `row` of `to`, unless `to` is NULL. */
static void take_state(const real *from, real *to, size_t row, size_t width) {
    if (to != NULL) {
        memcpy(to + row * width, from, width * sizeof(real));
    }
}

/* The t of state(t) (rnn_rows.h) that a sequence of this length begins, or ends, with. */
static size_t first_side(const pseudo_layer_view *pseudo_layer, size_t length) {
    return pseudo_layer->direction == 0 ? 0 : length;
}

static size_t last_side(const pseudo_layer_view *pseudo_layer, size_t length) {
    return pseudo_layer->direction == 0 ? length : 0;
}

void read_first_states(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                       const pseudo_layer_view *pseudo_layer) {
    const bool has_cells = batch->layout->config.cell == ASHLAR_RNN_LSTM;
    for (size_t p = 0; p < batch->batch; p++) {
        const size_t side = first_side(pseudo_layer, (size_t)args->lengths[batch->order[p]]);
        const size_t row = state_row(batch, pseudo_layer, p);
        put_state(args->b.hx, row, pseudo_layer->state,
                  pseudo_layer->states +
                      (ashlar__rnn_rows_state(batch, side) + p) * pseudo_layer->state);
        if (has_cells) {
            put_state(args->b.cx, row, pseudo_layer->hidden,
                      pseudo_layer->cells +
                          (ashlar__rnn_rows_cell(batch, side) + p) * pseudo_layer->hidden);
        }
    }
}

void write_last_states(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                       const pseudo_layer_view *pseudo_layer) {
    const bool has_cells = batch->layout->config.cell == ASHLAR_RNN_LSTM;
    for (size_t p = 0; p < batch->batch; p++) {
        const size_t side = last_side(pseudo_layer, (size_t)args->lengths[batch->order[p]]);
        const size_t row = state_row(batch, pseudo_layer, p);
        take_state(pseudo_layer->states +
                       (ashlar__rnn_rows_state(batch, side) + p) * pseudo_layer->state,
                   args->b.hy, row, pseudo_layer->state);
        if (has_cells) {
            take_state(pseudo_layer->cells +
                           (ashlar__rnn_rows_cell(batch, side) + p) * pseudo_layer->hidden,
                       args->b.cy, row, pseudo_layer->hidden);
        }
    }
}

void read_state_gradients(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                          const pseudo_layer_view *pseudo_layer, real *dh, real *dc) {
    const bool has_cells = batch->layout->config.cell == ASHLAR_RNN_LSTM;
    for (size_t p = 0; p < batch->batch; p++) {
        const size_t row = state_row(batch, pseudo_layer, p);
        put_state(args->b.dhy, row, pseudo_layer->state, dh + p * pseudo_layer->state);
        if (has_cells) {
            put_state(args->b.dcy, row, pseudo_layer->hidden, dc + p * pseudo_layer->hidden);
        }
    }
}

void write_state_gradients(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                           const pseudo_layer_view *pseudo_layer, const real *dh, const real *dc) {
    const bool has_cells = batch->layout->config.cell == ASHLAR_RNN_LSTM;
    for (size_t p = 0; p < batch->batch; p++) {
        const size_t row = state_row(batch, pseudo_layer, p);
        take_state(dh + p * pseudo_layer->state, args->b.dhx, row, pseudo_layer->state);
        if (has_cells) {
            take_state(dc + p * pseudo_layer->hidden, args->b.dcx, row, pseudo_layer->hidden);
        }
    }
}
