/* table.c - the table of a walk: which operations it needs, in which phases, and from when to when
 * each buffer is live; where the buffers lie, for each shape of batch. */
#include "rnn/engine/engine.h"

#include <string.h>

#include <ashlar/plan.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "allocator/device/device_impl.h"

static bool has_bit(uint64_t bits, size_t i) {
    return (bits >> i & 1) != 0;
}

static bool is_wanted(const ashlar_walk_table *t, const ashlar_tensor *tensor) {
    return tensor->output != ASHLAR_NO_INDEX && has_bit(t->key.outputs, tensor->output);
}

static bool takes_gradient(const ashlar_node *node, size_t input) {
    return node->inputs[input]->width > 0 && !has_bit(node->operation.constant_inputs, input);
}

/* ---- what is needed ---- */

/* From the last operation to the first: it is needed if it is a loss that counts, hands out what is
 * wanted, or makes what a needed one reads. */
static void find_needed(const ashlar_model *m, ashlar_walk_table *t) {
    for (size_t n = m->node_count; n-- > 0;) {
        const ashlar_node *node = m->nodes[n];
        ashlar_walk_node *w = &t->nodes[n];
        const bool counts = t->key.walk != ASHLAR_WALK_PREDICT && node->operation.is_loss;
        w->is_needed |= counts;
        w->leads_to_loss |= counts;
        w->leads_to_carried |= node->operation.carries;
        for (size_t i = 0; i < node->output_count; i++) {
            w->is_needed |= is_wanted(t, &node->outputs[i]);
        }
        for (size_t i = 0; i < node->input_count && w->is_needed; i++) {
            const ashlar_node *maker = node->inputs[i]->node;
            t->tensors[node->inputs[i]->index].is_read = true;
            if (maker != NULL) {
                ashlar_walk_node *made = &t->nodes[maker->index];
                made->is_needed = true;
                made->leads_to_carried |= w->leads_to_carried;
                made->leads_to_loss |= w->leads_to_loss && takes_gradient(node, i);
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
    for (size_t n = 0; node->body != NULL && n < node->body->node_count; n++) {
        has_any |= has_trained_weights(m, node->body->nodes[n]);
    }
    return has_any;
}

/* From the first operation to the last: it runs backward if it leads to a loss, and has a weight to
 * train or an input that somebody wants the gradient of. */
static void find_gradients(const ashlar_model *m, ashlar_walk_table *t) {
    const bool has_region = (ashlar_arena_get_info(m->root->arena).regions &
                             ASHLAR_REGION_BIT(ASHLAR_REGION_GRADIENTS)) != 0;
    for (size_t i = 0; i < m->input_count; i++) {
        t->tensors[m->inputs[i].index].has_gradient = has_bit(t->key.input_gradients, i);
    }
    for (size_t n = 0; n < m->node_count; n++) {
        const ashlar_node *node = m->nodes[n];
        ashlar_walk_node *w = &t->nodes[n];
        const bool is_trained = w->is_needed && w->leads_to_loss;
        bool is_differentiated = false;
        for (size_t i = 0; i < node->input_count; i++) {
            is_differentiated |=
                takes_gradient(node, i) && t->tensors[node->inputs[i]->index].has_gradient;
        }
        w->has_weight_gradients = is_trained && has_region && has_trained_weights(m, node);
        w->has_backward = is_trained && (w->has_weight_gradients || is_differentiated);
        for (size_t i = 0; i < node->output_count; i++) {
            t->tensors[node->outputs[i].index].has_gradient =
                w->has_backward && node->outputs[i].width > 0;
        }
    }
}

static void add_phase(ashlar_walk_table *t, ashlar_node *node, ashlar_phase phase) {
    t->nodes[node->index].phases[phase] = t->phase_count;
    t->phases[t->phase_count++] = (ashlar_walk_phase){node, phase};
}

/* The forward phases of the operations that lead to carried states, or of the others. */
static void list_forward(const ashlar_model *m, ashlar_walk_table *t, bool leads_to_carried) {
    for (size_t n = 0; n < m->node_count; n++) {
        const ashlar_walk_node *w = &t->nodes[n];
        if (w->is_needed && (!t->key.is_cut || w->leads_to_carried == leads_to_carried)) {
            add_phase(t, m->nodes[n], ASHLAR_PHASE_FORWARD);
        }
    }
}

/* In chunks, a training goes through what leads to carried states first, in all of them. */
static void list_phases(const ashlar_model *m, ashlar_walk_table *t) {
    size_t losses = 0;
    list_forward(m, t, true);
    if (t->key.is_cut) {
        t->split = t->phase_count;
        list_forward(m, t, false);
    }
    for (size_t p = 0; p < t->phase_count; p++) {
        losses += t->phases[p].node->operation.is_loss;
    }
    if (m->loop != NULL && t->key.walk == ASHLAR_WALK_TRAIN) {
        t->split = t->phase_count - losses; /* a body's only losses, its sinks, are behind all */
    }
    for (size_t n = m->node_count; n-- > 0;) {
        const ashlar_operation *o = &m->nodes[n]->operation;
        if (t->nodes[n].has_backward && !o->is_loss) {
            add_phase(t, m->nodes[n], ASHLAR_PHASE_BACKWARD);
            if (t->nodes[n].has_weight_gradients && o->has_weights_phase) {
                add_phase(t, m->nodes[n], ASHLAR_PHASE_BACKWARD_WEIGHTS);
            }
        }
    }
}

/* ---- when buffers are live ---- */

static void mark_use(const ashlar_walk_table *t, size_t buffer, size_t phase) {
    t->uses[buffer * t->phase_count + phase] = 1;
}

/* There is room: take_arrays(), and for the uses list_phases(). */
static size_t add_buffer(ashlar_walk_table *t, ashlar_walk_buffer buffer) {
    buffer.home = t->buffer_count;
    mark_use(t, buffer.home, buffer.first);
    t->buffers[t->buffer_count] = buffer;
    return t->buffer_count++;
}

static void live_until(const ashlar_walk_table *t, size_t buffer, size_t phase) {
    if (buffer != ASHLAR_NO_INDEX && phase != ASHLAR_NO_INDEX) {
        ashlar_walk_buffer *b = &t->buffers[buffer];
        b->last = b->last < phase ? phase : b->last;
        mark_use(t, buffer, phase);
    }
}

static void live_through_backward(const ashlar_walk_table *t, size_t buffer,
                                  const ashlar_walk_node *w) {
    live_until(t, buffer, w->phases[ASHLAR_PHASE_BACKWARD]);
    live_until(t, buffer, w->phases[ASHLAR_PHASE_BACKWARD_WEIGHTS]);
}

/* The values of an operation's outputs, each live until it is last read. */
static void add_values(ashlar_walk_table *t, const ashlar_node *node, size_t phase) {
    const ashlar_walk_node *w = &t->nodes[node->index];
    const ashlar_operation *o = &node->operation;
    const unsigned reads =
        o->reads_inputs | (w->has_weight_gradients ? o->reads_inputs_for_weights : 0);
    for (size_t i = 0; i < node->input_count; i++) {
        const size_t value = t->tensors[node->inputs[i]->index].value;
        live_until(t, value, phase);
        if (has_bit(reads, i)) {
            live_through_backward(t, value, w);
        }
    }
    for (size_t i = 0; i < node->output_count; i++) {
        const ashlar_tensor *out = &node->outputs[i];
        ashlar_walk_tensor *own = &t->tensors[out->index];
        if (!is_wanted(t, out) && (own->is_read || !has_bit(o->optional_outputs, i))) {
            own->value = add_buffer(
                t,
                (ashlar_walk_buffer){
                    .tensor = out, .node = node, .role = "value", .first = phase, .last = phase});
            if (has_bit(o->reads_outputs, i)) {
                live_through_backward(t, own->value, w);
            }
        }
    }
}

/* One phase's gradients of inputs: the first to come is written in the gradient's buffer, others
 * beside it, and added. */
static void add_gradients(ashlar_walk_table *t, const ashlar_node *node, size_t phase) {
    ashlar_walk_node *w = &t->nodes[node->index];
    for (size_t i = 0; i < node->input_count; i++) {
        const ashlar_tensor *tensor = node->inputs[i];
        ashlar_walk_tensor *own = &t->tensors[tensor->index];
        const ashlar_walk_buffer buffer = {
            .tensor = tensor, .node = node, .role = "gradient", .first = phase, .last = phase};
        if (!own->has_gradient || !takes_gradient(node, i)) {
            continue;
        }
        w->uses[i] = own->is_written ? ASHLAR_GRADIENT_ADDED : ASHLAR_GRADIENT_FIRST;
        if (own->is_written) {
            w->beside[i] = add_buffer(t, buffer);
            live_until(t, own->gradient, phase);
        } else if (tensor->node != NULL) {
            own->gradient = add_buffer(t, buffer);
        }
        own->is_written = true;
    }
    for (size_t i = 0; i < node->output_count; i++) {
        live_until(t, t->tensors[node->outputs[i].index].gradient, phase);
    }
}

/* The walk's own are the lengths of each axis and, in chunks, the states between these and the
 * losses of all positions. */
static void add_buffers(const ashlar_model *m, ashlar_walk_table *t) {
    const size_t last = t->phase_count - 1;
    for (size_t p = 0; p < t->phase_count; p++) {
        const ashlar_node *node = t->phases[p].node;
        const ashlar_phase phase = t->phases[p].phase;
        ashlar_walk_node *w = &t->nodes[node->index];
        w->work[phase] = add_buffer(
            t, (ashlar_walk_buffer){.node = node, .role = "workspace", .first = p, .last = p});
        if (phase == ASHLAR_PHASE_FORWARD) {
            add_values(t, node, p);
        }
        if (node->loss_factor > 0) {
            w->losses = add_buffer(t, (ashlar_walk_buffer){.role = "losses", .last = last});
        }
        if (phase == ASHLAR_PHASE_FORWARD && w->has_backward) {
            w->kept = add_buffer(
                t, (ashlar_walk_buffer){
                       .node = node, .role = "kept for backward", .first = p, .last = p});
            live_through_backward(t, w->kept, w);
        }
        if (t->key.walk == ASHLAR_WALK_TRAIN && phase == ashlar__walk_gradient_phase(node)) {
            add_gradients(t, node, p);
        }
    }
    for (ashlar_axis axis = ASHLAR_AXIS_TIME; axis < m->axis_count; axis++) {
        t->lengths[axis] = add_buffer(t, (ashlar_walk_buffer){.role = "lengths", .last = last});
    }
    t->borders = add_buffer(t, (ashlar_walk_buffer){.role = "states between chunks", .last = last});
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
        for (size_t p = 0; p < t->phase_count; p++) {
            t->uses[home * t->phase_count + p] |= t->uses[buffer * t->phase_count + p];
        }
    }
}

static bool are_alike(const ashlar_tensor *a, const ashlar_tensor *b) {
    return a->axis == b->axis && a->width == b->width;
}

/* In the order of phases, so that a chain of operations ends up in one place. */
static void put_in_place(const ashlar_walk_table *t) {
    for (size_t p = 0; p < t->phase_count; p++) {
        const ashlar_phase phase = t->phases[p].phase;
        const ashlar_node *node = t->phases[p].node;
        const ashlar_operation *o = &node->operation;
        const ashlar_tensor *in = node->inputs[0], *out = &node->outputs[0];
        if (node->input_count == 0 || (!o->is_loss && !are_alike(in, out))) {
            continue;
        }
        const ashlar_walk_tensor *from = &t->tensors[in->index];
        if (phase == ASHLAR_PHASE_FORWARD && o->value_in_place && !o->is_loss) {
            put_at(t, t->tensors[out->index].value, from->value);
        }
        if (phase == ashlar__walk_gradient_phase(node) && o->gradient_in_place &&
            t->nodes[node->index].uses[0] == ASHLAR_GRADIENT_FIRST) {
            put_at(t, from->gradient, o->is_loss ? from->value : t->tensors[out->index].gradient);
        }
    }
}

/* ---- idle times ---- */

static void find_pauses(const ashlar_walk_table *t) {
    for (size_t i = 0; i < t->buffer_count; i++) {
        ashlar_walk_buffer *b = &t->buffers[i];
        size_t before = b->first;
        b->pause = b->resume = b->first;
        for (size_t p = b->first; p <= b->last && b->node != NULL; p++) {
            if (t->uses[i * t->phase_count + p] != 0) {
                if (p - before > b->resume - b->pause) {
                    b->pause = before;
                    b->resume = p;
                }
                before = p;
            }
        }
    }
}

/* ---- the table ---- */

static void free_plan(ashlar_walk_plan *plan) {
    ashlar__host_free(plan->moves);
    ashlar__host_free(plan);
}

static void free_plans(ashlar_walk_plan *plan) {
    for (ashlar_walk_plan *next; plan != NULL; plan = next) {
        next = plan->next;
        free_plan(plan);
    }
}

void ashlar__walk_table_destroy(ashlar_walk_table *t) {
    for (size_t i = 0; i < ASHLAR_PLAN_BUCKETS; i++) {
        free_plans(t->plans[i]);
    }
    for (ashlar_walk_tiers *tiers = t->tiers, *next; tiers != NULL; tiers = next) {
        next = tiers->next;
        ashlar__host_free(tiers);
    }
    ashlar__host_free(t->uses);
    ashlar__host_free(t->phases);
    ashlar__host_free(t->buffers);
    ashlar__host_free(t->nodes);
    ashlar__host_free(t->tensors);
    ashlar__host_free(t);
}

/* Take what an empty table needs; the buffers are at most as many as the operations may have. */
static ashlar_status take_arrays(const ashlar_model *m, ashlar_walk_table *t, size_t *count) {
    size_t buffers = ASHLAR_AXIS_MAX;
    for (size_t n = 0; n < m->node_count; n++) {
        buffers += m->nodes[n]->input_count + m->nodes[n]->output_count + ASHLAR_PHASE_COUNT + 1;
    }
    *count = buffers;
    ASHLAR_HOST_NEW(t->phases, ASHLAR_PHASE_COUNT * m->node_count, "no host memory for a walk");
    ASHLAR_HOST_NEW(t->buffers, buffers, "no host memory for a walk");
    ASHLAR_HOST_NEW(t->nodes, m->node_count, "no host memory for a walk");
    ASHLAR_HOST_NEW(t->tensors, m->tensor_count, "no host memory for a walk");
    for (size_t n = 0; n < m->node_count; n++) {
        ashlar_walk_node *w = &t->nodes[n];
        w->kept = w->losses = ASHLAR_NO_INDEX;
        memset(w->phases, 0xff, sizeof w->phases);
        memset(w->work, 0xff, sizeof w->work);
        memset(w->beside, 0xff, sizeof w->beside);
    }
    for (size_t i = 0; i < m->tensor_count; i++) {
        t->tensors[i].value = t->tensors[i].gradient = ASHLAR_NO_INDEX;
    }
    return ASHLAR_OK;
}

static ashlar_status fill(const ashlar_model *m, ashlar_walk_table *t) {
    const bool predicts = t->key.walk == ASHLAR_WALK_PREDICT;
    size_t buffers;
    ASHLAR_TRY(take_arrays(m, t, &buffers));
    find_needed(m, t);
    if (t->key.walk == ASHLAR_WALK_TRAIN) {
        find_gradients(m, t);
    }
    list_phases(m, t);
    ASHLAR_FAIL_IF(t->phase_count == 0, ASHLAR_EINVAL, "model: there is nothing to %s: %s",
                   predicts ? "predict" : "compute",
                   predicts ? "give one of the outputs" : "declare a loss");
    ASHLAR_HOST_NEW(t->uses, buffers * t->phase_count, "no host memory for a walk");
    add_buffers(m, t);
    put_in_place(t);
    find_pauses(t);
    ashlar__host_free(t->uses);
    t->uses = NULL;
    return ASHLAR_OK;
}

static ashlar_status new_table(const ashlar_model *m, const ashlar_table_key *key,
                               ashlar_walk_table **out) {
    ashlar_walk_table *t;
    ASHLAR_HOST_NEW(t, 1, "no host memory for a walk");
    t->key = *key;
    ASHLAR_HAND_OUT(fill(m, t), t, ashlar__walk_table_destroy, out);
}

ashlar_status ashlar__walk_table_get(ashlar_model *m, const ashlar_table_key *key,
                                     ashlar_walk_table **out) {
    ashlar_walk_table *t = m->tables;
    while (t != NULL && memcmp(&t->key, key, sizeof *key) != 0) {
        t = t->next;
    }
    if (t == NULL) {
        ASHLAR_TRY(new_table(m, key, &t));
        t->next = m->tables;
        m->tables = t;
    }
    *out = t;
    return ASHLAR_OK;
}

/* ---- where the buffers lie ---- */

/* An axis lies within an earlier one. */
void ashlar__walk_extents(const ashlar_model *m, const ashlar_walk_shape *shape,
                          ashlar_extent extents[ASHLAR_AXIS_MAX]) {
    extents[ASHLAR_AXIS_NONE] = (ashlar_extent){.steps = 1, .rows = shape->batch};
    for (ashlar_axis axis = ASHLAR_AXIS_TIME; axis < m->axis_count; axis++) {
        const ashlar_extent *around = &extents[m->within[axis]];
        extents[axis] =
            (ashlar_extent){.steps = shape->steps[axis],
                            .rows = ashlar__operand_bytes(around->steps, around->rows, 1)};
    }
}

size_t ashlar__walk_tensor_bytes(const ashlar_tensor *tensor,
                                 const ashlar_extent extents[ASHLAR_AXIS_MAX]) {
    const ashlar_extent *e = &extents[tensor->axis];
    const size_t positions = ashlar__operand_bytes(e->steps, e->rows, 1);
    return tensor->width == 0 ? ashlar__operand_bytes(positions, 1, sizeof(int32_t))
                              : ashlar__operand_bytes(positions, tensor->width,
                                                      ashlar_dtype_bytes(tensor->model->dtype));
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Stands for a gradient where only that one is wanted is told. */
static char wanted_mark[1];

/* What the operations need of their own, in one shape. */
static ashlar_status add_sizes(const ashlar_model *m, const ashlar_walk_table *t,
                               const ashlar_walk_shape *shape, ashlar_walk_plan *plan) {
    ashlar_extent extents[ASHLAR_AXIS_MAX];
    ashlar__walk_extents(m, shape, extents);
    plan->carried = 0;
    for (size_t n = 0; n < m->node_count; n++) {
        const ashlar_node *node = m->nodes[n];
        const ashlar_walk_node *w = &t->nodes[n];
        ashlar_operation_call call = {.trains = t->key.walk == ASHLAR_WALK_TRAIN,
                                      .has_backward = w->has_backward,
                                      .engine = shape};
        ashlar_operation_sizes sizes = {0};
        if (!w->is_needed || node->operation.sizes == NULL) {
            continue;
        }
        for (size_t i = 0; i < node->input_count; i++) {
            call.inputs[i] = (ashlar_operand_data){
                .extent = extents[node->inputs[i]->axis],
                .width = node->inputs[i]->width,
                .gradient = w->uses[i] != ASHLAR_GRADIENT_NONE ? wanted_mark : NULL};
        }
        for (size_t i = 0; i < node->output_count; i++) {
            call.outputs[i] = (ashlar_operand_data){.extent = extents[node->outputs[i].axis],
                                                    .width = node->outputs[i].width};
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
        plan->carried_at[n] = plan->carried;
        plan->carried += ashlar__round_up(sizes.carried_bytes, ASHLAR_WALK_ALIGN);
    }
    return ASHLAR_OK;
}

/* Bytes of every buffer. What a chunk of fewer steps needs may be more, with cuDNN. */
static ashlar_status size_buffers(const ashlar_model *m, const ashlar_walk_table *t,
                                  ashlar_walk_plan *plan) {
    const ashlar_walk_shape *shape = &plan->shape;
    const size_t steps = shape->steps[ASHLAR_AXIS_TIME];
    const size_t longest = shape->chunk > 0 ? shape->chunk : steps;
    const size_t borders = longest == 0 ? 0 : (steps - 1) / longest;
    ashlar_walk_shape part = *shape;
    ashlar_extent extents[ASHLAR_AXIS_MAX];
    part.steps[ASHLAR_AXIS_TIME] = longest;
    ashlar__walk_extents(m, &part, extents);
    for (size_t i = 0; i < t->buffer_count; i++) {
        const ashlar_tensor *tensor = t->buffers[i].tensor;
        plan->places[i].bytes = tensor == NULL ? 0 : ashlar__walk_tensor_bytes(tensor, extents);
        ASHLAR_FAIL_IF(plan->places[i].bytes == SIZE_MAX, ASHLAR_EOVERFLOW,
                       "model: %s of %s is too large to address", t->buffers[i].role, tensor->name);
    }
    ASHLAR_TRY(add_sizes(m, t, &part, plan));
    const size_t carried = plan->carried;
    if (borders > 0) {
        part.steps[ASHLAR_AXIS_TIME] = steps - borders * longest;
        ASHLAR_TRY(add_sizes(m, t, &part, plan));
        plan->carried = carried;
        plan->places[t->borders].bytes = ashlar__operand_bytes(borders + 2, carried, 1);
    }
    ashlar__walk_extents(m, shape, extents);
    for (size_t n = 0; n < m->node_count && borders > 0; n++) {
        const size_t losses = t->nodes[n].losses;
        if (losses != ASHLAR_NO_INDEX) {
            plan->places[losses].bytes =
                ashlar__operand_bytes(steps, extents[ASHLAR_AXIS_TIME].rows, sizeof(double));
        }
    }
    for (ashlar_axis axis = ASHLAR_AXIS_TIME; axis < m->axis_count; axis++) {
        plan->places[t->lengths[axis]].bytes =
            has_bit(shape->lengths, axis)
                ? ashlar__operand_bytes(extents[axis].rows, borders + 1, sizeof(int32_t))
                : 0;
    }
    for (size_t i = 0; i < t->buffer_count; i++) {
        ASHLAR_FAIL_IF(plan->places[i].bytes == SIZE_MAX, ASHLAR_EOVERFLOW,
                       "model: %s is too large to address", t->buffers[i].role);
    }
    return ASHLAR_OK;
}

/* The search begins only if the first plan is more than 0.5 % above the bound. It ends by the
 * clock, so a walk in chunks has none: what it needs at least must be the same each time. */
enum { SEARCH_MS = 20 };

/* Room to pack a table's buffers. */
typedef struct packing {
    ashlar_pack_buffer *buffers;
    size_t *numbers, *offsets;
    ashlar_pack_result result;
} packing;

/* Whether what a step, or chunk, has in a buffer before the split is read behind it. */
static bool crosses_split(const ashlar_walk_table *t, const ashlar_walk_buffer *b) {
    return b->node != NULL && b->first < t->split && b->last >= t->split;
}

/* Place the buffers of one kind. */
static ashlar_status pack(const ashlar_walk_table *t, ashlar_walk_plan *plan, packing *p,
                          bool (*is_packed)(const ashlar_walk_table *, const ashlar_walk_buffer *),
                          bool is_kept, size_t *bytes) {
    const ashlar_pack_options options = {.alignment = ASHLAR_WALK_ALIGN,
                                         .time_budget_ms = t->key.is_cut ? 0 : SEARCH_MS};
    size_t count = 0;
    for (size_t i = 0; i < t->buffer_count; i++) {
        const ashlar_walk_buffer *b = &t->buffers[i];
        if (b->home == i && plan->places[i].bytes > 0 && is_packed(t, b)) {
            p->buffers[count] = (ashlar_pack_buffer){plan->places[i].bytes, b->first, b->last + 1};
            p->numbers[count++] = i;
        }
    }
    ASHLAR_TRY(ashlar_pack(p->buffers, count, &options, p->offsets, &p->result));
    for (size_t k = 0; k < count; k++) {
        ashlar_walk_place *place = &plan->places[p->numbers[k]];
        *(is_kept ? &place->kept_at : &place->offset) = p->offsets[k];
        place->is_kept |= is_kept;
    }
    *bytes = p->result.plan_bytes;
    return ASHLAR_OK;
}

static bool is_any(const ashlar_walk_table *t, const ashlar_walk_buffer *b) {
    (void)t;
    (void)b;
    return true;
}

static bool is_before(const ashlar_walk_table *t, const ashlar_walk_buffer *b) {
    return b->last < t->split;
}

static bool is_behind(const ashlar_walk_table *t, const ashlar_walk_buffer *b) {
    return b->first >= t->split;
}

/* A step of a loop's body has three blocks; all else has one, and chunks, where they keep what
 * crosses the split, another. */
static ashlar_status place_all(const ashlar_walk_table *t, ashlar_walk_plan *plan, packing *p) {
    const bool has_blocks = t->split > 0 && !t->key.is_cut;
    ASHLAR_TRY(pack(t, plan, p, has_blocks ? is_before : is_any, false, &plan->bytes));
    plan->bound = p->result.bound_bytes;
    if (has_blocks) {
        ASHLAR_TRY(pack(t, plan, p, is_behind, false, &plan->back_bytes));
    }
    if (t->split > 0) {
        ASHLAR_TRY(pack(t, plan, p, crosses_split, true, &plan->kept_bytes));
    }
    for (size_t i = 0; i < t->buffer_count; i++) {
        const size_t bytes = plan->places[i].bytes;
        plan->places[i] = plan->places[home_of(t, i)];
        plan->places[i].bytes = bytes;
    }
    return ASHLAR_OK;
}

/* Give a walk of chunks room for what others than the present one keep: all but the last, which
 * goes back at once. */
static ashlar_status fill_memory(ashlar_walk_plan *plan) {
    const size_t memory = plan->shape.memory, steps = plan->shape.steps[ASHLAR_AXIS_TIME];
    ASHLAR_FAIL_IF(plan->bytes > memory, ASHLAR_ENOMEM,
                   "model: a walk of %zu steps needs at least %zu bytes, and may have %zu: give it "
                   "more, or shorter chunks",
                   steps, plan->bytes, memory);
    if (plan->kept_bytes > 0) {
        const size_t others = (steps - 1) / plan->shape.chunk;
        const size_t room = (memory - plan->bytes) / plan->kept_bytes;
        plan->slots_at = plan->bytes;
        plan->slot_count = room < others ? room : others;
        plan->bytes += plan->slot_count * plan->kept_bytes;
        plan->bound += plan->slot_count * plan->kept_bytes;
        plan->host_bytes =
            plan->slot_count > 0 ? (others - plan->slot_count) * plan->kept_bytes : 0;
    }
    return ASHLAR_OK;
}

static ashlar_status make_plan(const ashlar_model *m, const ashlar_walk_table *t,
                               ashlar_walk_plan *plan) {
    const size_t count = t->buffer_count;
    char *memory;
    ASHLAR_TRY(size_buffers(m, t, plan));
    ASHLAR_HOST_NEW(memory, count * (sizeof(ashlar_pack_buffer) + 2 * sizeof(size_t)),
                    "no host memory to plan a walk");
    packing p = {.buffers = (ashlar_pack_buffer *)(void *)memory};
    p.numbers = (size_t *)(p.buffers + count);
    p.offsets = p.numbers + count;
    const ashlar_status status = place_all(t, plan, &p);
    ashlar__host_free(memory);
    ASHLAR_TRY(status);
    if (plan->shape.memory == 0) {
        return ASHLAR_OK;
    }
    return t->key.is_cut                      ? fill_memory(plan)
           : plan->bytes > plan->shape.memory ? ashlar__moves_plan(m, t, plan)
                                              : ASHLAR_OK;
}

/* Odd, so that each length counts. */
static const uint64_t HASH_FACTOR = UINT64_C(0x9e3779b97f4a7c15);

static size_t bucket_of(const ashlar_walk_shape *shape) {
    uint64_t hash = shape->batch;
    for (size_t i = 0; i < ASHLAR_AXIS_MAX; i++) {
        hash = hash * HASH_FACTOR + shape->steps[i];
    }
    return ashlar__random_mix(hash + shape->chunk) % ASHLAR_PLAN_BUCKETS;
}

static ashlar_status new_plan(const ashlar_model *m, const ashlar_walk_table *t,
                              const ashlar_walk_shape *shape, ashlar_walk_plan **out) {
    const size_t bytes = sizeof **out + t->buffer_count * sizeof(*out)->places[0];
    ashlar_walk_plan *plan =
        ashlar__host_calloc(1, bytes + m->node_count * sizeof *plan->carried_at);
    ASHLAR_FAIL_IF(plan == NULL, ASHLAR_EHOSTMEM, "no host memory for the plan of a walk");
    plan->shape = *shape;
    plan->carried_at = (size_t *)(void *)((char *)plan + bytes);
    ASHLAR_HAND_OUT(make_plan(m, t, plan), plan, free_plan, out);
}

/* Drop a bucket's oldest plans, so that a program whose batches all differ needs no more and more
 * memory. */
static void drop_oldest(ashlar_walk_plan **bucket) {
    for (size_t i = 0; i + 1 < ASHLAR_PLANS_OF_BUCKET && *bucket != NULL; i++) {
        bucket = &(*bucket)->next;
    }
    free_plans(*bucket);
    *bucket = NULL;
}

ashlar_status ashlar__walk_plan_get(ashlar_model *m, ashlar_walk_table *t,
                                    const ashlar_walk_shape *shape, const ashlar_walk_plan **out) {
    ashlar_walk_plan **bucket = &t->plans[bucket_of(shape)], *plan = *bucket;
    while (plan != NULL && memcmp(&plan->shape, shape, sizeof *shape) != 0) {
        plan = plan->next;
    }
    if (plan == NULL) {
        ASHLAR_TRY(new_plan(m, t, shape, &plan));
        if (plan->host_bytes > 0) {
            ashlar__away_need(&m->root->away, plan->host_bytes,
                              plan->slot_count > 0 ? plan->slot_count : plan->move_count);
        }
        drop_oldest(bucket);
        plan->next = *bucket;
        *bucket = plan;
    }
    *out = plan;
    return ASHLAR_OK;
}
