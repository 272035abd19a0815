/* The choice between instruction sets on x86-64. */
#include "arena/optimizer/optimizer_kernels.h"

const ashlar_optimizer_kernels *ashlar_optimizer_kernels_best(void) {
    return __builtin_cpu_supports("avx2") ? &ashlar_optimizer_kernels_avx2
                                          : &ashlar_optimizer_kernels_baseline;
}
