/* rnn_final.c - queues backward_weights layer by layer, and reports each. */
#include "rnn/layer/rnn_final.h"

#include "allocator/base/error.h"
#include "rnn/layer/backend.h"

/* Where the gradients of a layer's matrices begin. */
static const char *matrices_of(const ashlar_rnn_layout *layout, const void *dweights,
                               size_t layer) {
    const size_t offset =
        ashlar_rnn_layout_view(layout, layer * layout->config.directions, ASHLAR_RNN_W).offset;
    return (const char *)dweights + offset * ashlar_dtype_bytes(layout->config.dtype);
}

ashlar_status ashlar__rnn_backward_weights_final(const ashlar_rnn *rnn,
                                                 const ashlar_rnn_batch *batch,
                                                 const ashlar_rnn_buffers *buffers,
                                                 ashlar_stream stream, const ashlar_final *final) {
    const ashlar_rnn_layout *layout = &rnn->layout;
    const char *begin = buffers->dweights;
    const char *end = begin + layout->elements * ashlar_dtype_bytes(layout->config.dtype);
    if (rnn->backend->queue_weights == NULL || batch->steps > rnn->most_steps) {
        ASHLAR_TRY(ashlar_rnn_backward_weights(rnn, batch, buffers, stream));
        return final->tell(final->context, begin, end);
    }
    for (size_t l = 0; l < layout->config.layers; l++) {
        const bool is_last = l + 1 == layout->config.layers;
        ASHLAR_TRY(rnn->backend->queue_weights(rnn, l, batch, buffers, stream));
        ASHLAR_TRY(final->tell(final->context, matrices_of(layout, begin, l),
                               is_last ? end : matrices_of(layout, begin, l + 1)));
    }
    return ASHLAR_OK;
}
