/*
 * ops_f32.c - embedding, linear layer, softmax and loss in single precision.
 */
#include "ops_cpu.h"

#include "real_f32.h"

#include "ops_template.h"
