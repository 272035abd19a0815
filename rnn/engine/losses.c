/* losses.c - a model's losses as operations. Each writes its gradient where it computes the loss.
 */
#include <ashlar/model.h>

#include <math.h>
#include <string.h>

#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "rnn/engine/engine.h"
#include "rnn/layer/ops.h"

typedef struct loss {
    ashlar_model *model;
    const ashlar_node *node;
    ashlar_loss_kind kind;
    ashlar_loss_options options;
    const ashlar_model_constant *class_weights; /* NULL: all are 1 */
} loss;

static ashlar_status size_loss(void *user, const ashlar_operation_call *c,
                               ashlar_operation_sizes *out) {
    const loss *l = user;
    const ashlar_extent *e = &c->inputs[0].extent;
    *out = (ashlar_operation_sizes){
        .work_bytes = {ashlar_ops_get_need(l->model->ops, e->steps * e->rows).loss_work_bytes}};
    return ASHLAR_OK;
}

/* In chunks, where those of this chunk's positions go, for the walk to add up; else NULL. */
static double *losses_at(const loss *l, const ashlar_operation_call *c) {
    const ashlar_walking *w = c->engine;
    double *all = ashlar__walk_at(w, w->table->nodes[l->node->index].losses);
    return all == NULL ? NULL : all + w->first_step * c->inputs[0].extent.rows;
}

static ashlar_status queue_cross_entropy(void *user, const ashlar_operation_call *c,
                                         ashlar_stream stream) {
    const loss *l = user;
    const ashlar_operand_data *x = &c->inputs[0];
    double *const losses = losses_at(l, c);
    const ashlar_cross_entropy_args args = {
        .steps = x->extent.steps,
        .batch = x->extent.rows,
        .lengths = x->extent.lengths_at,
        .classes = x->width,
        .logits = x->value,
        .targets = c->inputs[1].value,
        .weight = c->weight,
        .weight_at = c->weight_at,
        .dlogits = x->gradient,
        .scale = c->scale,
        .work = c->work,
        .loss = losses == NULL ? c->loss : NULL,
        .losses = losses,
        .factor = l->options.factor,
        .class_weights = l->class_weights == NULL ? NULL : l->class_weights->device,
        .position_weights = c->inputs[2].value,
        .smoothing = l->options.smoothing};
    return ashlar__ops_cross_entropy(l->model->ops, &args, stream);
}

static ashlar_status queue_elements(void *user, const ashlar_operation_call *c,
                                    ashlar_stream stream) {
    static const ashlar_element_loss kinds[] = {[ASHLAR_LOSS_SQUARED] = ASHLAR_ELEMENT_SQUARED,
                                                [ASHLAR_LOSS_HUBER] = ASHLAR_ELEMENT_HUBER,
                                                [ASHLAR_LOSS_BINARY] = ASHLAR_ELEMENT_BINARY};
    const loss *l = user;
    const ashlar_operand_data *x = &c->inputs[0];
    double *const losses = losses_at(l, c);
    const ashlar_squared_error_args args = {.steps = x->extent.steps,
                                            .batch = x->extent.rows,
                                            .lengths = x->extent.lengths_at,
                                            .width = x->width,
                                            .outputs = x->value,
                                            .targets = c->inputs[1].value,
                                            .weight = c->weight,
                                            .weight_at = c->weight_at,
                                            .doutputs = x->gradient,
                                            .scale = c->scale,
                                            .work = c->work,
                                            .loss = losses == NULL ? c->loss : NULL,
                                            .losses = losses,
                                            .factor = l->options.factor,
                                            .kind = kinds[l->kind],
                                            .delta = l->options.delta > 0 ? l->options.delta : 1,
                                            .mask = c->inputs[2].value};
    return ashlar__ops_squared_error(l->model->ops, &args, stream);
}

/* Whether a factor can be one: finite and not negative. */
static bool is_finite(double factor) {
    return factor >= 0 && factor < INFINITY;
}

static void check(ashlar_model *m, ashlar_loss_kind kind, const ashlar_tensor *x,
                  const ashlar_tensor *targets, const ashlar_loss_options *o) {
    const bool has_classes = kind == ASHLAR_LOSS_CROSS_ENTROPY;
    const ashlar_tensor *w = o->position_weights;
    ASHLAR_MODEL_FAIL_IF(m, m->root != m,
                         "model: loss of %s: collect it, and take the loss outside of the loop",
                         x->name);
    ASHLAR_MODEL_FAIL_IF(
        m,
        (unsigned)kind >= ASHLAR_LOSS_KIND_COUNT || x->axis != targets->axis ||
            targets->width != (has_classes ? 0 : x->width),
        "model: loss %d of %s, of width %zu on axis %u: the targets %s have width %zu on axis %u; "
        "cross-entropy needs tokens, the others vectors of that width, on the same axis",
        (int)kind, x->name, x->width, x->axis, targets->name, targets->width, targets->axis);
    ASHLAR_MODEL_FAIL_IF(m, w != NULL && (w->axis != x->axis || w->width != 1),
                         "model: loss of %s: the weights of positions, %s, have width %zu on axis "
                         "%u; give width 1 on axis %u",
                         x->name, w->name, w->width, w->axis, x->axis);
    ASHLAR_MODEL_FAIL_IF(m,
                         !(o->smoothing >= 0 && o->smoothing < 1) || !is_finite(o->delta) ||
                             !is_finite(o->factor),
                         "model: loss of %s: smoothing %g, delta %g, factor %g; smoothing is 0 .. "
                         "< 1, the others are finite and not negative",
                         x->name, o->smoothing, o->delta, o->factor);
    ASHLAR_MODEL_FAIL_IF(m, !has_classes && (o->class_weights != NULL || o->smoothing > 0),
                         "model: loss of %s: weights of classes and smoothing are of cross-entropy "
                         "alone",
                         x->name);
    for (size_t i = 0; i < x->width && o->class_weights != NULL; i++) {
        ASHLAR_MODEL_FAIL_IF(m, !is_finite(o->class_weights[i]),
                             "model: loss of %s: the weight of class %zu is %g; it is finite and "
                             "not negative",
                             x->name, i, o->class_weights[i]);
    }
}

void ashlar_model_loss(ashlar_model *m, ashlar_loss_kind kind, ashlar_tensor *x,
                       ashlar_tensor *targets, const ashlar_loss_options *options) {
    loss l = {.model = m, .kind = kind, .options = ASHLAR_OR_ZERO(ashlar_loss_options, options)};
    ashlar_tensor *const inputs[] = {x, targets, l.options.position_weights};
    const size_t count = l.options.position_weights != NULL ? 3 : 2;
    const bool has_classes = kind == ASHLAR_LOSS_CROSS_ENTROPY;
    if (!ashlar__model_accepts(m, "a loss", inputs, count, 1)) {
        return;
    }
    check(m, kind, x, targets, &l.options);
    if (has_classes && l.options.class_weights != NULL) {
        l.class_weights = ashlar__model_constant(m, l.options.class_weights, x->width);
    }
    const ashlar_operation operation = {.name = "loss",
                                        .sizes = size_loss,
                                        .queue = has_classes ? queue_cross_entropy : queue_elements,
                                        .user = ashlar__model_user(m, &l, sizeof l),
                                        .destroy = ashlar__host_free,
                                        .is_loss = true,
                                        .is_local = true,
                                        .constant_inputs = 2 | 4,
                                        .gradient_in_place = true};
    ashlar_operation_shape shape = {.input_count = count};
    memcpy(shape.inputs, inputs, count * sizeof *inputs);
    ashlar_node *node = ashlar__model_add(m, &operation, &shape, NULL, NULL);
    if (node != NULL) {
        ((loss *)operation.user)->node = node;
        node->loss_factor = x->axis != ASHLAR_AXIS_TIME ? 0
                            : l.options.factor > 0      ? l.options.factor
                                                        : 1;
    }
}
