/* Processors for which there is one matrix product. */
#include "rnn/layer/blas_impl.h"

const ashlar_blas_set *ashlar_blas_best(void) {
    static const ashlar_blas_set set = {"built-in", ashlar_product_f32_baseline,
                                        ashlar_product_f64_baseline};
    return &set;
}
