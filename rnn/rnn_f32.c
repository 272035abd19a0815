/*
 * rnn_f32.c - the RNN in single precision.
 */
#include "rnn_cpu.h"

#include "real_f32.h"

#include "rnn_backward_template.h"
