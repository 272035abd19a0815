/* cell_plain.c - the point-wise halves of a tanh and of a ReLU step. Backward computes both
 * derivatives from the output, so forward keeps nothing in the row of gates. */
#include "rnn/layer/cell_step.h"

static void tanh_forward_row(size_t hidden, const real *restrict gates, const real *restrict bias,
                             real *restrict output) {
    for (size_t j = 0; j < hidden; j++) {
        output[j] = real_tanh(gates[j] + bias[j]);
    }
}

CELL_FUNCTION(tanh_forward, tanh_forward_row(h, s->gates + p * h, s->bias, s->output + p * h))

static void tanh_backward_row(size_t hidden, real *restrict gates, const real *restrict output,
                              const real *restrict doutput) {
    for (size_t j = 0; j < hidden; j++) {
        gates[j] = doutput[j] * (1 - output[j] * output[j]);
    }
}

CELL_FUNCTION(tanh_backward,
              tanh_backward_row(h, s->gates + p * h, s->output + p * h, s->doutput + p * h))

/* A NaN stays a NaN, because it is not below 0. */
static void relu_forward_row(size_t hidden, const real *restrict gates, const real *restrict bias,
                             real *restrict output) {
    for (size_t j = 0; j < hidden; j++) {
        const real sum = gates[j] + bias[j];
        output[j] = sum < 0 ? 0 : sum;
    }
}

CELL_FUNCTION(relu_forward, relu_forward_row(h, s->gates + p * h, s->bias, s->output + p * h))

static void relu_backward_row(size_t hidden, real *restrict gates, const real *restrict output,
                              const real *restrict doutput) {
    for (size_t j = 0; j < hidden; j++) {
        gates[j] = output[j] > 0 ? doutput[j] : 0;
    }
}

CELL_FUNCTION(relu_backward,
              relu_backward_row(h, s->gates + p * h, s->output + p * h, s->doutput + p * h))
