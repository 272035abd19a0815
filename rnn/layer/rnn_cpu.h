/* rnn_cpu.h - the RNN's forward and backward passes on plain memory (internal).
 *
 * Calls, batches and buffers are those of rnn.h; the weights are used in place. The reverse
 * direction begins at each sequence's own last step. The passes sort the batch by length and leave
 * out padding, so the work depends on the sum of the lengths, not on their order.
 *
 * No function here allocates, fails or keeps anything between calls. Threads: any, on distinct
 * outputs, work and reserve; the work is shared by the workers (workers.h). On one machine the same
 * arguments give the same bits, with any number of threads (see blas.h). */
#ifndef ASHLAR_RNN_CPU_H
#define ASHLAR_RNN_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/rnn.h>

typedef enum ashlar_rnn_pass {
    ASHLAR_RNN_FORWARD,       /* writes in the reserve, if any, what the other passes need */
    ASHLAR_RNN_BACKWARD_DATA, /* once after each forward: overwrites the gates in the reserve */
    ASHLAR_RNN_BACKWARD_WEIGHTS,
    ASHLAR_RNN_PASS_COUNT
} ashlar_rnn_pass;

/* The arguments of all three calls. Elements are of type layout->config.dtype, which must be the
 * type of the pass called (asserted). Unlike in rnn.h, hy may be hx and cy may be cx: a running
 * state is then updated in place. */
typedef struct ashlar_rnn_cpu_args {
    const ashlar_rnn_layout *layout;
    size_t steps, batch;    /* T and B, 1.. */
    const int32_t *lengths; /* [B], each 1..T, any order */
    uint64_t dropout_seed;  /* used with dropout and a reserve; forward keeps it in the reserve */
    size_t dropout_first, dropout_stride; /* as in rnn.h */
    ashlar_rnn_buffers b; /* in plain memory; reserve and work are 64-byte aligned */
} ashlar_rnn_cpu_args;

/* As ashlar_rnn_sizes(). Neither size depends on the lengths, and neither shrinks when steps or
 * batch grows, so the sizes of the largest batch suffice for every smaller one. Errors:
 * ASHLAR_EINVAL (steps or batch 0), ASHLAR_EOVERFLOW; outputs are written only on ASHLAR_OK. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_cpu_sizes(const ashlar_rnn_layout *layout, size_t steps,
                                                      size_t batch, bool training,
                                                      size_t *reserve_bytes, size_t *work_bytes);

typedef void ashlar_rnn_cpu_pass(const ashlar_rnn_cpu_args *args);

/* The passes for each instruction set (meson.build). With fused multiply-add they round less often:
 * their results have other bits than the baseline's, but the same bits on every such processor. */
#define ASHLAR_DECLARE_PASSES(type, set)                             \
    ashlar_rnn_cpu_pass ashlar__rnn_forward_##type##_##set;          \
    ashlar_rnn_cpu_pass ashlar__rnn_backward_data_##type##_##set;    \
    ashlar_rnn_cpu_pass ashlar__rnn_backward_weights_##type##_##set; \
    extern ashlar_rnn_cpu_pass *const ashlar__rnn_cpu_##type##_##set[];
ASHLAR_DECLARE_PASSES(f32, baseline)
ASHLAR_DECLARE_PASSES(f64, baseline)
ASHLAR_DECLARE_PASSES(f32, avx2)
ASHLAR_DECLARE_PASSES(f64, avx2)
ASHLAR_DECLARE_PASSES(f32, avx512)
ASHLAR_DECLARE_PASSES(f64, avx512)
ASHLAR_DECLARE_PASSES(f32, neon)
ASHLAR_DECLARE_PASSES(f64, neon)

/* The passes of a type, [ASHLAR_RNN_PASS_COUNT], of the best set that this processor can run. NULL:
 * the CPU does not compute in that type. */
ashlar_rnn_cpu_pass *const *ashlar__rnn_cpu_passes_of(ashlar_dtype dtype);

#endif /* ASHLAR_RNN_CPU_H */
