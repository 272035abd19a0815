/* rnn.c - a stack of layers: checks its configuration and arguments, and calls its back end;
 * cuts a pass over very many time steps into chunks that carry states. */
#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "allocator/device/device_impl.h"
#include "rnn/layer/backend.h"

/* The most time steps that cuDNN takes at once. */
enum { STEPS_MAX = 65535 };

/*
 * A pass over more steps runs in chunks of steps. Forward hands the states after each chunk to the
 * next one, and in training keeps them; backward goes through the chunks from the last to the first
 * and hands the gradients of states back. That computes what one pass would, but the gradients of
 * weights are summed in another order. Chunks need a stack of one direction, and sequences that all
 * reach the last chunk.
 *
 *     reserve = [states after chunk 0 | 1 | ... | reserve of chunk 0 | 1 | ...]
 *     work    = [two sets of states, or of their gradients | work of one chunk]
 */

enum { ALIGN = 256 }; /* all parts of reserve and work begin at multiples of 256 bytes */

/* How a pass is cut. `cells`, `set` and `reserve` are multiples of ALIGN. */
typedef struct chunks {
    size_t count;
    size_t steps, rest; /* steps of each chunk but the last; steps of the last */
    size_t cells, set;  /* where c begins in a set of states (h, then c), and the set's size */
    size_t reserve, last_reserve;
    size_t work;
} chunks;

static size_t max_of(size_t a, size_t b) {
    return a > b ? a : b;
}

static bool state_bytes(const ashlar_rnn_layout *l, size_t batch, size_t width, size_t *out) {
    return ashlar__mul(l->pseudo_layers, batch, out) && ashlar__mul(*out, width, out) &&
           ashlar__mul(*out, ashlar_dtype_bytes(l->config.dtype), out) &&
           ashlar__align_up(*out, ALIGN, out);
}

#define TOO_LARGE "rnn: a batch of %zu sequences of %zu steps is too large to address"

static ashlar_status cut(const ashlar_rnn *rnn, size_t steps, size_t batch, bool training,
                         chunks *c) {
    const ashlar_rnn_layout *l = &rnn->layout;
    size_t reserve, work, last_work, cells = 0;
    ASHLAR_FAIL_IF(
        l->config.directions != 1, ASHLAR_ENOTSUP,
        "rnn: %zu time steps; more than %zu need a stack of one direction: cuDNN takes no "
        "more at once, and the reverse direction cannot be cut",
        steps, rnn->most_steps);
    ASHLAR_FAIL_IF(steps > INT32_MAX, ASHLAR_EOVERFLOW, /* lengths are int32 */
                   TOO_LARGE, batch, steps);
    /* Chunks are about equal: with only a step or so in the last, the CPU might round otherwise. */
    *c = (chunks){.count = (steps - 1) / rnn->most_steps + 1};
    c->steps = (steps - 1) / c->count + 1;
    c->rest = steps - (c->count - 1) * c->steps;
    ASHLAR_FAIL_IF(!state_bytes(l, batch, l->state, &c->cells) ||
                       (l->config.cell == ASHLAR_RNN_LSTM &&
                        !state_bytes(l, batch, l->config.hidden, &cells)) ||
                       !ashlar__add(c->cells, cells, &c->set),
                   ASHLAR_EOVERFLOW, TOO_LARGE, batch, steps);
    ASHLAR_TRY(rnn->backend->sizes(rnn, c->steps, batch, training, &reserve, &work));
    ASHLAR_TRY(rnn->backend->sizes(rnn, c->rest, batch, training, &c->last_reserve, &last_work));
    ASHLAR_FAIL_IF(!ashlar__align_up(reserve, ALIGN, &c->reserve), ASHLAR_EOVERFLOW, TOO_LARGE,
                   batch, steps);
    c->work = max_of(work, last_work);
    return ASHLAR_OK;
}

static ashlar_status sizes_in_chunks(const ashlar_rnn *rnn, size_t steps, size_t batch,
                                     bool training, size_t *reserve_bytes, size_t *work_bytes) {
    chunks c;
    size_t each, reserve = 0, work;
    ASHLAR_TRY(cut(rnn, steps, batch, training, &c));
    ASHLAR_FAIL_IF(!ashlar__add(c.reserve, c.set, &each) ||
                       !ashlar__mul(each, c.count - 1, &reserve) ||
                       !ashlar__add(reserve, c.last_reserve, &reserve) ||
                       !ashlar__mul(c.set, 2, &work) || !ashlar__add(work, c.work, &work),
                   ASHLAR_EOVERFLOW, TOO_LARGE, batch, steps);
    *reserve_bytes = training ? reserve : 0;
    *work_bytes = work;
    return ASHLAR_OK;
}

/* One pass in chunks. */
typedef struct pass_over {
    const ashlar_rnn *rnn;
    ashlar_rnn_pass pass;
    const ashlar_rnn_batch *batch;
    const ashlar_rnn_buffers *b;
    ashlar_stream stream;
    chunks cut;
    int32_t *lengths; /* [B], the steps that each sequence has in the chunk being queued */
} pass_over;

/* Row 0 of chunk i in a buffer [T, B, width]; NULL stays NULL. */
static void *rows(const pass_over *p, const void *buffer, size_t i, size_t width) {
    const size_t row = p->batch->batch * width * ashlar_dtype_bytes(p->rnn->layout.config.dtype);
    return buffer == NULL ? NULL : (char *)buffer + i * p->cut.steps * row;
}

/* The states after chunk i: in training each chunk's are kept, else two sets are used in turn. */
static char *border(const pass_over *p, size_t i) {
    return p->b->reserve != NULL ? (char *)p->b->reserve + i * p->cut.set
                                 : (char *)p->b->work + i % 2 * p->cut.set;
}

/* The gradients of the states before chunk i. */
static char *gradients(const pass_over *p, size_t i) {
    return (char *)p->b->work + i % 2 * p->cut.set;
}

static ashlar_rnn_buffers buffers_of(const pass_over *p, size_t i) {
    const ashlar_rnn_layout *l = &p->rnn->layout;
    const bool is_last = i + 1 == p->cut.count;
    const bool has_cells = l->config.cell == ASHLAR_RNN_LSTM;
    ashlar_rnn_buffers b = *p->b;
    b.x = rows(p, b.x, i, l->config.input);
    b.dx = rows(p, b.dx, i, l->config.input);
    b.y = rows(p, b.y, i, l->output);
    b.dy = rows(p, b.dy, i, l->output);
    b.work = (char *)b.work + 2 * p->cut.set;
    if (b.reserve != NULL) {
        b.reserve = (char *)b.reserve + (p->cut.count - 1) * p->cut.set + i * p->cut.reserve;
    }
    if (i > 0) {
        b.hx = border(p, i - 1);
        b.cx = has_cells ? border(p, i - 1) + p->cut.cells : NULL;
        b.dhx = gradients(p, i);
        b.dcx = has_cells ? gradients(p, i) + p->cut.cells : NULL;
    }
    if (!is_last) {
        b.hy = border(p, i);
        b.cy = has_cells ? border(p, i) + p->cut.cells : NULL;
        b.dhy = gradients(p, i + 1);
        b.dcy = has_cells ? gradients(p, i + 1) + p->cut.cells : NULL;
    }
    return b;
}

/* Queue chunk i. Each has a dropout seed of its own, else all would drop the same outputs. */
static ashlar_status queue_chunk(const pass_over *p, size_t i) {
    const ashlar_rnn_buffers b = buffers_of(p, i);
    ashlar_rnn_batch batch = *p->batch;
    batch.steps = i + 1 == p->cut.count ? p->cut.rest : p->cut.steps;
    batch.lengths = p->lengths;
    batch.padding_is_free = false; /* the next chunk reads the states after this one */
    batch.dropout_seed += i == 0 ? 0 : ashlar__random_mix(i);
    for (size_t s = 0; s < batch.batch; s++) {
        const size_t left = (size_t)p->batch->lengths[s] - i * p->cut.steps;
        p->lengths[s] = (int32_t)(left < batch.steps ? left : batch.steps);
    }
    return p->rnn->backend->queue(p->rnn, p->pass, &batch, &b, p->stream);
}

static ashlar_status check_lengths(const pass_over *p) {
    const size_t before = (p->cut.count - 1) * p->cut.steps;
    for (size_t s = 0; s < p->batch->batch; s++) {
        ASHLAR_FAIL_IF((size_t)p->batch->lengths[s] <= before, ASHLAR_ENOTSUP,
                       "rnn: lengths[%zu] is %d; in a batch of %zu time steps, which is cut into "
                       "chunks of %zu, each must be above %zu",
                       s, (int)p->batch->lengths[s], p->batch->steps, p->cut.steps, before);
    }
    return ASHLAR_OK;
}

static ashlar_status queue_in_chunks(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                                     const ashlar_rnn_batch *batch,
                                     const ashlar_rnn_buffers *buffers, ashlar_stream stream) {
    pass_over p = {.rnn = rnn, .pass = pass, .batch = batch, .b = buffers, .stream = stream};
    ashlar_status status = ASHLAR_OK;
    ASHLAR_TRY(cut(rnn, batch->steps, batch->batch, buffers->reserve != NULL, &p.cut));
    ASHLAR_TRY(check_lengths(&p));
    ASHLAR_HOST_NEW(p.lengths, batch->batch, "no host memory to queue a batch of %zu",
                    batch->batch);
    for (size_t k = 0; k < p.cut.count && status == ASHLAR_OK; k++) {
        status = queue_chunk(&p, pass == ASHLAR_RNN_FORWARD ? k : p.cut.count - 1 - k);
    }
    ashlar__host_free(p.lengths);
    return status;
}

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
        .device = device, .backend = backend, .layout = layout, .most_steps = STEPS_MAX};
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
    return (steps > rnn->most_steps ? sizes_in_chunks : rnn->backend->sizes)(
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
                   "ashlar_rnn_prepare: %s is NULL", weights == NULL ? "weights" : "prepared");
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

static const char *const pass_names[] = {"ashlar_rnn_forward", "ashlar_rnn_backward_data",
                                         "ashlar_rnn_backward_weights"};
ASHLAR_TABLE_IS_FULL(pass_names, ASHLAR_RNN_PASS_COUNT);

/* Check the buffers that a pass uses; those of 0 bytes are not used, and not checked. */
static ashlar_status check_buffers(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                                   const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *b,
                                   const ashlar_rnn_varying *varying) {
    const ashlar_rnn_layout *l = &rnn->layout;
    const bool goes_forward = pass == ASHLAR_RNN_FORWARD,
               has_data = pass == ASHLAR_RNN_BACKWARD_DATA;
    const bool has_weights = pass == ASHLAR_RNN_BACKWARD_WEIGHTS;
    const size_t item = ashlar_dtype_bytes(l->config.dtype), B = batch->batch;
    const size_t rows = ashlar__operand_bytes(batch->steps, B, item);
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
        {"lengths", varying->lengths, B * sizeof(int32_t), false},
        {"seed", varying->seed, sizeof *varying->seed, false},
        {0}};
    return ashlar__check_operands(rnn->device, pass_names[pass], operands);
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
    ASHLAR_TRY(check_batch(rnn, name, batch));
    ASHLAR_TRY(check_buffers(rnn, pass, batch, b, &(ashlar_rnn_varying){0}));
    return (batch->steps > rnn->most_steps ? queue_in_chunks
                                           : rnn->backend->queue)(rnn, pass, batch, b, stream);
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

bool ashlar__rnn_varies(const ashlar_rnn *rnn) {
    return rnn->backend->queue_varying != NULL;
}

ashlar_status ashlar__rnn_queue_varying(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                                        const ashlar_rnn_batch *batch,
                                        const ashlar_rnn_buffers *buffers,
                                        const ashlar_rnn_varying *varying, ashlar_stream stream) {
    ASHLAR_TRY(check_buffers(rnn, pass, batch, buffers, varying));
    if (rnn->backend->queue_varying != NULL) {
        return rnn->backend->queue_varying(rnn, pass, batch, buffers, varying, stream);
    }
    ashlar_rnn_batch full = *batch;
    full.lengths = NULL;
    return rnn->backend->queue(rnn, pass, &full, buffers, stream);
}

ashlar_status ashlar__rnn_restart_dropout(const ashlar_rnn *rnn, uint64_t seed,
                                          ashlar_stream stream) {
    return rnn->backend->restart_dropout == NULL ? ASHLAR_OK
                                                 : rnn->backend->restart_dropout(rnn, seed, stream);
}
