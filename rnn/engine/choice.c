/* choice.c - what a training walk takes of a device's time and memory, from which its tiers are
 * chosen, and what becomes of its buffers then. */
#include <math.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "rnn/engine/engine.h"

/* ---- time ---- */

/* About an H200's: products in f32, its memory, half of PCIe 5. */
static const ashlar_model_rates USUAL_RATES = {
    .flops = 25e12, .memory_bytes = 3e12, .out_bytes = 25e9, .back_bytes = 25e9};
static const double STEP_NS = 5000; /* of a recurrent layer, however little it computes */
static const double CALL_NS = 5000; /* of any phase */
static const double NS_MOST = 1e15; /* of a phase; sums of them do not overflow */
static const double US_PER_S = 1e6, BYTES_OF_US_MOST = 1e12;
enum { COPY_NS = 10000 };

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

/* ---- the tiers of chunks ---- */

/* The arrays of a table for n chunks. */
typedef struct arrays {
    ashlar_tiers_moment *moments; /* [2 n - 1] */
    ashlar_tiers_item *items;     /* [n - 1] what each chunk but the last keeps */
    ashlar_tiers_group *groups;   /* likewise */
    ashlar_tiers_place *places;   /* likewise */
} arrays;

/* Moments are the chunks forward, the last of which goes both ways at once, and then backward. In
 * each is room for all buffers of one chunk: what is computed again needs no more, though the
 * choice counts a slot for it. */
static ashlar_tiers_table fill_chunks(const ashlar_walking *w, const arrays *a) {
    const size_t n = w->chunk_count, kept = w->plan->kept_bytes;
    const size_t one = w->plan->bytes - w->plan->slot_count * kept;
    const size_t split = w->table->split, end = w->table->phase_count;
    const uint64_t early = ashlar__walk_phases_ns(w->model, w->table, w->plan, 0, split);
    const uint64_t late = ashlar__walk_phases_ns(w->model, w->table, w->plan, split, end);
    for (size_t k = 0; k + 1 < 2 * n; k++) {
        a->moments[k] = (ashlar_tiers_moment){(k < n ? early : 0) + (k + 1 < n ? 0 : late), one};
    }
    for (size_t i = 0; i + 1 < n; i++) {
        const size_t back = 2 * n - 2 - i;
        a->items[i] = (ashlar_tiers_item){kept, i, i, i, back, back};
        a->groups[i] = (ashlar_tiers_group){early, one, true};
    }
    ashlar_tiers_table table = {.moments = a->moments,
                                .moment_count = 2 * n - 1,
                                .items = a->items,
                                .item_count = n - 1,
                                .groups = a->groups,
                                .group_count = n - 1};
    ashlar__walk_copy_rates(w->model, &table);
    return table;
}

/* Without slots there is no choice: all goes forward twice in the room for one chunk. */
static ashlar_status recompute_all(const ashlar_tiers_table *t, ashlar_tiers_place *places,
                                   ashlar_tiers_choice *out) {
    *out = (ashlar_tiers_choice){.is_best = true};
    for (size_t k = 0; k < t->moment_count; k++) {
        out->compute_ns += t->moments[k].ns;
    }
    out->ns = out->compute_ns;
    for (size_t i = 0; i < t->item_count; i++) {
        places[i].tier = ASHLAR_TIER_RECOMPUTED;
        out->bytes[ASHLAR_TIER_RECOMPUTED] += t->items[i].bytes;
        out->ns += t->groups[i].ns;
    }
    return ASHLAR_OK;
}

static ashlar_status choose(const ashlar_walking *w, ashlar_walk_tiers *t) {
    const size_t n = w->chunk_count;
    arrays a;
    char *memory;
    ASHLAR_HOST_NEW(
        memory, n * (2 * sizeof *a.moments + sizeof *a.items + sizeof *a.groups + sizeof *a.places),
        "no host memory for the tiers of %zu chunks", n);
    a.moments = (ashlar_tiers_moment *)(void *)memory;
    a.items = (ashlar_tiers_item *)(a.moments + 2 * n);
    a.groups = (ashlar_tiers_group *)(a.items + n);
    a.places = (ashlar_tiers_place *)(a.groups + n);
    const ashlar_tiers_table table = fill_chunks(w, &a);
    const ashlar_status status =
        w->plan->slot_count == 0
            ? recompute_all(&table, a.places, &t->choice)
            : ashlar__tiers_choose(&table, w->plan->bytes, a.places, &t->choice);
    for (size_t i = 0; i < n && status == ASHLAR_OK; i++) {
        t->of[i] = (unsigned char)(i + 1 < n ? a.places[i].tier : ASHLAR_TIER_RECOMPUTED);
    }
    ashlar__host_free(memory);
    return status;
}

static ashlar_status new_tiers(const ashlar_walking *w, ashlar_walk_tiers **out) {
    ashlar_walk_tiers *t = ashlar__host_calloc(1, sizeof *t + w->chunk_count);
    ASHLAR_FAIL_IF(t == NULL, ASHLAR_EHOSTMEM, "no host memory for the tiers of %zu chunks",
                   w->chunk_count);
    t->batch = w->batch.batch;
    t->chunk = w->plan->shape.chunk;
    t->chunk_count = w->chunk_count;
    t->slot_count = w->plan->slot_count;
    ASHLAR_HAND_OUT(choose(w, t), t, ashlar__host_free, out);
}

ashlar_status ashlar__walk_tiers_get(const ashlar_walking *w, const ashlar_walk_tiers **out) {
    ashlar_walk_tiers *t = w->table->tiers;
    while (t != NULL &&
           (t->batch != w->batch.batch || t->chunk != w->plan->shape.chunk ||
            t->chunk_count != w->chunk_count || t->slot_count != w->plan->slot_count)) {
        t = t->next;
    }
    if (t == NULL) {
        ASHLAR_TRY(new_tiers(w, &t));
        t->next = w->table->tiers;
        w->table->tiers = t;
    }
    *out = t;
    return ASHLAR_OK;
}

/* ---- what is said of them ---- */

ashlar_status ashlar__walk_tiers_tell(const ashlar_walking *w, ashlar_model_tiers *out) {
    const ashlar_walk_tiers *t;
    const size_t kept = w->plan->kept_bytes;
    *out = (ashlar_model_tiers){
        .least_bytes = w->plan->bytes, .time = 1, .event_calls = w->model->away.event_calls};
    if (!w->table->key.is_cut) {
        ASHLAR_TRY(ashlar__moves_least(w, &out->least_bytes, &out->resident_bytes));
        out->host_bytes = w->plan->choice.bytes[ASHLAR_TIER_HOST];
        out->resident_bytes -= out->host_bytes;
        out->time = w->plan->move_count > 0
                        ? (double)w->plan->choice.ns / (double)w->plan->choice.compute_ns
                        : 1;
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__walk_tiers_get(w, &t));
    out->least_bytes = w->plan->bytes - w->plan->slot_count * kept;
    out->resident_bytes = t->choice.bytes[ASHLAR_TIER_RESIDENT] + kept;
    out->host_bytes = t->choice.bytes[ASHLAR_TIER_HOST];
    out->recomputed_bytes = t->choice.bytes[ASHLAR_TIER_RECOMPUTED];
    out->time = (double)t->choice.ns / (double)t->choice.compute_ns;
    return ASHLAR_OK;
}
