/* blas_sets.c - the matrix product for each instruction set, and the choice between them. */
#include "arena/compute/instruction_set.h"
#include "rnn/product/blas_impl.h"

#define NAME_baseline "built-in"
#define NAME_avx2 "built-in, AVX2 and FMA"
#define NAME_avx512 "built-in, AVX-512"
#define NAME_neon "built-in, NEON"

const ashlar_gemm_kernels *ashlar__blas_best(void) {
#define ROW(set)                                   \
    {NAME_##set, ashlar__gemm_kernel_f32_##set, \
     ASHLAR_F64_NAME(ashlar__gemm_kernel_f64_, set)},
    static const ashlar_gemm_kernels sets[] = {ASHLAR_SETS(ROW)};
    return &sets[ashlar__best_set()];
}
