/*
 * rnn_f64.c - the RNN in double precision, for the instruction set this file is compiled for:
 * meson.build defines ASHLAR_RNN_SET(name), the name with the set's suffix.
 */
#include "rnn/layer/rnn_cpu.h"

#include "rnn/layer/real_f64.h"

#include "rnn/layer/rnn_backward_template.h"

const ashlar_rnn_cpu_passes ASHLAR_RNN_SET(ashlar__rnn_cpu_f64) = {
    .forward = forward_pass,
    .backward_data = backward_data_pass,
    .backward_weights = backward_weights_pass,
};
