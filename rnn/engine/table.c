/* table.c - the table of a walk: which operations it needs, in which phases, and from when to when
 * each buffer is live; where the buffers lie, for each shape of batch. */
#include "rnn/engine/engine.h"

#include <string.h>

#include <ashlar/plan.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "allocator/device/device_impl.h"

/* While a table is made. */
typedef struct making {
    ashlar_model *model;
    ashlar_walk_table *table;
    bool *leads_to_loss;                  /* [nodes] */
    size_t *forward, *backward, *weights; /* [nodes] phases, or ASHLAR_NO_INDEX */
    ashlar_status status;
} making;

static bool has_bit(uint64_t bits, size_t i) {
    return (bits >> i & 1) != 0;
}

static ashlar_walk_node *walk_node(const making *m, const ashlar_node *node) {
    return &m->table->nodes[node->index];
}

static ashlar_walk_tensor *walk_tensor(const making *m, const ashlar_tensor *tensor) {
    return &m->table->tensors[tensor->index];
}

static bool is_wanted(const making *m, const ashlar_tensor *tensor) {
    return tensor->output != ASHLAR_NO_INDEX && has_bit(m->table->key.outputs, tensor->output);
}

static bool takes_gradient(const ashlar_node *node, size_t input) {
    return node->inputs[input]->width > 0 && !has_bit(node->operation.constant_inputs, input);
}

/* ---- what is needed ---- */

/* From the last operation to the first: it is needed if it is a loss that counts, hands out what is
 * wanted, or makes what a needed one reads. */
static void find_needed(const making *m, ashlar_node *const *nodes) {
    const bool has_losses = m->table->key.walk != ASHLAR_WALK_PREDICT;
    for (size_t n = m->model->node_count; n-- > 0;) {
        ashlar_walk_node *w = walk_node(m, nodes[n]);
        w->is_needed |= has_losses && nodes[n]->operation.is_loss;
        w->leads_to_carried |= nodes[n]->operation.carries;
        m->leads_to_loss[n] |= has_losses && nodes[n]->operation.is_loss;
        for (size_t i = 0; i < nodes[n]->output_count; i++) {
            w->is_needed |= is_wanted(m, nodes[n]->outputs[i]);
        }
        for (size_t i = 0; i < nodes[n]->input_count && w->is_needed; i++) {
            const ashlar_node *maker = nodes[n]->inputs[i]->node;
            if (maker != NULL) {
                walk_node(m, maker)->is_needed = true;
                walk_node(m, maker)->leads_to_carried |= w->leads_to_carried;
                m->leads_to_loss[maker->index] |=
                    m->leads_to_loss[n] && takes_gradient(nodes[n], i);
            }
        }
    }
}

/* Whether an operation, or one in its body, has a weight that is not frozen. */
static bool has_trained_weights(const ashlar_model *m, const ashlar_node *node) {
    bool has_any = false;
    for (size_t i = 0; i < node->weight_count; i++) {
        has_any |= !m->root->weights[node->weights[i]].is_frozen;
    }
    const ashlar_node *inner = node->body != NULL ? node->body->nodes : NULL;
    for (; inner != NULL; inner = inner->next) {
        has_any |= has_trained_weights(m, inner);
    }
    return has_any;
}

/* From the first operation to the last: it runs backward if it leads to a loss, and has a weight to
 * train or an input that somebody wants the gradient of. */
static void find_gradients(const making *m) {
    const bool has_region = (ashlar_arena_get_info(m->model->root->arena).regions &
                             ASHLAR_REGION_BIT(ASHLAR_REGION_GRADIENTS)) != 0;
    for (size_t i = 0; i < m->model->input_count; i++) {
        walk_tensor(m, m->model->inputs[i])->has_gradient =
            has_bit(m->table->key.input_gradients, i);
    }
    for (const ashlar_node *node = m->model->nodes; node != NULL; node = node->next) {
        ashlar_walk_node *w = walk_node(m, node);
        bool is_differentiated = false;
        w->has_weight_gradients = has_region && w->is_needed && m->leads_to_loss[node->index] &&
                                  has_trained_weights(m->model, node);
        for (size_t i = 0; i < node->input_count; i++) {
            is_differentiated |=
                takes_gradient(node, i) && walk_tensor(m, node->inputs[i])->has_gradient;
        }
        w->has_backward = w->is_needed && m->leads_to_loss[node->index] &&
                          (w->has_weight_gradients || is_differentiated);
        for (size_t i = 0; i < node->output_count; i++) {
            walk_tensor(m, node->outputs[i])->has_gradient =
                w->has_backward && node->outputs[i]->width > 0;
        }
    }
}

static size_t add_phase(const making *m, ashlar_node *node, ashlar_phase phase) {
    m->table->phases[m->table->phase_count] = (ashlar_walk_phase){node, phase};
    return m->table->phase_count++;
}

static void list_phases(const making *m, ashlar_node *const *nodes) {
    for (size_t n = 0; n < m->model->node_count; n++) {
        const bool is_needed = walk_node(m, nodes[n])->is_needed;
        m->forward[n] = is_needed ? add_phase(m, nodes[n], ASHLAR_PHASE_FORWARD) : ASHLAR_NO_INDEX;
        m->backward[n] = m->weights[n] = ASHLAR_NO_INDEX;
    }
    m->table->forward_count = m->table->phase_count;
    if (m->model->loop != NULL && m->table->key.walk == ASHLAR_WALK_TRAIN) {
        size_t sinks = 0; /* a body's only losses, behind all others */
        for (size_t n = 0; n < m->model->node_count; n++) {
            sinks += nodes[n]->operation.is_loss;
        }
        m->table->split = m->table->phase_count - sinks;
    }
    for (size_t n = m->model->node_count; n-- > 0;) {
        const ashlar_walk_node *w = walk_node(m, nodes[n]);
        if (w->has_backward && !nodes[n]->operation.is_loss) {
            m->backward[n] = add_phase(m, nodes[n], ASHLAR_PHASE_BACKWARD);
            if (w->has_weight_gradients && nodes[n]->operation.has_weights_phase) {
                m->weights[n] = add_phase(m, nodes[n], ASHLAR_PHASE_BACKWARD_WEIGHTS);
            }
        }
    }
}

/* ---- when buffers are live ---- */

static size_t add_buffer(making *m, const ashlar_walk_buffer *buffer) {
    ashlar_walk_table *t = m->table;
    void *grown = t->buffers;
    if (!ashlar__host_grow(&grown, &t->buffer_capacity, t->buffer_count, sizeof *t->buffers)) {
        m->status = ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for the buffers of a model");
        return ASHLAR_NO_INDEX;
    }
    t->buffers = grown;
    t->buffers[t->buffer_count] = *buffer;
    t->buffers[t->buffer_count].home = t->buffer_count;
    return t->buffer_count++;
}

static void live_until(const making *m, size_t buffer, size_t phase) {
    if (buffer != ASHLAR_NO_INDEX && phase != ASHLAR_NO_INDEX &&
        m->table->buffers[buffer].last < phase) {
        m->table->buffers[buffer].last = phase;
    }
}

static size_t last_phase(const making *m, const ashlar_node *node) {
    return m->weights[node->index] != ASHLAR_NO_INDEX ? m->weights[node->index]
                                                      : m->backward[node->index];
}

/* The values of tensors, each live until it is last read. */
static void add_values(making *m) {
    for (const ashlar_node *node = m->model->nodes; node != NULL; node = node->next) {
        const size_t at = m->forward[node->index], end = last_phase(m, node);
        const ashlar_operation *o = &node->operation;
        const bool trains = walk_node(m, node)->has_weight_gradients;
        for (size_t i = 0; i < node->input_count && at != ASHLAR_NO_INDEX; i++) {
            const size_t value = walk_tensor(m, node->inputs[i])->value;
            const bool is_read =
                has_bit(o->reads_inputs, i) || (trains && has_bit(o->reads_inputs_for_weights, i));
            live_until(m, value, at);
            live_until(m, value, is_read ? end : at);
        }
        for (size_t i = 0; i < node->output_count && at != ASHLAR_NO_INDEX; i++) {
            const ashlar_tensor *out = node->outputs[i];
            if (!is_wanted(m, out) &&
                (walk_tensor(m, out)->is_read || !has_bit(o->optional_outputs, i))) {
                walk_tensor(m, out)->value = add_buffer(
                    m, &(ashlar_walk_buffer){
                           .tensor = out, .node = node, .role = "value", .first = at, .last = at});
                live_until(m, walk_tensor(m, out)->value, has_bit(o->reads_outputs, i) ? end : at);
            }
        }
    }
}

/* One phase's gradients of inputs: the first to come is written in the gradient's buffer, others
 * beside it, and added. */
static void add_gradients_of(making *m, const ashlar_node *node, size_t phase) {
    ashlar_walk_node *w = walk_node(m, node);
    for (size_t i = 0; i < node->input_count; i++) {
        const ashlar_tensor *tensor = node->inputs[i];
        ashlar_walk_tensor *t = walk_tensor(m, tensor);
        const ashlar_walk_buffer buffer = {
            .tensor = tensor, .node = node, .role = "gradient", .first = phase, .last = phase};
        if (!t->has_gradient || !takes_gradient(node, i)) {
            continue;
        }
        w->uses[i] = t->is_written ? ASHLAR_GRADIENT_ADDED : ASHLAR_GRADIENT_FIRST;
        if (t->is_written) {
            w->beside[i] = add_buffer(m, &buffer);
            live_until(m, t->gradient, phase);
        } else if (tensor->node != NULL) {
            t->gradient = add_buffer(m, &buffer);
        }
        t->is_written = true;
    }
    for (size_t i = 0; i < node->output_count; i++) {
        live_until(m, walk_tensor(m, node->outputs[i])->gradient, phase);
    }
}

static void add_gradients(making *m) {
    for (size_t p = 0; p < m->table->phase_count; p++) {
        const ashlar_walk_phase *phase = &m->table->phases[p];
        const bool is_loss = phase->node->operation.is_loss;
        if (m->table->key.walk == ASHLAR_WALK_TRAIN &&
            phase->phase == (is_loss ? ASHLAR_PHASE_FORWARD : ASHLAR_PHASE_BACKWARD)) {
            add_gradients_of(m, phase->node, p);
        }
    }
}

static void add_own(making *m) {
    for (size_t p = 0; p < m->table->phase_count; p++) {
        const ashlar_walk_phase *phase = &m->table->phases[p];
        ashlar_walk_node *w = walk_node(m, phase->node);
        w->work[phase->phase] = add_buffer(m, &(ashlar_walk_buffer){.node = phase->node,
                                                                    .role = "workspace",
                                                                    .phase = phase->phase,
                                                                    .first = p,
                                                                    .last = p});
        if (phase->phase == ASHLAR_PHASE_FORWARD && w->has_backward) {
            w->kept = add_buffer(m, &(ashlar_walk_buffer){.node = phase->node,
                                                          .role = "kept for backward",
                                                          .first = p,
                                                          .last = last_phase(m, phase->node)});
        }
    }
}

/* Those of the walk itself: the lengths of each axis, and the states between chunks. */
static void add_walks(making *m) {
    const size_t last = m->table->phase_count - 1;
    for (ashlar_axis axis = ASHLAR_AXIS_TIME; axis < m->model->axis_count; axis++) {
        m->table->lengths[axis] =
            add_buffer(m, &(ashlar_walk_buffer){.role = "lengths", .axis = axis, .last = last});
    }
    m->table->borders =
        add_buffer(m, &(ashlar_walk_buffer){.role = "states between chunks", .last = last});
}

/* ---- buffers that lie where others do ---- */

static size_t home_of(const ashlar_walk_table *t, size_t buffer) {
    while (t->buffers[buffer].home != buffer) {
        buffer = t->buffers[buffer].home;
    }
    return buffer;
}

/* Put a buffer where another one lies, whose last use is in the phase that first uses this one. */
static void put_at(const ashlar_walk_table *t, size_t buffer, size_t other) {
    if (buffer == ASHLAR_NO_INDEX || other == ASHLAR_NO_INDEX) {
        return;
    }
    const size_t home = home_of(t, other);
    if (t->buffers[home].last == t->buffers[buffer].first) {
        t->buffers[buffer].home = home;
        t->buffers[home].last = t->buffers[buffer].last;
    }
}

static bool are_alike(const ashlar_tensor *a, const ashlar_tensor *b) {
    return a->axis == b->axis && a->width == b->width;
}

/* In the order of phases, so that a chain of operations ends up in one place. */
static void put_in_place(const making *m) {
    const ashlar_walk_table *t = m->table;
    for (size_t p = 0; p < t->phase_count; p++) {
        const ashlar_node *node = t->phases[p].node;
        const ashlar_operation *o = &node->operation;
        const ashlar_tensor *in = node->input_count > 0 ? node->inputs[0] : NULL;
        const ashlar_tensor *out = node->output_count > 0 ? node->outputs[0] : NULL;
        if (in == NULL || (out != NULL && !are_alike(in, out))) {
            continue;
        }
        const bool is_first = walk_node(m, node)->uses[0] == ASHLAR_GRADIENT_FIRST;
        if (t->phases[p].phase == ASHLAR_PHASE_FORWARD && o->value_in_place) {
            put_at(t, walk_tensor(m, out)->value, walk_tensor(m, in)->value);
        }
        if (t->phases[p].phase == ASHLAR_PHASE_FORWARD && o->is_loss && o->gradient_in_place &&
            is_first) {
            put_at(t, walk_tensor(m, in)->gradient, walk_tensor(m, in)->value);
        }
        if (t->phases[p].phase == ASHLAR_PHASE_BACKWARD && o->gradient_in_place && is_first) {
            put_at(t, walk_tensor(m, in)->gradient, walk_tensor(m, out)->gradient);
        }
    }
}

/* ---- the table ---- */

void ashlar__walk_table_destroy(ashlar_walk_table *t) {
    for (size_t i = 0; i < ASHLAR_PLAN_BUCKETS; i++) {
        for (ashlar_walk_plan *plan = t->plans[i], *next; plan != NULL; plan = next) {
            next = plan->next;
            ashlar__host_free(plan);
        }
    }
    ashlar__host_free(t->phases);
    ashlar__host_free(t->buffers);
    ashlar__host_free(t->nodes);
    ashlar__host_free(t->tensors);
    ashlar__host_free(t);
}

static ashlar_status take_arrays(const making *m) {
    ashlar_walk_table *t = m->table;
    const size_t nodes = m->model->node_count;
    ASHLAR_HOST_NEW(t->phases, 3 * nodes, "no host memory for a walk");
    ASHLAR_HOST_NEW(t->nodes, nodes, "no host memory for a walk");
    ASHLAR_HOST_NEW(t->tensors, m->model->tensor_count, "no host memory for a walk");
    for (size_t n = 0; n < nodes; n++) {
        ashlar_walk_node *w = &t->nodes[n];
        w->kept = ASHLAR_NO_INDEX;
        memset(w->work, 0xff, sizeof w->work);
        memset(w->beside, 0xff, sizeof w->beside);
    }
    for (size_t i = 0; i < m->model->tensor_count; i++) {
        t->tensors[i].value = t->tensors[i].gradient = ASHLAR_NO_INDEX;
    }
    return ASHLAR_OK;
}

static ashlar_status fill_table(making *m, ashlar_node **nodes) {
    size_t n = 0;
    for (ashlar_node *node = m->model->nodes; node != NULL; node = node->next) {
        nodes[n++] = node;
    }
    find_needed(m, nodes);
    if (m->table->key.walk == ASHLAR_WALK_TRAIN) {
        find_gradients(m);
    }
    list_phases(m, nodes);
    const bool predicts = m->table->key.walk == ASHLAR_WALK_PREDICT;
    ASHLAR_FAIL_IF(m->table->phase_count == 0, ASHLAR_EINVAL, "model: there is nothing to %s: %s",
                   predicts ? "predict" : "compute",
                   predicts ? "give one of the outputs" : "declare a loss");
    for (ashlar_node *node = m->model->nodes; node != NULL; node = node->next) {
        for (size_t i = 0; i < node->input_count && walk_node(m, node)->is_needed; i++) {
            walk_tensor(m, node->inputs[i])->is_read = true;
        }
    }
    add_values(m);
    add_gradients(m);
    add_own(m);
    add_walks(m);
    ASHLAR_TRY(m->status);
    put_in_place(m);
    return ASHLAR_OK;
}

static ashlar_status make_table(ashlar_model *model, ashlar_walk_table *t) {
    const size_t count = model->node_count;
    char *memory;
    making m = {.model = model, .table = t};
    const size_t each = sizeof(ashlar_node *) + 3 * sizeof(size_t) + sizeof(bool);
    ASHLAR_TRY(take_arrays(&m));
    ASHLAR_HOST_NEW(memory, count * each, "no host memory for a walk");
    ashlar_node **nodes = (ashlar_node **)(void *)memory;
    m.forward = (size_t *)(void *)(nodes + count);
    m.backward = m.forward + count;
    m.weights = m.backward + count;
    m.leads_to_loss = (bool *)(m.weights + count);
    const ashlar_status status = fill_table(&m, nodes);
    ashlar__host_free(memory);
    return status;
}

ashlar_status ashlar__walk_table_get(ashlar_model *m, const ashlar_table_key *key,
                                     ashlar_walk_table **out) {
    ashlar_walk_table *t = m->tables;
    while (t != NULL && memcmp(&t->key, key, sizeof *key) != 0) {
        t = t->next;
    }
    if (t == NULL) {
        ASHLAR_HOST_NEW(t, 1, "no host memory for a walk");
        t->key = *key;
        const ashlar_status status = make_table(m, t);
        if (status != ASHLAR_OK) {
            ashlar__walk_table_destroy(t);
            return status;
        }
        t->next = m->tables;
        m->tables = t;
    }
    *out = t;
    return ASHLAR_OK;
}

/* ---- where the buffers lie ---- */

ashlar_extent ashlar__walk_extent(const ashlar_model *m, const ashlar_walk_shape *shape,
                                  ashlar_axis axis) {
    if (axis == ASHLAR_AXIS_NONE) {
        return (ashlar_extent){.steps = 1, .rows = shape->batch};
    }
    const ashlar_extent parent = ashlar__walk_extent(m, shape, m->within[axis]);
    return (ashlar_extent){.steps = shape->steps[axis],
                           .rows = ashlar__operand_bytes(parent.steps, parent.rows, 1)};
}

size_t ashlar__walk_tensor_bytes(const ashlar_model *m, const ashlar_tensor *tensor,
                                 const ashlar_walk_shape *shape) {
    const ashlar_extent extent = ashlar__walk_extent(m, shape, tensor->axis);
    const size_t positions = ashlar__operand_bytes(extent.steps, extent.rows, 1);
    return tensor->width == 0
               ? ashlar__operand_bytes(positions, 1, sizeof(int32_t))
               : ashlar__operand_bytes(positions, tensor->width, ashlar_dtype_bytes(m->dtype));
}

/* A call's operands without their memory: shapes alone. */
static void set_call_shape(const ashlar_model *m, const ashlar_node *node,
                           const ashlar_walk_shape *shape, ashlar_operation_call *call) {
    for (size_t i = 0; i < node->input_count; i++) {
        const ashlar_tensor *tensor = node->inputs[i];
        call->inputs[i].extent = ashlar__walk_extent(m, shape, tensor->axis);
        call->inputs[i].width = tensor->width;
    }
    for (size_t i = 0; i < node->output_count; i++) {
        const ashlar_tensor *tensor = node->outputs[i];
        call->outputs[i].extent = ashlar__walk_extent(m, shape, tensor->axis);
        call->outputs[i].width = tensor->width;
    }
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Stands for a gradient where only that one is wanted is told. */
static char wanted_mark[1];

/* What the operations need of their own, in one shape. */
static ashlar_status add_sizes(const ashlar_model *m, const ashlar_walk_table *t,
                               const ashlar_walk_shape *shape, ashlar_walk_plan *plan) {
    plan->carried = 0;
    for (const ashlar_node *node = m->nodes; node != NULL; node = node->next) {
        const ashlar_walk_node *w = &t->nodes[node->index];
        ashlar_operation_call call = {.trains = t->key.walk == ASHLAR_WALK_TRAIN,
                                      .has_backward = w->has_backward,
                                      .engine = shape};
        ashlar_operation_sizes sizes = {0};
        if (!w->is_needed || node->operation.sizes == NULL) {
            continue;
        }
        set_call_shape(m, node, shape, &call);
        for (size_t i = 0; i < node->input_count; i++) {
            call.inputs[i].gradient = w->uses[i] != ASHLAR_GRADIENT_NONE ? wanted_mark : NULL;
        }
        ASHLAR_TRY(node->operation.sizes(node->operation.user, &call, &sizes));
        for (int p = 0; p < ASHLAR_PHASE_COUNT; p++) {
            if (w->work[p] != ASHLAR_NO_INDEX) {
                size_t *bytes = &plan->places[w->work[p]].bytes;
                *bytes = larger(*bytes, sizes.work_bytes[p]);
            }
        }
        if (w->kept != ASHLAR_NO_INDEX) {
            plan->places[w->kept].bytes = larger(plan->places[w->kept].bytes, sizes.kept_bytes);
        }
        plan->carried_at[node->index] = plan->carried;
        plan->carried += ashlar__round_up(sizes.carried_bytes, ASHLAR_WALK_ALIGN);
    }
    return ASHLAR_OK;
}

/* The shape of a batch's longest chunk. */
static ashlar_walk_shape longest_chunk(const ashlar_walk_shape *shape) {
    ashlar_walk_shape s = *shape;
    const size_t steps = shape->steps[ASHLAR_AXIS_TIME];
    s.steps[ASHLAR_AXIS_TIME] = shape->chunk > 0 && shape->chunk < steps ? shape->chunk : steps;
    return s;
}

/* Bytes of every buffer. What a chunk of fewer steps needs may be more, with cuDNN. */
static ashlar_status size_buffers(const ashlar_model *m, const ashlar_walk_table *t,
                                  ashlar_walk_plan *plan) {
    const ashlar_walk_shape *shape = &plan->shape;
    ashlar_walk_shape part = longest_chunk(shape);
    const size_t steps = shape->steps[ASHLAR_AXIS_TIME], longest = part.steps[ASHLAR_AXIS_TIME];
    const size_t borders = longest == 0 ? 0 : (steps - 1) / longest;
    for (size_t i = 0; i < t->buffer_count; i++) {
        const ashlar_tensor *tensor = t->buffers[i].tensor;
        plan->places[i].bytes = tensor == NULL ? 0 : ashlar__walk_tensor_bytes(m, tensor, &part);
        ASHLAR_FAIL_IF(plan->places[i].bytes == SIZE_MAX, ASHLAR_EOVERFLOW,
                       "model: %s of %s is too large to address", t->buffers[i].role, tensor->name);
    }
    for (ashlar_axis axis = ASHLAR_AXIS_TIME; axis < m->axis_count; axis++) {
        const size_t rows = ashlar__walk_extent(m, shape, axis).rows;
        plan->places[t->lengths[axis]].bytes =
            has_bit(shape->lengths, axis)
                ? ashlar__operand_bytes(rows, borders + 1, sizeof(int32_t))
                : 0;
    }
    ASHLAR_TRY(add_sizes(m, t, &part, plan));
    const size_t carried = plan->carried;
    if (borders > 0) {
        part.steps[ASHLAR_AXIS_TIME] = steps - borders * longest;
        ASHLAR_TRY(add_sizes(m, t, &part, plan));
        plan->carried = carried;
        plan->places[t->borders].bytes = ashlar__operand_bytes(borders + 2, carried, 1);
    }
    return ASHLAR_OK;
}

/* The search begins only if the first plan is more than 0.5 % above the bound. */
enum { SEARCH_MS = 20 };

/* Room to pack a table's buffers. */
typedef struct packing {
    ashlar_pack_buffer *buffers;
    size_t *numbers, *offsets;
    size_t count;
} packing;

/* Choose the buffers whose first use is in the phases first .. end - 1, and whose last is before
 * `split` (kept: not before it). */
static void choose(const ashlar_walk_table *t, const ashlar_walk_plan *plan, size_t first,
                   size_t end, bool is_kept, packing *p) {
    p->count = 0;
    for (size_t i = 0; i < t->buffer_count; i++) {
        const ashlar_walk_buffer *b = &t->buffers[i];
        const bool crosses = b->first < t->split && b->last >= t->split;
        if (b->home == i && plan->places[i].bytes > 0 && b->first >= first && b->first < end &&
            crosses == is_kept) {
            p->buffers[p->count] =
                (ashlar_pack_buffer){plan->places[i].bytes, b->first, b->last + 1};
            p->numbers[p->count++] = i;
        }
    }
}

static ashlar_status pack(const packing *p, ashlar_walk_plan *plan, bool is_kept,
                          ashlar_pack_result *result) {
    const ashlar_pack_options options = {.alignment = ASHLAR_WALK_ALIGN,
                                         .time_budget_ms = SEARCH_MS};
    ASHLAR_TRY(ashlar_pack(p->buffers, p->count, &options, p->offsets, result));
    for (size_t k = 0; k < p->count; k++) {
        plan->places[p->numbers[k]].offset = p->offsets[k];
        plan->places[p->numbers[k]].is_kept = is_kept;
    }
    return ASHLAR_OK;
}

/* Without a split all buffers are in one block; with one, what crosses it has a block of its own.
 */
static ashlar_status place_all(const ashlar_walk_table *t, ashlar_walk_plan *plan, packing *p) {
    ashlar_pack_result result;
    for (size_t i = 0; i < t->buffer_count; i++) {
        ASHLAR_FAIL_IF(plan->places[i].bytes == SIZE_MAX, ASHLAR_EOVERFLOW,
                       "model: %s is too large to address", t->buffers[i].role);
    }
    choose(t, plan, 0, t->split > 0 ? t->split : t->phase_count, false, p);
    ASHLAR_TRY(pack(p, plan, false, &result));
    plan->bytes = result.plan_bytes;
    plan->bound = result.bound_bytes;
    if (t->split > 0) {
        choose(t, plan, t->split, t->phase_count, false, p);
        ASHLAR_TRY(pack(p, plan, false, &result));
        plan->back_bytes = result.plan_bytes;
        choose(t, plan, 0, t->split, true, p);
        ASHLAR_TRY(pack(p, plan, true, &result));
        plan->kept_bytes = result.plan_bytes;
    }
    for (size_t i = 0; i < t->buffer_count; i++) {
        const size_t home = home_of(t, i);
        plan->places[i].offset = plan->places[home].offset;
        plan->places[i].is_kept = plan->places[home].is_kept;
    }
    return ASHLAR_OK;
}

static ashlar_status make_plan(const ashlar_model *m, const ashlar_walk_table *t,
                               ashlar_walk_plan *plan) {
    char *memory;
    const size_t count = t->buffer_count;
    ASHLAR_TRY(size_buffers(m, t, plan));
    ASHLAR_HOST_NEW(memory, count * (sizeof(ashlar_pack_buffer) + 2 * sizeof(size_t)),
                    "no host memory to plan a walk");
    packing p = {.buffers = (ashlar_pack_buffer *)(void *)memory};
    p.numbers = (size_t *)(p.buffers + count);
    p.offsets = p.numbers + count;
    const ashlar_status status = place_all(t, plan, &p);
    ashlar__host_free(memory);
    return status;
}

static size_t bucket_of(const ashlar_walk_shape *shape) {
    uint64_t hash = shape->batch;
    for (size_t i = 0; i < ASHLAR_AXIS_MAX; i++) {
        hash = ashlar__random_mix(hash) + shape->steps[i];
    }
    return ashlar__random_mix(hash + shape->chunk) % ASHLAR_PLAN_BUCKETS;
}

/* A plan without its places. */
static ashlar_status new_plan(const ashlar_model *m, const ashlar_walk_table *t,
                              const ashlar_walk_shape *shape, ashlar_walk_plan **out) {
    const size_t bytes = sizeof **out + t->buffer_count * sizeof(*out)->places[0];
    ashlar_walk_plan *plan =
        ashlar__host_calloc(1, bytes + m->node_count * sizeof *plan->carried_at);
    ASHLAR_FAIL_IF(plan == NULL, ASHLAR_EHOSTMEM, "no host memory for the plan of a walk");
    plan->shape = *shape;
    plan->carried_at = (size_t *)(void *)((char *)plan + bytes);
    *out = plan;
    return ASHLAR_OK;
}

/* Drop a bucket's oldest plans, so that a program whose batches all differ needs no more and more
 * memory. */
static void drop_oldest(ashlar_walk_plan **bucket) {
    for (size_t i = 0; i + 1 < ASHLAR_PLANS_OF_BUCKET && *bucket != NULL; i++) {
        bucket = &(*bucket)->next;
    }
    for (ashlar_walk_plan *plan = *bucket, *next; plan != NULL; plan = next) {
        next = plan->next;
        ashlar__host_free(plan);
    }
    *bucket = NULL;
}

ashlar_status ashlar__walk_plan_get(const ashlar_model *m, ashlar_walk_table *t,
                                    const ashlar_walk_shape *shape, const ashlar_walk_plan **out) {
    ashlar_walk_plan **bucket = &t->plans[bucket_of(shape)], *plan = *bucket;
    while (plan != NULL && memcmp(&plan->shape, shape, sizeof *shape) != 0) {
        plan = plan->next;
    }
    if (plan == NULL) {
        ASHLAR_TRY(new_plan(m, t, shape, &plan));
        const ashlar_status status = make_plan(m, t, plan);
        if (status != ASHLAR_OK) {
            ashlar__host_free(plan);
            return status;
        }
        drop_oldest(bucket);
        plan->next = *bucket;
        *bucket = plan;
    }
    *out = plan;
    return ASHLAR_OK;
}
