/*
 * rnn_f64.c - the RNN in double precision.
 */
#include "rnn_cpu.h"

#include "real_f64.h"

#include "rnn_backward_template.h"
