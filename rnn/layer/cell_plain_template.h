/*
 * cell_plain_template.h - the point-wise halves of a tanh and of a ReLU step, for one element type
 * (internal; see cell_step_template.h). Both derivatives are found from the output, so that
 * forward keeps nothing in the row of gates.
 */
#ifndef ASHLAR_CELL_PLAIN_TEMPLATE_H
#define ASHLAR_CELL_PLAIN_TEMPLATE_H

#include "rnn/layer/cell_step_template.h"

static void tanh_forward_row(size_t hidden, const real *restrict gates, const real *restrict bias,
                             real *restrict output) {
    for (size_t j = 0; j < hidden; j++) {
        output[j] = real_tanh(gates[j] + bias[j]);
    }
}

static void tanh_forward(const cell_step *s, row_range rows) {
    const size_t h = s->hidden;
    for (size_t p = rows.first; p < rows.end; p += rows.stride) {
        tanh_forward_row(h, s->gates + p * h, s->bias, s->output + p * h);
    }
}

static void tanh_backward_row(size_t hidden, real *restrict gates, const real *restrict output,
                              const real *restrict doutput) {
    for (size_t j = 0; j < hidden; j++) {
        gates[j] = doutput[j] * (1 - output[j] * output[j]);
    }
}

static void tanh_backward(const cell_step *s, row_range rows) {
    const size_t h = s->hidden;
    for (size_t p = rows.first; p < rows.end; p += rows.stride) {
        tanh_backward_row(h, s->gates + p * h, s->output + p * h, s->doutput + p * h);
    }
}

/* A NaN stays one: it is not below 0. */
static void relu_forward_row(size_t hidden, const real *restrict gates, const real *restrict bias,
                             real *restrict output) {
    for (size_t j = 0; j < hidden; j++) {
        const real sum = gates[j] + bias[j];
        output[j] = sum < 0 ? 0 : sum;
    }
}

static void relu_forward(const cell_step *s, row_range rows) {
    const size_t h = s->hidden;
    for (size_t p = rows.first; p < rows.end; p += rows.stride) {
        relu_forward_row(h, s->gates + p * h, s->bias, s->output + p * h);
    }
}

static void relu_backward_row(size_t hidden, real *restrict gates, const real *restrict output,
                              const real *restrict doutput) {
    for (size_t j = 0; j < hidden; j++) {
        gates[j] = output[j] > 0 ? doutput[j] : 0;
    }
}

static void relu_backward(const cell_step *s, row_range rows) {
    const size_t h = s->hidden;
    for (size_t p = rows.first; p < rows.end; p += rows.stride) {
        relu_backward_row(h, s->gates + p * h, s->output + p * h, s->doutput + p * h);
    }
}

#endif /* ASHLAR_CELL_PLAIN_TEMPLATE_H */
