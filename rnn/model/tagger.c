/* tagger.c - builds the tagger, draws its weights, sizes its buffers. */
#include "rnn/model/tagger.h"

#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "rnn/layer/ops.h"
#include "rnn/model/model.h"

static size_t linear_inputs(const ashlar_tagger *tagger) {
    return ashlar_rnn_layout_of(tagger->word_rnn)->output + tagger->config.label_embedding;
}

static ashlar_weights weights_of(ashlar_tagger *tagger) {
    const ashlar_tagger_config *c = &tagger->config;
    ashlar_tagger_views *p = &tagger->parameters, *g = &tagger->gradients;
    const ashlar_rnn *characters = tagger->character_rnn, *words = tagger->word_rnn;
    const size_t inputs = linear_inputs(tagger);
    const ashlar_weight all[] = {
        {"char_embedding.weight", 2, c->characters, c->character_embedding, NULL,
         ASHLAR_PART_EMBEDDING, &p->character_embedding, &g->character_embedding},
        {"char_", 0, 0, 0, characters, ASHLAR_PART_RNN, &p->character_stack, &g->character_stack},
        {"word_embedding.weight", 2, c->words, c->word_embedding, NULL, ASHLAR_PART_EMBEDDING,
         &p->word_embedding, &g->word_embedding},
        {"", 0, 0, 0, words, ASHLAR_PART_RNN, &p->word_stack, &g->word_stack},
        {"label_embedding.weight", 2, c->tags, c->label_embedding, NULL, ASHLAR_PART_EMBEDDING,
         &p->label_embedding, &g->label_embedding},
        {"linear.weight", 2, c->tags, inputs, NULL, ASHLAR_PART_LINEAR, &p->weight, &g->weight},
        {"linear.bias", 1, c->tags, 0, NULL, ASHLAR_PART_LINEAR, &p->bias, &g->bias},
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
                                          .dtype = c->dtype,
                                          .algorithm = c->algorithm,
                                          .math = c->math};
    ashlar_rnn_config words = {.hidden = c->hidden,
                               .layers = c->layers,
                               .cell = c->cell,
                               .directions = c->directions,
                               .projection = c->projection,
                               .dropout = c->dropout,
                               .dtype = c->dtype,
                               .algorithm = c->algorithm,
                               .math = c->math};
    ASHLAR_TRY(ashlar_rnn_create(tagger->device, &characters, &tagger->character_rnn));
    ASHLAR_FAIL_IF(!ashlar__add(c->word_embedding,
                                ashlar_rnn_layout_of(tagger->character_rnn)->output, &words.input),
                   ASHLAR_EOVERFLOW, "tagger: vectors of %zu elements are too wide",
                   c->word_embedding);
    ASHLAR_TRY(ashlar_rnn_create(tagger->device, &words, &tagger->word_rnn));
    words.dropout = 0;
    return ashlar_rnn_create(tagger->device, &words, &tagger->word_rnn_predict);
}

static ashlar_status build(ashlar_tagger *tagger, unsigned regions) {
    ASHLAR_TRY(create_rnns(tagger));
    ASHLAR_TRY(ashlar_ops_create(tagger->device, tagger->config.dtype, &tagger->ops));
    ASHLAR_TRY(
        ashlar__ops_take_work(tagger->ops, tagger->allocator, tagger->stream, &tagger->work));
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
    ashlar_ops_destroy(tagger->ops);
    ASHLAR_IGNORE(ashlar_free(tagger->allocator, tagger->work)); /* is a block of it, or NULL */
    ashlar_rnn_destroy(tagger->character_rnn);
    ashlar_rnn_destroy(tagger->word_rnn);
    ashlar_rnn_destroy(tagger->word_rnn_predict);
    ashlar__host_free(tagger);
}

ashlar_status ashlar__tagger_init_weights(ashlar_tagger *tagger, uint64_t seed) {
    const ashlar_weights weights = weights_of(tagger);
    return ashlar__weights_draw(&weights, tagger->arena, seed);
}

#define AT(buffer) ASHLAR_TAGGER_BUFFER_##buffer

/* Compute the bytes of the buffers that the RNNs do not size themselves. Without label feedback,
 * LABEL has logits for all words at once; with it, TOKEN has them for one word of each sentence.
 * Returns false on overflow. */
static bool size_rows(const ashlar_tagger *tagger, const ashlar_tagger_shape *shape, size_t *of) {
    const ashlar_tagger_config *c = &tagger->config;
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(tagger->word_rnn);
    const size_t spelling = ashlar_rnn_layout_of(tagger->character_rnn)->output;
    const size_t words = shape->steps * shape->batch, letters = words * shape->width;
    const size_t labelled = c->label_embedding > 0 ? 0 : words;
    const size_t tokens = c->label_embedding > 0 ? shape->batch : 0;
    const struct {
        ashlar_tagger_buffer buffer, gradient; /* of equal size; `buffer` again: none */
        size_t rows, width;                    /* in elements */
    } all[] = {
        {AT(CHAR_INPUTS), AT(CHAR_DINPUTS), letters, c->character_embedding},
        {AT(CHAR_OUTPUTS), AT(CHAR_OUTPUTS), letters, spelling},
        {AT(CHAR_STATES), AT(CHAR_DSTATES), words, spelling},
        {AT(WORD_VECTORS), AT(WORD_DVECTORS), words, c->word_embedding},
        {AT(WORD_INPUTS), AT(WORD_DINPUTS), words, layout->config.input},
        {AT(WORD_OUTPUTS), AT(WORD_DOUTPUTS), words, layout->output},
        {AT(LOGITS), AT(LOGITS), labelled, c->tags},
        {AT(TOKEN_LABELS), AT(TOKEN_LABELS), tokens, c->label_embedding},
        {AT(TOKEN_INPUTS), AT(TOKEN_DINPUTS), tokens, linear_inputs(tagger)},
        {AT(TOKEN_LOGITS), AT(TOKEN_LOGITS), tokens, c->tags},
    };
    bool fits = true;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && fits; i++) {
        size_t *bytes = &of[all[i].buffer];
        fits = ashlar__mul(all[i].rows, all[i].width, bytes) &&
               ashlar__mul(*bytes, ashlar_dtype_bytes(c->dtype), bytes);
        of[all[i].gradient] = *bytes;
    }
    of[AT(LABELS)] = words * sizeof(int32_t);
    of[AT(LOSS_WORK)] = ashlar_loss_work_bytes(tagger->ops, labelled);
    of[AT(TOKEN_WORK)] = ashlar_loss_work_bytes(tagger->ops, tokens);
    return fits;
}

/* Compute the bytes of the RNNs' buffers. Those of the words' RNN also suffice for word_rnn_predict,
 * the same RNN without dropout. */
static ashlar_status size_rnns(const ashlar_tagger *tagger, const ashlar_tagger_shape *shape,
                               size_t *of) {
    const ashlar_rnn *const both[] = {tagger->word_rnn, tagger->word_rnn_predict};
    size_t work, largest = 0;
    ASHLAR_TRY(ashlar_rnn_sizes(tagger->character_rnn, shape->width, shape->steps * shape->batch,
                                true, &of[AT(CHAR_RESERVE)], &work));
    of[AT(CHAR_FORWARD_WORK)] = of[AT(CHAR_BACKWARD_WORK)] = of[AT(CHAR_WEIGHTS_WORK)] = work;
    for (size_t i = 0; i < 2; i++) {
        size_t reserve;
        ASHLAR_TRY(ashlar_rnn_sizes(both[i], shape->steps, shape->batch, true, &reserve, &work));
        of[AT(WORD_RESERVE)] = reserve > of[AT(WORD_RESERVE)] ? reserve : of[AT(WORD_RESERVE)];
        largest = work > largest ? work : largest;
    }
    of[AT(WORD_FORWARD_WORK)] = of[AT(WORD_BACKWARD_WORK)] = of[AT(WORD_WEIGHTS_WORK)] = largest;
    return ASHLAR_OK;
}

ashlar_status ashlar__tagger_sizes(const ashlar_tagger *tagger, const ashlar_tagger_shape *shape,
                                   ashlar_tagger_bytes *sizes) {
    ashlar_tagger_bytes s = {
        .steps = shape->steps,
        .keeps_outputs = ashlar_rnn_backward_reads_output(tagger->word_rnn),
    };
    size_t batch_bytes, all = 0;
    ASHLAR_TRY(ashlar__tagger_batch_bytes(shape, &batch_bytes)); /* checks T*B*C, too */
    ASHLAR_TRY(size_rnns(tagger, shape, s.of));
    bool fits = size_rows(tagger, shape, s.of);
    for (size_t i = 0; i < ASHLAR_TAGGER_BUFFER_COUNT; i++) {
        fits = fits && ashlar__add(all, s.of[i], &all);
    }
    ASHLAR_FAIL_IF(!fits, ASHLAR_EOVERFLOW,
                   "tagger: a step of %zu x %zu words is too large to address", shape->steps,
                   shape->batch);
    *sizes = s;
    return ASHLAR_OK;
}
