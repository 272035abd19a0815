/* model.c - builds the character model, draws its weights, sizes its buffers. */
#include "rnn/model/model.h"

#include <stdio.h>

#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "rnn/layer/ops.h"

enum { STATE_ALIGN = 256 }; /* bytes; for a set of states, and for c within it */

static ashlar_weights weights_of(ashlar_model *model) {
    const ashlar_model_config *c = &model->config;
    ashlar_model_views *p = &model->parameters, *g = &model->gradients;
    const size_t output = ashlar_rnn_layout_of(model->rnn)->output;
    return (ashlar_weights){
        .allocator = model->allocator,
        .stream = model->stream,
        .dtype = c->dtype,
        .count = 4,
        .list = {{"embedding.weight", 2, c->classes, c->embedding, NULL, ASHLAR_PART_EMBEDDING,
                  &p->embedding, &g->embedding},
                 {"", 0, 0, 0, model->rnn, ASHLAR_PART_RNN, &p->stack, &g->stack},
                 {"linear.weight", 2, c->classes, output, NULL, ASHLAR_PART_LINEAR, &p->weight,
                  &g->weight},
                 {"linear.bias", 1, c->classes, 0, NULL, ASHLAR_PART_LINEAR, &p->bias, &g->bias}},
    };
}

static ashlar_status build(ashlar_model *model, unsigned regions) {
    const ashlar_rnn_config rnn = {.input = model->config.embedding,
                                   .hidden = model->config.hidden,
                                   .layers = model->config.layers,
                                   .cell = model->config.cell,
                                   .projection = model->config.projection,
                                   .dropout = model->config.dropout,
                                   .dtype = model->config.dtype,
                                   .algorithm = model->config.algorithm,
                                   .math = model->config.math};
    ASHLAR_TRY(ashlar_rnn_create(model->device, &rnn, &model->rnn));
    ASHLAR_TRY(ashlar_ops_create(model->device, model->config.dtype, &model->ops));
    ASHLAR_TRY(ashlar__ops_take_work(model->ops, model->allocator, model->stream, &model->work));
    const ashlar_weights weights = weights_of(model);
    return ashlar__weights_open(&weights, regions, &model->arena);
}

ashlar_status ashlar__model_create(ashlar_allocator *allocator, ashlar_stream stream,
                                   const ashlar_model_config *config, unsigned regions,
                                   ashlar_model **out) {
    ashlar_model *model;
    ASHLAR_HOST_NEW(model, 1, "no host memory for a model");
    *model = (ashlar_model){
        .config = *config,
        .device = ashlar_allocator_device(allocator),
        .allocator = allocator,
        .stream = stream,
    };
    ASHLAR_HAND_OUT(build(model, regions), model, ashlar__model_destroy, out);
}

void ashlar__model_destroy(ashlar_model *model) {
    if (model == NULL) {
        return;
    }
    ashlar_arena_destroy(model->arena);
    ashlar_ops_destroy(model->ops);
    ASHLAR_IGNORE(ashlar_free(model->allocator, model->work)); /* is a block of it, or NULL */
    ashlar_rnn_destroy(model->rnn);
    ashlar__host_free(model);
}

ashlar_status ashlar__model_init_weights(ashlar_model *model, uint64_t seed) {
    const ashlar_weights weights = weights_of(model);
    return ashlar__weights_draw(&weights, model->arena, seed);
}

static bool product(size_t a, size_t b, size_t c, size_t d, size_t *out) {
    return ashlar__mul(a, b, out) && ashlar__mul(*out, c, out) && ashlar__mul(*out, d, out);
}

/* Size a set of states: h of all layers, then for an LSTM c. Returns false on overflow. */
static bool size_states(const ashlar_model *model, size_t batch, ashlar_step_sizes *s) {
    const ashlar_model_config *c = &model->config;
    const size_t item = ashlar_dtype_bytes(c->dtype);
    size_t cells = 0;
    return product(c->layers, batch, ashlar_rnn_layout_of(model->rnn)->state, item, &s->cells) &&
           ashlar__align_up(s->cells, STATE_ALIGN, &s->cells) &&
           (c->cell != ASHLAR_RNN_LSTM || product(c->layers, batch, c->hidden, item, &cells)) &&
           ashlar__align_up(cells, STATE_ALIGN, &cells) && ashlar__add(s->cells, cells, &s->state);
}

#define TOO_LARGE "a step of %zu x %zu is too large to address"

ashlar_status ashlar__model_sizes(const ashlar_model *model, size_t steps, size_t batch,
                                  ashlar_step_sizes *sizes) {
    const ashlar_model_config *c = &model->config;
    const size_t output = ashlar_rnn_layout_of(model->rnn)->output;
    const size_t item = ashlar_dtype_bytes(c->dtype);
    ashlar_step_sizes s = {0};
    ASHLAR_FAIL_IF(!product(steps, batch, c->embedding, item, &s.x) ||
                       !product(steps, batch, output, item, &s.y) ||
                       !product(steps, batch, c->classes, item, &s.logits) ||
                       !size_states(model, batch, &s),
                   ASHLAR_EOVERFLOW, TOO_LARGE, steps, batch);
    s.keeps_y = ashlar_rnn_backward_reads_output(model->rnn);
    s.loss_work = ashlar_loss_work_bytes(model->ops, steps * batch);
    ASHLAR_TRY(ashlar_rnn_sizes(model->rnn, steps, batch, true, &s.reserve, &s.work));
    *sizes = s;
    return ASHLAR_OK;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Raise the sizes to what a chunk of `steps` needs, both for training and for a forward pass that
 * has no reserve. */
static ashlar_status raise_to_chunk(const ashlar_model *model, size_t steps, size_t batch,
                                    ashlar_step_sizes *s) {
    ashlar_step_sizes one;
    size_t reserve = 0, work = 0;
    ASHLAR_TRY(ashlar__model_sizes(model, steps, batch, &one));
    ASHLAR_TRY(ashlar_rnn_sizes(model->rnn, steps, batch, false, &reserve, &work));
    s->reserve = larger(s->reserve, one.reserve);
    s->work = larger(s->work, larger(one.work, work));
    s->loss_work = larger(s->loss_work, one.loss_work);
    return ASHLAR_OK;
}

/* A set of states for each border between chunks, and two sets for the gradients of states. */
static ashlar_status size_borders(size_t steps, size_t batch, size_t chunk, ashlar_step_sizes *s) {
    const size_t borders = (steps - 1) / chunk;
    size_t sets;
    ASHLAR_FAIL_IF(borders > 0 && (!ashlar__add(borders, 2, &sets) ||
                                   !ashlar__mul(sets, s->state, &s->states)),
                   ASHLAR_EOVERFLOW, TOO_LARGE, steps, batch);
    return ASHLAR_OK;
}

ashlar_status ashlar__model_chunk_sizes(const ashlar_model *model, size_t steps, size_t batch,
                                        size_t chunk, ashlar_step_sizes *sizes) {
    ashlar_step_sizes s;
    if (chunk == 0 || steps == 0) {
        return ashlar__model_sizes(model, steps, batch, sizes);
    }
    const size_t longest = chunk < steps ? chunk : steps;
    ASHLAR_TRY(ashlar__model_sizes(model, longest, batch, &s));
    ASHLAR_TRY(raise_to_chunk(model, longest, batch, &s));
    if (steps % longest != 0) { /* a back end may need more memory for fewer steps */
        ASHLAR_TRY(raise_to_chunk(model, steps % longest, batch, &s));
    }
    ASHLAR_TRY(size_borders(steps, batch, longest, &s));
    *sizes = s;
    return ASHLAR_OK;
}

/* A plan places blocks at multiples of this; see plan.h. */
enum { BLOCK_ALIGN = 512 };

static uint64_t block(size_t bytes) {
    return ((uint64_t)bytes + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
}

uint64_t ashlar__model_step_peak(bool in_chunks, const ashlar_step_sizes *sizes) {
    const uint64_t x = block(sizes->x), y = block(sizes->y), logits = block(sizes->logits);
    const uint64_t work = block(sizes->work), loss = block(sizes->loss_work);
    const uint64_t always = x + block(sizes->reserve);
    if (in_chunks) {
        return always + x + 2 * y + logits + work + loss + block(sizes->states);
    }
    const uint64_t forward = y + logits + larger(work, larger(loss, y));
    const uint64_t kept = sizes->keeps_y ? y : 0;
    return always + larger(forward, x + y + kept + work); /* x + y: dx and dy */
}

/* ---- weights ---- */

/*
 * Declares, binds and draws a model's weights.
 */

static ashlar_status declare(const ashlar_weights *w, const ashlar_weight *one, ashlar_arena *arena,
                             size_t *tensor) {
    if (one->rank > 0) {
        return ashlar_arena_add(arena, one->name, w->dtype, one->rank,
                                (size_t[]){one->rows, one->cols}, tensor);
    }
    char name[32];
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(one->stack);
    (void)snprintf(name, sizeof name, "%s%s", one->name, ashlar_rnn_cell_name(layout->config.cell));
    return ashlar_rnn_declare(arena, name, layout, tensor);
}

ashlar_status ashlar__weights_open(const ashlar_weights *w, unsigned regions,
                                   ashlar_arena **arena) {
    size_t tensors[ASHLAR_WEIGHTS_MAX];
    ASHLAR_TRY(ashlar_arena_create(arena));
    for (size_t i = 0; i < w->count; i++) {
        ASHLAR_TRY(declare(w, &w->list[i], *arena, &tensors[i]));
    }
    ASHLAR_TRY(ashlar_arena_commit(*arena, w->allocator, w->stream, regions));
    for (size_t i = 0; i < w->count; i++) {
        const ashlar_weight *one = &w->list[i];
        ASHLAR_TRY(ashlar_arena_bind(*arena, ASHLAR_REGION_PARAMETERS, tensors[i], one->parameter));
        if ((regions & ASHLAR_REGION_BIT(ASHLAR_REGION_GRADIENTS)) != 0) {
            ASHLAR_TRY(
                ashlar_arena_bind(*arena, ASHLAR_REGION_GRADIENTS, tensors[i], one->gradient));
        }
    }
    return ASHLAR_OK;
}

/* The number of a weight's tensor, or of a stack's first one. */
static size_t tensor_of(const ashlar_arena *arena, const ashlar_weight *one) {
    size_t i = 0;
    while (ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, i) != *one->parameter) {
        i++;
    }
    return i;
}

ashlar_status ashlar__weights_draw(const ashlar_weights *w, ashlar_arena *arena, uint64_t seed) {
    ashlar_part parts[ASHLAR_WEIGHTS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < w->count; i++) {
        const ashlar_weight *one = &w->list[i];
        if (one->rank != 1) { /* a bias belongs to the weight before it */
            parts[count++] = (ashlar_part){
                .kind = one->kind,
                .first = tensor_of(arena, one),
                .layout = one->rank == 0 ? ashlar_rnn_layout_of(one->stack) : NULL,
            };
        }
    }
    ASHLAR_TRY(ashlar_init_weights(arena, ASHLAR_INIT_ASHLAR, parts, count, seed, w->stream));
    return ashlar_stream_synchronize(ashlar_allocator_device(w->allocator), w->stream);
}
