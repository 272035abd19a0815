/* build.c - declares a model: axes, tensors, operations, weights; commits and draws the weights. */
#include "rnn/engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "arena/compute/convert.h"
#include "arena/layout/arena_impl.h"
#include "rnn/layer/ops.h"

/* ---- the model ---- */

static ashlar_status open_model(ashlar_model *m) {
    ASHLAR_TRY(ashlar_ops_create(m->device, m->dtype, &m->ops));
    ASHLAR_TRY(ashlar_arena_create(&m->arena));
    m->arena->seed = 1;
    return ASHLAR_OK;
}

ashlar_model *ashlar__model_new(ashlar_allocator *allocator, ashlar_dtype dtype,
                                ashlar_model *root) {
    ashlar_model *m = ashlar__host_calloc(1, sizeof *m);
    if (m != NULL) {
        *m = (ashlar_model){.root = root != NULL ? root : m,
                            .device = ashlar_allocator_device(allocator),
                            .away = {.device = ashlar_allocator_device(allocator)},
                            .allocator = allocator,
                            .dtype = dtype,
                            .ops = root != NULL ? root->ops : NULL,
                            .axis_count = ASHLAR_AXIS_TIME + 1};
    }
    return m;
}

ashlar_status ashlar_model_create(ashlar_allocator *allocator, ashlar_dtype dtype,
                                  ashlar_model **out) {
    ashlar_model *m = ashlar__model_new(allocator, dtype, NULL);
    ASHLAR_FAIL_IF(m == NULL, ASHLAR_EHOSTMEM, "no host memory for a model");
    ASHLAR_HAND_OUT(open_model(m), m, ashlar_model_destroy, out);
}

ashlar_status ashlar__model_drop_prepared(ashlar_model *m) {
    void *const prepared = m->prepared;
    m->prepared = NULL;
    return ashlar_free(m->allocator, prepared);
}

void ashlar__model_drop_tables(ashlar_model *m) {
    for (ashlar_walk_table *table = m->tables, *next; table != NULL; table = next) {
        next = table->next;
        ashlar__walk_table_destroy(table);
    }
    m->tables = NULL;
    for (ashlar_model *body = m->bodies; body != NULL; body = body->next_body) {
        ashlar__model_drop_tables(body);
    }
}

static void free_nodes(ashlar_model *m) {
    for (size_t n = 0; n < m->node_count; n++) {
        if (m->nodes[n]->operation.destroy != NULL) {
            m->nodes[n]->operation.destroy(m->nodes[n]->operation.user);
        }
        ashlar__host_free(m->nodes[n]);
    }
    ashlar__host_free(m->nodes);
}

void ashlar_model_destroy(ashlar_model *m) {
    if (m == NULL) {
        return;
    }
    for (ashlar_model *body = m->bodies, *next; body != NULL; body = next) {
        next = body->next_body;
        ashlar__host_free(body->loop);
        ashlar_model_destroy(body);
    }
    ashlar__away_finish(&m->away);
    m->bodies = NULL;
    ashlar__model_drop_tables(m);
    if (m->root == m) {
        ashlar_arena_destroy(m->arena);
        ashlar_ops_destroy(m->ops);
    }
    ASHLAR_IGNORE(ashlar_free(m->allocator, m->ops_work)); /* is a block of it, or NULL */
    ASHLAR_IGNORE(ashlar__model_drop_prepared(m));         /* likewise */
    free_nodes(m);
    for (ashlar_model_constant *c = m->constants, *next; c != NULL; c = next) {
        next = c->next;
        ASHLAR_IGNORE(ashlar_free(m->allocator, c->device)); /* likewise */
        ashlar__host_free(c);
    }
    for (size_t i = 0; i < m->text_count; i++) {
        ashlar__host_free(m->texts[i]);
    }
    ashlar__host_free(m->texts);
    ashlar__host_free(m->weights);
    ashlar__host_free(m->ties);
    ashlar__host_free(m);
}

ashlar_status ashlar_model_set_rates(ashlar_model *m, const ashlar_model_rates *rates) {
    const ashlar_model_rates r = ASHLAR_OR_ZERO(ashlar_model_rates, rates);
    const double all[] = {r.flops, r.memory_bytes, r.out_bytes, r.back_bytes};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ASHLAR_FAIL_IF(!(all[i] >= 0 && all[i] < INFINITY), ASHLAR_EINVAL,
                       "model: a rate of %g; give a finite one, or 0 for the usual", all[i]);
    }
    m->root->rates = r;
    ashlar__model_drop_tables(m->root);
    return ASHLAR_OK;
}

/* ---- failures ---- */

void ashlar__model_fail(ashlar_model *m, ashlar_status status) {
    ashlar_model *root = m->root;
    if (root->status == ASHLAR_OK && status != ASHLAR_OK) {
        root->status = status;
        (void)snprintf(root->detail, sizeof root->detail, "%s", ashlar_error_detail());
    }
}

static ashlar_status copy_text(ashlar_model *m, const char *text, char **out) {
    const size_t bytes = strlen(text) + 1;
    ASHLAR_HOST_GROW(m->texts, &m->text_capacity, m->text_count,
                     "no host memory for a model's names");
    ASHLAR_HOST_NEW(*out, bytes, "no host memory for a model's names");
    memcpy(*out, text, bytes);
    m->texts[m->text_count++] = *out;
    return ASHLAR_OK;
}

bool ashlar__model_accepts(ashlar_model *m, const char *what, ashlar_tensor *const *tensors,
                           size_t count, size_t vectors) {
    ASHLAR_MODEL_FAIL_IF(m, m->root->is_committed || m->is_closed,
                         "model: %s is declared after the commit, or the end of its loop", what);
    for (size_t i = 0; i < count && m->root->status == ASHLAR_OK; i++) {
        const ashlar_tensor *t = tensors[i];
        if (t == NULL || t->model != m) {
            ASHLAR_MODEL_FAIL(m, ASHLAR_EINVAL, "model: input %zu of %s is %s", i, what,
                              t == NULL ? "NULL" : "another model's");
        } else if (i < vectors && (t->width == 0 || t->layers > 0)) {
            ASHLAR_MODEL_FAIL(m, ASHLAR_EINVAL,
                              "model: %s reads %s, which has %s; it needs vectors", what, t->name,
                              t->width == 0 ? "tokens" : "the states of layers");
        }
    }
    return m->root->status == ASHLAR_OK;
}

/* ---- tensors and operations ---- */

ashlar_axis ashlar_model_axis(ashlar_model *m, ashlar_axis within) {
    ASHLAR_MODEL_FAIL_IF(m, m->axis_count == ASHLAR_AXIS_MAX, "model: more than %d axes",
                         ASHLAR_AXIS_MAX);
    ASHLAR_MODEL_FAIL_IF(m, within >= m->axis_count, "model: there is no axis %u to be within",
                         within);
    if (m->root->status != ASHLAR_OK) {
        return ASHLAR_AXIS_NONE;
    }
    m->within[m->axis_count] = within;
    return m->axis_count++;
}

static void add_tensor(ashlar_model *m, ashlar_tensor *tensor, ashlar_node *node, const char *name,
                       ashlar_axis axis, size_t width) {
    *tensor = (ashlar_tensor){.model = m,
                              .name = name,
                              .node = node,
                              .index = m->tensor_count++,
                              .output = ASHLAR_NO_INDEX,
                              .axis = axis,
                              .width = width};
    for (ashlar_axis a = axis; a != ASHLAR_AXIS_NONE; a = m->within[a]) {
        m->used_axes |= (size_t)1 << a;
    }
}

ashlar_tensor *ashlar__model_add_input(ashlar_model *m, const char *name, ashlar_axis axis,
                                       size_t width) {
    char *copy = NULL;
    ashlar__model_fail(m, copy_text(m, name, &copy));
    if (copy == NULL) {
        return NULL;
    }
    add_tensor(m, &m->inputs[m->input_count], NULL, copy, axis, width);
    return &m->inputs[m->input_count++];
}

ashlar_tensor *ashlar_model_input(ashlar_model *m, const char *name, ashlar_axis axis,
                                  size_t width) {
    (void)ashlar__model_accepts(m, name != NULL ? name : "an input", NULL, 0, 0);
    ASHLAR_MODEL_FAIL_IF(m, name == NULL, "model: an input without a name");
    ASHLAR_MODEL_FAIL_IF(m, m->root != m,
                         "model: %s: the body of a loop has no inputs: take what it reads by "
                         "ashlar_loop_step() or ashlar_loop_use()",
                         name);
    ASHLAR_MODEL_FAIL_IF(m, axis >= m->axis_count || m->input_count == ASHLAR_MODEL_OPERANDS,
                         "model: input %s: axis %u, number %zu; there are %u axes, and at most %d "
                         "inputs",
                         name, axis, m->input_count, m->axis_count, ASHLAR_MODEL_OPERANDS);
    return m->root->status == ASHLAR_OK ? ashlar__model_add_input(m, name, axis, width) : NULL;
}

void ashlar_model_output(ashlar_model *m, ashlar_tensor *tensor) {
    if (!ashlar__model_accepts(m, "an output", &tensor, 1, 0)) {
        return;
    }
    ASHLAR_MODEL_FAIL_IF(m,
                         m->root != m || tensor->node == NULL ||
                             tensor->output != ASHLAR_NO_INDEX ||
                             m->output_count == ASHLAR_MODEL_OPERANDS,
                         "model: %s is an input, or in a loop, or an output already, or one of "
                         "more than %d",
                         tensor->name, ASHLAR_MODEL_OPERANDS);
    if (m->root->status == ASHLAR_OK) {
        tensor->output = m->output_count;
        m->outputs[m->output_count++] = tensor;
    }
}

static ashlar_status new_node(ashlar_model *m, const char *name, ashlar_node **out) {
    char *copy;
    ASHLAR_TRY(m->root->status);
    ASHLAR_TRY(copy_text(m, name, &copy));
    ASHLAR_HOST_GROW(m->nodes, &m->node_capacity, m->node_count,
                     "no host memory for a model's operations");
    ASHLAR_HOST_NEW(*out, 1, "no host memory for a model's operations");
    (*out)->name = copy;
    (*out)->index = m->node_count;
    m->nodes[m->node_count++] = *out;
    return ASHLAR_OK;
}

void *ashlar__model_user(ashlar_model *m, const void *user, size_t bytes) {
    void *copy = ashlar__host_calloc(1, bytes);
    if (copy == NULL) {
        ASHLAR_MODEL_FAIL(m, ASHLAR_EHOSTMEM, "no host memory for a model's operations");
        return NULL;
    }
    return memcpy(copy, user, bytes);
}

ashlar_node *ashlar__model_add(ashlar_model *m, const ashlar_operation *operation,
                               const ashlar_operation_shape *shape, const char *layer,
                               const size_t *weights) {
    const size_t most = operation->most_steps;
    ashlar_node *node = NULL;
    ashlar__model_fail(m, new_node(m, layer != NULL ? layer : operation->name, &node));
    if (node == NULL) {
        if (operation->destroy != NULL) {
            operation->destroy(operation->user);
        }
        return NULL;
    }
    node->operation = *operation;
    node->input_count = shape->input_count;
    node->output_count = shape->output_count;
    node->weight_count = shape->weight_count;
    memcpy(node->inputs, shape->inputs, sizeof node->inputs);
    for (size_t i = 0; i < shape->weight_count; i++) {
        node->weights[i] = weights[i];
    }
    for (size_t i = 0; i < shape->output_count; i++) {
        add_tensor(m, &node->outputs[i], node, node->name, shape->axes[i], shape->widths[i]);
    }
    m->most_steps = most > 0 && (m->most_steps == 0 || most < m->most_steps) ? most : m->most_steps;
    return node;
}

ashlar_tensor *ashlar__model_one(ashlar_model *m, const ashlar_operation *operation,
                                 const char *layer, ashlar_tensor *const *inputs,
                                 size_t input_count, ashlar_axis axis, size_t width,
                                 const size_t *weights, size_t weight_count) {
    ashlar_operation_shape shape = {.input_count = input_count,
                                    .output_count = operation->is_loss ? 0 : 1,
                                    .weight_count = weight_count,
                                    .axes = {axis},
                                    .widths = {width}};
    memcpy(shape.inputs, inputs, input_count * sizeof *inputs);
    ashlar_node *node = ashlar__model_add(m, operation, &shape, layer, weights);
    return node == NULL || operation->is_loss ? NULL : &node->outputs[0];
}

static bool shape_is_good(const ashlar_model *m, const ashlar_operation *o,
                          const ashlar_operation_shape *s) {
    bool is_good = s->input_count <= ASHLAR_OPERATION_INPUTS &&
                   s->output_count <= ASHLAR_OPERATION_OUTPUTS &&
                   s->weight_count <= ASHLAR_OPERATION_WEIGHTS && o->queue != NULL &&
                   o->name != NULL && (o->is_loss ? s->output_count == 0 : s->output_count > 0);
    for (size_t i = 0; i < s->output_count && is_good; i++) {
        is_good = s->axes[i] < m->axis_count;
    }
    for (size_t i = 0; i < s->weight_count && is_good; i++) {
        is_good = s->weight_names[i] != NULL && s->weight_rows[i] > 0;
    }
    return is_good;
}

void ashlar_model_operation(ashlar_model *m, const ashlar_operation *given,
                            const ashlar_operation_shape *given_shape,
                            ashlar_tensor *outputs[ASHLAR_OPERATION_OUTPUTS]) {
    static const ashlar_operation no_operation;
    static const ashlar_operation_shape no_shape;
    const ashlar_operation *operation = given != NULL ? given : &no_operation;
    const ashlar_operation_shape *shape = given_shape != NULL ? given_shape : &no_shape;
    const char *name = operation->name != NULL ? operation->name : "an operation";
    size_t weights[ASHLAR_OPERATION_WEIGHTS] = {0};
    if (outputs != NULL) {
        memset(outputs, 0, ASHLAR_OPERATION_OUTPUTS * sizeof *outputs);
    }
    ASHLAR_MODEL_FAIL_IF(m, !shape_is_good(m, operation, shape),
                         "model: operation %s has no name or queue(), or too many operands, or an "
                         "output of no axis; a loss has no output, the others have one",
                         name);
    const bool is_accepted = ashlar__model_accepts(m, name, shape->inputs, shape->input_count, 0);
    for (size_t i = 0; i < shape->weight_count && is_accepted; i++) {
        weights[i] =
            ashlar__model_weight(m, &(ashlar_model_weight){.name = shape->weight_names[i],
                                                           .kind = ASHLAR_PART_WEIGHT,
                                                           .rows = shape->weight_rows[i],
                                                           .width = shape->weight_widths[i]});
    }
    ashlar_node *node = ashlar__model_add(m, operation, shape, NULL, weights);
    for (size_t i = 0; node != NULL && i < node->output_count && outputs != NULL; i++) {
        outputs[i] = &node->outputs[i];
    }
}

/* ---- weights ---- */

static ashlar_status tie(ashlar_model *m, const char *tensor, const char *is) {
    char *from, *to;
    ASHLAR_HOST_GROW(m->ties, &m->tie_capacity, m->tie_count, "no host memory for a model's names");
    ASHLAR_TRY(copy_text(m, tensor, &from));
    ASHLAR_TRY(copy_text(m, is, &to));
    m->ties[m->tie_count++] = (ashlar_model_tied){.tensor = from, .is = to};
    return ASHLAR_OK;
}

static size_t find_weight(const ashlar_model *m, const char *name) {
    size_t i = 0;
    while (i < m->weight_count && strcmp(m->weights[i].name, name) != 0) {
        i++;
    }
    return i;
}

void ashlar_model_tie(ashlar_model *m, const char *tensor, const char *is) {
    (void)ashlar__model_accepts(m, "a tie", NULL, 0, 0);
    if (tensor == NULL || is == NULL) {
        ASHLAR_MODEL_FAIL(m, ASHLAR_EINVAL, "model: a tie of %s to %s",
                          tensor != NULL ? tensor : "a weight without a name",
                          is != NULL ? is : "a weight without a name");
        return;
    }
    ASHLAR_MODEL_FAIL_IF(m, find_weight(m->root, tensor) < m->root->weight_count,
                         "model: %s is tied to %s behind its layer; tie it before", tensor, is);
    if (m->root->status == ASHLAR_OK) {
        ashlar__model_fail(m, tie(m->root, tensor, is));
    }
}

static bool is_same(const ashlar_model_weight *a, const ashlar_model_weight *b) {
    const bool has_layout = a->layout != NULL;
    return has_layout == (b->layout != NULL) && a->rows == b->rows && a->width == b->width &&
           (!has_layout || (a->layout->elements == b->layout->elements &&
                            a->layout->config.cell == b->layout->config.cell &&
                            a->layout->config.bias == b->layout->config.bias &&
                            a->layout->config.layers == b->layout->config.layers &&
                            a->layout->config.directions == b->layout->config.directions &&
                            a->layout->config.input == b->layout->config.input &&
                            a->layout->config.hidden == b->layout->config.hidden));
}

static ashlar_status add_weight(ashlar_model *m, const ashlar_model_weight *weight) {
    char *name;
    ASHLAR_HOST_GROW(m->weights, &m->weight_capacity, m->weight_count,
                     "no host memory for a model's weights");
    ASHLAR_TRY(copy_text(m, weight->name, &name));
    m->weights[m->weight_count] = *weight;
    m->weights[m->weight_count++].name = name;
    return ASHLAR_OK;
}

size_t ashlar__model_weight(ashlar_model *model, const ashlar_model_weight *weight) {
    ashlar_model *m = model->root;
    const char *name = weight->name;
    for (size_t i = 0; i < m->tie_count; i++) {
        if (strcmp(m->ties[i].tensor, name) == 0) {
            m->ties[i].is_used = true;
            name = m->ties[i].is;
        }
    }
    const size_t found = find_weight(m, name);
    if (found < m->weight_count) {
        ASHLAR_MODEL_FAIL_IF(m, !is_same(&m->weights[found], weight),
                             "model: weight %s is declared before, in another shape", name);
        m->weights[found].is_elementwise |= weight->is_elementwise;
        return found;
    }
    if (name != weight->name) {
        ASHLAR_MODEL_FAIL(m, ASHLAR_EINVAL, "model: %s is tied to %s, which is not declared before",
                          weight->name, name);
        return ASHLAR_NO_INDEX;
    }
    const ashlar_status status = add_weight(m, weight);
    ashlar__model_fail(m, status);
    return status == ASHLAR_OK ? m->weight_count - 1 : ASHLAR_NO_INDEX;
}

const ashlar_model_constant *ashlar__model_constant(ashlar_model *model, const double *values,
                                                    size_t count) {
    ashlar_model *m = model->root;
    const size_t bytes = count * ashlar_dtype_bytes(m->dtype);
    ashlar_model_constant *c = ashlar__host_calloc(1, sizeof *c + bytes);
    if (c == NULL) {
        ASHLAR_MODEL_FAIL(m, ASHLAR_EHOSTMEM, "no host memory for %zu weights of classes", count);
        return NULL;
    }
    c->bytes = bytes;
    ashlar__convert(m->dtype, c->values, ASHLAR_F64, values, count);
    c->next = m->constants;
    m->constants = c;
    return c;
}

static ashlar_status upload(const ashlar_model *m, ashlar_model_constant *c, ashlar_stream stream) {
    if (c->device == NULL) { /* a commit that failed later has taken it already */
        ASHLAR_TRY(
            ashlar_alloc_tagged(m->allocator, c->bytes, ASHLAR_TAG_WEIGHTS, stream, &c->device));
    }
    return ashlar_copy_to_device(m->device, c->device, c->values, c->bytes, stream);
}

/* Have the optimizer leave out what is frozen. */
static ashlar_status freeze(const ashlar_model *m, const ashlar_model_weight *w) {
    for (size_t i = 0; i < w->tensor_count; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(m->arena, w->tensor + i, &info);
        info.options.is_frozen = w->is_frozen;
        ASHLAR_TRY(ashlar_arena_set_options(m->arena, w->tensor + i, &info.options));
    }
    return ASHLAR_OK;
}

static ashlar_status declare(ashlar_model *m, ashlar_model_weight *w) {
    ASHLAR_TRY(w->layout != NULL
                   ? ashlar_rnn_declare(m->arena, w->name, w->layout, &w->tensor)
                   : ashlar_arena_add(m->arena, w->name, m->dtype, w->width == 0 ? 1 : 2,
                                      (size_t[]){w->rows, w->width}, &w->tensor));
    w->tensor_count = ashlar_arena_get_info(m->arena).tensor_count - w->tensor;
    if (w->is_elementwise) {
        const ashlar_tensor_options options = {.is_elementwise = true};
        ASHLAR_TRY(ashlar_arena_set_options(m->arena, w->tensor, &options));
    }
    return freeze(m, w);
}

/* Whether a weight's names begin so; those of a stack are NAME.weight_ih_l0 and so on. */
static bool has_prefix(const ashlar_model_weight *w, const char *prefix) {
    const size_t own = strlen(w->name), length = strlen(prefix);
    const bool is_stack = w->layout != NULL && length == own + 1 && prefix[own] == '.';
    return strncmp(w->name, prefix, is_stack ? own : length) == 0;
}

/* A stack that is in the arena in part cannot be declared again: that failure is kept. */
static ashlar_status declare_all(ashlar_model *m) {
    for (; m->declared_count < m->weight_count; m->declared_count++) {
        ashlar__model_fail(m, declare(m, &m->weights[m->declared_count]));
        ASHLAR_TRY(m->status);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_model_commit(ashlar_model *m, unsigned regions, ashlar_stream stream) {
    ASHLAR_FAIL_IF(m->root->status != ASHLAR_OK, m->root->status, "%s", m->detail);
    ASHLAR_FAIL_IF(m->root != m, ASHLAR_EINVAL, "model: the body of a loop cannot be committed");
    ASHLAR_FAIL_IF(m->is_committed, ASHLAR_EINVAL, "model: committed before");
    for (const ashlar_model *body = m->bodies; body != NULL; body = body->next_body) {
        ASHLAR_FAIL_IF(!body->is_closed, ASHLAR_EINVAL,
                       "model: a loop has no end: ashlar_loop_end()");
    }
    for (size_t i = 0; i < m->tie_count; i++) {
        ASHLAR_FAIL_IF(!m->ties[i].is_used, ASHLAR_EINVAL,
                       "model: %s is tied to %s, but no layer has such a weight", m->ties[i].tensor,
                       m->ties[i].is);
    }
    ASHLAR_FAIL_IF(m->weight_count == 0, ASHLAR_EINVAL, "model: no layer has weights");
    ASHLAR_TRY(declare_all(m));
    if (m->ops_work == NULL) {
        ASHLAR_TRY(ashlar__ops_take_work(m->ops, m->allocator, stream, &m->ops_work));
    }
    for (ashlar_model_constant *c = m->constants; c != NULL; c = c->next) {
        ASHLAR_TRY(upload(m, c, stream));
    }
    ASHLAR_TRY(ashlar_arena_commit(m->arena, m->allocator, stream, regions));
    m->is_committed = true;
    return ASHLAR_OK;
}

ashlar_arena *ashlar_model_arena(const ashlar_model *m) {
    return m->arena;
}

/* The part that begins with weight i: a matrix whose bias follows is a linear layer. */
static ashlar_part part_of(const ashlar_model *m, size_t i) {
    const ashlar_model_weight *w = &m->weights[i];
    const bool has_bias =
        w->kind == ASHLAR_PART_WEIGHT && i + 1 < m->weight_count && m->weights[i + 1].is_bias;
    return (ashlar_part){has_bias ? ASHLAR_PART_LINEAR : w->kind, w->tensor, w->layout};
}

ashlar_status ashlar_model_init(ashlar_model *m, ashlar_init_rule rule, uint64_t seed,
                                ashlar_stream stream) {
    ashlar_part *parts;
    size_t count = 0;
    ASHLAR_FAIL_IF(!m->is_committed, ASHLAR_EINVAL, "model: not committed");
    ASHLAR_TRY(ashlar__model_drop_prepared(m));
    ASHLAR_HOST_NEW(parts, m->weight_count, "no host memory for %zu weights", m->weight_count);
    for (size_t i = 0; i < m->weight_count; i++) {
        if (!m->weights[i].is_bias && (m->weights[i].layout != NULL || m->weights[i].width > 0)) {
            parts[count++] = part_of(m, i);
        }
    }
    const ashlar_status status = ashlar_init_weights(m->arena, rule, parts, count, seed, stream);
    ashlar__host_free(parts);
    m->arena->seed = ashlar__random_mix(seed + 1);
    return status;
}

ashlar_status ashlar__model_check_frozen(ashlar_model *m) {
    if (m->option_changes == m->arena->option_changes) {
        return ASHLAR_OK;
    }
    for (size_t i = 0; i < m->weight_count; i++) {
        const ashlar_model_weight *w = &m->weights[i];
        for (size_t k = 0; w->is_frozen && k < w->tensor_count; k++) {
            ashlar_tensor_info info;
            ashlar_arena_tensor(m->arena, w->tensor + k, &info);
            ASHLAR_FAIL_IF(
                !info.options.is_frozen, ASHLAR_EINVAL,
                "model: %s is frozen, and has no gradients, but not by its options: give "
                "ashlar_arena_set_options() is_frozen, or unfreeze it by "
                "ashlar_model_freeze()",
                info.name);
        }
    }
    m->option_changes = m->arena->option_changes;
    return ASHLAR_OK;
}

/* The tables say which gradients are computed, so all are made anew. */
ashlar_status ashlar_model_freeze(ashlar_model *m, const char *prefix, bool is_frozen) {
    bool is_found = false;
    ASHLAR_FAIL_IF(prefix == NULL, ASHLAR_EINVAL,
                   "model: a freeze without a prefix; \"\" stands for all weights");
    for (size_t i = 0; i < m->weight_count; i++) {
        if (has_prefix(&m->weights[i], prefix)) {
            m->weights[i].is_frozen = is_frozen;
            is_found = true;
            ASHLAR_TRY(m->is_committed ? freeze(m, &m->weights[i]) : ASHLAR_OK);
        }
    }
    ASHLAR_FAIL_IF(
        !is_found, ASHLAR_EINVAL,
        "model: no weight's name begins with \"%s\"; a recurrent layer's weights are frozen "
        "together, by the layer's name",
        prefix);
    ashlar__model_drop_tables(m);
    return ASHLAR_OK;
}
