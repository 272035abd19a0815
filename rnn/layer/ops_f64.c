/*
 * ops_f64.c - embedding, linear layer, softmax and loss in double precision.
 */
#include "rnn/layer/ops_cpu.h"

#include "rnn/layer/real_f64.h"

#include "rnn/layer/ops_template.h"
