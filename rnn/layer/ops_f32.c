/*
 * ops_f32.c - embedding, linear layer, softmax and loss in single precision.
 */
#include "rnn/layer/ops_cpu.h"

#include "rnn/layer/real_f32.h"

#include "rnn/layer/ops_template.h"
