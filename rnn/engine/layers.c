/* layers.c - a model's layers as operations: embedding, recurrent layers, linear layer. */
#include "rnn/engine/engine.h"

#include <stdio.h>
#include <string.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "arena/layout/arena_impl.h"
#include "rnn/layer/backend.h"
#include "rnn/layer/ops.h"
#include "rnn/layer/rnn_cpu.h"

enum { NAME_BYTES = 256 };

static size_t positions(const ashlar_extent *e) {
    return e->steps * e->rows;
}

/* The weight `name`.weight of a layer. */
static size_t weight_of(ashlar_model *m, const char *name, ashlar_part_kind kind, size_t rows,
                        size_t width) {
    char full[NAME_BYTES];
    (void)snprintf(full, sizeof full, "%s.weight", name);
    return ashlar__model_weight(
        m, &(ashlar_model_weight){.name = full,
                                  .kind = kind,
                                  .rows = rows,
                                  .width = width,
                                  .is_elementwise = kind == ASHLAR_PART_EMBEDDING});
}

/* The bias `name`.bias of a layer. One whose matrix is tied to another layer's stands behind any
 * weight, with which it must not be drawn: it stays 0. */
static size_t bias_of(ashlar_model *m, const char *name, size_t matrix, size_t rows) {
    char full[NAME_BYTES];
    (void)snprintf(full, sizeof full, "%s.bias", name);
    return ashlar__model_weight(
        m, &(ashlar_model_weight){.name = full,
                                  .kind = ASHLAR_PART_WEIGHT,
                                  .rows = rows,
                                  .is_bias = matrix + 1 == m->root->weight_count});
}

/* Whether a layer of one input can be declared: it is good, and the name fits. */
static bool begin(ashlar_model *m, const char *name, ashlar_tensor *x, bool is_vector) {
    const char *what = name == NULL ? "a layer without a name" : name;
    ASHLAR_MODEL_FAIL_IF(m, name == NULL || strlen(name) + sizeof ".weight" > NAME_BYTES,
                         "model: %.60s: a layer needs a name of at most %zu bytes", what,
                         NAME_BYTES - sizeof ".weight");
    return ashlar__model_accepts(m, what, &x, 1, is_vector ? 1 : 0);
}

/* ---- embedding ---- */

static ashlar_status queue_embedding(void *user, const ashlar_operation_call *c,
                                     ashlar_stream stream) {
    const ashlar_ops *ops = user;
    const ashlar_operand_data *in = &c->inputs[0], *out = &c->outputs[0];
    const ashlar_embedding_args args = {.steps = in->extent.steps,
                                        .batch = in->extent.rows,
                                        .lengths = in->extent.lengths_at,
                                        .classes = c->weights[0].rows,
                                        .width = out->width,
                                        .tokens = in->value,
                                        .table = c->weights[0].value,
                                        .out = out->value,
                                        .dout = out->gradient,
                                        .dtable = c->weights[0].gradient};
    return (c->phase == ASHLAR_PHASE_FORWARD ? ashlar__ops_embedding_forward
                                             : ashlar__ops_embedding_backward)(ops, &args, stream);
}

ashlar_tensor *ashlar_model_embedding(ashlar_model *m, const char *name, ashlar_tensor *tokens,
                                      size_t classes, size_t width) {
    if (!begin(m, name, tokens, false)) {
        return NULL;
    }
    ASHLAR_MODEL_FAIL_IF(m, tokens->width != 0 || classes == 0 || width == 0,
                         "model: %s: %zu classes of width %zu, of %s, which has %s; an embedding "
                         "reads tokens, and its sizes are at least 1",
                         name, classes, width, tokens->name,
                         tokens->width == 0 ? "tokens" : "vectors");
    const ashlar_operation operation = {.name = "embedding",
                                        .queue = queue_embedding,
                                        .user = m->ops,
                                        .is_local = true,
                                        .reads_inputs = 1};
    const size_t weight = weight_of(m, name, ASHLAR_PART_EMBEDDING, classes, width);
    return ashlar__model_one(m, &operation, name, &tokens, 1, tokens->axis, width, &weight, 1);
}

/* ---- linear layer ---- */

typedef struct linear {
    const ashlar_model *model;
    void *prepared; /* the weight as walks read it that do not train; in model->prepared */
} linear;

static ashlar_prepared_linear prepared_linear(const linear *l, const ashlar_linear_args *args) {
    return (ashlar_prepared_linear){.args = *args,
                                    .dtype = l->model->dtype,
                                    .is_bf16 = l->model->prepares_bf16,
                                    .prepared = l->prepared};
}

static ashlar_status queue_linear(void *user, const ashlar_operation_call *c,
                                  ashlar_stream stream) {
    const linear *l = user;
    const ashlar_operand_data *in = &c->inputs[0], *out = &c->outputs[0];
    const ashlar_linear_args args = {.rows = positions(&in->extent),
                                     .in = in->width,
                                     .out = out->width,
                                     .x = in->value,
                                     .weight = c->weights[0].value,
                                     .bias = c->weights[1].value,
                                     .y = out->value,
                                     .dy = out->gradient,
                                     .dx = in->gradient,
                                     .dweight = c->weights[0].gradient,
                                     .dbias = c->weights[1].gradient};
    if (!c->trains && l->model->prepared != NULL) {
        const ashlar_prepared_linear prepared = prepared_linear(l, &args);
        return ashlar__linear_run_prepared(l->model->device, &prepared, stream);
    }
    return (c->phase == ASHLAR_PHASE_FORWARD
                ? ashlar__ops_linear_forward
                : ashlar__ops_linear_backward)(l->model->ops, &args, stream);
}

ashlar_tensor *ashlar_model_linear(ashlar_model *m, const char *name, ashlar_tensor *x,
                                   size_t width, bool has_bias) {
    if (!begin(m, name, x, true)) {
        return NULL;
    }
    ASHLAR_MODEL_FAIL_IF(m, width == 0, "model: %s: a width of 0", name);
    const ashlar_operation operation = {
        .name = "linear",
        .queue = queue_linear,
        .user = ashlar__model_user(m, &(linear){.model = m}, sizeof(linear)),
        .destroy = ashlar__host_free,
        .is_local = true,
        .reads_inputs_for_weights = 1};
    const size_t matrix = weight_of(m, name, ASHLAR_PART_WEIGHT, width, x->width);
    const size_t weights[] = {matrix, has_bias ? bias_of(m, name, matrix, width) : 0};
    return ashlar__model_one(m, &operation, name, &x, 1, x->axis, width, weights, has_bias ? 2 : 1);
}

/* ---- recurrent layers ---- */

/* A layer's states are two tensors, h and then for an LSTM c; carried, they are one set. */
typedef struct layer {
    ashlar_rnn *rnn;
    ashlar_rnn *rnn_test; /* without dropout; NULL: rnn drops nothing */
    const ashlar_model *model;
    void *prepared; /* the weights as walks read them that do not train; in model->prepared */
    bool may_read_padding; /* x past the lengths is finite */
    size_t number;         /* of the model's layers: each draws from a seed of its own */
} layer;

/* Between the seeds of layers; odd. */
static const uint64_t LAYER_STRIDE = UINT64_C(0x9fb21c651e98df25);

enum { AREA_ALIGN = 256 /* bytes, of c in a set of states, and of a workspace's areas */ };

static size_t state_bytes(const layer *l, size_t batch, size_t width) {
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(l->rnn);
    return ashlar__operand_bytes(ashlar__operand_bytes(layout->pseudo_layers, batch, 1), width,
                                 ashlar_dtype_bytes(layout->config.dtype));
}

static ashlar_rnn *rnn_of(const layer *l, bool trains) {
    return !trains && l->rnn_test != NULL ? l->rnn_test : l->rnn;
}

static bool has_cells(const layer *l) {
    return ashlar_rnn_layout_of(l->rnn)->config.cell == ASHLAR_RNN_LSTM;
}

/* Where c begins in a set of states for `batch` sequences. */
static size_t cells_at(const layer *l, size_t batch) {
    return ashlar__round_up(state_bytes(l, batch, ashlar_rnn_layout_of(l->rnn)->state), AREA_ALIGN);
}

/* Whether a layer keeps what no backward pass reads, because it drops: that is scratch. */
static bool has_scratch(const layer *l, const ashlar_operation_call *c) {
    return !c->has_backward && c->trains && l->rnn_test != NULL;
}

/* A workspace begins with lengths; what the back end works in lies behind them, and then scratch.
 */
static size_t lengths_bytes(const ashlar_operation_call *c) {
    return ashlar__round_up(c->inputs[0].extent.rows * sizeof(int32_t), AREA_ALIGN);
}

static ashlar_status sizes_of(const layer *l, const ashlar_operation_call *c, size_t *kept,
                              size_t *scratch_at) {
    const ashlar_extent *e = &c->inputs[0].extent;
    size_t work;
    ASHLAR_TRY(ashlar_rnn_sizes(rnn_of(l, c->trains), e->steps, e->rows,
                                c->has_backward || has_scratch(l, c), kept, &work));
    ASHLAR_FAIL_IF(!ashlar__add(work, lengths_bytes(c), &work) ||
                       !ashlar__align_up(work, AREA_ALIGN, scratch_at) ||
                       !ashlar__add(*scratch_at, *kept, &work),
                   ASHLAR_EOVERFLOW, "model: a workspace is too large to address");
    return ASHLAR_OK;
}

static ashlar_status size_layer(void *user, const ashlar_operation_call *c,
                                ashlar_operation_sizes *out) {
    const layer *l = user;
    const size_t rows = c->inputs[0].extent.rows;
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(l->rnn);
    size_t kept, work;
    ASHLAR_FAIL_IF(state_bytes(l, rows, layout->state) > SIZE_MAX / 4 ||
                       state_bytes(l, rows, layout->config.hidden) > SIZE_MAX / 4,
                   ASHLAR_EOVERFLOW, "model: a batch of %zu sequences is too large to address",
                   rows);
    ASHLAR_TRY(sizes_of(l, c, &kept, &work));
    work += has_scratch(l, c) ? kept : 0;
    *out = (ashlar_operation_sizes){
        .kept_bytes = kept,
        .work_bytes = {work, work, work},
        .carried_bytes =
            cells_at(l, rows) + (has_cells(l) ? state_bytes(l, rows, layout->config.hidden) : 0)};
    return ASHLAR_OK;
}

/* A pair of states h, c for one side of a pass: those of the set that is carried, if there is one;
 * else tensors of their own. */
typedef struct state_pair {
    void *h, *c;
} state_pair;

static state_pair pick(const layer *l, const ashlar_operation_call *call, const void *set, void *h,
                       void *c) {
    char *carried = (char *)(uintptr_t)set;
    if (set == NULL) {
        return (state_pair){h, c};
    }
    return (state_pair){carried,
                        has_cells(l) ? carried + cells_at(l, call->inputs[0].extent.rows) : NULL};
}

static ashlar_status buffers_of(const layer *l, const ashlar_operation_call *c,
                                ashlar_rnn_buffers *out) {
    const ashlar_operand_data *in = c->inputs, *y = c->outputs;
    const state_pair before = pick(l, c, c->before, in[1].value, in[2].value);
    const state_pair after = pick(l, c, c->after, y[1].value, y[2].value);
    const state_pair dafter = pick(l, c, c->after_gradient, y[1].gradient, y[2].gradient);
    const state_pair dbefore = pick(l, c, c->before_gradient, in[1].gradient, in[2].gradient);
    const bool has_prepared = !c->trains && l->model->prepared != NULL;
    size_t kept, scratch_at = 0;
    if (has_scratch(l, c)) {
        ASHLAR_TRY(sizes_of(l, c, &kept, &scratch_at));
    }
    *out = (ashlar_rnn_buffers){
        .reserve = has_scratch(l, c) ? (char *)c->work + scratch_at : c->kept,
        .work = (char *)c->work + lengths_bytes(c),
        .x = in[0].value,
        .hx = before.h,
        .cx = before.c,
        .weights = c->weights[0].value,
        .prepared = has_prepared ? l->prepared : NULL,
        .y = y[0].value,
        .hy = after.h,
        .cy = after.c,
        .dy = y[0].gradient,
        .dhy = dafter.h,
        .dcy = dafter.c,
        .dx = in[0].gradient,
        .dhx = dbefore.h,
        .dcx = dbefore.c,
        .dweights = c->weights[0].gradient,
    };
    return ASHLAR_OK;
}

/* Of sequences that are over, `after` is `before` again. Both are [pseudo-layers, B, width]. */
static ashlar_status hold_rows(const layer *l, const ashlar_extent *e, size_t width,
                               const void *before, void *after, ashlar_stream stream) {
    const size_t bytes = e->rows * width * ashlar_dtype_bytes(l->model->dtype);
    for (size_t p = 0; p < ashlar_rnn_layout_of(l->rnn)->pseudo_layers; p++) {
        ashlar_scale_rows_args args = {.rows = e->rows,
                                       .width = width,
                                       .a = (char *)after + p * bytes,
                                       .out = (char *)after + p * bytes,
                                       .steps = 1,
                                       .batch = e->rows,
                                       .lengths = e->lengths_at};
        ASHLAR_TRY(ashlar__ops_scale_rows(l->model->ops, &args, stream));
        args.a = (const char *)before + p * bytes;
        args.adds = args.is_past = true;
        ASHLAR_TRY(ashlar__ops_scale_rows(l->model->ops, &args, stream));
    }
    return ASHLAR_OK;
}

/* A layer takes at least one step of each sequence. What a chunk computes so for one that was over
 * before is read by nobody, but for the states that the batch leaves: they stay as they were. */
static ashlar_status hold_states(const layer *l, const ashlar_operation_call *c,
                                 const ashlar_rnn_buffers *b, ashlar_stream stream) {
    const ashlar_walking *w = c->engine;
    const ashlar_extent *e = &c->inputs[0].extent;
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(l->rnn);
    if (c->phase != ASHLAR_PHASE_FORWARD || w->chunk == 0 || w->batch.after == NULL ||
        c->after == NULL || e->lengths_at == NULL) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(hold_rows(l, e, layout->state, b->hx, b->hy, stream));
    return has_cells(l) ? hold_rows(l, e, layout->config.hidden, b->cx, b->cy, stream) : ASHLAR_OK;
}

/* Lengths that are read in device memory when the pass runs are at least 1 there: what is computed
 * for a sequence that is over is not read. */
static ashlar_status queue_layer(void *user, const ashlar_operation_call *c, ashlar_stream stream) {
    static const ashlar_rnn_pass passes[] = {ASHLAR_RNN_FORWARD, ASHLAR_RNN_BACKWARD_DATA,
                                             ASHLAR_RNN_BACKWARD_WEIGHTS};
    ASHLAR_TABLE_IS_FULL(passes, ASHLAR_PHASE_COUNT);
    const layer *l = user;
    const ashlar_extent *e = &c->inputs[0].extent;
    const ashlar_rnn_varying varying = {c->work, c->seed_at};
    ashlar_rnn_buffers b;
    ASHLAR_TRY(buffers_of(l, c, &b));
    const bool has_final_states = b.hy != NULL || b.cy != NULL || b.dhy != NULL || b.dcy != NULL;
    const ashlar_rnn_batch batch = {.steps = e->steps,
                                    .batch = e->rows,
                                    .lengths = e->lengths,
                                    .dropout_seed = c->seed + l->number * LAYER_STRIDE,
                                    .dropout_restarts = c->is_replayed,
                                    .dropout_first = c->sequence_first,
                                    .dropout_stride = c->sequence_stride,
                                    .padding_is_free = l->may_read_padding && !has_final_states};
    if (c->seed_at != NULL) {
        const ashlar_clip_lengths_args clip = {.batch = e->rows,
                                               .steps = e->steps,
                                               .least = 1,
                                               .lengths = e->lengths_at,
                                               .whole = e->steps,
                                               .out = c->work};
        ASHLAR_TRY(ashlar__ops_clip_lengths(l->model->ops, &clip, stream));
    }
    ASHLAR_TRY(ashlar__rnn_queue(rnn_of(l, c->trains), passes[c->phase], &batch, &b,
                                 c->seed_at != NULL ? &varying : NULL, stream));
    return hold_states(l, c, &b, stream);
}

static void destroy_layer(void *user) {
    layer *l = user;
    ashlar_rnn_destroy(l->rnn_test);
    ashlar_rnn_destroy(l->rnn);
    ashlar__host_free(l);
}

static ashlar_status create_layer(ashlar_model *m, const ashlar_rnn_config *config, layer **out) {
    layer *l;
    ashlar_rnn_config test = *config;
    test.dropout = 0;
    ASHLAR_HOST_NEW(l, 1, "no host memory for a layer");
    l->model = m;
    ashlar_status status = ashlar_rnn_create(m->device, config, &l->rnn);
    if (config->dropout > 0) {
        ASHLAR_THEN(status, ashlar_rnn_create(m->device, &test, &l->rnn_test));
    }
    ASHLAR_HAND_OUT(status, l, destroy_layer, out);
}

/* Initial states: each is the state of another layer of this width, or an input of it. */
static void check_states(ashlar_model *m, const char *name, const layer *l, ashlar_axis axis,
                         ashlar_tensor *const *states, size_t count) {
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(l->rnn);
    const size_t widths[] = {layout->pseudo_layers * layout->state,
                             layout->pseudo_layers * layout->config.hidden};
    for (size_t i = 0; i < count; i++) {
        const ashlar_tensor *s = states[i];
        ASHLAR_MODEL_FAIL_IF(
            m, s != NULL && (s->model != m || s->axis != axis || s->width != widths[i]),
            "model: %s: state %s has width %zu on axis %u; give the state of a layer of the same "
            "size, or an input on axis %u of width %zu",
            name, s->name, s->width, s->axis, axis, widths[i]);
    }
}

/* The operation reads what its back end does: cuDNN reads outputs and states again. */
static ashlar_operation operation_of(layer *l) {
    const bool reads_output = l->rnn->backend->backward_reads_output;
    return (ashlar_operation){.name = "rnn",
                              .sizes = size_layer,
                              .queue = queue_layer,
                              .user = l,
                              .destroy = destroy_layer,
                              .has_weights_phase = true,
                              .carries = true,
                              .is_local = ashlar_rnn_layout_of(l->rnn)->config.directions == 1,
                              .reads_inputs = reads_output ? 2 | 4 : 0,
                              .most_steps = l->rnn->backend->most_steps,
                              .optional_outputs = 2 | 4,
                              .reads_inputs_for_weights = 1,
                              .reads_outputs = reads_output ? 1 : 0};
}

static ashlar_rnn_result add_layer(ashlar_model *m, const char *name, ashlar_tensor *x, layer *l,
                                   const ashlar_rnn_states *states) {
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(l->rnn);
    const bool is_lstm = layout->config.cell == ASHLAR_RNN_LSTM;
    const ashlar_axis rows = m->within[x->axis];
    const ashlar_operation operation = operation_of(l);
    ashlar_operation_shape shape = {.input_count = 1,
                                    .output_count = is_lstm ? 3 : 2,
                                    .weight_count = 1,
                                    .inputs = {x},
                                    .axes = {x->axis, rows, rows},
                                    .widths = {layout->output,
                                               layout->pseudo_layers * layout->state,
                                               layout->pseudo_layers * layout->config.hidden}};
    if (states->h != NULL || states->c != NULL) {
        shape.input_count = is_lstm ? 3 : 2;
        shape.inputs[1] = states->h;
        shape.inputs[2] = states->c;
    }
    l->number = m->root->layer_count++;
    l->may_read_padding = x->node != NULL;
    const size_t weight = ashlar__model_weight(
        m, &(ashlar_model_weight){.name = name, .kind = ASHLAR_PART_RNN, .layout = layout});
    ashlar_node *node = ashlar__model_add(m, &operation, &shape, name, &weight);
    if (node == NULL) {
        return (ashlar_rnn_result){0};
    }
    for (size_t i = 1; i < node->output_count; i++) {
        node->outputs[i].layers = layout->pseudo_layers;
        node->outputs[i].directions = layout->config.directions;
    }
    return (ashlar_rnn_result){&node->outputs[0], &node->outputs[1],
                               is_lstm ? &node->outputs[2] : NULL};
}

ashlar_rnn_result ashlar_model_rnn(ashlar_model *m, const char *name, ashlar_tensor *x,
                                   const ashlar_rnn_config *config,
                                   const ashlar_rnn_states *states) {
    const ashlar_rnn_states given = ASHLAR_OR_ZERO(ashlar_rnn_states, states);
    ashlar_tensor *const initial[] = {given.h, given.c};
    ashlar_rnn_config c = ASHLAR_OR_ZERO(ashlar_rnn_config, config);
    layer *l = NULL;
    if (!begin(m, name, x, true)) {
        return (ashlar_rnn_result){0};
    }
    ASHLAR_MODEL_FAIL_IF(m, c.dtype != 0 && c.dtype != m->dtype,
                         "model: %s computes in %s; its config's dtype is %s: give 0, or the "
                         "model's",
                         name, ashlar_dtype_name(m->dtype),
                         c.dtype < ASHLAR_DTYPE_COUNT ? ashlar_dtype_name(c.dtype) : "none");
    c.input = c.input == 0 ? x->width : c.input;
    c.dtype = m->dtype;
    ASHLAR_MODEL_FAIL_IF(m, c.input != x->width,
                         "model: %s reads %s of width %zu; its config's input is %zu: give 0, or "
                         "that width",
                         name, x->name, x->width, c.input);
    ASHLAR_MODEL_FAIL_IF(m, (given.c != NULL) != (given.h != NULL && c.cell == ASHLAR_RNN_LSTM),
                         c.cell == ASHLAR_RNN_LSTM
                             ? "model: %s: an LSTM needs both states, h and c, or none"
                             : "model: %s: the layer is no LSTM, and has no state c",
                         name);
    const ashlar_status status = create_layer(m, &c, &l);
    if (status != ASHLAR_OK) {
        char why[ASHLAR_DETAIL_BYTES];
        (void)snprintf(why, sizeof why, "%s", ashlar_error_detail());
        ASHLAR_MODEL_FAIL(m, status, "model: %s: %s", name, why);
        return (ashlar_rnn_result){0};
    }
    check_states(m, name, l, m->within[x->axis], initial, 2);
    return add_layer(m, name, x, l, &given);
}

/* ---- copies of weights in the order in which products read them ---- */

enum { PREPARED_ALIGN = 64 };

static const void *weights_of(const ashlar_model *m, const ashlar_node *node) {
    return ashlar_arena_view(m->arena, ASHLAR_REGION_PARAMETERS,
                             m->weights[node->weights[0]].tensor);
}

/* A linear layer's weight, without the other operands. */
static ashlar_prepared_linear weight_to_prepare(const linear *l, const ashlar_node *node) {
    const ashlar_model_weight *weight = &l->model->weights[node->weights[0]];
    const ashlar_linear_args args = {
        .in = weight->width, .out = weight->rows, .weight = weights_of(l->model, node)};
    return prepared_linear(l, &args);
}

/* Add a layer's bytes to *bytes; it has none if the device reads its weights as they are. */
static ashlar_status add_prepared_bytes(const ashlar_model *m, const ashlar_node *node,
                                        size_t *bytes) {
    size_t own = 0;
    if (node->operation.queue == queue_layer) {
        ashlar_rnn *rnn = rnn_of(node->operation.user, false);
        rnn->prepares_bf16 = m->prepares_bf16;
        own = ashlar_rnn_prepared_bytes(rnn);
    } else if (node->operation.queue == queue_linear &&
               m->ops->backend == &ashlar__ops_backend_cpu) {
        const ashlar_prepared_linear prepared = weight_to_prepare(node->operation.user, node);
        own = ashlar__linear_prepared_bytes(&prepared);
    }
    ASHLAR_FAIL_IF(!ashlar__add(*bytes, own, bytes) ||
                       !ashlar__align_up(*bytes, PREPARED_ALIGN, bytes),
                   ASHLAR_EOVERFLOW, "model: prepared weights are too large to address");
    return ASHLAR_OK;
}

/* Queue the work that fills a layer's copy, which it reads from then on. */
static ashlar_status prepare_layer(const ashlar_model *m, const ashlar_node *node, void *prepared,
                                   ashlar_stream stream) {
    if (node->operation.queue == queue_layer) {
        layer *l = node->operation.user;
        l->prepared = prepared;
        return ashlar_rnn_prepare(rnn_of(l, false), weights_of(m, node), prepared, stream);
    }
    if (node->operation.queue == queue_linear) {
        linear *l = node->operation.user;
        l->prepared = prepared;
        const ashlar_prepared_linear of = weight_to_prepare(l, node);
        return ashlar__linear_prepare(m->device, &of, stream);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_model_prepare(ashlar_model *m, bool to_bf16, ashlar_stream stream) {
    size_t bytes = 0, at = 0;
    void *prepared;
    ASHLAR_FAIL_IF(!m->is_committed, ASHLAR_EINVAL, "model: not committed");
    ASHLAR_FAIL_IF(
        to_bf16 && (m->dtype != ASHLAR_F32 || m->ops->backend != &ashlar__ops_backend_cpu),
        ASHLAR_EINVAL, "model: weights in bf16: only a software device reads an fp32 model so");
    ASHLAR_TRY(ashlar__model_drop_prepared(m));
    m->prepares_bf16 = to_bf16;
    for (size_t n = 0; n < m->node_count; n++) {
        ASHLAR_TRY(add_prepared_bytes(m, m->nodes[n], &bytes));
    }
    if (bytes == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar_alloc_tagged(m->allocator, bytes, ASHLAR_TAG_WEIGHTS, stream, &prepared));
    m->prepared = prepared;
    ashlar_status status = ASHLAR_OK;
    for (size_t n = 0; n < m->node_count; n++) {
        ASHLAR_THEN(status, prepare_layer(m, m->nodes[n], (char *)prepared + at, stream));
        ASHLAR_THEN(status, add_prepared_bytes(m, m->nodes[n], &at));
    }
    if (status != ASHLAR_OK) {
        ASHLAR_IGNORE(ashlar__model_drop_prepared(m)); /* the first failure counts */
    }
    return status;
}

ashlar_status ashlar_model_set_seed(ashlar_model *m, uint64_t seed, ashlar_stream stream) {
    m->root->arena->seed = seed;
    for (size_t n = 0; n < m->node_count; n++) {
        if (m->nodes[n]->operation.queue == queue_layer) {
            const layer *l = m->nodes[n]->operation.user;
            ASHLAR_TRY(
                ashlar__rnn_restart_dropout(l->rnn, seed + l->number * LAYER_STRIDE, stream));
        }
    }
    for (ashlar_model *body = m->bodies; body != NULL; body = body->next_body) {
        ASHLAR_TRY(ashlar_model_set_seed(body, seed, stream));
    }
    return ASHLAR_OK;
}
