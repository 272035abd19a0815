/* text_sampler.c - runs the model one symbol at a time in buffers taken once. */
#include "rnn/model/text_sampler.h"

#include "rnn/data/batcher.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

enum { ALIGN = 64 };

/* The sampler's arrays, one behind the other in one block of device memory. */
enum {
    TOKEN,  /* int32 [1] */
    LENGTH, /* int32 [1], always 1 */
    X,      /* [E]; x, y, states and logits are of the model's type */
    Y,      /* [P] */
    STATES, /* two pairs of h and c, [L, H] each; a step reads one pair, writes the other */
    LOGITS, /* [V] */
    WORK,
    ARRAY_COUNT
};

struct ashlar_text_sampler {
    ashlar_model *model;
    ashlar_sampler *sampler;
    ashlar_random random;
    size_t at[ARRAY_COUNT + 1]; /* offsets in bytes, multiples of ALIGN; then the end */
    char *memory;               /* device */
    unsigned now;               /* which of the two pairs of states is current: 0 or 1 */
    char *logits;               /* host [V], of the model's type */
};

static size_t align_up(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Bytes from the beginning of one state, [L, H], to that of the next. */
static size_t state_stride(const ashlar_model_config *c) {
    return align_up(c->layers * c->hidden * ashlar_dtype_bytes(c->dtype));
}

/* Sizes cannot overflow: the weights, which are larger, are in memory already. */
static void lay_out(ashlar_text_sampler *s, size_t work_bytes) {
    const ashlar_model_config *c = &s->model->config;
    const size_t item = ashlar_dtype_bytes(c->dtype);
    const size_t bytes[] = {
        [TOKEN] = sizeof(int32_t), [LENGTH] = sizeof(int32_t),     [X] = c->embedding * item,
        [Y] = c->hidden * item,    [STATES] = 4 * state_stride(c), [LOGITS] = c->classes * item,
        [WORK] = work_bytes};
    ASHLAR_TABLE_IS_FULL(bytes, ARRAY_COUNT);
    for (size_t i = 0; i < ARRAY_COUNT; i++) {
        s->at[i + 1] = s->at[i] + align_up(bytes[i]);
    }
}

/* A state of pair `side` (0 or 1): h if `which` is 0, c if it is 1. */
static void *state(const ashlar_text_sampler *s, unsigned side, unsigned which) {
    return s->memory + s->at[STATES] + (2 * side + which) * state_stride(&s->model->config);
}

static ashlar_status build(ashlar_text_sampler *s, const ashlar_sampling_config *sampling) {
    const ashlar_model *m = s->model;
    size_t reserve_bytes, work_bytes;
    ASHLAR_TRY(ashlar_rnn_sizes(m->rnn, 1, 1, false, &reserve_bytes, &work_bytes));
    ASHLAR_TRY(ashlar_sampler_create(sampling, m->config.classes, &s->sampler));
    ASHLAR_HOST_NEW(s->logits, m->config.classes * ashlar_dtype_bytes(m->config.dtype),
                    "no host memory for a sampler");
    lay_out(s, work_bytes);
    void *memory = NULL;
    ASHLAR_TRY(ashlar_alloc_tagged(m->allocator, s->at[ARRAY_COUNT], ASHLAR_TAG_ACTIVATIONS,
                                   m->stream, &memory));
    s->memory = memory;
    const int32_t one = 1;
    ASHLAR_TRY(ashlar_fill(m->device, memory, 0, s->at[ARRAY_COUNT], m->stream)); /* zero states */
    ASHLAR_TRY(
        ashlar_copy_to_device(m->device, s->memory + s->at[LENGTH], &one, sizeof one, m->stream));
    return ashlar__text_sampler_read(s, ASHLAR_BATCHER_MARK);
}

ashlar_status ashlar__text_sampler_create(ashlar_model *model,
                                          const ashlar_text_sampler_config *config,
                                          ashlar_text_sampler **out) {
    ashlar_text_sampler *s;
    ASHLAR_HOST_NEW(s, 1, "no host memory for a sampler");
    s->model = model;
    ashlar__random_init(&s->random, config->seed);
    ASHLAR_HAND_OUT(build(s, &config->sampling), s, ashlar__text_sampler_destroy, out);
}

void ashlar__text_sampler_destroy(ashlar_text_sampler *s) {
    if (s == NULL) {
        return;
    }
    /* Cannot fail: build() took this block, or it is NULL. */
    ASHLAR_IGNORE(ashlar_free(s->model->allocator, s->memory));
    ashlar_sampler_destroy(s->sampler);
    ashlar__host_free(s->logits);
    ashlar__host_free(s);
}

static ashlar_status feed_embedding(const ashlar_text_sampler *s, int32_t symbol) {
    const ashlar_model *m = s->model;
    const ashlar_embedding_args args = {
        .steps = 1,
        .batch = 1,
        .lengths = (const int32_t *)(const void *)(s->memory + s->at[LENGTH]),
        .classes = m->config.classes,
        .width = m->config.embedding,
        .tokens = (const int32_t *)(const void *)(s->memory + s->at[TOKEN]),
        .table = m->parameters.embedding,
        .out = s->memory + s->at[X],
    };
    ASHLAR_TRY(ashlar_copy_to_device(m->device, s->memory + s->at[TOKEN], &symbol, sizeof symbol,
                                     m->stream));
    return ashlar_embedding_forward(m->ops, &args, m->stream);
}

static ashlar_status feed_rnn(ashlar_text_sampler *s) {
    const int32_t one = 1;
    const ashlar_rnn_batch batch = {.steps = 1, .batch = 1, .lengths = &one};
    const ashlar_rnn_buffers buffers = {
        .work = s->memory + s->at[WORK],
        .x = s->memory + s->at[X],
        .hx = state(s, s->now, 0),
        .cx = state(s, s->now, 1),
        .weights = s->model->parameters.stack,
        .y = s->memory + s->at[Y],
        .hy = state(s, !s->now, 0),
        .cy = state(s, !s->now, 1),
    };
    ASHLAR_TRY(ashlar_rnn_forward(s->model->rnn, &batch, &buffers, s->model->stream));
    s->now = !s->now;
    return ASHLAR_OK;
}

ashlar_status ashlar__text_sampler_read(ashlar_text_sampler *s, int32_t symbol) {
    ASHLAR_TRY(feed_embedding(s, symbol));
    return feed_rnn(s);
}

/* Compute the logits of the next symbol, and wait until they are in s->logits. */
static ashlar_status read_logits(const ashlar_text_sampler *s) {
    const ashlar_model *m = s->model;
    const ashlar_linear_args linear = {
        .rows = 1,
        .in = ashlar_rnn_layout_of(m->rnn)->output,
        .out = m->config.classes,
        .x = s->memory + s->at[Y],
        .weight = m->parameters.weight,
        .bias = m->parameters.bias,
        .y = s->memory + s->at[LOGITS],
    };
    const size_t bytes = m->config.classes * ashlar_dtype_bytes(m->config.dtype);
    ASHLAR_TRY(ashlar_linear_forward(m->ops, &linear, m->stream));
    ASHLAR_TRY(
        ashlar_copy_to_host(m->device, s->logits, s->memory + s->at[LOGITS], bytes, m->stream));
    return ashlar_stream_synchronize(m->device, m->stream);
}

ashlar_status ashlar__text_sampler_next(ashlar_text_sampler *s, int32_t *symbol) {
    int32_t drawn = 0;
    ASHLAR_TRY(read_logits(s));
    ASHLAR_TRY(ashlar_sampler_draw(s->sampler, s->model->config.dtype, s->logits,
                                   ashlar__random_uniform(&s->random), &drawn));
    ASHLAR_TRY(ashlar__text_sampler_read(s, drawn));
    *symbol = drawn;
    return ASHLAR_OK;
}
