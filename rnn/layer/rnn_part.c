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

void write_outputs(const ashlar_rnn_rows *batch, const layer_part *part, real *y) {
    const size_t width = batch->layout->output, bytes = part->state * sizeof(real);
    real *const columns = y + part->direction * part->state;
    for (size_t t = 0; t < batch->steps; t++) {
        for (size_t p = 0; p < batch->batch; p++) {
            real *row = columns + (t * batch->batch + batch->order[p]) * width;
            if (p < ashlar__rnn_rows_active(batch, t)) {
                memcpy(row, output_row(batch, part, t, p), bytes);
            } else {
                memset(row, 0, bytes);
            }
        }
    }
}

void join_outputs(const ashlar_rnn_rows *batch, const layer_part *part, real *input) {
    const size_t width = batch->layout->output;
    real *const columns = input + part->direction * part->state;
    for (size_t t = 0; t < batch->steps; t++) {
        for (size_t p = 0; p < ashlar__rnn_rows_active(batch, t); p++) {
            memcpy(columns + (batch->start[t] + p) * width, output_row(batch, part, t, p),
                   part->state * sizeof(real));
        }
    }
}

void drop_rows(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args, uint64_t seed,
               size_t layer, real *rows) {
    const size_t width = batch->layout->output;
    const double rate = batch->layout->config.dropout;
    const uint32_t threshold = ashlar__dropout_threshold(rate);
    const real scale = (real)(1 / (1 - rate));
    const size_t stride = args->dropout_stride == 0 ? 1 : args->dropout_stride;
    for (size_t t = 0; t < batch->steps; t++) {
        for (size_t p = 0; p < ashlar__rnn_rows_active(batch, t); p++) {
            real *const row = rows + (batch->start[t] + p) * width;
            const ashlar_dropout_row key = {.seed = seed,
                                            .layer = layer,
                                            .step = t,
                                            .sequence =
                                                args->dropout_first + batch->order[p] * stride};
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

/* The row of sequence p in the caller's states [L*D, B, width]. */
static size_t state_row(const ashlar_rnn_rows *batch, const layer_part *part, size_t p) {
    const size_t directions = batch->layout->config.directions;
    return (part->layer * directions + part->direction) * batch->batch + batch->order[p];
}

/* The row of our own states that holds a state of sequence p (rnn_rows.h). Gradients have one row
 * for each sequence: row p. */
static size_t own_row(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                      const layer_part *part, state_kind kind, bool is_cell, size_t p) {
    const bool is_begin = (kind == FIRST_STATES) == (part->direction == 0);
    const size_t t = is_begin ? 0 : (size_t)args->lengths[batch->order[p]];
    return p + (kind == STATE_GRADIENTS ? 0
                : is_cell               ? ashlar__rnn_rows_cell(batch, t)
                                        : ashlar__rnn_rows_state(batch, t));
}

void read_states(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                 const layer_part *part, state_kind kind, const void *const from[2],
                 real *const own[2]) {
    for (size_t i = 0; i < 1 + (size_t)(batch->layout->config.cell == ASHLAR_RNN_LSTM); i++) {
        const size_t width = i == 0 ? part->state : part->hidden;
        for (size_t p = 0; p < batch->batch; p++) {
            real *to = own[i] + own_row(batch, args, part, kind, i > 0, p) * width;
            if (from[i] == NULL) {
                memset(to, 0, width * sizeof(real));
            } else {
                memcpy(to, (const real *)from[i] + state_row(batch, part, p) * width,
                       width * sizeof(real));
            }
        }
    }
}

void write_states(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                  const layer_part *part, state_kind kind, real *const own[2], void *const to[2]) {
    for (size_t i = 0; i < 1 + (size_t)(batch->layout->config.cell == ASHLAR_RNN_LSTM); i++) {
        const size_t width = i == 0 ? part->state : part->hidden;
        for (size_t p = 0; to[i] != NULL && p < batch->batch; p++) {
            memcpy((real *)to[i] + state_row(batch, part, p) * width,
                   own[i] + own_row(batch, args, part, kind, i > 0, p) * width,
                   width * sizeof(real));
        }
    }
}
