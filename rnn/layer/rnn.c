/* rnn.c - a stack of layers: checks its configuration and arguments, and calls its back end. */
#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "rnn/layer/backend.h"

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
    const bool is_cuda =
        device != NULL && ashlar_device_get_info(device).kind == ASHLAR_DEVICE_CUDA;
    const ashlar_rnn_backend *backend =
        is_cuda ? &ashlar__rnn_backend_cudnn : &ashlar__rnn_backend_cpu;
    ASHLAR_TRY(ashlar__rnn_check_algorithm(&layout.config));
    ASHLAR_TRY(backend->check == NULL ? ASHLAR_OK : backend->check(&layout));
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

const ashlar_rnn_layout *ashlar_rnn_layout_of(const ashlar_rnn *rnn) {
    return &rnn->layout;
}

ashlar_status ashlar_rnn_sizes(const ashlar_rnn *rnn, size_t steps, size_t batch, bool training,
                               size_t *reserve_bytes, size_t *work_bytes) {
    const size_t most = rnn->backend->most_steps;
    ASHLAR_FAIL_IF(most != 0 && steps > most && steps <= INT32_MAX, ASHLAR_ENOTSUP,
                   "rnn: %zu time steps; %s takes at most %zu at once: cut the batch into parts "
                   "that carry their states, or give a model's batch a chunk",
                   steps, rnn->backend->name, most);
    return rnn->backend->sizes(rnn, steps, batch, training, reserve_bytes, work_bytes);
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
                   "ashlar_rnn_prepare: %s is NULL", weights == NULL ? "weights" : "prepared");
    return rnn->backend->prepare(rnn, weights, prepared, stream);
}

static ashlar_status check_batch(const char *name, const ashlar_rnn_batch *batch) {
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
        ASHLAR_FAIL_IF(
            batch->is_packed && b > 0 && batch->lengths[b] > batch->lengths[b - 1], ASHLAR_EINVAL,
            "rnn: lengths[%zu] of packed rows is %d, longer than the one before it; sort "
            "the sequences, the longest first",
            b, (int)batch->lengths[b]);
    }
    return ASHLAR_OK;
}

static const char *const pass_names[] = {"ashlar_rnn_forward", "ashlar_rnn_backward_data",
                                         "ashlar_rnn_backward_weights"};
ASHLAR_TABLE_IS_FULL(pass_names, ASHLAR_RNN_PASS_COUNT);

/* The rows of x, and of y. */
static size_t count_rows(const ashlar_rnn_batch *batch) {
    size_t count = 0;
    for (size_t b = 0; batch->is_packed && b < batch->batch; b++) {
        count += (size_t)batch->lengths[b];
    }
    return batch->is_packed ? count : ashlar__operand_bytes(batch->steps, batch->batch, 1);
}

/* Without a device nothing tells what memory is whose, but a misaligned block is one's mistake. */
static ashlar_status check_alignment(const ashlar_rnn *rnn, const char *name,
                                     const ashlar_rnn_buffers *b) {
    const uintptr_t bits = (uintptr_t)b->reserve | (uintptr_t)b->work | (uintptr_t)b->prepared;
    ASHLAR_FAIL_IF(rnn->device == NULL && bits % ASHLAR_CACHE_LINE != 0, ASHLAR_EINVAL,
                   "%s: reserve, work and prepared must be aligned to %d bytes", name,
                   ASHLAR_CACHE_LINE);
    return ASHLAR_OK;
}

/* Check the buffers that a pass uses; those of 0 bytes are not used, and not checked. */
static ashlar_status check_buffers(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                                   const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *b) {
    const ashlar_rnn_layout *l = &rnn->layout;
    const bool goes_forward = pass == ASHLAR_RNN_FORWARD,
               has_data = pass == ASHLAR_RNN_BACKWARD_DATA;
    const bool has_weights = pass == ASHLAR_RNN_BACKWARD_WEIGHTS;
    const size_t item = ashlar_dtype_bytes(l->config.dtype), B = batch->batch;
    const size_t rows = ashlar__operand_bytes(count_rows(batch), item, 1);
    const size_t x = ashlar__operand_bytes(rows, l->config.input, 1);
    const size_t y = ashlar__operand_bytes(rows, l->output, 1);
    const size_t h = ashlar__operand_bytes(l->pseudo_layers * l->state, B, item);
    const size_t cell_width = l->config.cell == ASHLAR_RNN_LSTM ? l->config.hidden : 0;
    const size_t c = ashlar__operand_bytes(l->pseudo_layers * cell_width, B, item);
    size_t reserve, work;
    ASHLAR_TRY(ashlar_rnn_sizes(rnn, batch->steps, B, b->reserve != NULL, &reserve, &work));
#define OPERAND(field, is_used, bytes, is_needed) \
    { #field, b->field, (is_used) ? (bytes) : 0, is_needed }
    const ashlar_operand operands[] = {
        OPERAND(reserve, true, reserve, !goes_forward),
        OPERAND(x, !has_data, x, !has_data),
        OPERAND(weights, !has_weights, l->elements * item, !has_weights),
        OPERAND(y, goes_forward, y, goes_forward),
        OPERAND(dweights, has_weights, l->elements * item, has_weights),
        OPERAND(work, true, work, true),
        OPERAND(hx, goes_forward, h, false),
        OPERAND(cx, goes_forward, c, false),
        OPERAND(hy, goes_forward, h, false),
        OPERAND(cy, goes_forward, c, false),
        OPERAND(prepared, goes_forward, ashlar_rnn_prepared_bytes(rnn), false),
        OPERAND(dy, has_data, y, false),
        OPERAND(dhy, has_data, h, false),
        OPERAND(dcy, has_data, c, false),
        OPERAND(dx, has_data, x, false),
        OPERAND(dhx, has_data, h, false),
        OPERAND(dcx, has_data, c, false),
        {0}};
    ASHLAR_TRY(check_alignment(rnn, pass_names[pass], b));
    return ashlar__check_operands(rnn->device, pass_names[pass], operands);
}

ashlar_status ashlar__rnn_queue(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                                const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *buffers,
                                const ashlar_rnn_varying *varying, ashlar_stream stream) {
    const ashlar_rnn_config *c = &rnn->layout.config;
    ashlar_rnn_batch full = *batch;
    if (varying != NULL && rnn->backend->queue_varying != NULL) {
        return rnn->backend->queue_varying(rnn, pass, batch, buffers, varying, stream);
    }
    full.lengths = varying != NULL ? NULL : batch->lengths;
    ASHLAR_FAIL_IF(is_persistent(c) && !ashlar__rnn_may_be_full(c, &full), ASHLAR_ENOTSUP,
                   "rnn: a persistent algorithm takes only sequences of the full length; use "
                   "ASHLAR_RNN_STANDARD or ASHLAR_RNN_AUTO");
    return rnn->backend->queue(rnn, pass, &full, buffers, stream);
}

static ashlar_status run_pass(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                              const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *b,
                              ashlar_stream stream) {
    const char *name = pass_names[pass];
    ASHLAR_FAIL_IF(batch == NULL || b == NULL, ASHLAR_EINVAL, "%s: %s is NULL", name,
                   batch == NULL ? "batch" : "buffers");
    const bool has_states =
        (pass == ASHLAR_RNN_FORWARD && (b->hy != NULL || b->cy != NULL)) ||
        (pass == ASHLAR_RNN_BACKWARD_DATA && (b->dhy != NULL || b->dcy != NULL));
    ASHLAR_FAIL_IF(batch->padding_is_free && has_states, ASHLAR_EINVAL,
                   "%s: with padding_is_free the final states are not known; leave hy, cy, dhy and "
                   "dcy NULL",
                   name);
    ASHLAR_TRY(check_batch(name, batch));
    ASHLAR_TRY(check_buffers(rnn, pass, batch, b));
    return ashlar__rnn_queue(rnn, pass, batch, b, NULL, stream);
}

ashlar_status ashlar_rnn_forward(const ashlar_rnn *rnn, const ashlar_rnn_batch *batch,
                                 const ashlar_rnn_buffers *buffers, ashlar_stream stream) {
    return run_pass(rnn, ASHLAR_RNN_FORWARD, batch, buffers, stream);
}

ashlar_status ashlar_rnn_backward_data(const ashlar_rnn *rnn, const ashlar_rnn_batch *batch,
                                       const ashlar_rnn_buffers *buffers, ashlar_stream stream) {
    return run_pass(rnn, ASHLAR_RNN_BACKWARD_DATA, batch, buffers, stream);
}

ashlar_status ashlar_rnn_backward_weights(const ashlar_rnn *rnn, const ashlar_rnn_batch *batch,
                                          const ashlar_rnn_buffers *buffers, ashlar_stream stream) {
    return run_pass(rnn, ASHLAR_RNN_BACKWARD_WEIGHTS, batch, buffers, stream);
}

ashlar_status ashlar__rnn_restart_dropout(const ashlar_rnn *rnn, uint64_t seed,
                                          ashlar_stream stream) {
    return rnn->backend->restart_dropout == NULL ? ASHLAR_OK
                                                 : rnn->backend->restart_dropout(rnn, seed, stream);
}
