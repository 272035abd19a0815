/* rnn_onednn.h - runs the network of a benchmark by oneDNN, for comparison (internal).
 *
 * oneDNN 2.x reads neither weights in packed order nor sequences of different lengths. So each
 * layer is a separate primitive, each forward and backward reorders the weights unless they were
 * prepared, gradients are reordered and added, and padding is computed like everything else.
 * rnn_onednn_none.c replaces this in builds without the library. */
#ifndef ASHLAR_RNN_ONEDNN_H
#define ASHLAR_RNN_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/rnn_layout.h>

typedef struct ashlar_onednn ashlar_onednn;

/* Whether oneDNN has such a network: LSTM and GRU in fp32, with both biases, without projection. */
bool ashlar__onednn_has(const ashlar_rnn_layout *layout);

/* "oneDNN 2.6.3"; NULL: this build has no oneDNN. */
const char *ashlar__onednn_name(void);

/* Set the number of threads for all work of oneDNN in this process from now on. */
void ashlar__onednn_set_threads(size_t count);

/* Requires ashlar__onednn_has(layout). All sequences have `steps` steps; the first states are
 * zeros. Errors: ASHLAR_EHOSTMEM, ASHLAR_ENOTSUP (a call of oneDNN failed; the detail names it). */
ASHLAR_MUST_CHECK ashlar_status ashlar__onednn_create(const ashlar_rnn_layout *layout, size_t steps,
                                                      size_t batch, bool training,
                                                      ashlar_onednn **out);
void ashlar__onednn_destroy(ashlar_onednn *net); /* NULL is allowed */

/* Reorder weights, in packed order, for forward passes of inference. */
ASHLAR_MUST_CHECK ashlar_status ashlar__onednn_prepare(ashlar_onednn *net, const float *weights);

/* Compute y [T, B, D*H] from x [T, B, I]; weights are in packed order; NULL: those prepared last.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__onednn_forward(ashlar_onednn *net, const float *x,
                                                       const float *weights, float *y);

/* Compute dx [T, B, I] from dy [T, B, D*H], and ADD TO dweights, after forward on the same x. */
ASHLAR_MUST_CHECK ashlar_status ashlar__onednn_backward(ashlar_onednn *net, const float *dy,
                                                        float *dx, float *dweights);

#endif /* ASHLAR_RNN_ONEDNN_H */
