/*
 * ops_f64.c - embedding, linear layer, softmax and loss in double precision.
 */
#include "ops_cpu.h"

#include "real_f64.h"

#include "ops_template.h"
