/* network.c - a network of an RNN, a linear layer and perhaps an embedding: its calls' buffers and
 * work. */
#include <ashlar/model.h>
#include <ashlar/rnn.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "rnn/layer/ops.h"

struct ashlar_network {
    ashlar_network_config config;
    ashlar_allocator *allocator;
    ashlar_rnn *rnn;
    ashlar_rnn *rnn_predict; /* the same RNN without dropout, for predictions */
    ashlar_ops *ops;
    void *work; /* workspace of `ops`; NULL: they need none */
    ashlar_arena *arena;
    size_t table, stack, weight; /* tensor numbers in the arena; weight + 1 is the bias */
    void *prepared;              /* ashlar_rnn_prepare() fills it; NULL: not allocated yet */
    bool is_prepared;            /* `prepared` has the present weights; predictions read it */
};

/* ---- the network ---- */

static ashlar_status check_config(const ashlar_network_config *c) {
    ASHLAR_FAIL_IF(c->outputs == 0, ASHLAR_EINVAL, "network: outputs is 0; it must be given");
    ASHLAR_FAIL_IF((unsigned)c->loss >= ASHLAR_NETWORK_LOSS_COUNT, ASHLAR_EINVAL,
                   "network: %d is no loss", (int)c->loss);
    return ASHLAR_OK;
}

static ashlar_status declare(ashlar_network *n) {
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(n->rnn);
    const ashlar_dtype dtype = layout->config.dtype;
    const size_t outputs = n->config.outputs;
    if (n->config.classes > 0) {
        ASHLAR_TRY(ashlar_arena_add(n->arena, "embedding.weight", dtype, 2,
                                    (size_t[]){n->config.classes, layout->config.input},
                                    &n->table));
    }
    ASHLAR_TRY(
        ashlar_rnn_declare(n->arena, ashlar_rnn_cell_name(layout->config.cell), layout, &n->stack));
    ASHLAR_TRY(ashlar_arena_add(n->arena, "linear.weight", dtype, 2,
                                (size_t[]){outputs, layout->output}, &n->weight));
    return ashlar_arena_add(n->arena, "linear.bias", dtype, 1, &outputs, NULL);
}

static ashlar_status build(ashlar_network *n, unsigned regions, ashlar_stream stream) {
    ashlar_device *device = ashlar_allocator_device(n->allocator);
    ashlar_rnn_config layers = n->config.layers;
    ASHLAR_TRY(check_config(&n->config));
    ASHLAR_TRY(ashlar_rnn_create(device, &layers, &n->rnn));
    layers.dropout = 0;
    ASHLAR_TRY(ashlar_rnn_create(device, &layers, &n->rnn_predict));
    ASHLAR_TRY(ashlar_ops_create(device, layers.dtype, &n->ops));
    ASHLAR_TRY(ashlar__ops_take_work(n->ops, n->allocator, stream, &n->work));
    ASHLAR_TRY(ashlar_arena_create(&n->arena));
    ASHLAR_TRY(declare(n));
    return ashlar_arena_commit(n->arena, n->allocator, stream, regions);
}

ashlar_status ashlar_network_create(ashlar_allocator *allocator,
                                    const ashlar_network_config *config, unsigned regions,
                                    ashlar_stream stream, ashlar_network **out) {
    ashlar_network_config c = ASHLAR_OR_ZERO(ashlar_network_config, config);
    ashlar_network *n;
    ASHLAR_HOST_NEW(n, 1, "no host memory for a network");
    *n = (ashlar_network){.config = c, .allocator = allocator};
    ASHLAR_HAND_OUT(build(n, regions, stream), n, ashlar_network_destroy, out);
}

void ashlar_network_destroy(ashlar_network *n) {
    if (n == NULL) {
        return;
    }
    ashlar_arena_destroy(n->arena);
    ashlar_ops_destroy(n->ops);
    ASHLAR_IGNORE(ashlar_free(n->allocator, n->work)); /* a block of this allocator, or NULL */
    ASHLAR_IGNORE(ashlar_free(n->allocator, n->prepared));
    ashlar_rnn_destroy(n->rnn_predict);
    ashlar_rnn_destroy(n->rnn);
    ashlar__host_free(n);
}

ashlar_arena *ashlar_network_arena(const ashlar_network *n) {
    return n->arena;
}

ashlar_status ashlar_network_init(ashlar_network *n, ashlar_init_rule rule, uint64_t seed,
                                  ashlar_stream stream) {
    const ashlar_part parts[] = {
        {ASHLAR_PART_RNN, n->stack, ashlar_rnn_layout_of(n->rnn)},
        {ASHLAR_PART_LINEAR, n->weight, NULL},
        {ASHLAR_PART_EMBEDDING, n->table, NULL},
    };
    return ashlar_init_weights(n->arena, rule, parts, n->config.classes > 0 ? 3 : 2, seed, stream);
}

ashlar_status ashlar_network_prepare(ashlar_network *n, ashlar_stream stream) {
    const size_t bytes = ashlar_rnn_prepared_bytes(n->rnn_predict);
    n->is_prepared = false;
    if (bytes > 0 && n->prepared == NULL) {
        ASHLAR_TRY(
            ashlar_alloc_tagged(n->allocator, bytes, ASHLAR_TAG_WEIGHTS, stream, &n->prepared));
    }
    ASHLAR_TRY(ashlar_rnn_prepare(n->rnn_predict,
                                  ashlar_arena_view(n->arena, ASHLAR_REGION_PARAMETERS, n->stack),
                                  n->prepared, stream));
    n->is_prepared = true;
    return ASHLAR_OK;
}

/* ---- one call: its buffers ---- */

enum {
    LENGTHS,  /* int32 [B] */
    VECTORS,  /* [T, B, I], the embedding's output */
    DVECTORS, /* gradients of VECTORS */
    Y,        /* [T, B, D*P], the RNN's output */
    DY,
    STATES, /* with last_only: h [L*D, B, P] */
    DSTATES,
    LAST, /* with last_only: the top layer's h, [B, D*P] */
    DLAST,
    OUTPUTS, /* [T, B, O], with last_only [B, O]; the loss replaces them by their gradients */
    LOSS_WORK,
    RESERVE,
    WORK,
    BUFFER_COUNT
};

typedef struct call {
    ashlar_network *n;
    ashlar_network_batch batch;
    const ashlar_rnn_layout *layout;
    ashlar_stream stream;
    bool trains;
    size_t rows; /* the rows of targets and outputs: T * B, with last_only B */
    ashlar_rnn *rnn;
    ashlar_rnn_batch rnn_batch;
    ashlar_rnn_buffers rnn_buffers;
    ashlar_linear_args linear;
    size_t bytes[BUFFER_COUNT]; /* 0: not needed */
    void *at[BUFFER_COUNT];
} call;

static void *tensor(const call *c, ashlar_region region, size_t number) {
    return ashlar_arena_view(c->n->arena, region, number);
}

static bool product(size_t a, size_t b, size_t width, size_t item, size_t *out) {
    return ashlar__mul(a, b, out) && ashlar__mul(*out, width, out) && ashlar__mul(*out, item, out);
}

static ashlar_status size_buffers(call *c) {
    const ashlar_network_config *config = &c->n->config;
    const size_t T = c->batch.steps, B = c->batch.batch;
    const size_t item = ashlar_dtype_bytes(c->layout->config.dtype);
    const bool last = config->last_only;
    size_t *of = c->bytes, vectors, states;
    ASHLAR_FAIL_IF(!product(T, B, c->layout->config.input, item, &vectors) ||
                       !product(T, B, c->layout->output, item, &of[Y]) ||
                       !product(c->layout->pseudo_layers, B, c->layout->state, item, &states) ||
                       !product(last ? 1 : T, B, config->outputs, item, &of[OUTPUTS]),
                   ASHLAR_EOVERFLOW, "network: a batch of %zu x %zu is too large to address", T, B);
    of[LENGTHS] = B * sizeof(int32_t);
    of[VECTORS] = config->classes > 0 ? vectors : 0;
    of[DVECTORS] = c->trains ? of[VECTORS] : 0;
    of[STATES] = last ? states : 0;
    of[DSTATES] = c->trains ? of[STATES] : 0;
    of[LAST] = last ? B * c->layout->output * item : 0;
    of[DLAST] = c->trains ? of[LAST] : 0;
    of[DY] = last || !c->trains ? 0 : of[Y];
    of[LOSS_WORK] = c->trains ? ashlar_loss_work_bytes(c->n->ops, c->rows) : 0;
    return ashlar_rnn_sizes(c->rnn, T, B, c->trains, &of[RESERVE], &of[WORK]);
}

static ashlar_status take_buffers(call *c) {
    for (int i = 0; i < BUFFER_COUNT; i++) {
        if (c->bytes[i] > 0) {
            const ashlar_tag tag = i == WORK || i == LOSS_WORK ? ASHLAR_TAG_WORKSPACE
                                   : i == RESERVE              ? ASHLAR_TAG_SAVED
                                                               : ASHLAR_TAG_ACTIVATIONS;
            ASHLAR_TRY(
                ashlar_alloc_tagged(c->n->allocator, c->bytes[i], tag, c->stream, &c->at[i]));
        }
    }
    return ASHLAR_OK;
}

/* Free all buffers. A free can fail only in a guard mode, when it finds a stray write. */
static ashlar_status give_buffers(const call *c) {
    ashlar_status status = ASHLAR_OK;
    for (int i = BUFFER_COUNT; i-- > 0;) {
        const ashlar_status freed = ashlar_free(c->n->allocator, c->at[i]);
        status = status == ASHLAR_OK ? freed : status;
    }
    return status;
}

/* Join the top layer's states of all directions into rows [B, D*P] or, if is_apart, copy the
 * gradients of such rows back to each direction's. */
static ashlar_status join_states(const call *c, bool is_apart) {
    const size_t P = c->layout->state, D = c->layout->config.directions;
    const size_t item = ashlar_dtype_bytes(c->layout->config.dtype);
    char *const rows = c->at[is_apart ? DLAST : LAST], *const states =
                                                           c->at[is_apart ? DSTATES : STATES];
    for (size_t d = 0; d < D; d++) {
        void *row = rows + d * P * item;
        void *state = states + (c->layout->pseudo_layers - D + d) * c->batch.batch * P * item;
        const ashlar_columns_args args = {.rows = c->batch.batch,
                                          .width = P,
                                          .from = is_apart ? row : state,
                                          .from_stride = is_apart ? D * P : P,
                                          .to = is_apart ? state : row,
                                          .to_stride = is_apart ? P : D * P};
        ASHLAR_TRY(ashlar_copy_columns(c->n->ops, &args, c->stream));
    }
    return ASHLAR_OK;
}

static ashlar_embedding_args embedding(const call *c) {
    return (ashlar_embedding_args){
        .steps = c->batch.steps,
        .batch = c->batch.batch,
        .lengths = c->at[LENGTHS],
        .classes = c->n->config.classes,
        .width = c->layout->config.input,
        .tokens = c->batch.inputs,
        .table = tensor(c, ASHLAR_REGION_PARAMETERS, c->n->table),
        .out = c->at[VECTORS],
        .dout = c->at[DVECTORS],
        .dtable = tensor(c, ASHLAR_REGION_GRADIENTS, c->n->table),
    };
}

static void lay_out(call *c) {
    const bool last = c->n->config.last_only;
    const size_t weight = c->n->weight;
    c->rnn_buffers = (ashlar_rnn_buffers){
        .reserve = c->at[RESERVE],
        .work = c->at[WORK],
        .x = c->n->config.classes > 0 ? c->at[VECTORS] : c->batch.inputs,
        .weights = tensor(c, ASHLAR_REGION_PARAMETERS, c->n->stack),
        .y = c->at[Y],
        .hy = c->at[STATES],
        .dy = c->at[DY],
        .dhy = c->at[DSTATES],
        .dx = c->at[DVECTORS],
        .dweights = tensor(c, ASHLAR_REGION_GRADIENTS, c->n->stack),
        .prepared = c->n->is_prepared ? c->n->prepared : NULL,
    };
    c->linear = (ashlar_linear_args){
        .rows = c->rows,
        .in = c->layout->output,
        .out = c->n->config.outputs,
        .x = c->at[last ? LAST : Y],
        .weight = tensor(c, ASHLAR_REGION_PARAMETERS, weight),
        .bias = tensor(c, ASHLAR_REGION_PARAMETERS, weight + 1),
        .y = c->at[OUTPUTS],
        .dy = c->at[OUTPUTS],
        .dx = c->at[last ? DLAST : DY],
        .dweight = tensor(c, ASHLAR_REGION_GRADIENTS, weight),
        .dbias = tensor(c, ASHLAR_REGION_GRADIENTS, weight + 1),
    };
}

/* ---- the work ---- */

static ashlar_status queue_forward(const call *c) {
    ASHLAR_TRY(ashlar_copy_to_device(ashlar_allocator_device(c->n->allocator), c->at[LENGTHS],
                                     c->rnn_batch.lengths, c->bytes[LENGTHS], c->stream));
    if (c->n->config.classes > 0) {
        const ashlar_embedding_args args = embedding(c);
        ASHLAR_TRY(ashlar_embedding_forward(c->n->ops, &args, c->stream));
    }
    ASHLAR_TRY(ashlar_rnn_forward(c->rnn, &c->rnn_batch, &c->rnn_buffers, c->stream));
    ASHLAR_TRY(c->n->config.last_only ? join_states(c, false) : ASHLAR_OK);
    ASHLAR_TRY(ashlar_linear_forward(c->n->ops, &c->linear, c->stream));
    return c->batch.outputs == NULL
               ? ASHLAR_OK
               : ashlar_copy(ashlar_allocator_device(c->n->allocator), c->batch.outputs,
                             c->at[OUTPUTS], c->bytes[OUTPUTS], c->stream);
}

/* Queue the loss of all rows. It replaces the outputs by their gradients. */
static ashlar_status queue_loss(const call *c) {
    const bool last = c->n->config.last_only;
    const size_t steps = last ? 1 : c->batch.steps;
    const int32_t *lengths = last ? NULL : c->at[LENGTHS];
    if (c->n->config.loss == ASHLAR_NETWORK_CROSS_ENTROPY) {
        const ashlar_cross_entropy_args args = {.steps = steps,
                                                .batch = c->batch.batch,
                                                .lengths = lengths,
                                                .classes = c->n->config.outputs,
                                                .logits = c->at[OUTPUTS],
                                                .targets = c->batch.targets,
                                                .dlogits = c->at[OUTPUTS],
                                                .scale = c->batch.scale,
                                                .work = c->at[LOSS_WORK],
                                                .loss = c->batch.loss};
        return ashlar_cross_entropy(c->n->ops, &args, c->stream);
    }
    const ashlar_squared_error_args args = {.steps = steps,
                                            .batch = c->batch.batch,
                                            .lengths = lengths,
                                            .width = c->n->config.outputs,
                                            .outputs = c->at[OUTPUTS],
                                            .targets = c->batch.targets,
                                            .doutputs = c->at[OUTPUTS],
                                            .scale = c->batch.scale,
                                            .work = c->at[LOSS_WORK],
                                            .loss = c->batch.loss};
    return ashlar_squared_error(c->n->ops, &args, c->stream);
}

static ashlar_status clear_results(const call *c) {
    ashlar_device *device = ashlar_allocator_device(c->n->allocator);
    if (c->batch.accumulates) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar_fill(device, c->batch.loss, 0, sizeof *c->batch.loss, c->stream));
    return ashlar_fill(device, ashlar_arena_region(c->n->arena, ASHLAR_REGION_GRADIENTS), 0,
                       ashlar_arena_region_bytes(c->n->arena, ASHLAR_REGION_GRADIENTS), c->stream);
}

static ashlar_status queue_backward(const call *c) {
    ASHLAR_TRY(clear_results(c));
    ASHLAR_TRY(queue_loss(c));
    ASHLAR_TRY(ashlar_linear_backward(c->n->ops, &c->linear, c->stream));
    if (c->n->config.last_only) {
        ASHLAR_TRY(ashlar_fill(ashlar_allocator_device(c->n->allocator), c->at[DSTATES], 0,
                               c->bytes[DSTATES], c->stream));
        ASHLAR_TRY(join_states(c, true));
    }
    ASHLAR_TRY(ashlar_rnn_backward_data(c->rnn, &c->rnn_batch, &c->rnn_buffers, c->stream));
    ASHLAR_TRY(ashlar_rnn_backward_weights(c->rnn, &c->rnn_batch, &c->rnn_buffers, c->stream));
    if (c->n->config.classes == 0) {
        return ASHLAR_OK;
    }
    const ashlar_embedding_args args = embedding(c);
    return ashlar_embedding_backward(c->n->ops, &args, c->stream);
}

static ashlar_status check_buffers(const call *c, const char *name) {
    const ashlar_network_batch *b = &c->batch;
    const bool has_tokens = c->n->config.classes > 0;
    const bool has_classes = c->n->config.loss == ASHLAR_NETWORK_CROSS_ENTROPY;
    const size_t item = ashlar_dtype_bytes(c->layout->config.dtype);
    const size_t positions = ashlar__operand_bytes(b->steps, b->batch, 1);
    const size_t inputs = ashlar__operand_bytes(positions, has_tokens ? 1 : c->layout->config.input,
                                                has_tokens ? sizeof(int32_t) : item);
    const size_t rows = c->n->config.last_only ? b->batch : positions;
    const size_t outputs = ashlar__operand_bytes(rows, c->n->config.outputs, item);
    const size_t targets = has_classes ? ashlar__operand_bytes(rows, 1, sizeof(int32_t)) : outputs;
    const ashlar_operand operands[] = {
        {"inputs", b->inputs, inputs, true},
        {"targets", b->targets, c->trains ? targets : 0, c->trains},
        {"loss", b->loss, c->trains ? sizeof *b->loss : 0, c->trains},
        {"scale", b->scale, c->trains ? sizeof *b->scale : 0, false},
        {"outputs", b->outputs, outputs, !c->trains},
        {0}};
    ASHLAR_TRY(ashlar__check_operands(ashlar_allocator_device(c->n->allocator), name, operands));
    return ashlar__check_host_array(name, "lengths", b->lengths,
                                    ashlar__operand_bytes(b->batch, 1, sizeof *b->lengths));
}

static ashlar_status check_call(const call *c) {
    const char *name = c->trains ? "ashlar_network_step" : "ashlar_network_predict";
    ASHLAR_FAIL_IF(c->batch.steps == 0 || c->batch.batch == 0, ASHLAR_EINVAL,
                   "%s: a batch of %zu sequences of %zu steps; each is at least 1", name,
                   c->batch.batch, c->batch.steps);
    ASHLAR_TRY(check_buffers(c, name));
    ASHLAR_FAIL_IF(c->trains && tensor(c, ASHLAR_REGION_GRADIENTS, c->n->stack) == NULL,
                   ASHLAR_EINVAL, "ashlar_network_step: the arena has no gradients");
    return ASHLAR_OK;
}

static ashlar_status run_with(call *c, const int32_t *lengths) {
    c->rnn_batch = (ashlar_rnn_batch){.steps = c->batch.steps,
                                      .batch = c->batch.batch,
                                      .lengths = lengths,
                                      .dropout_seed = c->batch.dropout_seed};
    ASHLAR_TRY(size_buffers(c));
    ashlar_status status = take_buffers(c);
    lay_out(c);
    ASHLAR_THEN(status, queue_forward(c));
    if (c->trains) {
        ASHLAR_THEN(status, queue_backward(c));
    }
    const ashlar_status given = give_buffers(c);
    return status == ASHLAR_OK ? given : status;
}

static ashlar_status run(ashlar_network *n, const ashlar_network_batch *batch, bool trains,
                         ashlar_stream stream) {
    call c = {.n = n,
              .batch = *batch,
              .layout = ashlar_rnn_layout_of(n->rnn),
              .stream = stream,
              .trains = trains,
              .rnn = trains ? n->rnn : n->rnn_predict,
              .rows = n->config.last_only ? batch->batch : batch->steps * batch->batch};
    ASHLAR_TRY(check_call(&c));
    n->is_prepared = n->is_prepared && !trains; /* after training, the weights will be updated */
    if (batch->lengths != NULL) {
        return run_with(&c, batch->lengths);
    }
    int32_t *lengths;
    ASHLAR_HOST_NEW(lengths, batch->batch, "no host memory for %zu lengths", batch->batch);
    for (size_t b = 0; b < batch->batch; b++) {
        lengths[b] = (int32_t)batch->steps;
    }
    const ashlar_status status = run_with(&c, lengths);
    ashlar__host_free(lengths);
    return status;
}

ashlar_status ashlar_network_step(ashlar_network *n, const ashlar_network_batch *batch,
                                  ashlar_stream stream) {
    ashlar_network_batch b = ASHLAR_OR_ZERO(ashlar_network_batch, batch);
    return run(n, &b, true, stream);
}

ashlar_status ashlar_network_predict(ashlar_network *n, const ashlar_network_batch *batch,
                                     ashlar_stream stream) {
    ashlar_network_batch b = ASHLAR_OR_ZERO(ashlar_network_batch, batch);
    return run(n, &b, false, stream);
}
