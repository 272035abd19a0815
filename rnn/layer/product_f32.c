/*
 * product_f32.c - pieces of a matrix product in single precision, for the instruction set this file
 * is compiled for (see rnn_f32.c).
 */
#include "rnn/layer/real_f32.h"

#include "rnn/layer/product_template.h"

void ASHLAR_RNN_SET(ashlar_product_f32)(const ashlar_product *product, const ashlar_piece *piece) {
    compute_piece(product, piece);
}
