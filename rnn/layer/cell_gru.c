/*
 * cell_gru.c - the point-wise half of a GRU step.
 *
 * A row of gates is r z n u. u is R h + bR of gate n: the reset gate multiplies u before it is
 * added to the rest of n, so backward needs u by itself.
 */
#include "rnn/layer/cell_step.h"

static void gru_forward_row(size_t hidden, real *restrict gates, const real *restrict sums,
                            const real *restrict bias, const real *restrict state,
                            real *restrict output) {
    real *restrict reset = gates;
    real *restrict update = gates + hidden;
    real *restrict fresh = gates + 2 * hidden;
    real *restrict recurrent = gates + 3 * hidden;
    for (size_t j = 0; j < hidden; j++) {
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

CELL_FUNCTION(gru_forward, gru_forward_row(h, s->gates + p * 4 * h, s->sums + p * 3 * h, s->bias,
                                           s->state + p * h, s->output + p * h))

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

CELL_FUNCTION(gru_backward, gru_backward_row(h, s->gates + p * 4 * h, s->sums + p * 3 * h,
                                             s->state + p * h, s->doutput + p * h))
