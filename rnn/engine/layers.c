/* layers.c - a model's layers as operations: embedding, recurrent layers, linear layer. */
#include "rnn/engine/engine.h"

#include <stdio.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "rnn/engine/operations.h"
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
        m, &(ashlar_model_weight){.name = full, .kind = kind, .rows = rows, .width = width});
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

/* Whether a layer can be declared: its inputs are good, and its name fits. */
static bool begin(ashlar_model *m, const char *name, ashlar_tensor *const *inputs, size_t count) {
    const char *what = name == NULL ? "a layer without a name" : name;
    if (m->root->status == ASHLAR_OK &&
        (name == NULL || strlen(name) + sizeof ".weight" > NAME_BYTES)) {
        ASHLAR_MODEL_FAIL(m, ASHLAR_EINVAL,
                          "model: %.60s: a layer needs a name of at most %zu bytes", what,
                          NAME_BYTES - sizeof ".weight");
    }
    return ashlar__model_accepts(m, what, inputs, count);
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
    if (!begin(m, name, &tokens, 1)) {
        return NULL;
    }
    if (tokens->width != 0 || classes == 0 || width == 0) {
        ASHLAR_MODEL_FAIL(m, ASHLAR_EINVAL,
                          "model: %s: %zu classes of width %zu, of %s, which has %s; an embedding "
                          "reads tokens, and its sizes are at least 1",
                          name, classes, width, tokens->name,
                          tokens->width == 0 ? "tokens" : "vectors");
        return NULL;
    }
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

static ashlar_tensor *add_linear(ashlar_model *m, const char *name, ashlar_tensor *x, size_t width,
                                 bool has_bias) {
    linear *l = ashlar__host_calloc(1, sizeof *l);
    if (l == NULL) {
        ASHLAR_MODEL_FAIL(m, ASHLAR_EHOSTMEM, "no host memory for a layer");
        return NULL;
    }
    l->model = m;
    const ashlar_operation operation = {.name = "linear",
                                        .queue = queue_linear,
                                        .user = l,
                                        .destroy = ashlar__host_free,
                                        .is_local = true,
                                        .reads_inputs_for_weights = 1};
    const size_t matrix = weight_of(m, name, ASHLAR_PART_WEIGHT, width, x->width);
    const size_t weights[] = {matrix, has_bias ? bias_of(m, name, matrix, width) : 0};
    return ashlar__model_one(m, &operation, name, &x, 1, x->axis, width, weights, has_bias ? 2 : 1);
}

ashlar_tensor *ashlar_model_linear(ashlar_model *m, const char *name, ashlar_tensor *x,
                                   size_t width, bool has_bias) {
    if (!begin(m, name, &x, 1)) {
        return NULL;
    }
    if (!ashlar__model_is_vector(m, name, x)) {
        return NULL;
    }
    if (width == 0) {
        ASHLAR_MODEL_FAIL(m, ASHLAR_EINVAL, "model: %s: a width of 0", name);
        return NULL;
    }
    return add_linear(m, name, x, width, has_bias);
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
    int32_t *full;         /* [full_count] lengths for batches that give none */
    size_t full_count;
} layer;

/* Between the seeds of layers; odd. */
static const uint64_t LAYER_STRIDE = UINT64_C(0x9fb21c651e98df25);

enum { AREA_ALIGN = 256 /* bytes, of c in a set of states, and of a workspace's areas */ };

static size_t state_bytes(const layer *l, size_t batch, size_t width) {
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(l->rnn);
    return ashlar__operand_bytes(ashlar__operand_bytes(layout->pseudo_layers, batch, 1), width,
                                 ashlar_dtype_bytes(layout->config.dtype));
}

/* The layer in walks that do not train. */
static ashlar_rnn *testing(const layer *l) {
    return l->rnn_test != NULL ? l->rnn_test : l->rnn;
}

static bool has_cells(const layer *l) {
    return ashlar_rnn_layout_of(l->rnn)->config.cell == ASHLAR_RNN_LSTM;
}

/* Where c begins in a set of states for `batch` sequences. */
static size_t cells_at(const layer *l, size_t batch) {
    return ashlar__round_up(state_bytes(l, batch, ashlar_rnn_layout_of(l->rnn)->state), AREA_ALIGN);
}

/* What a layer has beside its tensors. Where no backward pass follows a dropout, what it would keep
 * is scratch. */
typedef struct areas {
    size_t reserve;
    size_t lengths_at, reserve_at; /* offsets in the workspace, of the second if it is scratch */
    size_t work;                   /* all of the workspace */
} areas;

static ashlar_status areas_of(const layer *l, const ashlar_operation_call *c, areas *out) {
    const ashlar_extent *e = &c->inputs[0].extent;
    const bool has_reserve = c->has_backward || (c->trains && l->rnn_test != NULL);
    const ashlar_rnn *rnn = !c->trains && l->rnn_test != NULL ? l->rnn_test : l->rnn;
    size_t work;
    *out = (areas){0};
    ASHLAR_TRY(ashlar_rnn_sizes(rnn, e->steps, e->rows, has_reserve, &out->reserve, &work));
    ASHLAR_FAIL_IF(
        !ashlar__align_up(work, AREA_ALIGN, &out->lengths_at) ||
            !ashlar__add(out->lengths_at, e->rows * sizeof(int32_t), &work) ||
            !ashlar__align_up(work, AREA_ALIGN, &out->reserve_at) ||
            !ashlar__add(out->reserve_at, c->has_backward ? 0 : out->reserve, &out->work),
        ASHLAR_EOVERFLOW, "model: a workspace is too large to address");
    return ASHLAR_OK;
}

static ashlar_status size_layer(void *user, const ashlar_operation_call *c,
                                ashlar_operation_sizes *out) {
    const layer *l = user;
    const size_t rows = c->inputs[0].extent.rows;
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(l->rnn);
    areas a;
    ASHLAR_FAIL_IF(state_bytes(l, rows, layout->state) > SIZE_MAX / 4 ||
                       state_bytes(l, rows, layout->config.hidden) > SIZE_MAX / 4,
                   ASHLAR_EOVERFLOW, "model: a batch of %zu sequences is too large to address",
                   rows);
    ASHLAR_TRY(areas_of(l, c, &a));
    *out = (ashlar_operation_sizes){
        .kept_bytes = a.reserve,
        .work_bytes = {a.work, a.work, a.work},
        .carried_bytes =
            cells_at(l, rows) + (has_cells(l) ? state_bytes(l, rows, layout->config.hidden) : 0)};
    return ASHLAR_OK;
}

/* Whether somebody wants the states behind the last steps, or gives gradients of them. */
static bool has_final_states(const ashlar_operation_call *c) {
    return c->after != NULL || c->after_gradient != NULL || c->outputs[1].value != NULL ||
           c->outputs[2].value != NULL || c->outputs[1].gradient != NULL ||
           c->outputs[2].gradient != NULL;
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

static ashlar_rnn_buffers buffers_of(const layer *l, const ashlar_operation_call *c,
                                     const areas *a) {
    const ashlar_operand_data *in = c->inputs, *out = c->outputs;
    const state_pair before = pick(l, c, c->before, in[1].value, in[2].value);
    const state_pair after = pick(l, c, c->after, out[1].value, out[2].value);
    const state_pair dafter = pick(l, c, c->after_gradient, out[1].gradient, out[2].gradient);
    const state_pair dbefore = pick(l, c, c->before_gradient, in[1].gradient, in[2].gradient);
    void *reserve = c->has_backward || a->reserve == 0 ? c->kept : (char *)c->work + a->reserve_at;
    return (ashlar_rnn_buffers){.reserve = reserve,
                                .work = c->work,
                                .x = in[0].value,
                                .hx = before.h,
                                .cx = before.c,
                                .weights = c->weights[0].value,
                                .prepared =
                                    !c->trains && l->model->prepared != NULL ? l->prepared : NULL,
                                .y = out[0].value,
                                .hy = after.h,
                                .cy = after.c,
                                .dy = out[0].gradient,
                                .dhy = dafter.h,
                                .dcy = dafter.c,
                                .dx = in[0].gradient,
                                .dhx = dbefore.h,
                                .dcx = dbefore.c,
                                .dweights = c->weights[0].gradient};
}

/* Lengths for a batch that gives none: all are `steps`. */
static ashlar_status full_lengths(layer *l, const ashlar_extent *e, const int32_t **out) {
    if (l->full_count < e->rows) {
        int32_t *grown = ashlar__host_realloc(l->full, e->rows, sizeof *grown);
        ASHLAR_FAIL_IF(grown == NULL, ASHLAR_EHOSTMEM, "no host memory for %zu lengths", e->rows);
        l->full = grown;
        l->full_count = e->rows;
    }
    for (size_t b = 0; b < e->rows; b++) {
        l->full[b] = (int32_t)e->steps;
    }
    *out = l->full;
    return ASHLAR_OK;
}

static ashlar_status run_pass(const ashlar_rnn *rnn, ashlar_phase phase,
                              const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *b,
                              ashlar_stream stream) {
    return phase == ASHLAR_PHASE_FORWARD    ? ashlar_rnn_forward(rnn, batch, b, stream)
           : phase == ASHLAR_PHASE_BACKWARD ? ashlar_rnn_backward_data(rnn, batch, b, stream)
                                            : ashlar_rnn_backward_weights(rnn, batch, b, stream);
}

/* A pass that reads lengths in device memory when it runs. They are at least 1 there: what is
 * computed for a sequence that is over is not read. */
static ashlar_status queue_varying(const layer *l, const ashlar_operation_call *c,
                                   const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *b,
                                   size_t lengths_at, ashlar_stream stream) {
    const ashlar_rnn_pass passes[] = {ASHLAR_RNN_FORWARD, ASHLAR_RNN_BACKWARD_DATA,
                                      ASHLAR_RNN_BACKWARD_WEIGHTS};
    const ashlar_extent *e = &c->inputs[0].extent;
    int32_t *const lengths = (int32_t *)(void *)((char *)c->work + lengths_at);
    const ashlar_clip_lengths_args clip = {.batch = e->rows,
                                           .steps = e->steps,
                                           .least = 1,
                                           .lengths = e->lengths_at,
                                           .whole = e->steps,
                                           .out = lengths};
    const ashlar_rnn_varying varying = {lengths, c->seed_at};
    ASHLAR_TRY(ashlar__ops_clip_lengths(l->model->ops, &clip, stream));
    return ashlar__rnn_queue_varying(l->rnn, passes[c->phase], batch, b, &varying, stream);
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
    if (c->phase != ASHLAR_PHASE_FORWARD || w->chunk == 0 || w->batch->after == NULL ||
        c->after == NULL || e->lengths_at == NULL) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(hold_rows(l, e, layout->state, b->hx, b->hy, stream));
    return has_cells(l) ? hold_rows(l, e, layout->config.hidden, b->cx, b->cy, stream) : ASHLAR_OK;
}

static ashlar_status queue_layer(void *user, const ashlar_operation_call *c, ashlar_stream stream) {
    layer *l = user;
    const ashlar_extent *e = &c->inputs[0].extent;
    const ashlar_rnn *rnn = c->trains ? l->rnn : testing(l);
    areas a;
    ASHLAR_TRY(areas_of(l, c, &a));
    const ashlar_rnn_buffers b = buffers_of(l, c, &a);
    ashlar_rnn_batch batch = {.steps = e->steps,
                              .batch = e->rows,
                              .lengths = e->lengths,
                              .dropout_seed = c->seed + l->number * LAYER_STRIDE,
                              .dropout_restarts = c->is_replayed,
                              .dropout_first = c->sequence_first,
                              .dropout_stride = c->sequence_stride,
                              .padding_is_free = l->may_read_padding && !has_final_states(c)};
    if (c->seed_at != NULL) {
        ASHLAR_TRY(queue_varying(l, c, &batch, &b, a.lengths_at, stream));
        return hold_states(l, c, &b, stream);
    }
    if (batch.lengths == NULL) {
        ASHLAR_TRY(full_lengths(l, e, &batch.lengths));
    }
    ASHLAR_TRY(run_pass(rnn, c->phase, &batch, &b, stream));
    return hold_states(l, c, &b, stream);
}

static void destroy_layer(void *user) {
    layer *l = user;
    ashlar_rnn_destroy(l->rnn_test);
    ashlar_rnn_destroy(l->rnn);
    ashlar__host_free(l->full);
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
    if (status != ASHLAR_OK) {
        destroy_layer(l);
        return status;
    }
    *out = l;
    return ASHLAR_OK;
}

/* Initial states: each is the state of another layer of this width, or an input of it. */
static bool are_states(ashlar_model *m, const char *name, const layer *l, ashlar_axis axis,
                       ashlar_tensor *const *states, size_t count) {
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(l->rnn);
    const size_t widths[] = {layout->pseudo_layers * layout->state,
                             layout->pseudo_layers * layout->config.hidden};
    for (size_t i = 0; i < count; i++) {
        const ashlar_tensor *s = states[i];
        if (s != NULL && (s->model != m || s->axis != axis || s->width != widths[i])) {
            ASHLAR_MODEL_FAIL(m, ASHLAR_EINVAL,
                              "model: %s: state %s has width %zu on axis %u; give the state of a "
                              "layer of the same size, or an input on axis %u of width %zu",
                              name, s->name, s->width, s->axis, axis, widths[i]);
        }
    }
    return m->root->status == ASHLAR_OK;
}

/* The operation reads what its back end does: cuDNN reads outputs and states again. */
static ashlar_operation operation_of(layer *l) {
    const bool reads_output = ashlar_rnn_backward_reads_output(l->rnn);
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
    const ashlar_model_weight weight = {.name = name, .kind = ASHLAR_PART_RNN, .layout = layout};
    ashlar_node *node = ashlar__model_add(m, &operation, &shape, ashlar__model_text(m, name));
    if (node == NULL) {
        return (ashlar_rnn_result){0};
    }
    node->weights[0] = ashlar__model_weight(m, &weight);
    node->weight_count = 1;
    for (size_t i = 1; i < node->output_count; i++) {
        node->outputs[i]->layers = layout->pseudo_layers;
        node->outputs[i]->directions = layout->config.directions;
    }
    return m->root->status == ASHLAR_OK
               ? (ashlar_rnn_result){node->outputs[0], node->outputs[1], node->outputs[2]}
               : (ashlar_rnn_result){0};
}

ashlar_rnn_result ashlar_model_rnn(ashlar_model *m, const char *name, ashlar_tensor *x,
                                   const ashlar_rnn_config *config,
                                   const ashlar_rnn_states *states) {
    const ashlar_rnn_states given = states == NULL ? (ashlar_rnn_states){0} : *states;
    ashlar_tensor *const initial[] = {given.h, given.c};
    ashlar_rnn_config c = ASHLAR_OR_ZERO(ashlar_rnn_config, config);
    layer *l = NULL;
    if (!begin(m, name, &x, 1) || !ashlar__model_is_vector(m, name, x)) {
        return (ashlar_rnn_result){0};
    }
    c.input = c.input == 0 ? x->width : c.input;
    c.dtype = m->dtype;
    if (c.input != x->width) {
        ASHLAR_MODEL_FAIL(m, ASHLAR_EINVAL,
                          "model: %s reads %s of width %zu; its config's input is %zu: give 0, or "
                          "that width",
                          name, x->name, x->width, c.input);
        return (ashlar_rnn_result){0};
    }
    if ((given.c != NULL) != (given.h != NULL && c.cell == ASHLAR_RNN_LSTM)) {
        ASHLAR_MODEL_FAIL(m, ASHLAR_EINVAL,
                          c.cell == ASHLAR_RNN_LSTM
                              ? "model: %s: an LSTM needs both states, h and c, or none"
                              : "model: %s: the layer is no LSTM, and has no state c",
                          name);
        return (ashlar_rnn_result){0};
    }
    const ashlar_status status = create_layer(m, &c, &l);
    if (status != ASHLAR_OK) {
        char why[ASHLAR_DETAIL_BYTES];
        (void)snprintf(why, sizeof why, "%s", ashlar_error_detail());
        ASHLAR_MODEL_FAIL(m, status, "model: %s: %s", name, why);
        return (ashlar_rnn_result){0};
    }
    if (!are_states(m, name, l, m->within[x->axis], initial, 2)) {
        destroy_layer(l);
        return (ashlar_rnn_result){0};
    }
    return add_layer(m, name, x, l, &given);
}

/* ---- prepared weights ---- */

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

size_t ashlar__layer_prepared_bytes(const ashlar_node *node) {
    if (node->operation.queue == queue_layer) {
        const layer *l = node->operation.user;
        testing(l)->prepares_bf16 = l->model->prepares_bf16;
        return ashlar_rnn_prepared_bytes(testing(l));
    }
    if (node->operation.queue == queue_linear) {
        const linear *l = node->operation.user;
        const ashlar_prepared_linear prepared = weight_to_prepare(l, node);
        return l->model->ops->backend == &ashlar__ops_backend_cpu
                   ? ashlar__linear_prepared_bytes(&prepared)
                   : 0;
    }
    return 0;
}

ashlar_status ashlar__layer_prepare(const ashlar_node *node, void *prepared, ashlar_stream stream) {
    if (node->operation.queue == queue_layer) {
        layer *l = node->operation.user;
        l->prepared = prepared;
        return ashlar_rnn_prepare(testing(l), weights_of(l->model, node), prepared, stream);
    }
    if (node->operation.queue == queue_linear) {
        linear *l = node->operation.user;
        l->prepared = prepared;
        const ashlar_prepared_linear of = weight_to_prepare(l, node);
        return ashlar__linear_prepare(l->model->device, &of, stream);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_model_set_seed(ashlar_model *m, uint64_t seed, ashlar_stream stream) {
    m->seed = seed;
    for (const ashlar_node *node = m->nodes; node != NULL; node = node->next) {
        if (node->operation.queue == queue_layer) {
            const layer *l = node->operation.user;
            ASHLAR_TRY(
                ashlar__rnn_restart_dropout(l->rnn, seed + l->number * LAYER_STRIDE, stream));
        }
    }
    for (ashlar_model *body = m->bodies; body != NULL; body = body->next_body) {
        ASHLAR_TRY(ashlar_model_set_seed(body, seed, stream));
    }
    return ASHLAR_OK;
}
