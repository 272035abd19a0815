/* loop.c - a loop over the steps of an axis as one operation: its body is a model of its own, which
 * walks forward over the steps, and backward over them in the opposite order. */
#include <string.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "rnn/engine/engine.h"
#include "rnn/layer/ops.h"

/*
 * The body's inputs are what it reads of the model around it, and what it carries; its outputs are
 * what is carried on, and what is collected. They lie where they are needed: a step's part of a
 * tensor around the loop is read and written in place, and what is carried lies in slots, one for
 * each step and one more, so that a step reads slot i and writes slot i + 1.
 *
 * Behind the body's last operation stands a sink for each of its outputs: a loss whose gradient
 * comes from outside, from the steps' part of the collected tensor's gradient, or from the step
 * that was carried on to. So the body's table has, as that of any model, all phases in order; the
 * loop runs those before the sinks for all steps, and later, from the last step to the first, the
 * others.
 *
 *     kept        validity of each step's rows | slots | what each step keeps for backward
 *     workspace   that of a step; where no backward pass follows before it what is kept, with two
 *                 slots and one step; in a backward pass behind it the gradients of what is
 *                 carried, two of each
 */

enum { ENTRIES = ASHLAR_OPERATION_INPUTS + 4, PARTS_ALIGN = ASHLAR_WALK_ALIGN };

typedef enum entry_kind { ENTRY_STEP, ENTRY_USE, ENTRY_CARRIED } entry_kind;

/* An input of the body. */
typedef struct entry {
    entry_kind kind;
    ashlar_tensor *inside, *outside; /* outside: of CARRIED the initial value; NULL: zeros */
    ashlar_tensor *next;             /* of CARRIED */
    size_t input;                    /* of the loop's operation; ASHLAR_NO_INDEX: none */
} entry;

typedef struct ashlar_loop {
    ashlar_model *model, *body;
    ashlar_axis axis;
    bool is_reversed;
    entry entries[ENTRIES];
    size_t entry_count;
    ashlar_tensor *collected[ASHLAR_OPERATION_OUTPUTS];
    ashlar_tensor **places[ASHLAR_OPERATION_OUTPUTS]; /* where the caller wants them */
    size_t collected_count;
    /* While a step is queued backward: the gradient of each of the body's outputs; NULL: zeros. */
    const void *gradients[ASHLAR_MODEL_OPERANDS];
} loop;

/* ---- operations of a body ---- */

typedef struct body_operation {
    loop *loop;
    bool is_sink;
    size_t output; /* of a sink */
    size_t layers; /* of states that are held */
} body_operation;

static size_t bytes_of(const loop *l, const ashlar_operand_data *t) {
    const size_t item = t->width == 0 ? sizeof(int32_t) : ashlar_dtype_bytes(l->model->dtype);
    return t->extent.steps * t->extent.rows * (t->width == 0 ? 1 : t->width) * item;
}

/* Copy a value of t's size, or a gradient. Not by ashlar_copy(): the caller's inputs and outputs
 * may be page-locked, and a copy inside the device's memory takes no such. */
static ashlar_status copy_value(const loop *l, const ashlar_operand_data *t, void *to,
                                const void *from, ashlar_stream stream) {
    const ashlar_map_args args = {.kind = ASHLAR_MAP_COPY,
                                  .count = t->extent.steps * t->extent.rows * t->width,
                                  .a = from,
                                  .out = to};
    return t->width == 0 ? ashlar_copy(l->model->device, to, from, bytes_of(l, t), stream)
                         : ashlar__ops_map(l->model->ops, &args, stream);
}

/* A gradient, or zeros where there is none. */
static ashlar_status copy_or_clear(const loop *l, const ashlar_operand_data *t, void *to,
                                   const void *from, ashlar_stream stream) {
    return from != NULL ? copy_value(l, t, to, from, stream)
                        : ashlar_fill(l->model->device, to, 0, bytes_of(l, t), stream);
}

/* A copy; of a sink only the gradient, which comes from outside. */
static ashlar_status queue_copy(void *user, const ashlar_operation_call *c, ashlar_stream stream) {
    const body_operation *o = user;
    const ashlar_operand_data *in = &c->inputs[0], *out = &c->outputs[0];
    if (c->phase == ASHLAR_PHASE_FORWARD && !o->is_sink) {
        return copy_value(o->loop, in, out->value, in->value, stream);
    }
    const void *gradient = o->is_sink ? o->loop->gradients[o->output] : out->gradient;
    return in->gradient == NULL ? ASHLAR_OK
                                : copy_or_clear(o->loop, in, in->gradient, gradient, stream);
}

/* out (+)= a in the rows that are valid at this step, or in those that are not. */
static ashlar_status put_rows(const body_operation *o, const ashlar_operand_data *t, const void *a,
                              bool is_past, void *out, bool adds, ashlar_stream stream) {
    const size_t layers = o->layers > 0 ? o->layers : 1, width = t->width / layers;
    const size_t bytes = t->extent.rows * width * ashlar_dtype_bytes(o->loop->model->dtype);
    for (size_t i = 0; i < layers && out != NULL; i++) {
        const ashlar_scale_rows_args args = {.rows = t->extent.rows,
                                             .width = width,
                                             .a = (const char *)a + i * bytes,
                                             .out = (char *)out + i * bytes,
                                             .adds = adds,
                                             .steps = 1,
                                             .batch = t->extent.rows,
                                             .lengths = t->extent.lengths_at,
                                             .is_past = is_past};
        ASHLAR_TRY(ashlar__ops_scale_rows(o->loop->model->ops, &args, stream));
    }
    return ASHLAR_OK;
}

/* What is carried on: the next value, and past a sequence's end the old one. */
static ashlar_status queue_hold(void *user, const ashlar_operation_call *c, ashlar_stream stream) {
    const body_operation *o = user;
    const ashlar_operand_data *next = &c->inputs[0], *old = &c->inputs[1], *out = &c->outputs[0];
    if (c->phase == ASHLAR_PHASE_FORWARD) {
        ASHLAR_TRY(put_rows(o, out, next->value, false, out->value, false, stream));
        return put_rows(o, out, old->value, true, out->value, true, stream);
    }
    ASHLAR_TRY(put_rows(o, out, out->gradient, true, old->gradient, false, stream));
    return put_rows(o, out, out->gradient, false, next->gradient, false, stream);
}

/* Add an operation to a body; returns its output. */
static ashlar_tensor *add_to_body(loop *l, const ashlar_operation *operation,
                                  ashlar_tensor *const *inputs, size_t count, size_t output) {
    ashlar_operation o = *operation;
    const body_operation own = {l, o.is_loss, output, inputs[0]->layers};
    o.user = ashlar__model_user(l->body, &own, sizeof own);
    o.destroy = ashlar__host_free;
    return ashlar__model_one(l->body, &o, NULL, inputs, count, inputs[0]->axis, inputs[0]->width,
                             NULL, 0);
}

/* ---- where everything lies ---- */

typedef struct layout {
    ashlar_walk_table *table;
    const ashlar_walk_plan *plan;
    size_t steps, rows;
    size_t slot_count;                   /* of each carried value */
    size_t valid, slots[ENTRIES];        /* in kept memory, or in the workspace */
    size_t carried[ENTRIES];             /* bytes of a slot */
    size_t bodies;                       /* where the first step's kept memory begins */
    size_t kept, forward, scratch;       /* bytes; scratch: where the step's own workspace begins */
    size_t gradients[ENTRIES], backward; /* offsets in the backward workspace, and its bytes */
} layout;

/* Reserve `count` times `bytes`; returns the offset, or sets *is_over. */
static size_t reserve(size_t *total, size_t count, size_t bytes, bool *is_over) {
    const size_t at = *total;
    size_t all;
    *is_over |= !ashlar__mul(count, bytes, &all) || !ashlar__align_up(all, PARTS_ALIGN, &all) ||
                !ashlar__add(at, all, total);
    return at;
}

static ashlar_status body_plan(const loop *l, const ashlar_operation_call *c,
                               const ashlar_walk_shape *outer, layout *out) {
    ashlar_table_key key = {.walk = c->trains ? ASHLAR_WALK_TRAIN : ASHLAR_WALK_PREDICT,
                            .outputs = (UINT64_C(1) << l->body->output_count) - 1};
    ashlar_walk_table *table;
    ashlar_walk_shape shape = *outer;
    shape.chunk = shape.lengths = shape.memory = 0;
    for (size_t i = 0; i < l->entry_count && c->has_backward; i++) {
        const entry *e = &l->entries[i];
        const bool is_wanted =
            e->kind == ENTRY_CARRIED ? e->inside->width > 0 : c->inputs[e->input].gradient != NULL;
        key.input_gradients |= (uint64_t)is_wanted << i;
    }
    ASHLAR_TRY(ashlar__walk_table_get(l->body, &key, &table));
    out->table = table;
    return ashlar__walk_plan_get(l->body, table, &shape, &out->plan);
}

static ashlar_status lay_out(const loop *l, const ashlar_operation_call *c,
                             const ashlar_walk_shape *shape, layout *out) {
    bool is_over = false;
    size_t *total, bytes[ENTRIES];
    ashlar_extent extents[ASHLAR_AXIS_MAX];
    *out = (layout){0};
    ashlar__walk_extents(l->body, shape, extents);
    for (size_t i = 0; i < l->entry_count; i++) {
        const size_t exact = ashlar__walk_tensor_bytes(l->entries[i].inside, extents);
        is_over |= !ashlar__align_up(exact, PARTS_ALIGN, &bytes[i]);
    }
    ASHLAR_TRY(body_plan(l, c, shape, out));
    out->steps = shape->steps[l->axis];
    out->rows = shape->batch;
    out->slot_count = c->has_backward ? out->steps + 1 : 2;
    total = c->has_backward ? &out->kept : &out->forward;
    out->valid = reserve(total, out->steps, out->rows * sizeof(int32_t), &is_over);
    for (size_t i = 0; i < l->entry_count; i++) {
        if (l->entries[i].kind == ENTRY_CARRIED) {
            out->carried[i] = bytes[i];
            out->slots[i] = reserve(total, out->slot_count, out->carried[i], &is_over);
        }
    }
    out->bodies = reserve(total, c->has_backward ? out->steps : 1, out->plan->kept_bytes, &is_over);
    out->scratch = reserve(&out->forward, 1, out->plan->bytes, &is_over);
    (void)reserve(&out->backward, 1, out->plan->back_bytes, &is_over);
    for (size_t i = 0; i < l->entry_count && c->has_backward; i++) {
        const bool has_own = l->entries[i].inside->width > 0 && l->entries[i].kind != ENTRY_STEP;
        out->gradients[i] = reserve(&out->backward, has_own ? 2 : 0, bytes[i], &is_over);
    }
    ASHLAR_FAIL_IF(is_over, ASHLAR_EOVERFLOW, "model: a loop of %zu steps is too large to address",
                   out->steps);
    return ASHLAR_OK;
}

static ashlar_status size_loop(void *user, const ashlar_operation_call *c,
                               ashlar_operation_sizes *out) {
    layout lay;
    ASHLAR_TRY(lay_out(user, c, c->engine, &lay));
    *out =
        (ashlar_operation_sizes){.kept_bytes = lay.kept, .work_bytes = {lay.forward, lay.backward}};
    return ASHLAR_OK;
}

/* ---- the steps ---- */

/* The loop's operation, at one step. */
typedef struct stepping {
    loop *l;
    const ashlar_operation_call *c;
    layout lay;
    ashlar_walking walk;
    const void *inputs[ASHLAR_MODEL_OPERANDS];
    void *outputs[ASHLAR_MODEL_OPERANDS], *gradients[ASHLAR_MODEL_OPERANDS];
    char *memory; /* with validity and slots */
} stepping;

/* Between the seeds of steps; odd. */
static const uint64_t STEP_STRIDE = UINT64_C(0xa0761d6478bd642f);

static void *part_of(const stepping *s, const ashlar_operand_data *t, void *ptr, size_t step) {
    ashlar_operand_data one = *t;
    one.extent.steps = 1;
    return ptr == NULL ? NULL : (char *)ptr + step * bytes_of(s->l, &one);
}

static void *slot(const stepping *s, size_t k, size_t i) {
    return s->memory + s->lay.slots[k] + i % s->lay.slot_count * s->lay.carried[k];
}

static ashlar_status begin(stepping *s, loop *l, const ashlar_operation_call *c,
                           ashlar_stream stream) {
    const ashlar_walking *outer = c->engine;
    *s = (stepping){.l = l, .c = c};
    ASHLAR_TRY(lay_out(l, c, &outer->plan->shape, &s->lay));
    s->memory = c->has_backward ? c->kept : c->work;
    s->walk = (ashlar_walking){.model = l->body,
                               .batch = {.inputs = s->inputs,
                                         .outputs = s->outputs,
                                         .input_gradients = s->gradients,
                                         .scale = c->scale,
                                         .seed_at = c->seed_at,
                                         .sequence_first = c->sequence_first,
                                         .sequence_stride = c->sequence_stride},
                               .table = s->lay.table,
                               .plan = s->lay.plan,
                               .stream = stream,
                               .chunk_count = 1};
    memcpy(s->walk.extents, outer->extents, sizeof s->walk.extents);
    return ASHLAR_OK;
}

/* What an entry is outside of the loop; NULL: zeros. */
static const ashlar_operand_data *given(const stepping *s, size_t k) {
    const size_t input = s->l->entries[k].input;
    return input == ASHLAR_NO_INDEX ? NULL : &s->c->inputs[input];
}

static bool is_reached(const stepping *s, size_t k) {
    return s->lay.table->tensors[s->l->entries[k].inside->index].is_written;
}

/* The gradient of what is carried into iteration i. */
static void *carried_gradient(const stepping *s, size_t k, size_t i) {
    return (char *)s->c->work + s->lay.gradients[k] + i % 2 * s->lay.carried[k];
}

/* Where iteration i, of step t, reads an entry, and puts its gradient; of what is carried, which is
 * the body's `output`, also where it writes the next value and takes that one's gradient from. */
static void set_entry(stepping *s, size_t k, size_t i, size_t t, size_t output) {
    const entry *e = &s->l->entries[k];
    const ashlar_operand_data *o = given(s, k);
    if (e->kind == ENTRY_STEP) {
        s->inputs[k] = part_of(s, o, o->value, t);
        s->gradients[k] = part_of(s, o, o->gradient, t);
    } else if (e->kind == ENTRY_USE) {
        s->inputs[k] = o->value;
        s->gradients[k] = o->gradient == NULL ? NULL : (char *)s->c->work + s->lay.gradients[k];
    } else {
        const bool has_gradient = e->inside->width > 0;
        const bool has_next = has_gradient && i + 1 < s->lay.steps && is_reached(s, k);
        s->inputs[k] = slot(s, k, i);
        s->outputs[output] = slot(s, k, i + 1);
        s->gradients[k] = has_gradient ? carried_gradient(s, k, i) : NULL;
        s->l->gradients[output] = has_next ? carried_gradient(s, k, i + 1) : NULL;
    }
}

/* Make iteration i the present one. Only a backward pass, whose workspace they lie in, reads and
 * writes the gradients. */
static void go_to(stepping *s, size_t i) {
    loop *l = s->l;
    const size_t t = l->is_reversed ? s->lay.steps - 1 - i : i;
    const int32_t *valid = (const int32_t *)(const void *)(s->memory + s->lay.valid);
    size_t output = 0;
    s->walk.seed = s->c->seed + (t + 1) * STEP_STRIDE;
    s->walk.kept =
        s->memory + s->lay.bodies + (s->c->has_backward ? i : 0) * s->lay.plan->kept_bytes;
    s->walk.extents[ASHLAR_AXIS_NONE] = (ashlar_extent){
        .steps = 1,
        .rows = s->lay.rows,
        .lengths_at = s->walk.extents[l->axis].lengths_at == NULL ? NULL : valid + t * s->lay.rows};
    for (size_t k = 0; k < l->entry_count; k++) {
        set_entry(s, k, i, t, output);
        output += l->entries[k].kind == ENTRY_CARRIED;
    }
    for (size_t k = 0; k < l->collected_count; k++) {
        const ashlar_operand_data *out = &s->c->outputs[k];
        s->outputs[output] = part_of(s, out, out->value, t);
        l->gradients[output++] = part_of(s, out, out->gradient, t);
    }
}

/* The rows that are valid at each step, and the first slot of what is carried. */
static ashlar_status prepare_forward(const stepping *s) {
    const ashlar_extent *e = &s->walk.extents[s->l->axis];
    int32_t *valid = (int32_t *)(void *)(s->memory + s->lay.valid);
    for (size_t t = 0; t < s->lay.steps && e->lengths_at != NULL; t++) {
        const ashlar_clip_lengths_args args = {.batch = s->lay.rows,
                                               .first = t,
                                               .steps = 1,
                                               .lengths = e->lengths_at,
                                               .out = valid + t * s->lay.rows};
        ASHLAR_TRY(ashlar__ops_clip_lengths(s->l->model->ops, &args, s->walk.stream));
    }
    for (size_t k = 0; k < s->l->entry_count; k++) {
        const ashlar_operand_data *o = given(s, k);
        if (s->l->entries[k].kind == ENTRY_CARRIED) {
            ASHLAR_TRY(o != NULL ? copy_value(s->l, o, slot(s, k, 0), o->value, s->walk.stream)
                                 : ashlar_fill(s->l->model->device, slot(s, k, 0), 0,
                                               s->lay.carried[k], s->walk.stream));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status queue_forward(stepping *s) {
    const size_t end = s->c->trains ? s->lay.table->split : s->lay.table->phase_count;
    s->walk.block = (char *)s->c->work + s->lay.scratch;
    ASHLAR_TRY(prepare_forward(s));
    for (size_t i = 0; i < s->lay.steps; i++) {
        go_to(s, i);
        ASHLAR_TRY(ashlar__walk_queue(&s->walk, 0, end));
    }
    return ASHLAR_OK;
}

/* Of what is used in each step the gradients are added up. */
static ashlar_status add_used(const stepping *s) {
    for (size_t k = 0; k < s->l->entry_count; k++) {
        const ashlar_operand_data *t = given(s, k);
        if (s->l->entries[k].kind == ENTRY_USE && s->gradients[k] != NULL && is_reached(s, k)) {
            const ashlar_map_args args = {.kind = ASHLAR_MAP_COPY,
                                          .count = t->extent.steps * t->extent.rows * t->width,
                                          .a = s->gradients[k],
                                          .out = t->gradient,
                                          .adds = true};
            ASHLAR_TRY(ashlar__ops_map(s->l->model->ops, &args, s->walk.stream));
        }
    }
    return ASHLAR_OK;
}

/* Before the steps gradients that are added up, or that no step writes, are 0; behind them those of
 * initial values are those of what the first iteration read. */
static ashlar_status set_outside(const stepping *s, bool is_behind) {
    for (size_t k = 0; k < s->l->entry_count; k++) {
        const ashlar_operand_data *o = given(s, k);
        const entry_kind kind = s->l->entries[k].kind;
        const bool is_set = is_behind ? kind == ENTRY_CARRIED && is_reached(s, k)
                                      : kind == ENTRY_USE || !is_reached(s, k);
        if (o != NULL && o->gradient != NULL && is_set) {
            ASHLAR_TRY(copy_or_clear(s->l, o, o->gradient,
                                     is_behind ? carried_gradient(s, k, 0) : NULL, s->walk.stream));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status queue_backward(stepping *s) {
    s->walk.block = s->c->work;
    ASHLAR_TRY(set_outside(s, false));
    for (size_t i = s->lay.steps; i-- > 0;) {
        go_to(s, i);
        ASHLAR_TRY(ashlar__walk_queue(&s->walk, s->lay.table->split, s->lay.table->phase_count));
        ASHLAR_TRY(add_used(s));
    }
    return set_outside(s, true);
}

static ashlar_status queue_loop(void *user, const ashlar_operation_call *c, ashlar_stream stream) {
    stepping s;
    ASHLAR_TRY(begin(&s, user, c, stream));
    return c->phase == ASHLAR_PHASE_FORWARD ? queue_forward(&s) : queue_backward(&s);
}

/* ---- declaring a loop ---- */

static loop *loop_of(ashlar_model *body) {
    ASHLAR_MODEL_FAIL_IF(body, body->loop == NULL, "model: this is no loop's body");
    return body->loop;
}

ashlar_model *ashlar_model_loop(ashlar_model *m, ashlar_axis axis, bool is_reversed) {
    (void)ashlar__model_accepts(m, "a loop", NULL, 0, 0);
    ASHLAR_MODEL_FAIL_IF(m,
                         axis == ASHLAR_AXIS_NONE || axis >= m->axis_count ||
                             m->within[axis] != ASHLAR_AXIS_NONE || m->root != m,
                         "model: a loop over axis %u; it goes over an axis of time that lies "
                         "within none, and not inside another loop",
                         axis);
    if (m->root->status != ASHLAR_OK) {
        return m;
    }
    loop *l = ashlar__host_calloc(1, sizeof *l);
    ashlar_model *body = l == NULL ? NULL : ashlar__model_new(m->allocator, m->dtype, m);
    if (body == NULL) {
        ashlar__host_free(l);
        ASHLAR_MODEL_FAIL(m, ASHLAR_EHOSTMEM, "no host memory for a loop");
        return m;
    }
    *l = (loop){.model = m, .body = body, .axis = axis, .is_reversed = is_reversed};
    body->loop = l;
    body->axis_count = m->axis_count;
    memcpy(body->within, m->within, sizeof body->within);
    body->next_body = m->bodies;
    m->bodies = body;
    return body;
}

/* Add an input to a body; NULL after a failure. `outside` may be NULL. */
static ashlar_tensor *add_entry(ashlar_model *body, entry_kind kind, ashlar_tensor *outside,
                                ashlar_axis axis, size_t width) {
    loop *l = loop_of(body);
    const size_t count = outside != NULL || kind != ENTRY_CARRIED ? 1 : 0;
    if (l == NULL || !ashlar__model_accepts(body, "a loop", NULL, 0, 0) ||
        !ashlar__model_accepts(l->model, "a loop", &outside, count, 0)) {
        return NULL;
    }
    if (l->entry_count == ENTRIES) {
        ASHLAR_MODEL_FAIL(body, ASHLAR_EINVAL, "model: a loop reads too many tensors");
        return NULL;
    }
    ashlar_tensor *inside = ashlar__model_add_input(body, "loop", axis, width);
    if (inside != NULL) {
        l->entries[l->entry_count++] =
            (entry){.kind = kind, .inside = inside, .outside = outside, .input = ASHLAR_NO_INDEX};
    }
    return inside;
}

ashlar_tensor *ashlar_loop_step(ashlar_model *body, ashlar_tensor *tensor) {
    const loop *l = loop_of(body);
    ASHLAR_MODEL_FAIL_IF(body, tensor != NULL && l != NULL && tensor->axis != l->axis,
                         "model: %s is on axis %u, the loop goes over axis %u: take it by "
                         "ashlar_loop_use()",
                         tensor->name, tensor->axis, l->axis);
    return add_entry(body, ENTRY_STEP, tensor, ASHLAR_AXIS_NONE,
                     tensor == NULL ? 0 : tensor->width);
}

ashlar_tensor *ashlar_loop_use(ashlar_model *body, ashlar_tensor *tensor) {
    const ashlar_tensor *t = tensor;
    ashlar_tensor *inside = add_entry(
        body, ENTRY_USE, tensor, t == NULL ? ASHLAR_AXIS_NONE : t->axis, t == NULL ? 0 : t->width);
    if (inside != NULL) {
        inside->layers = tensor->layers;
        inside->directions = tensor->directions;
    }
    return inside;
}

ashlar_tensor *ashlar_loop_carried(ashlar_model *body, ashlar_tensor *initial, size_t width) {
    ASHLAR_MODEL_FAIL_IF(body, initial != NULL && initial->axis != ASHLAR_AXIS_NONE,
                         "model: what a loop carries begins with %s, which is on axis %u; it must "
                         "be on none",
                         initial->name, initial->axis);
    return add_entry(body, ENTRY_CARRIED, initial, ASHLAR_AXIS_NONE,
                     initial != NULL ? initial->width : width);
}

void ashlar_loop_carry(ashlar_model *body, ashlar_tensor *carried, ashlar_tensor *next) {
    loop *l = loop_of(body);
    ashlar_tensor *const tensors[] = {carried, next};
    if (l == NULL || !ashlar__model_accepts(body, "what a loop carries", tensors, 2, 0)) {
        return;
    }
    for (size_t i = 0; i < l->entry_count; i++) {
        entry *e = &l->entries[i];
        if (e->inside == carried && e->kind == ENTRY_CARRIED && e->next == NULL &&
            next->axis == ASHLAR_AXIS_NONE && next->width == carried->width) {
            e->next = next;
            return;
        }
    }
    ASHLAR_MODEL_FAIL(body, ASHLAR_EINVAL,
                      "model: a loop cannot carry %s, of width %zu on axis %u: there is no such "
                      "value, or it has a next one, or another width, which is %zu",
                      next->name, next->width, next->axis, carried->width);
}

void ashlar_loop_collect(ashlar_model *body, ashlar_tensor *tensor, ashlar_tensor **out) {
    loop *l = loop_of(body);
    *out = NULL;
    if (l == NULL || !ashlar__model_accepts(body, "what a loop collects", &tensor, 1, 0)) {
        return;
    }
    ASHLAR_MODEL_FAIL_IF(body,
                         l->collected_count == ASHLAR_OPERATION_OUTPUTS ||
                             tensor->axis != ASHLAR_AXIS_NONE || tensor->layers > 0,
                         "model: a loop cannot collect %s: at most %d tensors, on no axis, and no "
                         "states of layers",
                         tensor->name, ASHLAR_OPERATION_OUTPUTS);
    if (body->root->status == ASHLAR_OK) {
        l->collected[l->collected_count] = tensor;
        l->places[l->collected_count++] = out;
    }
}

static const ashlar_operation copy = {.name = "copy", .queue = queue_copy};
static const ashlar_operation carry = {.name = "carry", .queue = queue_hold};
static const ashlar_operation sink = {
    .name = "gradient of a step", .queue = queue_copy, .is_loss = true};

/* Make a tensor of the body one of its outputs; it must be an operation's, and not one already. */
static void add_output(loop *l, ashlar_tensor *tensor) {
    ashlar_model *body = l->body;
    if (tensor != NULL && (tensor->node == NULL || tensor->output != ASHLAR_NO_INDEX)) {
        tensor = add_to_body(l, &copy, &tensor, 1, 0);
    }
    if (tensor != NULL) {
        tensor->output = body->output_count;
        body->outputs[body->output_count++] = tensor;
    }
}

/* The body's outputs: first what is carried on, then what is collected; then their sinks. */
static void end_body(loop *l) {
    for (size_t i = 0; i < l->entry_count; i++) {
        const entry *e = &l->entries[i];
        ashlar_tensor *const pair[] = {e->next, e->inside};
        ASHLAR_MODEL_FAIL_IF(l->model, e->kind == ENTRY_CARRIED && e->next == NULL,
                             "model: a loop carries a value whose next one is not given: "
                             "ashlar_loop_carry()");
        if (e->kind == ENTRY_CARRIED && l->model->root->status == ASHLAR_OK) {
            add_output(l, e->next->width == 0 ? e->next : add_to_body(l, &carry, pair, 2, 0));
        }
    }
    for (size_t i = 0; i < l->collected_count; i++) {
        add_output(l, l->collected[i]);
    }
    for (size_t i = 0; i < l->body->output_count && l->model->root->status == ASHLAR_OK; i++) {
        if (l->body->outputs[i]->width > 0) {
            (void)add_to_body(l, &sink, &l->body->outputs[i], 1, i);
        }
    }
    l->body->is_closed = true;
}

ashlar_tensor *ashlar_loop_end(ashlar_model *body, ashlar_tensor *tensor) {
    loop *l = loop_of(body);
    ashlar_tensor *last = NULL;
    ashlar_loop_collect(body, tensor, &last);
    if (body->root->status != ASHLAR_OK) {
        return NULL;
    }
    ashlar_operation_shape shape = {.output_count = l->collected_count};
    for (size_t i = 0; i < l->entry_count; i++) {
        entry *e = &l->entries[i];
        if (e->outside != NULL && shape.input_count < ASHLAR_OPERATION_INPUTS) {
            e->input = shape.input_count++;
            shape.inputs[e->input] = e->outside;
        }
        ASHLAR_MODEL_FAIL_IF(body, e->outside != NULL && e->input == ASHLAR_NO_INDEX,
                             "model: a loop reads more than %d tensors", ASHLAR_OPERATION_INPUTS);
    }
    for (size_t i = 0; i < l->collected_count; i++) {
        shape.axes[i] = l->axis;
        shape.widths[i] = l->collected[i]->width;
    }
    end_body(l);
    const ashlar_operation operation = {.name = "loop",
                                        .sizes = size_loop,
                                        .queue = queue_loop,
                                        .user = l,
                                        .reads_inputs = (1u << ASHLAR_OPERATION_INPUTS) - 1,
                                        .reads_outputs = (1u << ASHLAR_OPERATION_OUTPUTS) - 1};
    ashlar_node *node = ashlar__model_add(l->model, &operation, &shape, NULL, NULL);
    if (node == NULL) {
        return NULL;
    }
    node->body = body;
    for (size_t i = 0; i < l->collected_count; i++) {
        *l->places[i] = &node->outputs[i];
    }
    return last;
}
