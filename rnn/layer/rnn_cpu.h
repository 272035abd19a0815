/*
 * rnn_cpu.h - the RNN's forward and backward passes on plain memory (internal).
 *
 * The cells' formulas are those of rnn_layout.h, and the weights are used in place. The three calls
 * are cuDNN's: forward, then backward_data, then backward_weights, with the same reserve.
 *
 * A batch is padded, time-major: x [T, B, I], y [T, B, D*P]. Sequence b has lengths[b] steps, in
 * any order of lengths; the reverse direction begins at each sequence's own last step. Past a
 * sequence's length, x and dy are never read, and y and dx are 0. The passes sort the batch by
 * length and leave out padding, so the work depends on the sum of the lengths, not on their order.
 *
 * No function here allocates, fails or keeps anything between calls. Threads: any, on distinct
 * outputs, work and reserve; the work is shared by the workers (workers.h). On one machine the same
 * arguments give the same bits, with any number of threads (see blas.h).
 */
#ifndef ASHLAR_RNN_CPU_H
#define ASHLAR_RNN_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

#include <ashlar/rnn_layout.h>

/*
 * The arguments of all three calls; each call uses only the fields listed for it. Elements are of
 * type layout->config.dtype, which must be the type of the pass called (asserted).
 * Outputs are overwritten except dweights, and must not overlap each other or any input, except
 * that hy may be hx and cy may be cx: a running state is then updated in place. Cells other than
 * the LSTM have no c: cx, cy, dcy and dcx are not touched then.
 */
typedef struct ashlar_rnn_cpu_args {
    /* all three */
    const ashlar_rnn_layout *layout;
    size_t steps;           /* T, 1.. */
    size_t batch;           /* B, 1.. */
    const int32_t *lengths; /* [B], each 1..T, any order */
    void *reserve; /* reserve_bytes, 64-byte aligned; forward: NULL = inference, no backward */
    void *work;    /* work_bytes, 64-byte aligned; scratch of one call */

    /* forward */
    uint64_t dropout_seed; /* used with dropout and a reserve; forward keeps it in the reserve */
    const void *x;         /* [T, B, I], also read by backward_weights */
    const void *hx;        /* [L*D, B, P], NULL = zeros */
    const void *cx;        /* [L*D, B, H], NULL = zeros */
    const void *weights;   /* [layout->elements], also read by backward_data */
    void *y;               /* [T, B, D*P] */
    void *hy;              /* [L*D, B, P], NULL = not wanted */
    void *cy;              /* [L*D, B, H], NULL = not wanted */

    /* backward_data */
    const void *dy;  /* [T, B, D*P], NULL = zeros */
    const void *dhy; /* [L*D, B, P], NULL = zeros */
    const void *dcy; /* [L*D, B, H], NULL = zeros */
    void *dx;        /* [T, B, I], NULL = not wanted */
    void *dhx;       /* [L*D, B, P], NULL = not wanted */
    void *dcx;       /* [L*D, B, H], NULL = not wanted */

    /* backward_weights */
    void *dweights; /* [layout->elements], ADDED to */
} ashlar_rnn_cpu_args;

/*
 * Bytes of the two buffers for batches of at most `batch` sequences of at most `steps` steps.
 *
 * training  true: for all three calls. false: for forward without a reserve, *reserve_bytes is 0
 *
 * Neither depends on the lengths, and neither shrinks when steps or batch grows, so the sizes of
 * the largest batch do for every smaller one.
 * Errors: ASHLAR_EINVAL (steps or batch 0), ASHLAR_EOVERFLOW (a size does not fit, or the matrix
 *         product cannot count it). Outputs are written only on ASHLAR_OK.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_cpu_sizes(const ashlar_rnn_layout *layout, size_t steps,
                                                      size_t batch, bool training,
                                                      size_t *reserve_bytes, size_t *work_bytes);

typedef void ashlar_rnn_cpu_pass(const ashlar_rnn_cpu_args *args);

/* The calls for one element type. */
typedef struct ashlar_rnn_cpu_passes {
    /* y, hy, cy from x, hx, cx. If there is a reserve, writes there what the other passes need. */
    ashlar_rnn_cpu_pass *forward;
    /* dx, dhx, dcx from dy, dhy, dcy. Call it once after each forward: it overwrites the gates in
     * the reserve with their gradients. */
    ashlar_rnn_cpu_pass *backward_data;
    /* dweights += the gradient. Call it after backward_data, with its reserve and forward's x. */
    ashlar_rnn_cpu_pass *backward_weights;
} ashlar_rnn_cpu_passes;

/*
 * The passes for each instruction set (meson.build). With fused multiply-add they round less often:
 * their results have other bits than the baseline's, but the same bits on every such processor.
 */
#define ASHLAR_DECLARE_PASSES(type, set)                                          \
    ashlar_rnn_cpu_pass ashlar__rnn_forward_##type##_##set;                        \
    ashlar_rnn_cpu_pass ashlar__rnn_backward_data_##type##_##set;                  \
    ashlar_rnn_cpu_pass ashlar__rnn_backward_weights_##type##_##set;               \
    extern const ashlar_rnn_cpu_passes ashlar__rnn_cpu_##type##_##set;
ASHLAR_DECLARE_PASSES(f32, baseline)
ASHLAR_DECLARE_PASSES(f64, baseline)
ASHLAR_DECLARE_PASSES(f32, avx2)
ASHLAR_DECLARE_PASSES(f64, avx2)

/* The passes for a type, of the best set that this processor can run. NULL: not on the CPU. */
const ashlar_rnn_cpu_passes *ashlar__rnn_cpu_passes_of(ashlar_dtype dtype);

#endif /* ASHLAR_RNN_CPU_H */
