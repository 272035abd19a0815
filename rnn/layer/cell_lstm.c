/* cell_lstm.c - the point-wise half of an LSTM step. A row of gates is i f g o; forward replaces
 * their sums by their activations. */
#include "rnn/layer/cell_step.h"

static void lstm_forward_row(size_t hidden, real *restrict gates, const real *restrict bias,
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

CELL_FUNCTION(lstm_forward, lstm_forward_row(h, s->gates + p * 4 * h, s->bias, s->cell + p * h,
                                             s->next_cell + p * h, s->output + p * h))

static void lstm_backward_row(size_t hidden, real *restrict gates, const real *restrict cell,
                              const real *restrict next_cell, const real *restrict doutput,
                              real *restrict dcell) {
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
        const real d_output = doutput[j];
        const real d_cell = dcell[j] + d_output * o * (1 - squashed * squashed);
        in[j] = d_cell * g * i * (1 - i);
        forget[j] = d_cell * cell[j] * f * (1 - f);
        fresh[j] = d_cell * i * (1 - g * g);
        out[j] = d_output * squashed * o * (1 - o);
        dcell[j] = d_cell * f;
    }
}

CELL_FUNCTION(lstm_backward,
              lstm_backward_row(h, s->gates + p * 4 * h, s->cell + p * h, s->next_cell + p * h,
                                s->doutput + p * h, s->dcell + p * h))
