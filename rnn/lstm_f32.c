/*
 * lstm_f32.c - the LSTM in single precision.
 */
#include "lstm_cpu.h"

#include "real_f32.h"

#include "lstm_template.h"
