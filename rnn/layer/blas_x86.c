/* The choice between instruction sets for the matrix product on x86-64. */
#include "rnn/layer/blas_impl.h"
#include "rnn/layer/cpu_x86.h"

const ashlar_gemm_kernels *ashlar__blas_best(void) {
    static const ashlar_gemm_kernels sets[2] = {
        {"built-in", ashlar__gemm_kernel_f32_baseline, ashlar__gemm_kernel_f64_baseline},
        {"built-in, AVX2 and FMA", ashlar__gemm_kernel_f32_avx2, ashlar__gemm_kernel_f64_avx2},
    };
    return &sets[ashlar__cpu_has_avx2()];
}
