/* cells.c - the point-wise half of a step of each cell, forward and backward. */
#include "rnn/layer/cell_step.h"

/* Define a cell's function by what it does to units u .. u + n - 1 of row p, which has h; backward
 * takes whole rows. */
#define CELL_FUNCTION(name, row)                                      \
    static void name(const cell_step *s, some_rows rows) {            \
        const size_t h = s->hidden, u = s->unit;                      \
        const size_t n = s->units > 0 ? s->units : h;                 \
        (void)u, (void)n;                                             \
        for (size_t p = rows.first; p < rows.end; p += rows.stride) { \
            row;                                                      \
        }                                                             \
    }

/* LSTM. A row of gates is i f g o; forward replaces their sums by their activations. */

static void lstm_forward_row(size_t hidden, size_t count, real *restrict gates,
                             const real *restrict bias, const real *restrict cell,
                             real *restrict next_cell, real *restrict output) {
    real *restrict in = gates;
    real *restrict forget = gates + hidden;
    real *restrict fresh = gates + 2 * hidden;
    real *restrict out = gates + 3 * hidden;
    for (size_t j = 0; j < count; j++) {
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

CELL_FUNCTION(lstm_forward, lstm_forward_row(h, n, s->gates + p * s->gate_stride + u, s->bias + u,
                                             s->cell + p * h + u, s->next_cell + p * h + u,
                                             s->output + p * h + u))

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
              lstm_backward_row(h, s->gates + p * s->gate_stride, s->cell + p * h,
                                s->next_cell + p * h, s->doutput + p * h, s->dcell + p * h))

/* GRU. A row of gates is r z n u. u is R h + bR of gate n: the reset gate multiplies u before it is
 * added to the rest of n, so backward needs u by itself. */

static void gru_forward_row(size_t hidden, size_t count, real *restrict gates,
                            const real *restrict sums, const real *restrict bias,
                            const real *restrict state, real *restrict output) {
    real *restrict reset = gates;
    real *restrict update = gates + hidden;
    real *restrict fresh = gates + 2 * hidden;
    real *restrict recurrent = gates + 3 * hidden;
    for (size_t j = 0; j < count; j++) {
        const real r = real_sigmoid(reset[j] + sums[j] + bias[j]);
        const real z = real_sigmoid(update[j] + sums[hidden + j] + bias[hidden + j]);
        const real u = sums[2 * hidden + j] + bias[3 * hidden + j];
        const real n = real_tanh(fresh[j] + bias[2 * hidden + j] + r * u);
        reset[j] = r;
        update[j] = z;
        fresh[j] = n;
        recurrent[j] = u;
        output[j] = n + z * (state[j] - n);
    }
}

CELL_FUNCTION(gru_forward,
              gru_forward_row(h, n, s->gates + p * s->gate_stride + u, s->sums + p * 3 * h + u,
                              s->bias + u, s->state + p * h + u, s->output + p * h + u))

static void gru_backward_row(size_t hidden, real *restrict gates, real *restrict sums,
                             const real *restrict state, real *restrict doutput) {
    real *restrict reset = gates;
    real *restrict update = gates + hidden;
    real *restrict fresh = gates + 2 * hidden;
    real *restrict recurrent = gates + 3 * hidden;
    for (size_t j = 0; j < hidden; j++) {
        const real r = reset[j];
        const real z = update[j];
        const real n = fresh[j];
        const real d_output = doutput[j];
        const real d_n = d_output * (1 - z) * (1 - n * n);
        const real d_r = d_n * recurrent[j] * r * (1 - r);
        const real d_z = d_output * (state[j] - n) * z * (1 - z);
        const real d_u = d_n * r;
        reset[j] = sums[j] = d_r;
        update[j] = sums[hidden + j] = d_z;
        fresh[j] = d_n;
        recurrent[j] = sums[2 * hidden + j] = d_u;
        doutput[j] = d_output * z;
    }
}

CELL_FUNCTION(gru_backward, gru_backward_row(h, s->gates + p * s->gate_stride, s->sums + p * 3 * h,
                                             s->state + p * h, s->doutput + p * h))

/* A cell of one gate, h' = value(sum). Backward computes the derivative from the output, so forward
 * keeps nothing in the row of gates. */
#define SIMPLE_CELL(name, value, gradient)                                                         \
    static void name##_forward_row(size_t count, const real *restrict gates,                       \
                                   const real *restrict bias, real *restrict output) {             \
        for (size_t j = 0; j < count; j++) {                                                       \
            const real sum = gates[j] + bias[j];                                                   \
            output[j] = (value);                                                                   \
        }                                                                                          \
    }                                                                                              \
    static void name##_backward_row(size_t hidden, real *restrict gates,                           \
                                    const real *restrict outputs, const real *restrict doutputs) { \
        for (size_t j = 0; j < hidden; j++) {                                                      \
            const real output = outputs[j], doutput = doutputs[j];                                 \
            gates[j] = (gradient);                                                                 \
        }                                                                                          \
    }                                                                                              \
    CELL_FUNCTION(name##_forward, name##_forward_row(n, s->gates + p * s->gate_stride + u,         \
                                                     s->bias + u, s->output + p * h + u))          \
    CELL_FUNCTION(name##_backward, name##_backward_row(h, s->gates + p * s->gate_stride,           \
                                                       s->output + p * h, s->doutput + p * h))

SIMPLE_CELL(tanh, real_tanh(sum), (1 - output * output) * doutput)
/* A NaN stays a NaN, because it is not below 0. */
SIMPLE_CELL(relu, (sum < 0 ? 0 : sum), (output > 0 ? doutput : 0))

/* Built from the list of cells: a cell without a NAME_ line here does not compile. */
#define NAME_LSTM(half) lstm_##half
#define NAME_GRU(half) gru_##half
#define NAME_TANH(half) tanh_##half
#define NAME_RELU(half) relu_##half
#define FORWARD(name, gates, text) [ASHLAR_RNN_##name] = NAME_##name(forward),
#define BACKWARD(name, gates, text) [ASHLAR_RNN_##name] = NAME_##name(backward),
cell_function *const cell_forward[] = {ASHLAR_RNN_CELL_MAP(FORWARD)};
ASHLAR_TABLE_IS_FULL(cell_forward, ASHLAR_RNN_CELL_COUNT);
cell_function *const cell_backward[] = {ASHLAR_RNN_CELL_MAP(BACKWARD)};
ASHLAR_TABLE_IS_FULL(cell_backward, ASHLAR_RNN_CELL_COUNT);
