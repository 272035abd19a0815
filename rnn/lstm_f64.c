/*
 * lstm_f64.c - the LSTM in double precision.
 */
#include "lstm_cpu.h"

#include "real_f64.h"

#include "lstm_template.h"
