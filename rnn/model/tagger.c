/* tagger.c - builds the tagger, draws its weights, sizes its buffers. */
#include "rnn/model/tagger.h"

#include <math.h>

#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "rnn/model/weights.h"

/* Width of the linear layer's input. */
static size_t linear_inputs(const ashlar_tagger *tagger) {
    return ashlar_rnn_layout_of(tagger->word_rnn)->output + tagger->config.label_embedding;
}

static ashlar_weights weights_of(ashlar_tagger *tagger) {
    const ashlar_tagger_config *c = &tagger->config;
    ashlar_tagger_views *p = &tagger->parameters, *g = &tagger->gradients;
    const ashlar_rnn *characters = tagger->character_rnn, *words = tagger->word_rnn;
    const size_t inputs = linear_inputs(tagger);
    const double linear = ashlar__weights_bound(inputs), vector = sqrt(3.0); /* deviation 1 */
    const ashlar_weight all[] = {
        {"char_embedding.weight", 2, c->characters, c->character_embedding, NULL, vector,
         &p->character_embedding, &g->character_embedding},
        {"char_", 0, 0, 0, characters, ashlar__weights_bound(c->character_hidden),
         &p->character_stack, &g->character_stack},
        {"word_embedding.weight", 2, c->words, c->word_embedding, NULL, vector, &p->word_embedding,
         &g->word_embedding},
        {"", 0, 0, 0, words, ashlar__weights_bound(c->hidden), &p->word_stack, &g->word_stack},
        {"label_embedding.weight", 2, c->tags, c->label_embedding, NULL, vector,
         &p->label_embedding, &g->label_embedding},
        {"linear.weight", 2, c->tags, inputs, NULL, linear, &p->weight, &g->weight},
        {"linear.bias", 1, c->tags, 0, NULL, linear, &p->bias, &g->bias},
    };
    ashlar_weights w = {
        .allocator = tagger->allocator, .stream = tagger->stream, .dtype = c->dtype};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].parameter != &p->label_embedding || c->label_embedding > 0) {
            w.list[w.count++] = all[i];
        }
    }
    return w;
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
    ASHLAR_TRY(create_rnns(tagger));
    ASHLAR_TRY(ashlar__ops_create(tagger->device, tagger->config.dtype, &tagger->ops));
    const ashlar_weights weights = weights_of(tagger);
    return ashlar__weights_open(&weights, regions, &tagger->arena);
}

ashlar_status ashlar__tagger_create(ashlar_allocator *allocator, ashlar_stream stream,
                                    const ashlar_tagger_config *config, unsigned regions,
                                    ashlar_tagger **out) {
    ashlar_tagger *tagger;
    ASHLAR_HOST_NEW(tagger, 1, "no host memory for a tagger");
    *tagger = (ashlar_tagger){
        .config = *config,
        .device = ashlar_allocator_device(allocator),
        .allocator = allocator,
        .stream = stream,
    };
    ASHLAR_HAND_OUT(build(tagger, regions), tagger, ashlar__tagger_destroy, out);
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

ashlar_status ashlar__tagger_init_weights(ashlar_tagger *tagger, uint64_t seed) {
    const ashlar_weights weights = weights_of(tagger);
    return ashlar__weights_draw(&weights, tagger->arena, seed);
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
