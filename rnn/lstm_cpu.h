/*
 * lstm_cpu.h - the LSTM's forward and backward passes on plain memory (internal).
 *
 * Per layer and step, with x the layer's input and gates in cuDNN's order i f g o:
 *
 *     i, f, o = sigmoid(W x + R h + bW + bR)        g = tanh(W x + R h + bW + bR)
 *     c' = f c + i g                                h' = o tanh(c')
 *
 * The weights are read where they lie (rnn_layout.h). The three calls are cuDNN's: forward, then
 * backward_data, then backward_weights, with one reserve from the first to the last.
 *
 * A batch is padded, time-major: x [T, B, I], y [T, B, H]. Sequence b has lengths[b] steps, in any
 * order of lengths. Past its length its x and dy are never read, its y and dx are 0, and its
 * state stays that of its last step. Inside, the batch is sorted by length and its padding left
 * out, so the work is that of the sum of the lengths, whatever their order.
 *
 * No function here allocates, fails or keeps anything between calls. Threads: any, on distinct
 * outputs, work and reserve. The same arguments give the same bits (see blas.h).
 */
#ifndef ASHLAR_LSTM_CPU_H
#define ASHLAR_LSTM_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

#include <ashlar/rnn_layout.h>

/*
 * Every pointer of the three calls; each reads only the fields named for it. The elements are
 * those of layout->config.dtype, which must be the type of the function called (asserted).
 * Outputs are overwritten except dweights, and must not overlap each other or any input, except
 * that hy may be hx and cy may be cx: a running state is then updated in place.
 */
typedef struct ashlar_lstm_args {
    /* all three */
    const ashlar_rnn_layout *layout;
    size_t steps;           /* T, 1.. */
    size_t batch;           /* B, 1.. */
    const int32_t *lengths; /* [B], each 1..T, any order */
    void *reserve; /* reserve_bytes, 64-byte aligned; forward: NULL = inference, no backward */
    void *work;    /* work_bytes, 64-byte aligned; scratch of one call */

    /* forward */
    const void *x;       /* [T, B, I], also read by backward_weights */
    const void *hx, *cx; /* [L, B, H], NULL = zeros */
    const void *weights; /* [layout->elements], also read by backward_data */
    void *y;             /* [T, B, H] */
    void *hy, *cy;       /* [L, B, H], NULL = not wanted */

    /* backward_data */
    const void *dy;         /* [T, B, H], NULL = zeros */
    const void *dhy, *dcy;  /* [L, B, H], NULL = zeros */
    void *dx;               /* [T, B, I], NULL = not wanted */
    void *dhx, *dcx;        /* [L, B, H], NULL = not wanted */

    /* backward_weights */
    void *dweights; /* [layout->elements], ADDED to; bW and bR get the same gradient */
} ashlar_lstm_args;

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
ASHLAR_MUST_CHECK ashlar_status ashlar_lstm_sizes(const ashlar_rnn_layout *layout, size_t steps,
                                                  size_t batch, bool training,
                                                  size_t *reserve_bytes, size_t *work_bytes);

/* y, hy, cy from x, hx, cx; with a reserve it also leaves there what the backward calls need. */
void ashlar_lstm_forward_f32(const ashlar_lstm_args *args);
void ashlar_lstm_forward_f64(const ashlar_lstm_args *args);

/* dx, dhx, dcx from dy, dhy, dcy. The gates in the reserve become gradients: once per forward. */
void ashlar_lstm_backward_data_f32(const ashlar_lstm_args *args);
void ashlar_lstm_backward_data_f64(const ashlar_lstm_args *args);

/* dweights += the gradient. Requires backward_data on this reserve before; x as in forward. */
void ashlar_lstm_backward_weights_f32(const ashlar_lstm_args *args);
void ashlar_lstm_backward_weights_f64(const ashlar_lstm_args *args);

#endif /* ASHLAR_LSTM_CPU_H */
