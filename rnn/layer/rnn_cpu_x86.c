/* The choice between instruction sets for the RNN's passes on x86-64. */
#include "rnn/layer/cpu_x86.h"
#include "rnn/layer/rnn_cpu.h"

const ashlar_rnn_cpu_passes *ashlar__rnn_cpu_passes_of(ashlar_dtype dtype) {
    static const ashlar_rnn_cpu_passes *const passes[2][ASHLAR_DTYPE_COUNT] = {
        {[ASHLAR_F32] = &ashlar__rnn_cpu_f32_baseline,
         [ASHLAR_F64] = &ashlar__rnn_cpu_f64_baseline,
         [ASHLAR_F16] = NULL,
         [ASHLAR_BF16] = NULL},
        {[ASHLAR_F32] = &ashlar__rnn_cpu_f32_avx2,
         [ASHLAR_F64] = &ashlar__rnn_cpu_f64_avx2,
         [ASHLAR_F16] = NULL,
         [ASHLAR_BF16] = NULL},
    };
    return passes[ashlar__cpu_has_avx2()][dtype];
}
