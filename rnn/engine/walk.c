/* walk.c - a walk over a model's operations with one batch: takes its block of memory, queues every
 * phase on it, chunk by chunk if asked, and gives the block back. */
#include "rnn/engine/engine.h"

#include <math.h>
#include <string.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "allocator/device/device_impl.h"
#include "arena/layout/arena_impl.h"
#include "rnn/layer/ops.h"

/* Odd, so that neighbouring chunks draw from different seeds, and all of a training's from
 * different ones. */
static const uint64_t CHUNK_STRIDE = UINT64_C(0xd1342543de82ef95);

/* ---- the batch ---- */

static uint64_t wanted(void *const *pointers, size_t count) {
    uint64_t bits = 0;
    for (size_t i = 0; i < count && pointers != NULL; i++) {
        bits |= pointers[i] != NULL ? UINT64_C(1) << i : 0;
    }
    return bits;
}

/* The time steps of a chunk, 0: all; as many as the caller and all operations allow. Those that
 * they alone make necessary are about equal. */
static size_t chunk_of(const ashlar_model *m, const ashlar_model_batch *b) {
    const size_t most = m->most_steps;
    size_t chunk = b->chunk > 0 && b->chunk < b->steps ? b->chunk : b->steps;
    chunk = most > 0 && most < chunk ? (b->steps - 1) / ((b->steps - 1) / most + 1) + 1 : chunk;
    return chunk < b->steps ? chunk : 0;
}

static ashlar_status shape_of(const ashlar_model *m, ashlar_walk walk, const ashlar_model_batch *b,
                              ashlar_walk_shape *shape) {
    *shape = (ashlar_walk_shape){.batch = b->batch,
                                 .chunk = chunk_of(m, b),
                                 .memory = walk == ASHLAR_WALK_TRAIN ? b->memory : 0};
    const bool chunks = shape->chunk > 0;
    ASHLAR_FAIL_IF(b->batch == 0, ASHLAR_EINVAL, "model: a batch of 0 sequences");
    for (ashlar_axis axis = ASHLAR_AXIS_TIME; axis < m->axis_count; axis++) {
        const size_t steps = b->axes[axis].steps;
        if ((m->used_axes >> axis & 1) == 0) {
            continue;
        }
        ASHLAR_FAIL_IF(steps == 0 || steps > INT32_MAX, ASHLAR_EINVAL,
                       "model: a batch of %zu steps on axis %u; give 1 to 2^31 - 1", steps, axis);
        shape->steps[axis] = steps;
        const bool is_copied = b->axes[axis].lengths != NULL && b->axes[axis].lengths_at == NULL;
        const bool is_clipped = chunks && b->axes[axis].lengths_at != NULL;
        shape->lengths |= (size_t)(is_copied || is_clipped) << axis;
    }
    ASHLAR_FAIL_IF(chunks && walk == ASHLAR_WALK_PREDICT, ASHLAR_EINVAL,
                   "model: a prediction is not made in chunks; give its parts as batches that "
                   "continue");
    return ASHLAR_OK;
}

/* Chunks can be cut of a model whose operations look at one step at a time. */
static ashlar_status check_chunks(const ashlar_model *m, const ashlar_walk_table *t) {
    for (size_t n = 0; n < m->node_count; n++) {
        const ashlar_node *node = m->nodes[n];
        bool is_cut = node->operation.is_local;
        for (size_t i = 0; i < node->output_count; i++) {
            const ashlar_tensor *out = &node->outputs[i];
            is_cut &= out->axis == ASHLAR_AXIS_TIME || !t->tensors[out->index].is_read;
        }
        ASHLAR_FAIL_IF(t->nodes[n].is_needed && !is_cut, ASHLAR_EINVAL,
                       "model: %s reads all time steps at once, so that a batch cannot be computed "
                       "in chunks: give chunk 0",
                       node->name);
    }
    return ASHLAR_OK;
}

static ashlar_status prepare(ashlar_model *m, ashlar_walk walk, const ashlar_model_batch *given,
                             ashlar_stream stream, ashlar_walking *w) {
    ashlar_walk_shape shape;
    ashlar_walk_table *table;
    *w = (ashlar_walking){.model = m, .stream = stream, .chunk_count = 1};
    ashlar_model_batch *b = &w->batch;
    if (given != NULL) {
        *b = *given;
    }
    b->axes[ASHLAR_AXIS_TIME].steps = b->steps;
    b->axes[ASHLAR_AXIS_TIME].lengths = b->lengths;
    b->axes[ASHLAR_AXIS_TIME].lengths_at = b->lengths_at;
    const ashlar_table_key key = {
        .walk = (uint64_t)walk,
        .outputs = wanted(b->outputs, m->output_count),
        .input_gradients =
            walk == ASHLAR_WALK_TRAIN ? wanted(b->input_gradients, m->input_count) : 0,
        .is_cut = walk == ASHLAR_WALK_TRAIN && chunk_of(m, b) > 0};
    ASHLAR_FAIL_IF(!m->is_committed, ASHLAR_EINVAL, "model: not committed");
    ASHLAR_FAIL_IF((unsigned)walk >= ASHLAR_WALK_COUNT, ASHLAR_EINVAL, "model: %d is no walk",
                   (int)walk);
    ASHLAR_FAIL_IF(walk == ASHLAR_WALK_TRAIN &&
                       ashlar_arena_region(m->arena, ASHLAR_REGION_GRADIENTS) == NULL,
                   ASHLAR_EINVAL,
                   "model: the arena has no gradients: commit the model with ASHLAR_REGIONS_ALL");
    ASHLAR_TRY(shape_of(m, walk, b, &shape));
    ASHLAR_TRY(ashlar__walk_table_get(m, &key, &table));
    w->table = table;
    if (shape.chunk > 0) {
        ASHLAR_TRY(check_chunks(m, table));
        w->chunk_count = (b->steps - 1) / shape.chunk + 1;
    }
    return ashlar__walk_plan_get(m, table, &shape, &w->plan);
}

/* ---- what the caller gives ---- */

static ashlar_status check_lengths(const ashlar_walking *w, ashlar_axis axis) {
    const int32_t *lengths = w->batch.axes[axis].lengths;
    const int32_t *lengths_at = w->batch.axes[axis].lengths_at;
    const ashlar_extent *e = &w->extents[axis];
    const size_t bytes = ashlar__operand_bytes(e->rows, 1, sizeof *lengths);
    const ashlar_operand operands[] = {{"lengths_at", lengths_at, bytes, false}, {0}};
    ASHLAR_FAIL_IF(lengths == NULL && lengths_at != NULL && w->batch.seed_at == NULL, ASHLAR_EINVAL,
                   "model: lengths_at of axis %u without lengths: recurrent layers read these, "
                   "unless there is a seed_at",
                   axis);
    ASHLAR_TRY(ashlar__check_host_array("ashlar_model_run", "lengths", lengths, bytes));
    for (size_t b = 0; b < e->rows && lengths != NULL; b++) {
        ASHLAR_FAIL_IF(lengths[b] < 1 || (size_t)lengths[b] > e->steps, ASHLAR_EINVAL,
                       "model: lengths[%zu] of axis %u is %d; it must be 1 to %zu", b, axis,
                       (int)lengths[b], e->steps);
    }
    return ashlar__check_operands(w->model->device, "ashlar_model_run", operands);
}

static ashlar_status check_tensor(const ashlar_walking *w, const ashlar_tensor *tensor,
                                  const void *ptr) {
    const ashlar_operand operands[] = {
        {tensor->name, ptr, ashlar__walk_tensor_bytes(tensor, w->extents), true}, {0}};
    return ashlar__check_operands(w->model->device, "ashlar_model_run", operands);
}

/* A loss that is a mean of its own in each chunk would not be that of the batch. */
static ashlar_status check_weight(const ashlar_walking *w) {
    const double weight = w->batch.weight;
    ASHLAR_FAIL_IF(!(weight >= 0 && weight < INFINITY), ASHLAR_EINVAL,
                   "model: the weight of a position is %g; give a finite one, or 0 for a mean",
                   weight);
    ASHLAR_FAIL_IF(w->chunk_count > 1 && weight == 0 && w->batch.weight_at == NULL, ASHLAR_EINVAL,
                   "model: chunks of %zu steps need a weight, for none knows the mean of the whole "
                   "batch: give 1 / its number of valid positions",
                   w->plan->shape.chunk);
    return ASHLAR_OK;
}

static ashlar_status check_states(const ashlar_walking *w) {
    const ashlar_model *m = w->model;
    const ashlar_model_batch *b = &w->batch;
    bool carries = m->bodies == NULL; /* without loops nothing is lost */
    for (size_t n = 0; n < m->node_count; n++) {
        carries |= m->nodes[n]->operation.carries;
    }
    ASHLAR_FAIL_IF(!carries, ASHLAR_EINVAL,
                   "model: no layer carries states from batch to batch; what a loop carries begins "
                   "with an input, and its last value can be an output");
    const uintptr_t before = (uintptr_t)b->before, after = (uintptr_t)b->after;
    ASHLAR_FAIL_IF(before != 0 && after != 0 && before < after + w->plan->carried &&
                       after < before + w->plan->carried,
                   ASHLAR_EINVAL,
                   "model: before and after overlap; give two buffers of %zu bytes, and swap them",
                   w->plan->carried);
    return ASHLAR_OK;
}

static ashlar_status check_memory(const ashlar_walking *w) {
    const ashlar_model *m = w->model;
    const ashlar_model_batch *b = &w->batch;
    const bool has_loss = w->table->key.walk != ASHLAR_WALK_PREDICT;
    const ashlar_operand operands[] = {{"loss", b->loss, has_loss ? sizeof *b->loss : 0, has_loss},
                                       {"scale", b->scale, sizeof *b->scale, false},
                                       {"weight_at", b->weight_at, sizeof *b->weight_at, false},
                                       {"seed_at", b->seed_at, sizeof *b->seed_at, false},
                                       {"before", b->before, w->plan->carried, false},
                                       {"after", b->after, w->plan->carried, false},
                                       {0}};
    ASHLAR_TRY(check_weight(w));
    for (ashlar_axis axis = ASHLAR_AXIS_TIME; axis < m->axis_count; axis++) {
        ASHLAR_TRY(w->extents[axis].steps > 0 ? check_lengths(w, axis) : ASHLAR_OK);
    }
    for (size_t i = 0; i < m->input_count; i++) {
        if (w->table->tensors[m->inputs[i].index].is_read) {
            ASHLAR_TRY(check_tensor(w, &m->inputs[i], b->inputs == NULL ? NULL : b->inputs[i]));
        }
        if ((w->table->key.input_gradients >> i & 1) != 0) {
            ASHLAR_TRY(check_tensor(w, &m->inputs[i], b->input_gradients[i]));
        }
    }
    for (size_t i = 0; i < m->output_count; i++) {
        if ((w->table->key.outputs >> i & 1) != 0) {
            ASHLAR_TRY(check_tensor(w, m->outputs[i], b->outputs[i]));
        }
    }
    ASHLAR_TRY(ashlar__check_operands(m->device, "ashlar_model_run", operands));
    return b->before != NULL || b->after != NULL ? check_states(w) : ASHLAR_OK;
}

/* ---- one call of an operation ---- */

/* The present chunk's part of a tensor in the caller's memory. */
static void *in_batch(const ashlar_walking *w, const ashlar_tensor *tensor, const void *ptr) {
    if (ptr == NULL || w->first_step == 0 || tensor->axis != ASHLAR_AXIS_TIME) {
        return (void *)(uintptr_t)ptr;
    }
    ashlar_extent before[ASHLAR_AXIS_MAX];
    before[ASHLAR_AXIS_TIME] = w->extents[ASHLAR_AXIS_TIME];
    before[ASHLAR_AXIS_TIME].steps = w->first_step;
    return (char *)(uintptr_t)ptr + ashlar__walk_tensor_bytes(tensor, before);
}

static void *value_of(const ashlar_walking *w, const ashlar_tensor *tensor) {
    const ashlar_walk_tensor *t = &w->table->tensors[tensor->index];
    if (tensor->node == NULL) {
        return in_batch(w, tensor, w->batch.inputs[tensor - w->model->inputs]);
    }
    return t->value == ASHLAR_NO_INDEX && tensor->output != ASHLAR_NO_INDEX &&
                   w->batch.outputs != NULL
               ? in_batch(w, tensor, w->batch.outputs[tensor->output])
               : ashlar__walk_at(w, t->value);
}

static void *gradient_of(const ashlar_walking *w, const ashlar_tensor *tensor) {
    const ashlar_walk_tensor *t = &w->table->tensors[tensor->index];
    return tensor->node == NULL && t->has_gradient
               ? in_batch(w, tensor, w->batch.input_gradients[tensor - w->model->inputs])
               : ashlar__walk_at(w, t->gradient);
}

static void *set_at(const ashlar_walking *w, size_t set, size_t offset) {
    return (char *)ashlar__walk_at(w, w->table->borders) + set * w->plan->carried + offset;
}

/* Of n chunks, the states behind chunk i are in set i, and the gradient of the states before chunk
 * c goes to set n - 1 + c % 2. */
static void set_carried(const ashlar_walking *w, const ashlar_node *node,
                        ashlar_operation_call *call) {
    const size_t offset = w->plan->carried_at[node->index], last = w->chunk_count - 1, i = w->chunk;
    const char *before = w->batch.before;
    char *after = w->batch.after;
    if (!node->operation.carries) {
        return;
    }
    call->before = i > 0 ? set_at(w, i - 1, offset) : before == NULL ? NULL : before + offset;
    if (w->is_early || (i < last && w->table->key.walk != ASHLAR_WALK_TRAIN)) {
        call->after = set_at(w, i, offset);
    } else if (i == last && after != NULL) {
        call->after = after + offset;
    }
    call->after_gradient = i < last ? set_at(w, last + (i + 1) % 2, offset) : NULL;
    call->before_gradient = i > 0 ? set_at(w, last + i % 2, offset) : NULL;
}

static void set_operands(const ashlar_walking *w, const ashlar_node *node,
                         ashlar_operation_call *call) {
    const ashlar_walk_node *own = &w->table->nodes[node->index];
    const ashlar_model *root = w->model->root;
    for (size_t i = 0; i < node->input_count; i++) {
        const ashlar_tensor *tensor = node->inputs[i];
        void *gradient = own->uses[i] == ASHLAR_GRADIENT_NONE ? NULL
                         : own->uses[i] == ASHLAR_GRADIENT_FIRST
                             ? gradient_of(w, tensor)
                             : ashlar__walk_at(w, own->beside[i]);
        call->inputs[i] = (ashlar_operand_data){w->extents[tensor->axis], tensor->width,
                                                value_of(w, tensor), gradient};
    }
    for (size_t i = 0; i < node->output_count; i++) {
        const ashlar_tensor *tensor = &node->outputs[i];
        call->outputs[i] = (ashlar_operand_data){w->extents[tensor->axis], tensor->width,
                                                 value_of(w, tensor), gradient_of(w, tensor)};
    }
    for (size_t i = 0; i < node->weight_count; i++) {
        const ashlar_model_weight *weight = &root->weights[node->weights[i]];
        const bool is_trained = own->has_weight_gradients && !weight->is_frozen;
        call->weights[i] = (ashlar_weight_data){
            weight->rows, weight->width,
            ashlar_arena_view(root->arena, ASHLAR_REGION_PARAMETERS, weight->tensor),
            is_trained ? ashlar_arena_view(root->arena, ASHLAR_REGION_GRADIENTS, weight->tensor)
                       : NULL};
    }
}

/* Add what was written beside a gradient to it. */
static ashlar_status add_beside(const ashlar_walking *w, const ashlar_node *node,
                                const ashlar_operation_call *call) {
    const ashlar_walk_node *own = &w->table->nodes[node->index];
    for (size_t i = 0; i < node->input_count; i++) {
        if (own->uses[i] == ASHLAR_GRADIENT_ADDED) {
            const ashlar_operand_data *in = &call->inputs[i];
            const ashlar_map_args args = {.kind = ASHLAR_MAP_COPY,
                                          .count = in->extent.steps * in->extent.rows * in->width,
                                          .a = in->gradient,
                                          .out = gradient_of(w, node->inputs[i]),
                                          .adds = true};
            ASHLAR_TRY(ashlar__ops_map(w->model->ops, &args, w->stream));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status queue_phase(const ashlar_walking *w, const ashlar_walk_phase *p) {
    const ashlar_operation *o = &p->node->operation;
    const ashlar_walk_node *own = &w->table->nodes[p->node->index];
    ashlar_operation_call call = {.phase = p->phase,
                                  .trains = w->table->key.walk == ASHLAR_WALK_TRAIN,
                                  .has_backward = own->has_backward,
                                  .engine = w,
                                  .kept = ashlar__walk_at(w, own->kept),
                                  .work = ashlar__walk_at(w, own->work[p->phase]),
                                  .seed = w->seed + w->chunk * CHUNK_STRIDE,
                                  .seed_at = w->batch.seed_at,
                                  .is_replayed = w->chunk_count > 1,
                                  .sequence_first = w->batch.sequence_first,
                                  .sequence_stride = w->batch.sequence_stride,
                                  .weight = w->batch.weight,
                                  .weight_at = w->batch.weight_at,
                                  .scale = w->batch.scale,
                                  .loss = w->batch.loss};
    set_operands(w, p->node, &call);
    set_carried(w, p->node, &call);
    ASHLAR_TRY(o->queue(o->user, &call, w->stream));
    return p->phase == ashlar__walk_gradient_phase(p->node) ? add_beside(w, p->node, &call)
                                                            : ASHLAR_OK;
}

ashlar_status ashlar__walk_queue(const ashlar_walking *w, size_t first, size_t end) {
    for (size_t p = first; p < end; p++) {
        const ashlar_node *node = w->table->phases[p].node;
        /* Chunks do not cut what lies on another axis: a loss there counts once. */
        const bool is_done =
            w->chunk > 0 && node->operation.is_loss && node->inputs[0]->axis != ASHLAR_AXIS_TIME;
        ASHLAR_TRY(is_done ? ASHLAR_OK : queue_phase(w, &w->table->phases[p]));
    }
    return ASHLAR_OK;
}

/* ---- the walk ---- */

/* The device's lengths of an axis: given, copied, or clipped for each chunk. */
static ashlar_status queue_lengths(ashlar_walking *w, ashlar_axis axis) {
    ashlar_extent *e = &w->extents[axis];
    int32_t *at = ashlar__walk_at(w, w->table->lengths[axis]);
    e->lengths = w->batch.axes[axis].lengths;
    e->lengths_at = w->batch.axes[axis].lengths_at;
    if (at == NULL) {
        return ASHLAR_OK;
    }
    if (e->lengths_at == NULL) {
        ASHLAR_TRY(ashlar_copy_to_device(w->model->device, at, e->lengths, e->rows * sizeof *at,
                                         w->stream));
        e->lengths_at = at;
    }
    const int32_t *whole = e->lengths_at;
    for (size_t i = w->chunk_count; w->chunk_count > 1 && i-- > 0;) {
        const ashlar_clip_lengths_args args = {.batch = e->rows,
                                               .first = i * w->plan->shape.chunk,
                                               .steps = w->plan->shape.chunk,
                                               .lengths = whole,
                                               .out = at + i * e->rows};
        ASHLAR_TRY(ashlar__ops_clip_lengths(w->model->ops, &args, w->stream));
    }
    return ASHLAR_OK;
}

/* An input that no gradient reaches has gradient 0. */
static ashlar_status clear_gradients(const ashlar_walking *w) {
    for (size_t i = 0; i < w->model->input_count; i++) {
        const ashlar_tensor *input = &w->model->inputs[i];
        if ((w->table->key.input_gradients >> i & 1) != 0 &&
            !w->table->tensors[input->index].is_written) {
            ASHLAR_TRY(ashlar_fill(w->model->device, w->batch.input_gradients[i], 0,
                                   ashlar__walk_tensor_bytes(input, w->extents), w->stream));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status queue_all(ashlar_walking *w) {
    for (ashlar_axis axis = ASHLAR_AXIS_TIME; axis < w->model->axis_count; axis++) {
        ASHLAR_TRY(queue_lengths(w, axis));
    }
    ASHLAR_TRY(clear_gradients(w));
    if (w->plan->move_count > 0) {
        return ashlar__moves_queue(w);
    }
    if (w->chunk_count == 1) {
        return ashlar__walk_queue(w, 0, w->table->phase_count);
    }
    return ashlar__walk_chunks(w);
}

/* `address` receives the block's. */
static ashlar_status take_block(ashlar_walking *w, void **address) {
    if (w->plan->bytes > 0) {
        ASHLAR_TRY(ashlar_alloc_tagged(w->model->allocator, w->plan->bytes, ASHLAR_TAG_ACTIVATIONS,
                                       w->stream, (void **)&w->block));
    }
    if (address != NULL) {
        *address = w->block;
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__model_walk(ashlar_model *m, ashlar_walk walk, const ashlar_model_batch *batch,
                                 ashlar_stream stream) {
    ashlar_walking w;
    ASHLAR_TRY(prepare(m, walk, batch, stream, &w));
    ashlar__walk_extents(m, &w.plan->shape, w.extents);
    ASHLAR_TRY(check_memory(&w));
    if (walk == ASHLAR_WALK_TRAIN) { /* the weights are about to change */
        ASHLAR_TRY(ashlar__model_check_frozen(m->root));
        ASHLAR_TRY(ashlar__model_drop_prepared(m));
    }
    w.seed = w.batch.seed != 0 ? w.batch.seed : ashlar__random_step(&m->root->arena->seed);
    ASHLAR_TRY(ashlar__away_take(&m->root->away));
    ASHLAR_TRY(take_block(&w, w.batch.address));
    const ashlar_status status = queue_all(&w);
    const ashlar_status given_back = ashlar_free(m->allocator, w.block);
    return status == ASHLAR_OK ? given_back : status;
}

ashlar_status ashlar_model_dry_run(ashlar_model *m, ashlar_walk walk,
                                   const ashlar_model_batch *batch, ashlar_stream stream,
                                   void **address) {
    ashlar_walking w;
    ASHLAR_TRY(prepare(m, walk, batch, stream, &w));
    ASHLAR_TRY(take_block(&w, address));
    return ashlar_free(m->allocator, w.block);
}

ashlar_status ashlar_model_get_need(ashlar_model *m, ashlar_walk walk,
                                    const ashlar_model_batch *batch, ashlar_model_need *out) {
    ashlar_walking w;
    ASHLAR_TRY(prepare(m, walk, batch, NULL, &w));
    *out = (ashlar_model_need){.plan_bytes = w.plan->bytes,
                               .bound_bytes = w.plan->bound,
                               .carried_bytes = w.plan->carried,
                               .phases = w.table->phase_count};
    return ASHLAR_OK;
}

ashlar_status ashlar_model_get_tiers(ashlar_model *m, const ashlar_model_batch *batch,
                                     ashlar_model_tiers *out) {
    ashlar_walking w;
    ASHLAR_TRY(prepare(m, ASHLAR_WALK_TRAIN, batch, NULL, &w));
    return ashlar__walk_tiers_tell(&w, out);
}

uint64_t ashlar_model_event_calls(const ashlar_model *m) {
    return m->away.event_calls;
}

/* A buffer in the phases first .. last, at `offset`. */
static ashlar_model_buffer entry_of(const ashlar_walking *w, size_t i, size_t offset, size_t first,
                                    size_t last) {
    const ashlar_walk_buffer *b = &w->table->buffers[i];
    return (ashlar_model_buffer){.operation = b->tensor != NULL ? b->tensor->name
                                              : b->node != NULL ? b->node->name
                                                                : "",
                                 .role = b->role,
                                 .offset = offset,
                                 .bytes = w->plan->places[i].bytes,
                                 .first = first,
                                 .last = last};
}

ashlar_status ashlar_model_list_buffers(ashlar_model *m, ashlar_walk walk,
                                        const ashlar_model_batch *batch, ashlar_model_buffer *out,
                                        size_t capacity, size_t *count) {
    ashlar_walking w;
    ASHLAR_TRY(prepare(m, walk, batch, NULL, &w));
    *count = 0;
    for (size_t i = 0; i < w.table->buffer_count; i++) {
        const ashlar_walk_buffer *b = &w.table->buffers[i];
        const ashlar_walk_place *p = &w.plan->places[i];
        const ashlar_walk_move *move = p->move == 0 ? NULL : &w.plan->moves[p->move - 1];
        const bool is_before = move == NULL || b->first <= move->pause;
        const bool is_behind = move != NULL && b->last >= move->resume;
        const ashlar_model_buffer before =
            entry_of(&w, i, p->offset, b->first, is_behind ? move->out_end : b->last);
        const ashlar_model_buffer behind =
            is_behind
                ? entry_of(&w, i, move->back_at, is_before ? move->back_begin : b->first, b->last)
                : before;
        if (p->bytes > 0 && is_before && (*count)++ < capacity && out != NULL) {
            out[*count - 1] = before;
        }
        if (p->bytes > 0 && is_behind && (*count)++ < capacity && out != NULL) {
            out[*count - 1] = behind;
        }
    }
    return ASHLAR_OK;
}
