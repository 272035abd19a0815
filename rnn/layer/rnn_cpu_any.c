/* Processors for which there is one set of passes. */
#include "allocator/base/compiler.h"
#include "rnn/layer/rnn_cpu.h"

const ashlar_rnn_cpu_passes *ashlar__rnn_cpu_passes_of(ashlar_dtype dtype) {
    static const ashlar_rnn_cpu_passes *const passes[] = {
        [ASHLAR_F32] = &ashlar__rnn_cpu_f32_baseline,
        [ASHLAR_F64] = &ashlar__rnn_cpu_f64_baseline,
        [ASHLAR_F16] = NULL,
        [ASHLAR_BF16] = NULL,
    };
    ASHLAR_TABLE_IS_FULL(passes, ASHLAR_DTYPE_COUNT);
    return passes[dtype];
}
