/*
 * gemm_kernel_f32.c - tiles of a matrix product in single precision, for the instruction set this
 * file is compiled for (see rnn_f32.c).
 */
#include "rnn/layer/real_f32.h"

#include "rnn/layer/gemm_kernel_template.h"

void ASHLAR_RNN_SET(ashlar__gemm_kernel_f32)(const ashlar_gemm_args *product,
                                            const ashlar_gemm_tile *tile) {
    compute_tile(product, tile);
}
