/* Processors for which there is one set of kernels. */
#include "arena/optimizer/optimizer_kernels.h"

const ashlar_optimizer_kernels *ashlar_optimizer_kernels_best(void) {
    return &ashlar_optimizer_kernels_baseline;
}
