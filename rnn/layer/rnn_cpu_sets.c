/* rnn_cpu_sets.c - the RNN's passes, their weights' preparation and decoders for each instruction
 * set, and the choice between them. */
#include "arena/compute/instruction_set.h"
#include "rnn/layer/rnn_cpu.h"
#include "rnn/layer/rnn_decode.h"
#include "rnn/layer/rnn_prepared.h"

#define DEFINE_PASSES(type, set, loops)                                                 \
    ashlar_rnn_cpu_pass *const ashlar__rnn_cpu_##type##_##set[] = {                     \
        [ASHLAR_RNN_FORWARD] = ASHLAR_JOIN(ashlar__rnn_forward_##type##_, loops),       \
        [ASHLAR_RNN_BACKWARD_DATA] =                                                    \
            ASHLAR_JOIN(ashlar__rnn_backward_data_##type##_, loops),                    \
        [ASHLAR_RNN_BACKWARD_WEIGHTS] =                                                 \
            ASHLAR_JOIN(ashlar__rnn_backward_weights_##type##_, loops)};                \
    ASHLAR_TABLE_IS_FULL(ashlar__rnn_cpu_##type##_##set, ASHLAR_RNN_PASS_COUNT);
#define DEFINE_SET(set) \
    DEFINE_PASSES(f32, set, set) DEFINE_PASSES(f64, set, ASHLAR_F64_SET_##set)
ASHLAR_SETS(DEFINE_SET)

ashlar_rnn_cpu_pass *const *ashlar__rnn_cpu_passes_of(ashlar_dtype dtype) {
#define ROW(set)                               \
    {[ASHLAR_F32] = ashlar__rnn_cpu_f32_##set, \
     [ASHLAR_F64] = ashlar__rnn_cpu_f64_##set, \
     [ASHLAR_F16] = NULL,                      \
     [ASHLAR_BF16] = NULL},
    static ashlar_rnn_cpu_pass *const *const sets[][ASHLAR_DTYPE_COUNT] = {ASHLAR_SETS(ROW)};
    _Static_assert(ASHLAR_DTYPE_COUNT == 4, "a set has a row for each element type");
    return sets[ashlar__best_set()][dtype];
}

ashlar_rnn_prepare_function *ashlar__rnn_prepare_of(ashlar_dtype dtype) {
#define PREPARES(set)                                    \
    {[ASHLAR_F32] = ashlar__rnn_prepare_stack_f32_##set, \
     [ASHLAR_F64] = ASHLAR_F64_NAME(ashlar__rnn_prepare_stack_f64_, set), \
     [ASHLAR_F16] = NULL,                                \
     [ASHLAR_BF16] = NULL},
    static ashlar_rnn_prepare_function *const sets[][ASHLAR_DTYPE_COUNT] = {ASHLAR_SETS(PREPARES)};
    return sets[ashlar__best_set()][dtype];
}

const ashlar_decoder *ashlar__decoder_of(ashlar_dtype dtype) {
#define DECODERS(set)                           \
    {[ASHLAR_F32] = &ashlar__decoder_f32_##set, \
     [ASHLAR_F64] = &ASHLAR_F64_NAME(ashlar__decoder_f64_, set), \
     [ASHLAR_F16] = NULL,                       \
     [ASHLAR_BF16] = NULL},
    static const ashlar_decoder *const sets[][ASHLAR_DTYPE_COUNT] = {ASHLAR_SETS(DECODERS)};
    return sets[ashlar__best_set()][dtype];
}
