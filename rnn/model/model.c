/* model.c - builds the character model, draws its weights, sizes its buffers. */
#include "rnn/model/model.h"

#include <math.h>

#include "allocator/base/checked.h"
#include "arena/compute/convert.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

enum { STATE_ALIGN = 256 }; /* bytes; for a set of states, and for c within it */

/* Numbers of the model's tensors in the arena. */
typedef struct tensors {
    size_t embedding, stack, weight, bias;
} tensors;

static ashlar_status declare(ashlar_model *model, tensors *t) {
    const ashlar_model_config *c = &model->config;
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(model->rnn);
    ashlar_arena *arena = model->arena;
    ASHLAR_TRY(ashlar_arena_add(arena, "embedding.weight", c->dtype, 2,
                                (size_t[]){c->classes, c->embedding}, &t->embedding));
    ASHLAR_TRY(ashlar_rnn_declare(arena, ashlar_rnn_cell_name(c->cell), layout, &t->stack));
    ASHLAR_TRY(ashlar_arena_add(arena, "linear.weight", c->dtype, 2,
                                (size_t[]){c->classes, layout->output}, &t->weight));
    return ashlar_arena_add(arena, "linear.bias", c->dtype, 1, &c->classes, &t->bias);
}

static ashlar_status bind(ashlar_arena *arena, ashlar_region region, const tensors *t,
                          ashlar_model_views *views) {
    const struct {
        size_t tensor;
        void **pointer;
    } all[] = {
        {t->embedding, &views->embedding},
        {t->stack, &views->stack},
        {t->weight, &views->weight},
        {t->bias, &views->bias},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ASHLAR_TRY(ashlar_arena_bind(arena, region, all[i].tensor, all[i].pointer));
    }
    return ASHLAR_OK;
}

static ashlar_status build(ashlar_model *model, unsigned regions) {
    const ashlar_rnn_config rnn = {.input = model->config.embedding,
                                   .hidden = model->config.hidden,
                                   .layers = model->config.layers,
                                   .cell = model->config.cell,
                                   .projection = model->config.projection,
                                   .dropout = model->config.dropout,
                                   .dtype = model->config.dtype};
    tensors t;
    ASHLAR_TRY(ashlar_rnn_create(model->device, &rnn, &model->rnn));
    ASHLAR_TRY(ashlar__ops_create(model->device, model->config.dtype, &model->ops));
    ASHLAR_TRY(ashlar_arena_create(&model->arena));
    ASHLAR_TRY(declare(model, &t));
    ASHLAR_TRY(ashlar_arena_commit(model->arena, model->allocator, model->stream, regions));
    ASHLAR_TRY(bind(model->arena, ASHLAR_REGION_PARAMETERS, &t, &model->parameters));
    if ((regions & ASHLAR_REGION_BIT(ASHLAR_REGION_GRADIENTS)) != 0) {
        ASHLAR_TRY(bind(model->arena, ASHLAR_REGION_GRADIENTS, &t, &model->gradients));
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__model_create(ashlar_allocator *allocator, ashlar_stream stream,
                                   const ashlar_model_config *config, unsigned regions,
                                   ashlar_model **out) {
    ashlar_model *model = ashlar__host_calloc(1, sizeof *model);
    if (model == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a model");
    }
    *model = (ashlar_model){
        .config = *config,
        .device = ashlar_allocator_device(allocator),
        .allocator = allocator,
        .stream = stream,
    };
    const ashlar_status status = build(model, regions);
    if (status != ASHLAR_OK) {
        ashlar__model_destroy(model);
        return status;
    }
    *out = model;
    return ASHLAR_OK;
}

void ashlar__model_destroy(ashlar_model *model) {
    if (model == NULL) {
        return;
    }
    ashlar_arena_destroy(model->arena);
    ashlar__ops_destroy(model->ops);
    ashlar_rnn_destroy(model->rnn);
    ashlar__host_free(model);
}

/* Half the width of the uniform distribution that a tensor starts from. */
static double init_bound(const ashlar_model *model, size_t tensor) {
    const void *view = ashlar_arena_view(model->arena, ASHLAR_REGION_PARAMETERS, tensor);
    if (view == model->parameters.embedding) {
        return sqrt(3.0); /* standard deviation 1 */
    }
    const bool is_linear = view == model->parameters.weight || view == model->parameters.bias;
    return 1.0 / sqrt((double)(is_linear ? ashlar_rnn_layout_of(model->rnn)->output
                                         : model->config.hidden));
}

/* Add `value` to an element of the image. Elements are of the model's type. */
static void add(const ashlar_model *model, void *image, size_t element, double value) {
    const ashlar_dtype dtype = model->config.dtype;
    void *place = (char *)image + element * ashlar_dtype_bytes(dtype);
    double sum = 0;
    ashlar__convert(ASHLAR_F64, &sum, dtype, place, 1);
    sum += value;
    ashlar__convert(dtype, place, ASHLAR_F64, &sum, 1);
}

/* Add 1 to the first of each LSTM forget gate's two biases: cells then remember from the start. */
static void raise_forget_bias(const ashlar_model *model, void *image, size_t stack) {
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(model->rnn);
    const size_t hidden = model->config.hidden;
    if (model->config.cell != ASHLAR_RNN_LSTM) {
        return;
    }
    for (size_t layer = 0; layer < model->config.layers; layer++) {
        const ashlar_rnn_view bias = ashlar_rnn_layout_view(layout, layer, ASHLAR_RNN_BW);
        const size_t forget = stack + bias.offset + hidden; /* gates i f g o */
        for (size_t j = forget; j < forget + hidden; j++) {
            add(model, image, j, 1);
        }
    }
}

ashlar_status ashlar__model_init_weights(ashlar_model *model, uint64_t seed) {
    const size_t bytes = ashlar_arena_region_bytes(model->arena, ASHLAR_REGION_PARAMETERS);
    const size_t item = ashlar_dtype_bytes(model->config.dtype);
    void *image = ashlar__host_calloc(bytes, 1); /* padding stays zero */
    if (image == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for %zu bytes of weights", bytes);
    }
    ashlar_random random;
    ashlar__random_init(&random, seed);
    const size_t stack_offset =
        (size_t)((char *)model->parameters.stack -
                 (char *)ashlar_arena_region(model->arena, ASHLAR_REGION_PARAMETERS));
    for (size_t i = 0; i < ashlar_arena_tensor_count(model->arena); i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(model->arena, i, &info);
        const size_t first = info.offset[ASHLAR_LAYOUT_STORAGE] / item;
        const double bound = init_bound(model, i);
        for (size_t j = 0; j < info.elements; j++) {
            add(model, image, first + j, bound * (2 * ashlar__random_uniform(&random) - 1));
        }
    }
    raise_forget_bias(model, image, stack_offset / item);
    ashlar_status status = ashlar_copy_to_device(
        model->device, ashlar_arena_region(model->arena, ASHLAR_REGION_PARAMETERS), image, bytes,
        model->stream);
    if (status == ASHLAR_OK) {
        status = ashlar_stream_synchronize(model->device, model->stream);
    }
    ashlar__host_free(image);
    return status;
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

static ashlar_status fail_large(size_t steps, size_t batch) {
    return ashlar__fail(ASHLAR_EOVERFLOW, "a step of %zu x %zu is too large to address", steps,
                        batch);
}

ashlar_status ashlar__model_sizes(const ashlar_model *model, size_t steps, size_t batch,
                                  ashlar_step_sizes *sizes) {
    const ashlar_model_config *c = &model->config;
    const size_t output = ashlar_rnn_layout_of(model->rnn)->output;
    const size_t item = ashlar_dtype_bytes(c->dtype);
    ashlar_step_sizes s = {0};
    if (!product(steps, batch, c->embedding, item, &s.x) ||
        !product(steps, batch, output, item, &s.y) ||
        !product(steps, batch, c->classes, item, &s.logits) || !size_states(model, batch, &s)) {
        return fail_large(steps, batch);
    }
    s.keeps_y = ashlar_rnn_backward_reads_output(model->rnn);
    s.loss_work = ashlar__ops_loss_work_bytes(model->ops, steps * batch);
    ASHLAR_TRY(ashlar_rnn_sizes(model->rnn, steps, batch, true, &s.reserve, &s.work));
    *sizes = s;
    return ASHLAR_OK;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Raise the sizes to those of a chunk of `steps`, in training and in a forward pass only. */
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
    if (borders > 0 &&
        (!ashlar__add(borders, 2, &sets) || !ashlar__mul(sets, s->state, &s->states))) {
        return fail_large(steps, batch);
    }
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
