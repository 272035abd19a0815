/* rnn_final.h - backward_weights that says which gradients are final while it queues the next
 * (internal). */
#ifndef ASHLAR_RNN_FINAL_H
#define ASHLAR_RNN_FINAL_H

#include <ashlar/rnn.h>

/* Who is told that the gradients in [from, to) are final after the work queued so far. */
typedef struct ashlar_final {
    ashlar_status (*tell)(void *context, const void *from, const void *to); /* NULL: nobody */
    void *context;
} ashlar_final;

/* As ashlar_rnn_backward_weights(); tells `final` behind each layer where the back end queues them
 * one by one, with cuDNN behind all. In cuDNN's order the biases of all layers are one piece, and
 * come with the last layer. Errors: likewise, and those of its function. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_backward_weights_final(
    const ashlar_rnn *rnn, const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *buffers,
    ashlar_stream stream, const ashlar_final *final);

#endif /* ASHLAR_RNN_FINAL_H */
