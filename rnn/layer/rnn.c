/* rnn.c - a stack of layers: checks its configuration and arguments, and calls its back end. */
#include "rnn/layer/backend.h"

#include "allocator/base/host.h"

ashlar_status ashlar_rnn_create(ashlar_device *device, const ashlar_rnn_config *config,
                                ashlar_rnn **out) {
    ashlar_rnn_layout layout;
    ASHLAR_TRY(ashlar_rnn_layout_init(&layout, config));
    ashlar_device_info info;
    ashlar_device_get_info(device, &info);
    const ashlar_rnn_backend *backend =
        info.kind == ASHLAR_DEVICE_CUDA ? &ashlar__rnn_backend_cudnn : &ashlar__rnn_backend_cpu;
    ASHLAR_TRY(backend->check(&layout));
    ashlar_rnn *rnn;
    ASHLAR_HOST_NEW(rnn, 1, "no host memory for an rnn");
    *rnn = (ashlar_rnn){.device = device, .backend = backend, .layout = layout};
    const ashlar_status status = backend->create == NULL ? ASHLAR_OK : backend->create(rnn);
    ASHLAR_HAND_OUT(status, rnn, ashlar__host_free, out);
}

void ashlar_rnn_destroy(ashlar_rnn *rnn) {
    if (rnn != NULL && rnn->backend->destroy != NULL) {
        rnn->backend->destroy(rnn);
    }
    ashlar__host_free(rnn);
}

bool ashlar_rnn_backward_reads_output(const ashlar_rnn *rnn) {
    return rnn->backend->backward_reads_output;
}

const ashlar_rnn_layout *ashlar_rnn_layout_of(const ashlar_rnn *rnn) {
    return &rnn->layout;
}

ashlar_status ashlar_rnn_sizes(const ashlar_rnn *rnn, size_t steps, size_t batch, bool training,
                               size_t *reserve_bytes, size_t *work_bytes) {
    return rnn->backend->sizes(rnn, steps, batch, training, reserve_bytes, work_bytes);
}

static ashlar_status check_batch(const ashlar_rnn_batch *batch) {
    ASHLAR_FAIL_IF(
        batch->steps == 0 || batch->batch == 0 || batch->lengths == NULL, ASHLAR_EINVAL,
        "rnn: a batch of %zu sequences of %zu steps; each is at least 1, and lengths are given",
        batch->batch, batch->steps);
    for (size_t b = 0; b < batch->batch; b++) {
        ASHLAR_FAIL_IF(batch->lengths[b] < 1 || (size_t)batch->lengths[b] > batch->steps,
                       ASHLAR_EINVAL, "rnn: lengths[%zu] is %d; it must be 1 to %zu", b,
                       (int)batch->lengths[b], batch->steps);
    }
    return ASHLAR_OK;
}

static ashlar_status run_pass(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                              const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *buffers,
                              bool has_buffers, ashlar_stream stream) {
    ASHLAR_FAIL_IF(!has_buffers || buffers->work == NULL, ASHLAR_EINVAL,
                   "rnn: a buffer that this pass needs is NULL");
    size_t reserve_bytes, work_bytes;
    const bool training = buffers->reserve != NULL;
    ASHLAR_TRY(check_batch(batch));
    /* If the sizes cannot be computed, no buffers can be right. */
    ASHLAR_TRY(rnn->backend->sizes(rnn, batch->steps, batch->batch, training, &reserve_bytes,
                                   &work_bytes));
    return rnn->backend->queue(rnn, pass, batch, buffers, stream);
}

ashlar_status ashlar_rnn_forward(const ashlar_rnn *rnn, const ashlar_rnn_batch *batch,
                                 const ashlar_rnn_buffers *b, ashlar_stream stream) {
    const bool has_buffers = b->x != NULL && b->weights != NULL && b->y != NULL;
    return run_pass(rnn, ASHLAR_RNN_FORWARD, batch, b, has_buffers, stream);
}

ashlar_status ashlar_rnn_backward_data(const ashlar_rnn *rnn, const ashlar_rnn_batch *batch,
                                       const ashlar_rnn_buffers *b, ashlar_stream stream) {
    const bool has_buffers = b->reserve != NULL && b->weights != NULL;
    return run_pass(rnn, ASHLAR_RNN_BACKWARD_DATA, batch, b, has_buffers, stream);
}

ashlar_status ashlar_rnn_backward_weights(const ashlar_rnn *rnn, const ashlar_rnn_batch *batch,
                                          const ashlar_rnn_buffers *b, ashlar_stream stream) {
    const bool has_buffers = b->reserve != NULL && b->x != NULL && b->dweights != NULL;
    return run_pass(rnn, ASHLAR_RNN_BACKWARD_WEIGHTS, batch, b, has_buffers, stream);
}
