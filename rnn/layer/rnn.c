/* rnn.c - a stack of layers: checks its configuration and arguments, and calls its back end. */
#include "rnn/layer/rnn_rows.h"

#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "rnn/layer/rnn_chunks.h"

static bool is_persistent(const ashlar_rnn_config *c) {
    return c->algorithm != ASHLAR_RNN_STANDARD && c->algorithm != ASHLAR_RNN_AUTO;
}

ashlar_status ashlar__rnn_check_algorithm(const ashlar_rnn_config *c) {
    const bool has_type = c->dtype != ASHLAR_F64 || c->algorithm == ASHLAR_RNN_PERSIST_DYNAMIC;
    ASHLAR_FAIL_IF(is_persistent(c) && (!ashlar__rnn_may_persist(c) || !has_type), ASHLAR_ENOTSUP,
                   "rnn: a persistent algorithm needs ASHLAR_RNN_BIAS_DOUBLE and no projection, "
                   "and only ASHLAR_RNN_PERSIST_DYNAMIC has ASHLAR_F64; use ASHLAR_RNN_STANDARD");
    return ASHLAR_OK;
}

ashlar_status ashlar_rnn_create(ashlar_device *device, const ashlar_rnn_config *config,
                                ashlar_rnn **out) {
    ashlar_rnn_layout layout;
    ASHLAR_TRY(ashlar_rnn_layout_init(&layout, config));
    ashlar_device_info info;
    ashlar_device_get_info(device, &info);
    const ashlar_rnn_backend *backend =
        info.kind == ASHLAR_DEVICE_CUDA ? &ashlar__rnn_backend_cudnn : &ashlar__rnn_backend_cpu;
    ASHLAR_TRY(ashlar__rnn_check_algorithm(&layout.config));
    ASHLAR_TRY(backend->check == NULL ? ASHLAR_OK : backend->check(&layout));
    ashlar_rnn *rnn;
    ASHLAR_HOST_NEW(rnn, 1, "no host memory for an rnn");
    *rnn = (ashlar_rnn){
        .device = device, .backend = backend, .layout = layout, .most_steps = ASHLAR_RNN_STEPS_MAX};
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
    return (steps > rnn->most_steps ? ashlar__rnn_chunks_sizes : rnn->backend->sizes)(
        rnn, steps, batch, training, reserve_bytes, work_bytes);
}

size_t ashlar_rnn_prepared_bytes(const ashlar_rnn *rnn) {
    return rnn->backend->prepared_bytes == NULL ? 0 : rnn->backend->prepared_bytes(rnn);
}

ashlar_status ashlar_rnn_prepare(const ashlar_rnn *rnn, const void *weights, void *prepared,
                                 ashlar_stream stream) {
    if (rnn->backend->prepare == NULL) {
        return ASHLAR_OK;
    }
    ASHLAR_FAIL_IF(weights == NULL || prepared == NULL, ASHLAR_EINVAL,
                   "ashlar_rnn_prepare: the buffer %s is NULL",
                   weights == NULL ? "weights" : "prepared");
    return rnn->backend->prepare(rnn, weights, prepared, stream);
}

static ashlar_status check_batch(const ashlar_rnn *rnn, const char *name,
                                 const ashlar_rnn_batch *batch) {
    ASHLAR_FAIL_IF(
        batch->steps == 0 || batch->batch == 0 || batch->lengths == NULL, ASHLAR_EINVAL,
        "rnn: a batch of %zu sequences of %zu steps; each is at least 1, and lengths are given",
        batch->batch, batch->steps);
    ASHLAR_TRY(
        ashlar__check_host_array(name, "lengths", batch->lengths,
                                 ashlar__operand_bytes(batch->batch, 1, sizeof *batch->lengths)));
    for (size_t b = 0; b < batch->batch; b++) {
        ASHLAR_FAIL_IF(batch->lengths[b] < 1 || (size_t)batch->lengths[b] > batch->steps,
                       ASHLAR_EINVAL, "rnn: lengths[%zu] is %d; it must be 1 to %zu", b,
                       (int)batch->lengths[b], batch->steps);
    }
    const ashlar_rnn_config *c = &rnn->layout.config;
    ASHLAR_FAIL_IF(is_persistent(c) && !ashlar__rnn_may_be_full(c, batch), ASHLAR_ENOTSUP,
                   "rnn: a persistent algorithm takes only sequences of the full length; use "
                   "ASHLAR_RNN_STANDARD or ASHLAR_RNN_AUTO");
    return ASHLAR_OK;
}

/* A buffer that a pass needs, by the name and the place of its field in ashlar_rnn_buffers. */
typedef struct need {
    const char *name;
    size_t at;
} need;

enum { NEEDS_MAX = 4 };

static ashlar_status run_pass(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                              const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *b,
                              const need needs[NEEDS_MAX], ashlar_stream stream) {
    static const char *const names[] = {"ashlar_rnn_forward", "ashlar_rnn_backward_data",
                                        "ashlar_rnn_backward_weights"};
    ASHLAR_TABLE_IS_FULL(names, ASHLAR_RNN_PASS_COUNT);
    ASHLAR_FAIL_IF(batch == NULL || b == NULL, ASHLAR_EINVAL, "%s: %s is NULL", names[pass],
                   batch == NULL ? "batch" : "buffers");
    for (size_t i = 0; i < NEEDS_MAX && needs[i].name != NULL; i++) {
        const void *const *buffer = (const void *const *)((const char *)b + needs[i].at);
        ASHLAR_FAIL_IF(*buffer == NULL, ASHLAR_EINVAL, "%s: the buffer %s is NULL", names[pass],
                       needs[i].name);
    }
    size_t reserve_bytes, work_bytes;
    const bool training = b->reserve != NULL;
    const bool has_states =
        (pass == ASHLAR_RNN_FORWARD && (b->hy != NULL || b->cy != NULL)) ||
        (pass == ASHLAR_RNN_BACKWARD_DATA && (b->dhy != NULL || b->dcy != NULL));
    ASHLAR_FAIL_IF(batch->padding_is_free && has_states, ASHLAR_EINVAL,
                   "%s: with padding_is_free the final states are not known; leave hy, cy, dhy and "
                   "dcy NULL",
                   names[pass]);
    ASHLAR_TRY(check_batch(rnn, names[pass], batch));
    /* If the sizes cannot be computed, no buffers can be right. */
    ASHLAR_TRY(
        ashlar_rnn_sizes(rnn, batch->steps, batch->batch, training, &reserve_bytes, &work_bytes));
    return (batch->steps > rnn->most_steps ? ashlar__rnn_chunks_queue
                                           : rnn->backend->queue)(rnn, pass, batch, b, stream);
}

#define NEED(field) \
    { #field, offsetof(ashlar_rnn_buffers, field) }

ashlar_status ashlar_rnn_forward(const ashlar_rnn *rnn, const ashlar_rnn_batch *batch,
                                 const ashlar_rnn_buffers *buffers, ashlar_stream stream) {
    static const need needs[NEEDS_MAX] = {NEED(x), NEED(weights), NEED(y), NEED(work)};
    return run_pass(rnn, ASHLAR_RNN_FORWARD, batch, buffers, needs, stream);
}

ashlar_status ashlar_rnn_backward_data(const ashlar_rnn *rnn, const ashlar_rnn_batch *batch,
                                       const ashlar_rnn_buffers *buffers, ashlar_stream stream) {
    static const need needs[NEEDS_MAX] = {NEED(reserve), NEED(weights), NEED(work)};
    return run_pass(rnn, ASHLAR_RNN_BACKWARD_DATA, batch, buffers, needs, stream);
}

ashlar_status ashlar_rnn_backward_weights(const ashlar_rnn *rnn, const ashlar_rnn_batch *batch,
                                          const ashlar_rnn_buffers *buffers, ashlar_stream stream) {
    static const need needs[NEEDS_MAX] = {NEED(reserve), NEED(x), NEED(dweights), NEED(work)};
    return run_pass(rnn, ASHLAR_RNN_BACKWARD_WEIGHTS, batch, buffers, needs, stream);
}

bool ashlar__rnn_varies(const ashlar_rnn *rnn) {
    return rnn->backend->queue_varying != NULL;
}

ashlar_status ashlar__rnn_queue_varying(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                                        const ashlar_rnn_batch *batch,
                                        const ashlar_rnn_buffers *buffers,
                                        const ashlar_rnn_varying *varying, ashlar_stream stream) {
    if (rnn->backend->queue_varying != NULL) {
        return rnn->backend->queue_varying(rnn, pass, batch, buffers, varying, stream);
    }
    ashlar_rnn_batch full = *batch;
    int32_t *lengths;
    ASHLAR_HOST_NEW(lengths, batch->batch, "no host memory for %zu lengths", batch->batch);
    for (size_t b = 0; b < batch->batch; b++) {
        lengths[b] = (int32_t)batch->steps;
    }
    full.lengths = lengths;
    const ashlar_status status = rnn->backend->queue(rnn, pass, &full, buffers, stream);
    ashlar__host_free(lengths);
    return status;
}

ashlar_status ashlar__rnn_restart_dropout(const ashlar_rnn *rnn, uint64_t seed,
                                          ashlar_stream stream) {
    return rnn->backend->restart_dropout == NULL ? ASHLAR_OK
                                                 : rnn->backend->restart_dropout(rnn, seed, stream);
}
