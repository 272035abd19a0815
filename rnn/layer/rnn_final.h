/* rnn_final.h - backward_weights that reports each layer's gradients as final before it queues the
 * next layer's (internal). */
#ifndef ASHLAR_RNN_FINAL_H
#define ASHLAR_RNN_FINAL_H

#include <ashlar/rnn.h>

/* Who is told that the gradients in [from, to) are final once the work queued so far has run. */
typedef struct ashlar_final {
    ashlar_status (*tell)(void *context, const void *from, const void *to); /* NULL: nobody */
    void *context;
} ashlar_final;

/* As ashlar_rnn_backward_weights(). Calls final->tell() after each layer if the back end queues
 * layers one by one, otherwise (cuDNN) once, after all. In the order of the weights the biases of
 * all layers are one piece, and are told with the last layer. Errors: those of
 * ashlar_rnn_backward_weights() and of tell(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_backward_weights_final(
    const ashlar_rnn *rnn, const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *buffers,
    ashlar_stream stream, const ashlar_final *final);

#endif /* ASHLAR_RNN_FINAL_H */
