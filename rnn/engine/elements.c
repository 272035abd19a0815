/* elements.c - a model's operations without weights: element by element, dropout, columns, pooling
 * over time, argmax. */
#include <ashlar/model.h>

#include <string.h>

#include "allocator/base/host.h"
#include "rnn/engine/engine.h"
#include "rnn/layer/ops.h"

/* What the operations of this file are made of. */
typedef struct element {
    ashlar_model *model;
    int kind;                  /* of elements or pools */
    double rate;               /* of dropout */
    uint32_t site;             /* of dropout */
    bool is_part;              /* of columns: of one input, not all of it */
    size_t pieces;             /* of columns */
    size_t first;              /* column of the input */
    size_t layers; /* of states, whose last ones are the pieces; 0: an ordinary tensor */
} element;

static size_t rows_of(const ashlar_operand_data *t) {
    return t->extent.steps * t->extent.rows;
}

/* Add an operation of this file. */
static ashlar_tensor *add(ashlar_model *m, const ashlar_operation *operation, const element *e,
                          ashlar_tensor *const *inputs, size_t count, ashlar_axis axis,
                          size_t width) {
    ashlar_operation o = *operation;
    element own = *e;
    own.model = m;
    o.user = ashlar__model_user(m, &own, sizeof own);
    o.destroy = ashlar__host_free;
    return ashlar__model_one(m, &o, NULL, inputs, count, axis, width, NULL, 0);
}

/* ---- element by element ---- */

static const char *const kind_names[] = {"add",     "multiply", "tanh", "relu",
                                         "sigmoid", "softmax",  "mask"};
ASHLAR_TABLE_IS_FULL(kind_names, ASHLAR_ELEMENT_KIND_COUNT);

static ashlar_status map(const element *e, ashlar_map_kind kind, const ashlar_operand_data *shape,
                         const void *a, const void *b, void *out, ashlar_stream stream) {
    const ashlar_map_args args = {
        .kind = kind, .count = rows_of(shape) * shape->width, .a = a, .b = b, .out = out};
    return out == NULL || (kind == ASHLAR_MAP_COPY && out == a)
               ? ASHLAR_OK
               : ashlar__ops_map(e->model->ops, &args, stream);
}

/* The second gradient first: the other one may overwrite the output's. */
static ashlar_status queue_pair(void *user, const ashlar_operation_call *c, ashlar_stream stream) {
    const element *e = user;
    const bool is_sum = e->kind == ASHLAR_ELEMENT_ADD;
    const ashlar_map_kind kind = is_sum ? ASHLAR_MAP_ADD : ASHLAR_MAP_MULTIPLY;
    const ashlar_map_kind back = is_sum ? ASHLAR_MAP_COPY : ASHLAR_MAP_MULTIPLY;
    const ashlar_operand_data *a = &c->inputs[0], *b = &c->inputs[1], *out = &c->outputs[0];
    if (c->phase == ASHLAR_PHASE_FORWARD) {
        return map(e, kind, out, a->value, b->value, out->value, stream);
    }
    ASHLAR_TRY(map(e, back, out, out->gradient, is_sum ? NULL : a->value, b->gradient, stream));
    return map(e, back, out, out->gradient, is_sum ? NULL : b->value, a->gradient, stream);
}

static ashlar_status scale(const element *e, const ashlar_operand_data *shape, const void *a,
                           const void *factors, bool masks, void *out, ashlar_stream stream) {
    const ashlar_scale_rows_args args = {
        .rows = rows_of(shape),
        .width = shape->width,
        .a = a,
        .scale = factors,
        .out = out,
        .steps = shape->extent.steps,
        .batch = shape->extent.rows,
        .lengths = masks ? shape->extent.lengths_at : NULL,
    };
    return out == NULL ? ASHLAR_OK : ashlar__ops_scale_rows(e->model->ops, &args, stream);
}

/* One factor for each position. */
static ashlar_status queue_scale(void *user, const ashlar_operation_call *c, ashlar_stream stream) {
    const element *e = user;
    const ashlar_operand_data *a = &c->inputs[0], *b = &c->inputs[1], *out = &c->outputs[0];
    if (c->phase == ASHLAR_PHASE_FORWARD) {
        return scale(e, out, a->value, b->value, false, out->value, stream);
    }
    if (b->gradient != NULL) {
        const ashlar_row_products_args args = {.rows = rows_of(out),
                                               .width = out->width,
                                               .a = out->gradient,
                                               .b = a->value,
                                               .out = b->gradient};
        ASHLAR_TRY(ashlar__ops_row_products(e->model->ops, &args, stream));
    }
    return scale(e, out, out->gradient, b->value, false, a->gradient, stream);
}

static ashlar_status queue_mask(void *user, const ashlar_operation_call *c, ashlar_stream stream) {
    const ashlar_operand_data *in = &c->inputs[0], *out = &c->outputs[0];
    return c->phase == ASHLAR_PHASE_FORWARD
               ? scale(user, out, in->value, NULL, true, out->value, stream)
               : scale(user, out, out->gradient, NULL, true, in->gradient, stream);
}

static ashlar_status queue_function(void *user, const ashlar_operation_call *c,
                                    ashlar_stream stream) {
    static const ashlar_map_kind kinds[][2] = {
        [ASHLAR_ELEMENT_TANH] = {ASHLAR_MAP_TANH, ASHLAR_MAP_TANH_BACK},
        [ASHLAR_ELEMENT_RELU] = {ASHLAR_MAP_RELU, ASHLAR_MAP_RELU_BACK},
        [ASHLAR_ELEMENT_SIGMOID] = {ASHLAR_MAP_SIGMOID, ASHLAR_MAP_SIGMOID_BACK}};
    const element *e = user;
    const ashlar_operand_data *in = &c->inputs[0], *out = &c->outputs[0];
    return c->phase == ASHLAR_PHASE_FORWARD
               ? map(e, kinds[e->kind][0], out, in->value, NULL, out->value, stream)
               : map(e, kinds[e->kind][1], out, out->value, out->gradient, in->gradient, stream);
}

static ashlar_status queue_softmax(void *user, const ashlar_operation_call *c,
                                   ashlar_stream stream) {
    const element *e = user;
    const ashlar_operand_data *in = &c->inputs[0], *out = &c->outputs[0];
    if (c->phase == ASHLAR_PHASE_FORWARD) {
        const ashlar_softmax_args args = {
            .rows = rows_of(out), .width = out->width, .x = in->value, .y = out->value};
        return ashlar__ops_softmax(e->model->ops, &args, stream);
    }
    const ashlar_softmax_back_args args = {.rows = rows_of(out),
                                           .width = out->width,
                                           .y = out->value,
                                           .dy = out->gradient,
                                           .dx = in->gradient};
    return ashlar__ops_softmax_back(e->model->ops, &args, stream);
}

ashlar_tensor *ashlar_model_element(ashlar_model *m, ashlar_element_kind kind, ashlar_tensor *a,
                                    ashlar_tensor *b) {
    static ashlar_status (*const queues[])(void *, const ashlar_operation_call *, ashlar_stream) = {
        queue_pair,     queue_pair,    queue_function, queue_function,
        queue_function, queue_softmax, queue_mask};
    ASHLAR_TABLE_IS_FULL(queues, ASHLAR_ELEMENT_KIND_COUNT);
    if ((unsigned)kind >= ASHLAR_ELEMENT_KIND_COUNT) {
        ASHLAR_MODEL_FAIL(m, ASHLAR_EINVAL, "model: %d is no kind of elements", (int)kind);
        return NULL;
    }
    const bool is_multiply = kind == ASHLAR_ELEMENT_MULTIPLY;
    const size_t count = is_multiply || kind == ASHLAR_ELEMENT_ADD ? 2 : 1;
    ashlar_tensor *const inputs[] = {a, b};
    const char *name = kind_names[kind];
    if (!ashlar__model_accepts(m, name, inputs, count, count)) {
        return NULL;
    }
    ASHLAR_MODEL_FAIL_IF(m, count == 1 && b != NULL,
                         "model: %s reads one tensor; give NULL for the second", name);
    ASHLAR_MODEL_FAIL_IF(
        m,
        count == 2 &&
            (a->axis != b->axis || (a->width != b->width && !(is_multiply && b->width == 1))),
        "model: %s: %s has width %zu on axis %u, %s width %zu on axis %u; they must be alike", name,
        a->name, a->width, a->axis, b->name, b->width, b->axis);
    const bool is_scale = is_multiply && a->width != b->width;
    const bool is_function = kind >= ASHLAR_ELEMENT_TANH && kind <= ASHLAR_ELEMENT_SOFTMAX;
    const ashlar_operation operation = {.name = name,
                                        .queue = is_scale ? queue_scale : queues[kind],
                                        .is_local = true,
                                        .reads_inputs = is_multiply ? 3 : 0,
                                        .reads_outputs = is_function ? 1 : 0,
                                        .value_in_place = true,
                                        .gradient_in_place = true};
    return add(m, &operation, &(element){.kind = (int)kind}, inputs, count, a->axis, a->width);
}

/* ---- dropout ---- */

static ashlar_status queue_dropout(void *user, const ashlar_operation_call *c,
                                   ashlar_stream stream) {
    const element *e = user;
    const ashlar_operand_data *in = &c->inputs[0], *out = &c->outputs[0];
    const bool is_forward = c->phase == ASHLAR_PHASE_FORWARD;
    const ashlar_drop_args args = {.steps = out->extent.steps,
                                   .batch = out->extent.rows,
                                   .width = out->width,
                                   .rate = e->rate,
                                   .seed = c->seed,
                                   .seed_at = c->seed_at,
                                   .site = e->site,
                                   .first = c->sequence_first,
                                   .stride = c->sequence_stride,
                                   .a = is_forward ? in->value : out->gradient,
                                   .out = is_forward ? out->value : in->gradient};
    return c->trains ? ashlar__ops_drop(e->model->ops, &args, stream)
                     : map(e, ASHLAR_MAP_COPY, out, in->value, NULL, out->value, stream);
}

ashlar_tensor *ashlar_model_dropout(ashlar_model *m, ashlar_tensor *x, double rate) {
    if (!ashlar__model_accepts(m, "dropout", &x, 1, 1)) {
        return NULL;
    }
    ASHLAR_MODEL_FAIL_IF(m, !(rate >= 0 && rate < 1), "model: a dropout of %g; it is 0 .. < 1",
                         rate);
    const ashlar_operation operation = {.name = "dropout",
                                        .queue = queue_dropout,
                                        .is_local = true,
                                        .value_in_place = true,
                                        .gradient_in_place = true};
    return add(m, &operation, &(element){.rate = rate, .site = (uint32_t)m->root->site_count++}, &x,
               1, x->axis, x->width);
}

/* ---- columns ---- */

/* Pieces of rows that lie side by side in the output: all columns of each input, or some of one; or
 * of states [layers, B, P] the last ones, one for each direction, [B, directions * P]. */
static ashlar_status queue_columns(void *user, const ashlar_operation_call *c,
                                   ashlar_stream stream) {
    const element *e = user;
    const ashlar_operand_data *in = c->inputs, *out = &c->outputs[0];
    const size_t item = ashlar_dtype_bytes(e->model->dtype);
    const bool is_forward = c->phase == ASHLAR_PHASE_FORWARD;
    size_t column = 0;
    if (e->is_part && !is_forward) {
        ASHLAR_TRY(
            ashlar_fill(e->model->device, in->gradient, 0, rows_of(in) * in->width * item, stream));
    }
    for (size_t i = 0; i < e->pieces; i++, in += !e->is_part) {
        const size_t width = e->is_part ? out->width / e->pieces : in->width;
        const size_t stride = e->layers > 0 ? width : in->width;
        const size_t layer = e->layers - e->pieces + i;
        const size_t at = e->layers > 0 ? layer * rows_of(out) * width : e->first;
        char *inner = is_forward ? in->value : in->gradient;
        char *outer = (char *)(is_forward ? out->value : out->gradient) + column * item;
        if (inner != NULL) {
            inner += at * item;
            const ashlar_columns_args args = {.rows = rows_of(out),
                                              .width = width,
                                              .from = is_forward ? inner : outer,
                                              .from_stride = is_forward ? stride : out->width,
                                              .to = is_forward ? outer : inner,
                                              .to_stride = is_forward ? out->width : stride};
            ASHLAR_TRY(ashlar__ops_copy_columns(e->model->ops, &args, stream));
        }
        column += width;
    }
    return ASHLAR_OK;
}

ashlar_tensor *ashlar_model_concatenate(ashlar_model *m, ashlar_tensor *a, ashlar_tensor *b) {
    static const char name[] = "concatenate";
    ashlar_tensor *const inputs[] = {a, b};
    if (!ashlar__model_accepts(m, name, inputs, 2, 2)) {
        return NULL;
    }
    ASHLAR_MODEL_FAIL_IF(m, a->axis != b->axis, "model: %s: %s is on axis %u, %s on axis %u", name,
                         a->name, a->axis, b->name, b->axis);
    const ashlar_operation operation = {.name = name, .queue = queue_columns, .is_local = true};
    return add(m, &operation, &(element){.pieces = 2}, inputs, 2, a->axis, a->width + b->width);
}

ashlar_tensor *ashlar_model_slice(ashlar_model *m, ashlar_tensor *x, size_t first, size_t width) {
    if (!ashlar__model_accepts(m, "slice", &x, 1, 1)) {
        return NULL;
    }
    ASHLAR_MODEL_FAIL_IF(m, width == 0 || first > x->width || width > x->width - first,
                         "model: slice: columns %zu to %zu of %s, which has %zu", first,
                         first + width, x->name, x->width);
    const ashlar_operation operation = {.name = "slice", .queue = queue_columns, .is_local = true};
    const element e = {.is_part = true, .pieces = 1, .first = first};
    return add(m, &operation, &e, &x, 1, x->axis, width);
}

ashlar_tensor *ashlar_model_last_layer(ashlar_model *m, ashlar_tensor *h) {
    if (!ashlar__model_accepts(m, "last layer", &h, 1, 0)) {
        return NULL;
    }
    if (h->layers == 0) {
        ASHLAR_MODEL_FAIL(m, ASHLAR_EINVAL, "model: last layer: %s is no state of recurrent layers",
                          h->name);
        return NULL;
    }
    const ashlar_operation operation = {.name = "last layer", .queue = queue_columns};
    const element e = {.is_part = true, .pieces = h->directions, .layers = h->layers};
    return add(m, &operation, &e, &h, 1, h->axis, h->width / h->layers * h->directions);
}

/* ---- over time ---- */

static ashlar_status queue_pool(void *user, const ashlar_operation_call *c, ashlar_stream stream) {
    const element *e = user;
    const ashlar_operand_data *in = &c->inputs[0], *out = &c->outputs[0];
    const ashlar_pool_args args = {.kind = (ashlar_pool_kind)e->kind,
                                   .steps = in->extent.steps,
                                   .batch = in->extent.rows,
                                   .width = in->width,
                                   .lengths = in->extent.lengths_at,
                                   .x = in->value,
                                   .y = out->value,
                                   .dy = out->gradient,
                                   .dx = in->gradient};
    return c->phase == ASHLAR_PHASE_FORWARD ? ashlar__ops_pool(e->model->ops, &args, stream)
                                            : ashlar__ops_pool_back(e->model->ops, &args, stream);
}

ashlar_tensor *ashlar_model_pool(ashlar_model *m, ashlar_pool_kind kind, ashlar_tensor *x) {
    if (!ashlar__model_accepts(m, "pool", &x, 1, 1)) {
        return NULL;
    }
    ASHLAR_MODEL_FAIL_IF(m, x->axis == ASHLAR_AXIS_NONE || (unsigned)kind >= ASHLAR_POOL_KIND_COUNT,
                         "model: pool: %s is on no axis of time, or %d no kind", x->name,
                         (int)kind);
    const bool is_max = kind == ASHLAR_POOL_MAX;
    const ashlar_operation operation = {.name = "pool",
                                        .queue = queue_pool,
                                        .reads_inputs = is_max ? 1 : 0,
                                        .reads_outputs = is_max ? 1 : 0};
    return add(m, &operation, &(element){.kind = (int)kind}, &x, 1, m->within[x->axis], x->width);
}

static ashlar_status queue_argmax(void *user, const ashlar_operation_call *c,
                                  ashlar_stream stream) {
    const element *e = user;
    const ashlar_operand_data *in = &c->inputs[0];
    const ashlar_argmax_args args = {.rows = rows_of(in),
                                     .classes = in->width,
                                     .logits = in->value,
                                     .labels = c->outputs[0].value};
    return ashlar__ops_argmax(e->model->ops, &args, stream);
}

ashlar_tensor *ashlar_model_argmax(ashlar_model *m, ashlar_tensor *x) {
    if (!ashlar__model_accepts(m, "argmax", &x, 1, 1)) {
        return NULL;
    }
    const ashlar_operation operation = {
        .name = "argmax", .queue = queue_argmax, .is_local = true, .constant_inputs = 1};
    return add(m, &operation, &(element){0}, &x, 1, x->axis, 0);
}
