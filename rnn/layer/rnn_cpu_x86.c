/* The choice between instruction sets on x86-64. */
#include "rnn/layer/blas_impl.h"
#include "rnn/layer/rnn_cpu.h"

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}

const ashlar_blas_set *ashlar_blas_best(void) {
    static const ashlar_blas_set sets[2] = {
        {"built-in", ashlar_product_f32_baseline, ashlar_product_f64_baseline},
        {"built-in, AVX2 and FMA", ashlar_product_f32_avx2, ashlar_product_f64_avx2},
    };
    return &sets[has_avx2()];
}

const ashlar_rnn_cpu_passes *ashlar_rnn_cpu_passes_of(ashlar_dtype dtype) {
    static const ashlar_rnn_cpu_passes *const passes[2][ASHLAR_DTYPE_COUNT] = {
        {[ASHLAR_F32] = &ashlar_rnn_cpu_f32_baseline,
         [ASHLAR_F64] = &ashlar_rnn_cpu_f64_baseline,
         [ASHLAR_F16] = NULL,
         [ASHLAR_BF16] = NULL},
        {[ASHLAR_F32] = &ashlar_rnn_cpu_f32_avx2,
         [ASHLAR_F64] = &ashlar_rnn_cpu_f64_avx2,
         [ASHLAR_F16] = NULL,
         [ASHLAR_BF16] = NULL},
    };
    return passes[has_avx2()][dtype];
}
