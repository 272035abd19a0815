/* tagger.c - builds the tagger, draws its weights, sizes its buffers. */
#include "rnn/model/tagger.h"

#include <math.h>
#include <stdio.h>

#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

/* Numbers of the tagger's tensors in the arena. */
typedef struct tensors {
    size_t character_embedding, character_stack;
    size_t word_embedding, word_stack;
    size_t label_embedding; /* only with label feedback */
    size_t weight, bias;
} tensors;

/* Width of the linear layer's input. */
static size_t linear_inputs(const ashlar_tagger *tagger) {
    return ashlar_rnn_layout_of(tagger->word_rnn)->output + tagger->config.label_embedding;
}

static ashlar_status add_matrix(const ashlar_tagger *tagger, const char *name, size_t rows,
                                size_t cols, size_t *tensor) {
    return ashlar_arena_add(tagger->arena, name, tagger->config.dtype, 2, (size_t[]){rows, cols},
                            tensor);
}

static ashlar_status add_stack(const ashlar_tagger *tagger, const char *prefix,
                               const ashlar_rnn *rnn, size_t *first) {
    char name[32];
    (void)snprintf(name, sizeof name, "%s%s", prefix, ashlar_rnn_cell_name(tagger->config.cell));
    return ashlar_rnn_declare(tagger->arena, name, ashlar_rnn_layout_of(rnn), first);
}

static ashlar_status declare(ashlar_tagger *tagger, tensors *t) {
    const ashlar_tagger_config *c = &tagger->config;
    ASHLAR_TRY(add_matrix(tagger, "char_embedding.weight", c->characters, c->character_embedding,
                          &t->character_embedding));
    ASHLAR_TRY(add_stack(tagger, "char_", tagger->character_rnn, &t->character_stack));
    ASHLAR_TRY(add_matrix(tagger, "word_embedding.weight", c->words, c->word_embedding,
                          &t->word_embedding));
    ASHLAR_TRY(add_stack(tagger, "", tagger->word_rnn, &t->word_stack));
    if (c->label_embedding > 0) {
        ASHLAR_TRY(add_matrix(tagger, "label_embedding.weight", c->tags, c->label_embedding,
                              &t->label_embedding));
    }
    ASHLAR_TRY(add_matrix(tagger, "linear.weight", c->tags, linear_inputs(tagger), &t->weight));
    return ashlar_arena_add(tagger->arena, "linear.bias", c->dtype, 1, &c->tags, &t->bias);
}

static ashlar_status bind(const ashlar_tagger *tagger, ashlar_region region, const tensors *t,
                          ashlar_tagger_views *views) {
    const struct {
        size_t tensor;
        void **pointer; /* NULL: there is no such tensor */
    } all[] = {
        {t->character_embedding, &views->character_embedding},
        {t->character_stack, &views->character_stack},
        {t->word_embedding, &views->word_embedding},
        {t->word_stack, &views->word_stack},
        {t->label_embedding, tagger->config.label_embedding > 0 ? &views->label_embedding : NULL},
        {t->weight, &views->weight},
        {t->bias, &views->bias},
    };
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && status == ASHLAR_OK; i++) {
        if (all[i].pointer != NULL) {
            status = ashlar_arena_bind(tagger->arena, region, all[i].tensor, all[i].pointer);
        }
    }
    return status;
}

static ashlar_status create_rnns(ashlar_tagger *tagger) {
    const ashlar_tagger_config *c = &tagger->config;
    const ashlar_rnn_config characters = {.input = c->character_embedding,
                                          .hidden = c->character_hidden,
                                          .layers = 1,
                                          .cell = c->cell,
                                          .directions = c->directions,
                                          .dtype = c->dtype};
    ashlar_rnn_config words = {.hidden = c->hidden,
                               .layers = c->layers,
                               .cell = c->cell,
                               .directions = c->directions,
                               .projection = c->projection,
                               .dropout = c->dropout,
                               .dtype = c->dtype};
    ASHLAR_TRY(ashlar_rnn_create(tagger->device, &characters, &tagger->character_rnn));
    if (!ashlar__add(c->word_embedding, ashlar_rnn_layout_of(tagger->character_rnn)->output,
                     &words.input)) {
        return ashlar__fail(ASHLAR_EOVERFLOW, "tagger: vectors of %zu elements are too wide",
                            c->word_embedding);
    }
    ASHLAR_TRY(ashlar_rnn_create(tagger->device, &words, &tagger->word_rnn));
    words.dropout = 0;
    return ashlar_rnn_create(tagger->device, &words, &tagger->word_rnn_predict);
}

static ashlar_status build(ashlar_tagger *tagger, unsigned regions) {
    tensors t = {0};
    ASHLAR_TRY(create_rnns(tagger));
    ASHLAR_TRY(ashlar__ops_create(tagger->device, tagger->config.dtype, &tagger->ops));
    ASHLAR_TRY(ashlar_arena_create(&tagger->arena));
    ASHLAR_TRY(declare(tagger, &t));
    ASHLAR_TRY(ashlar_arena_commit(tagger->arena, tagger->allocator, tagger->stream, regions));
    ASHLAR_TRY(bind(tagger, ASHLAR_REGION_PARAMETERS, &t, &tagger->parameters));
    if ((regions & ASHLAR_REGION_BIT(ASHLAR_REGION_GRADIENTS)) != 0) {
        ASHLAR_TRY(bind(tagger, ASHLAR_REGION_GRADIENTS, &t, &tagger->gradients));
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__tagger_create(ashlar_allocator *allocator, ashlar_stream stream,
                                    const ashlar_tagger_config *config, unsigned regions,
                                    ashlar_tagger **out) {
    ashlar_tagger *tagger = ashlar__host_calloc(1, sizeof *tagger);
    if (tagger == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a tagger");
    }
    *tagger = (ashlar_tagger){
        .config = *config,
        .device = ashlar_allocator_device(allocator),
        .allocator = allocator,
        .stream = stream,
    };
    const ashlar_status status = build(tagger, regions);
    if (status != ASHLAR_OK) {
        ashlar__tagger_destroy(tagger);
        return status;
    }
    *out = tagger;
    return ASHLAR_OK;
}

void ashlar__tagger_destroy(ashlar_tagger *tagger) {
    if (tagger == NULL) {
        return;
    }
    ashlar_arena_destroy(tagger->arena);
    ashlar__ops_destroy(tagger->ops);
    ashlar_rnn_destroy(tagger->character_rnn);
    ashlar_rnn_destroy(tagger->word_rnn);
    ashlar_rnn_destroy(tagger->word_rnn_predict);
    ashlar__host_free(tagger);
}

/* --- weights --------------------------------------------------------------------------------- */

/* Whether a tensor, of which `view` is the address, belongs to a stack's weights. */
static bool is_in(const ashlar_tagger *tagger, const void *view, const void *stack,
                  const ashlar_rnn *rnn) {
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(rnn);
    const size_t bytes = layout->elements * ashlar_dtype_bytes(tagger->config.dtype);
    return (const char *)view >= (const char *)stack &&
           (const char *)view < (const char *)stack + bytes;
}

/* Half the width of the uniform distribution that a tensor starts from. */
static double init_bound(const ashlar_tagger *tagger, size_t tensor) {
    const ashlar_tagger_views *p = &tagger->parameters;
    const void *view = ashlar_arena_view(tagger->arena, ASHLAR_REGION_PARAMETERS, tensor);
    if (is_in(tagger, view, p->character_stack, tagger->character_rnn)) {
        return 1.0 / sqrt((double)tagger->config.character_hidden);
    }
    if (is_in(tagger, view, p->word_stack, tagger->word_rnn)) {
        return 1.0 / sqrt((double)tagger->config.hidden);
    }
    return view == p->weight || view == p->bias ? 1.0 / sqrt((double)linear_inputs(tagger))
                                                : sqrt(3.0); /* standard deviation 1 */
}

static void put(const ashlar_tagger *tagger, void *image, size_t at, double value) {
    if (tagger->config.dtype == ASHLAR_F64) {
        ((double *)image)[at] = value;
    } else {
        ((float *)image)[at] = (float)value;
    }
}

static double get(const ashlar_tagger *tagger, const void *image, size_t at) {
    return tagger->config.dtype == ASHLAR_F64 ? ((const double *)image)[at]
                                              : (double)((const float *)image)[at];
}

/* Add 1 to the first of each LSTM forget gate's two biases: cells then remember from the start. */
static void raise_forget_bias(const ashlar_tagger *tagger, void *image, const void *stack,
                              const ashlar_rnn *rnn) {
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(rnn);
    const char *const start = ashlar_arena_region(tagger->arena, ASHLAR_REGION_PARAMETERS);
    const size_t item = ashlar_dtype_bytes(tagger->config.dtype);
    const size_t first = (size_t)((const char *)stack - start) / item;
    const size_t hidden = layout->config.hidden;
    for (size_t pseudo_layer = 0;
         tagger->config.cell == ASHLAR_RNN_LSTM && pseudo_layer < layout->pseudo_layers;
         pseudo_layer++) {
        const ashlar_rnn_view bias = ashlar_rnn_layout_view(layout, pseudo_layer, ASHLAR_RNN_BW);
        for (size_t j = 0; j < hidden; j++) { /* gates i f g o */
            const size_t at = first + bias.offset + hidden + j;
            put(tagger, image, at, get(tagger, image, at) + 1);
        }
    }
}

static void draw_weights(const ashlar_tagger *tagger, void *image, uint64_t seed) {
    const size_t item = ashlar_dtype_bytes(tagger->config.dtype);
    ashlar_random random;
    ashlar__random_init(&random, seed);
    for (size_t i = 0; i < ashlar_arena_tensor_count(tagger->arena); i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(tagger->arena, i, &info);
        const double bound = init_bound(tagger, i);
        for (size_t j = 0; j < info.elements; j++) {
            put(tagger, image, info.offset[ASHLAR_LAYOUT_STORAGE] / item + j,
                bound * (2 * ashlar__random_uniform(&random) - 1));
        }
    }
    raise_forget_bias(tagger, image, tagger->parameters.character_stack, tagger->character_rnn);
    raise_forget_bias(tagger, image, tagger->parameters.word_stack, tagger->word_rnn);
}

ashlar_status ashlar__tagger_init_weights(ashlar_tagger *tagger, uint64_t seed) {
    const size_t bytes = ashlar_arena_region_bytes(tagger->arena, ASHLAR_REGION_PARAMETERS);
    void *image = ashlar__host_calloc(bytes, 1); /* padding stays zero */
    if (image == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for %zu bytes of weights", bytes);
    }
    draw_weights(tagger, image, seed);
    ashlar_status status = ashlar_copy_to_device(
        tagger->device, ashlar_arena_region(tagger->arena, ASHLAR_REGION_PARAMETERS), image, bytes,
        tagger->stream);
    if (status == ASHLAR_OK) {
        status = ashlar_stream_synchronize(tagger->device, tagger->stream);
    }
    ashlar__host_free(image);
    return status;
}

/* --- sizes ----------------------------------------------------------------------------------- */

/* Bytes of `rows` rows of `width` elements. On overflow *fits becomes false, and stays so. */
static size_t rows_of(const ashlar_tagger *tagger, size_t rows, size_t width, bool *fits) {
    size_t bytes = 0;
    *fits = *fits && ashlar__mul(rows, width, &bytes) &&
            ashlar__mul(bytes, ashlar_dtype_bytes(tagger->config.dtype), &bytes);
    return bytes;
}

/* Compute the bytes of the buffers for the characters of `words` words. */
static ashlar_status size_char_buffers(const ashlar_tagger *tagger,
                                       const ashlar_tagger_shape *shape, size_t words, size_t *of,
                                       bool *fits) {
    const size_t output = ashlar_rnn_layout_of(tagger->character_rnn)->output;
    const size_t letters = words * shape->width; /* ashlar__tagger_batch_bytes() checked it */
    of[ASHLAR_TAGGER_BUFFER_CHAR_INPUTS] =
        rows_of(tagger, letters, tagger->config.character_embedding, fits);
    of[ASHLAR_TAGGER_BUFFER_CHAR_DINPUTS] = of[ASHLAR_TAGGER_BUFFER_CHAR_INPUTS];
    of[ASHLAR_TAGGER_BUFFER_CHAR_OUTPUTS] = rows_of(tagger, letters, output, fits);
    of[ASHLAR_TAGGER_BUFFER_CHAR_STATES] = rows_of(tagger, words, output, fits);
    of[ASHLAR_TAGGER_BUFFER_CHAR_DSTATES] = of[ASHLAR_TAGGER_BUFFER_CHAR_STATES];
    size_t work;
    ASHLAR_TRY(ashlar_rnn_sizes(tagger->character_rnn, shape->width, words, true,
                                &of[ASHLAR_TAGGER_BUFFER_CHAR_RESERVE], &work));
    of[ASHLAR_TAGGER_BUFFER_CHAR_FORWARD_WORK] = work;
    of[ASHLAR_TAGGER_BUFFER_CHAR_BACKWARD_WORK] = work;
    of[ASHLAR_TAGGER_BUFFER_CHAR_WEIGHTS_WORK] = work;
    return ASHLAR_OK;
}

/* Compute the bytes of the buffers for the words' RNN. They also fit the RNN without
 * dropout, which makes the predictions. */
static ashlar_status size_reading(const ashlar_tagger *tagger, const ashlar_tagger_shape *shape,
                                  size_t words, size_t *of, bool *fits) {
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(tagger->word_rnn);
    const ashlar_rnn *const both[] = {tagger->word_rnn, tagger->word_rnn_predict};
    size_t largest_reserve = 0, largest_work = 0;
    for (size_t i = 0; i < 2; i++) {
        size_t reserve, work;
        ASHLAR_TRY(ashlar_rnn_sizes(both[i], shape->steps, shape->batch, true, &reserve, &work));
        largest_reserve = reserve > largest_reserve ? reserve : largest_reserve;
        largest_work = work > largest_work ? work : largest_work;
    }
    of[ASHLAR_TAGGER_BUFFER_WORD_RESERVE] = largest_reserve;
    of[ASHLAR_TAGGER_BUFFER_WORD_FORWARD_WORK] = largest_work;
    of[ASHLAR_TAGGER_BUFFER_WORD_BACKWARD_WORK] = largest_work;
    of[ASHLAR_TAGGER_BUFFER_WORD_WEIGHTS_WORK] = largest_work;
    of[ASHLAR_TAGGER_BUFFER_WORD_VECTORS] =
        rows_of(tagger, words, tagger->config.word_embedding, fits);
    of[ASHLAR_TAGGER_BUFFER_WORD_DVECTORS] = of[ASHLAR_TAGGER_BUFFER_WORD_VECTORS];
    of[ASHLAR_TAGGER_BUFFER_WORD_INPUTS] = rows_of(tagger, words, layout->config.input, fits);
    of[ASHLAR_TAGGER_BUFFER_WORD_DINPUTS] = of[ASHLAR_TAGGER_BUFFER_WORD_INPUTS];
    of[ASHLAR_TAGGER_BUFFER_WORD_OUTPUTS] = rows_of(tagger, words, layout->output, fits);
    of[ASHLAR_TAGGER_BUFFER_WORD_DOUTPUTS] = of[ASHLAR_TAGGER_BUFFER_WORD_OUTPUTS];
    return ASHLAR_OK;
}

static void size_labelling(const ashlar_tagger *tagger, size_t batch, size_t words, size_t *of,
                           bool *fits) {
    const ashlar_tagger_config *c = &tagger->config;
    of[ASHLAR_TAGGER_BUFFER_LABELS] = words * sizeof(int32_t);
    if (c->label_embedding == 0) {
        of[ASHLAR_TAGGER_BUFFER_LOGITS] = rows_of(tagger, words, c->tags, fits);
        of[ASHLAR_TAGGER_BUFFER_LOSS_WORK] = ashlar__ops_loss_work_bytes(tagger->ops, words);
        return;
    }
    of[ASHLAR_TAGGER_BUFFER_TOKEN_LABELS] = rows_of(tagger, batch, c->label_embedding, fits);
    of[ASHLAR_TAGGER_BUFFER_TOKEN_INPUTS] = rows_of(tagger, batch, linear_inputs(tagger), fits);
    of[ASHLAR_TAGGER_BUFFER_TOKEN_DINPUTS] = of[ASHLAR_TAGGER_BUFFER_TOKEN_INPUTS];
    of[ASHLAR_TAGGER_BUFFER_TOKEN_LOGITS] = rows_of(tagger, batch, c->tags, fits);
    of[ASHLAR_TAGGER_BUFFER_TOKEN_WORK] = ashlar__ops_loss_work_bytes(tagger->ops, batch);
}

ashlar_status ashlar__tagger_sizes(const ashlar_tagger *tagger, const ashlar_tagger_shape *shape,
                                   ashlar_tagger_bytes *sizes) {
    ashlar_tagger_bytes s = {
        .steps = shape->steps,
        .keeps_outputs = ashlar_rnn_backward_reads_output(tagger->word_rnn),
    };
    const size_t words = shape->steps * shape->batch; /* if this overflows, the next call fails */
    size_t batch_bytes;
    bool fits = true;
    ASHLAR_TRY(ashlar__tagger_batch_bytes(shape, &batch_bytes));
    ASHLAR_TRY(size_char_buffers(tagger, shape, words, s.of, &fits));
    ASHLAR_TRY(size_reading(tagger, shape, words, s.of, &fits));
    size_labelling(tagger, shape->batch, words, s.of, &fits);
    size_t all = 0;
    for (size_t i = 0; i < ASHLAR_TAGGER_BUFFER_COUNT; i++) {
        fits = fits && ashlar__add(all, s.of[i], &all);
    }
    if (!fits) {
        return ashlar__fail(ASHLAR_EOVERFLOW,
                            "tagger: a step of %zu x %zu words is too large to address",
                            shape->steps, shape->batch);
    }
    *sizes = s;
    return ASHLAR_OK;
}
