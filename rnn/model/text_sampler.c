/* text_sampler.c - runs the model one symbol at a time, with carried states. */
#include "rnn/model/text_sampler.h"

#include <string.h>

#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "rnn/data/batcher.h"

enum { ALIGN = 256 };

/* Logits and tokens are page-locked, so that the device writes and reads them where the host does.
 */
struct ashlar_text_sampler {
    ashlar_sampled_model of;
    ashlar_device *device;
    size_t count;     /* B */
    size_t row_bytes; /* of a text's logits */
    ashlar_sampler **samplers; /* [B] */
    ashlar_random *randoms;    /* [B] */
    double *numbers;           /* [B] of the draw that is under way */
    char *logits;     /* [B, V], of the model's type; the tokens lie in this memory, too */
    int32_t *tokens;  /* [B] */
    char *states[2];  /* in one block: a step reads one set, and writes the other */
    unsigned now;     /* which set of states is current: 0 or 1 */
};

static ashlar_model_batch step_of(const ashlar_text_sampler *s) {
    return (ashlar_model_batch){
        .batch = s->count, .steps = 1, .before = s->states[s->now], .after = s->states[!s->now]};
}

/* ---- create and destroy ---- */

static ashlar_status create_samplers(ashlar_text_sampler *s,
                                     const ashlar_text_sampler_config *config) {
    ASHLAR_HOST_NEW(s->samplers, s->count, "no host memory for %zu samplers", s->count);
    ASHLAR_HOST_NEW(s->randoms, s->count, "no host memory for %zu samplers", s->count);
    ASHLAR_HOST_NEW(s->numbers, s->count, "no host memory for %zu samplers", s->count);
    for (size_t i = 0; i < s->count; i++) {
        ashlar__random_init(&s->randoms[i], config->seed + i);
        ASHLAR_TRY(ashlar_sampler_create(&config->sampling, s->of.config.classes, &s->samplers[i]));
    }
    return ASHLAR_OK;
}

/* Take the memory for logits, tokens and states, and clear the states. */
static ashlar_status take_memory(ashlar_text_sampler *s) {
    void *outputs[ASHLAR_TEXT_OUTPUT_COUNT] = {s}; /* only that it is not NULL counts */
    ashlar_model_batch batch = step_of(s);
    ashlar_model_need need;
    size_t logits, tokens, host, states, both;
    void *memory;
    batch.outputs = outputs;
    ASHLAR_TRY(ashlar_model_get_need(s->of.model, ASHLAR_WALK_PREDICT, &batch, &need));
    ASHLAR_FAIL_IF(!ashlar__mul(s->count, s->row_bytes, &logits) ||
                       !ashlar__align_up(logits, ALIGN, &logits) ||
                       !ashlar__mul(s->count, sizeof(int32_t), &tokens) ||
                       !ashlar__add(logits, tokens, &host) ||
                       !ashlar__align_up(need.carried_bytes, ALIGN, &states) ||
                       !ashlar__mul(states, 2, &both),
                   ASHLAR_EOVERFLOW, "%zu texts at once are too many to address", s->count);
    ASHLAR_TRY(ashlar_device_host_alloc(s->device, host, &memory));
    s->logits = memory;
    s->tokens = (int32_t *)(void *)(s->logits + logits);
    ASHLAR_TRY(
        ashlar_alloc_tagged(s->of.allocator, both, ASHLAR_TAG_ACTIVATIONS, s->of.stream, &memory));
    s->states[0] = memory;
    s->states[1] = s->states[0] + states;
    return ashlar_fill(s->device, s->states[0], 0, states, s->of.stream);
}

static ashlar_status build(ashlar_text_sampler *s, const ashlar_text_sampler_config *config) {
    const ashlar_device_info info = ashlar_device_get_info(s->device);
    ASHLAR_FAIL_IF(config->is_bf16 &&
                       (info.kind != ASHLAR_DEVICE_SOFT || s->of.config.dtype != ASHLAR_F32),
                   ASHLAR_EINVAL,
                   "weights in bf16 (--bf16): only a software device reads an fp32 model so; leave "
                   "it out");
    ASHLAR_TRY(take_memory(s));
    ASHLAR_TRY(create_samplers(s, config));
    ASHLAR_TRY(ashlar_model_prepare(s->of.model, config->is_bf16, s->of.stream));
    return ashlar__text_sampler_read(s, ASHLAR_BATCHER_MARK);
}

ashlar_status ashlar__text_sampler_create(const ashlar_sampled_model *of,
                                          const ashlar_text_sampler_config *config,
                                          ashlar_text_sampler **out) {
    ashlar_text_sampler *s;
    ASHLAR_HOST_NEW(s, 1, "no host memory for a sampler");
    s->of = *of;
    s->device = ashlar_allocator_device(of->allocator);
    s->count = config->count == 0 ? 1 : config->count;
    s->row_bytes = of->config.classes * ashlar_dtype_bytes(of->config.dtype);
    ASHLAR_HAND_OUT(build(s, config), s, ashlar__text_sampler_destroy, out);
}

void ashlar__text_sampler_destroy(ashlar_text_sampler *s) {
    if (s == NULL) {
        return;
    }
    /* Neither fails but with the device: take_memory() took this block, or it is NULL. */
    ASHLAR_IGNORE(ashlar_stream_synchronize(s->device, s->of.stream));
    ASHLAR_IGNORE(ashlar_free(s->of.allocator, s->states[0]));
    for (size_t i = 0; s->samplers != NULL && i < s->count; i++) {
        ashlar_sampler_destroy(s->samplers[i]);
    }
    ashlar__host_free(s->samplers);
    ashlar__host_free(s->randoms);
    ashlar__host_free(s->numbers);
    ashlar_device_host_free(s->device, s->logits);
    ashlar__host_free(s);
}

/* ---- a step ---- */

/* Let the model read the tokens. The states move on only if it does. */
static ashlar_status feed(ashlar_text_sampler *s) {
    const void *inputs[ASHLAR_TEXT_INPUT_COUNT] = {[ASHLAR_TEXT_TOKENS] = s->tokens};
    void *outputs[ASHLAR_TEXT_OUTPUT_COUNT] = {[ASHLAR_TEXT_LOGITS] = s->logits};
    ashlar_model_batch batch = step_of(s);
    batch.inputs = inputs;
    batch.outputs = outputs;
    ASHLAR_TRY(ashlar_model_run(s->of.model, ASHLAR_WALK_PREDICT, &batch, s->of.stream));
    s->now = !s->now;
    return ASHLAR_OK;
}

ashlar_status ashlar__text_sampler_read(ashlar_text_sampler *s, int32_t symbol) {
    ASHLAR_TRY(ashlar_stream_synchronize(s->device, s->of.stream));
    for (size_t i = 0; i < s->count; i++) {
        s->tokens[i] = symbol;
    }
    return feed(s);
}

ashlar_status ashlar__text_sampler_next(ashlar_text_sampler *s, int32_t *symbols) {
    ASHLAR_TRY(ashlar_stream_synchronize(s->device, s->of.stream));
    for (size_t i = 0; i < s->count; i++) {
        s->numbers[i] = ashlar__random_uniform(&s->randoms[i]);
    }
    ASHLAR_TRY(ashlar_sampler_draw(s->samplers, s->count, s->of.config.dtype, s->logits, s->numbers,
                                   s->tokens));
    ASHLAR_TRY(feed(s));
    memcpy(symbols, s->tokens, s->count * sizeof *symbols);
    return ASHLAR_OK;
}
