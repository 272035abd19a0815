/* rnn_cpu_sets.c - the RNN's passes for each instruction set, and the choice between them. */
#include "arena/compute/instruction_set.h"
#include "rnn/layer/rnn_cpu.h"

#define DEFINE_PASSES(type, set)                                  \
    const ashlar_rnn_cpu_passes ashlar__rnn_cpu_##type##_##set = { \
        .forward = ashlar__rnn_forward_##type##_##set,             \
        .backward_data = ashlar__rnn_backward_data_##type##_##set, \
        .backward_weights = ashlar__rnn_backward_weights_##type##_##set};
#define DEFINE_SET(set) DEFINE_PASSES(f32, set) DEFINE_PASSES(f64, set)
ASHLAR_SETS(DEFINE_SET)

const ashlar_rnn_cpu_passes *ashlar__rnn_cpu_passes_of(ashlar_dtype dtype) {
#define ROW(set)                                \
    {ASHLAR_RUNS_##set,                         \
     {[ASHLAR_F32] = &ashlar__rnn_cpu_f32_##set, \
      [ASHLAR_F64] = &ashlar__rnn_cpu_f64_##set, \
      [ASHLAR_F16] = NULL,                      \
      [ASHLAR_BF16] = NULL}},
    _Static_assert(ASHLAR_DTYPE_COUNT == 4, "a set has a row for each element type");
    const struct {
        bool runs;
        const ashlar_rnn_cpu_passes *passes[ASHLAR_DTYPE_COUNT];
    } sets[] = {ASHLAR_SETS(ROW)}; /* the best one first, the baseline last */
    size_t i = 0;
    while (!sets[i].runs) {
        i++;
    }
    return sets[i].passes[dtype];
}
