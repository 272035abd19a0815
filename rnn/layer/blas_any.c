/* Processors for which there is one matrix product. */
#include "rnn/layer/blas_impl.h"

const ashlar_gemm_kernels *ashlar__blas_best(void) {
    static const ashlar_gemm_kernels set = {"built-in", ashlar__gemm_kernel_f32_baseline,
                                            ashlar__gemm_kernel_f64_baseline};
    return &set;
}
