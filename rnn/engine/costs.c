/* costs.c - what the phases of a walk are expected to take of a device's time, and its copies. */
#include <math.h>

#include "rnn/engine/engine.h"

/* About an H200's: products in f32, its memory, half of PCIe 5. */
static const ashlar_model_rates USUAL_RATES = {
    .flops = 25e12, .memory_bytes = 3e12, .out_bytes = 25e9, .back_bytes = 25e9};
static const double STEP_NS = 5000; /* of a recurrent layer, however little it computes */
static const double CALL_NS = 5000; /* of any phase */
static const double NS_MOST = 1e15; /* of a phase; sums of them do not overflow */
static const double US_PER_S = 1e6, BYTES_OF_US_MOST = 1e12;
enum { COPY_NS = 10000 };

static double rate_of(double given, double usual) {
    return given > 0 ? given : usual;
}

/* Products with the weights of an operation, or of its body's in all steps. */
static double flops_of(const ashlar_model *m, const ashlar_node *node, double positions) {
    double flops = 0;
    for (size_t i = 0; i < node->weight_count; i++) {
        const ashlar_model_weight *w = &m->root->weights[node->weights[i]];
        const size_t elements = w->layout != NULL ? w->layout->elements : w->rows * w->width;
        flops += w->kind == ASHLAR_PART_EMBEDDING ? 0 : 2 * (double)elements * positions;
    }
    for (size_t n = 0; node->body != NULL && n < node->body->node_count; n++) {
        flops += flops_of(m, node->body->nodes[n], positions);
    }
    return flops;
}

/* One behind the other, in a time step. */
static double steps_of(const ashlar_model *m, const ashlar_node *node) {
    const ashlar_rnn_layout *layout =
        node->weight_count > 0 ? m->root->weights[node->weights[0]].layout : NULL;
    return layout != NULL ? (double)layout->pseudo_layers : node->body != NULL ? 1 : 0;
}

static double phase_ns(const ashlar_model *m, const ashlar_walk_table *t,
                       const ashlar_walk_plan *plan, size_t p,
                       const ashlar_extent extents[ASHLAR_AXIS_MAX]) {
    const ashlar_node *node = t->phases[p].node;
    const ashlar_walk_node *w = &t->nodes[node->index];
    const ashlar_model_rates *r = &m->root->rates;
    const bool is_forward = t->phases[p].phase == ASHLAR_PHASE_FORWARD;
    const ashlar_extent *e =
        &extents[node->input_count > 0 ? node->inputs[0]->axis : node->outputs[0].axis];
    double bytes = w->kept == ASHLAR_NO_INDEX ? 0 : (double)plan->places[w->kept].bytes;
    for (size_t i = 0; i < node->input_count; i++) {
        bytes += (double)ashlar__walk_tensor_bytes(node->inputs[i], extents);
    }
    for (size_t i = 0; i < node->output_count; i++) {
        bytes += (double)ashlar__walk_tensor_bytes(&node->outputs[i], extents);
    }
    const double flops = flops_of(m, node, (double)e->steps * (double)e->rows) *
                         (is_forward || node->operation.has_weights_phase ? 1 : 2);
    const double steps = steps_of(m, node) * (double)e->steps;
    return fmin(NS_MOST, 1e9 * flops / rate_of(r->flops, USUAL_RATES.flops) +
                             1e9 * bytes / rate_of(r->memory_bytes, USUAL_RATES.memory_bytes) +
                             CALL_NS + STEP_NS * steps);
}

/* Of the phases first .. end - 1, in a whole chunk. */
uint64_t ashlar__walk_phases_ns(const ashlar_model *m, const ashlar_walk_table *t,
                                const ashlar_walk_plan *plan, size_t first, size_t end) {
    ashlar_walk_shape shape = plan->shape;
    ashlar_extent extents[ASHLAR_AXIS_MAX];
    double ns = 0;
    if (shape.chunk > 0) {
        shape.steps[ASHLAR_AXIS_TIME] = shape.chunk;
    }
    ashlar__walk_extents(m, &shape, extents);
    for (size_t p = first; p < end; p++) {
        ns += phase_ns(m, t, plan, p, extents);
    }
    return (uint64_t)ns;
}

/* Bytes in a microsecond, in whole numbers. */
static uint64_t copy_rate(double given, double usual) {
    return (uint64_t)fmax(1, fmin(BYTES_OF_US_MOST, rate_of(given, usual) / US_PER_S));
}

void ashlar__walk_copy_rates(const ashlar_model *m, ashlar_tiers_table *out) {
    const ashlar_model_rates *r = &m->root->rates;
    out->out_bytes_per_us = copy_rate(r->out_bytes, USUAL_RATES.out_bytes);
    out->back_bytes_per_us = copy_rate(r->back_bytes, USUAL_RATES.back_bytes);
    out->copy_ns = COPY_NS;
}
