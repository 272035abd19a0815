/* text_sampler.c - runs the model one symbol at a time in buffers taken once. */
#include "rnn/model/text_sampler.h"

#include <string.h>

#include "rnn/data/batcher.h"
#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "allocator/device/device_impl.h"
#include "arena/compute/workers.h"
#include "rnn/layer/backend.h"
#include "rnn/layer/rnn_cpu.h"
#include "rnn/layer/sampling.h"

enum { ALIGN = 64 };

/* The sampler's arrays, one behind the other in one block of device memory. A model on a software
 * device has a decoder, which needs no X, Y and LENGTHS. */
enum {
    TOKENS,  /* int32 [B] */
    LENGTHS, /* int32 [B], always 1 */
    X,       /* [B, E]; x, y, states and logits are of the model's type */
    Y,       /* [B, P] */
    STATES,  /* two pairs of h and c, [L, B, H] each; a step reads one pair, writes the other */
    LOGITS,  /* [B, V] */
    PACKED,  /* the decoder's weights */
    WORK,
    ARRAY_COUNT
};

/* A step of the decoder, as it is launched. It may run when the model is gone. */
typedef struct decode_call {
    const ashlar_decoder *decoder;
    ashlar_rnn_layout layout;
    ashlar_decode_args args; /* tokens and layout are set later, to those of this struct's copy */
    int32_t tokens[];        /* [B] */
} decode_call;

/* One text's randomness. */
typedef struct drawer {
    ashlar_sampler *sampler;
    ashlar_random random;
    double number; /* the draw that is on its way */
    ashlar_status status;
} drawer;

struct ashlar_text_sampler {
    ashlar_model *model;
    const ashlar_decoder *decoder; /* NULL: the model's operations are queued one by one */
    size_t count;                  /* B */
    bool is_bf16;                  /* what the decoder reads */
    drawer *drawers;               /* [B] */
    size_t at[ARRAY_COUNT + 1];    /* offsets in bytes, multiples of ALIGN; then the end */
    char *memory;                  /* device */
    unsigned now;                  /* which of the two pairs of states is current: 0 or 1 */
    char *logits;                  /* [B, V], of the model's type: host, or with a decoder LOGITS */
    int32_t *tokens;               /* host [B] */
    int32_t *ones;                 /* host [B] */
    decode_call *call;             /* with a decoder: the step to launch next */
};

static size_t align_up(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Bytes from the beginning of one state, [L, B, H], to that of the next. */
static size_t state_stride(const ashlar_text_sampler *s) {
    const ashlar_model_config *c = &s->model->config;
    return align_up(c->layers * s->count * c->hidden * ashlar_dtype_bytes(c->dtype));
}

/* Sizes of one text cannot overflow: the weights, which are larger, are in memory already. */
static ashlar_status check_count(const ashlar_text_sampler *s) {
    enum { ARRAYS_MAX = 64 }; /* there are fewer arrays as wide as the widest */
    const ashlar_model_config *c = &s->model->config;
    size_t width = c->classes + c->embedding + 4 * c->hidden, bytes;
    ASHLAR_FAIL_IF(!ashlar__mul(width, c->layers * ARRAYS_MAX, &width) ||
                       !ashlar__mul(width, s->count, &bytes),
                   ASHLAR_EOVERFLOW, "%zu texts at once are too many to address", s->count);
    return ASHLAR_OK;
}

static void lay_out(ashlar_text_sampler *s, size_t work_bytes) {
    const ashlar_model_config *c = &s->model->config;
    const size_t row = s->count * ashlar_dtype_bytes(c->dtype);
    const bool decodes = s->decoder != NULL;
    const size_t bytes[] = {
        [TOKENS] = decodes ? 0 : s->count * sizeof(int32_t),
        [LENGTHS] = decodes ? 0 : s->count * sizeof(int32_t),
        [X] = decodes ? 0 : c->embedding * row,
        [Y] = decodes ? 0 : c->hidden * row,
        [STATES] = 4 * state_stride(s),
        [LOGITS] = c->classes * row,
        [PACKED] = decodes ? ashlar__decode_packed_bytes(ashlar_rnn_layout_of(s->model->rnn),
                                                         s->is_bf16, c->classes)
                           : 0,
        [WORK] = work_bytes};
    ASHLAR_TABLE_IS_FULL(bytes, ARRAY_COUNT);
    for (size_t i = 0; i < ARRAY_COUNT; i++) {
        s->at[i + 1] = s->at[i] + align_up(bytes[i]);
    }
}

static void *array(const ashlar_text_sampler *s, int which) {
    return s->memory + s->at[which];
}

/* A state of pair `side` (0 or 1): h if `which` is 0, c if it is 1. */
static void *state(const ashlar_text_sampler *s, unsigned side, unsigned which) {
    return s->memory + s->at[STATES] + (2 * side + which) * state_stride(s);
}

/* ---- create and destroy ---- */

static ashlar_status take_host_memory(ashlar_text_sampler *s,
                                      const ashlar_text_sampler_config *config) {
    static const char what[] = "no host memory for a sampler";
    const ashlar_model_config *c = &s->model->config;
    ASHLAR_HOST_NEW(s->drawers, s->count, what);
    for (size_t i = 0; i < s->count; i++) {
        ashlar__random_init(&s->drawers[i].random, config->seed + i);
        ASHLAR_TRY(ashlar_sampler_create(&config->sampling, c->classes, &s->drawers[i].sampler));
    }
    if (s->decoder == NULL) {
        ASHLAR_HOST_NEW(s->logits, s->count * c->classes * ashlar_dtype_bytes(c->dtype), what);
    }
    ASHLAR_HOST_NEW(s->tokens, s->count, what);
    ASHLAR_HOST_NEW(s->ones, s->count, what);
    for (size_t i = 0; i < s->count; i++) {
        s->ones[i] = 1;
    }
    s->call = s->decoder == NULL
                  ? NULL
                  : ashlar__host_calloc(1, sizeof *s->call + s->count * sizeof(int32_t));
    ASHLAR_FAIL_IF(s->decoder != NULL && s->call == NULL, ASHLAR_EHOSTMEM, what);
    return ASHLAR_OK;
}

/* Queue what reads the weights, and the arrays. */
static ashlar_status launch(const ashlar_text_sampler *s, void (*fn)(void *), size_t args_bytes) {
    const ashlar_model *m = s->model;
    const ashlar_decode_model *of = &s->call->args.model;
    const ashlar_rnn_layout *l = &s->call->layout;
    const size_t item = ashlar_dtype_bytes(m->config.dtype), classes = of->classes;
    const ashlar_operand operands[] = {
        {"embedding", of->table, ashlar__operand_bytes(classes, l->config.input, item), true},
        {"stack", of->stack, l->elements * item, true},
        {"weight", of->weight, ashlar__operand_bytes(classes, l->output, item), true},
        {"bias", of->bias, classes * item, true},
        {"arrays", s->memory, s->at[ARRAY_COUNT], true},
        {0}};
    ASHLAR_TRY(ashlar__check_operands(m->device, "a sampler", operands));
    return ashlar_launch(m->device, m->stream, fn, s->call, args_bytes);
}

static void run_pack(void *copied) {
    const decode_call *const call = copied;
    ashlar_decode_model model = call->args.model;
    model.layout = &call->layout;
    call->decoder->pack(&model);
}

/* Queue the packing of the weights. */
static ashlar_status pack_weights(ashlar_text_sampler *s) {
    const ashlar_model *m = s->model;
    s->logits = array(s, LOGITS);
    s->call->decoder = s->decoder;
    s->call->layout = *ashlar_rnn_layout_of(m->rnn);
    s->call->args = (ashlar_decode_args){.model = {.classes = m->config.classes,
                                                   .is_bf16 = s->is_bf16,
                                                   .table = m->parameters.embedding,
                                                   .stack = m->parameters.stack,
                                                   .weight = m->parameters.weight,
                                                   .bias = m->parameters.bias,
                                                   .packed = array(s, PACKED)},
                                         .batch = s->count,
                                         .logits = array(s, LOGITS),
                                         .work = array(s, WORK)};
    return launch(s, run_pack, sizeof *s->call);
}

static ashlar_status find_work_bytes(const ashlar_text_sampler *s, size_t *bytes) {
    size_t reserve_bytes;
    if (s->decoder != NULL) {
        *bytes = ashlar__decode_work_bytes(ashlar_rnn_layout_of(s->model->rnn), s->count);
        return ASHLAR_OK;
    }
    return ashlar_rnn_sizes(s->model->rnn, 1, s->count, false, &reserve_bytes, bytes);
}

static ashlar_status build(ashlar_text_sampler *s, const ashlar_text_sampler_config *config) {
    const ashlar_model *m = s->model;
    size_t work_bytes;
    ASHLAR_FAIL_IF(s->is_bf16 && (s->decoder == NULL || m->config.dtype != ASHLAR_F32),
                   ASHLAR_EINVAL,
                   "weights in bf16 (--bf16): only a software device reads an fp32 model so; leave "
                   "it out");
    ASHLAR_TRY(check_count(s));
    ASHLAR_TRY(find_work_bytes(s, &work_bytes));
    ASHLAR_TRY(take_host_memory(s, config));
    lay_out(s, work_bytes);
    void *memory = NULL;
    ASHLAR_TRY(ashlar_alloc_tagged(m->allocator, s->at[ARRAY_COUNT], ASHLAR_TAG_ACTIVATIONS,
                                   m->stream, &memory));
    s->memory = memory;
    ASHLAR_TRY(ashlar_fill(m->device, memory, 0, s->at[PACKED], m->stream)); /* zero states */
    ASHLAR_TRY(s->decoder != NULL ? pack_weights(s)
                                  : ashlar_copy_to_device(m->device, array(s, LENGTHS), s->ones,
                                                          s->count * sizeof(int32_t), m->stream));
    return ashlar__text_sampler_read(s, ASHLAR_BATCHER_MARK);
}

ashlar_status ashlar__text_sampler_create(ashlar_model *model,
                                          const ashlar_text_sampler_config *config,
                                          ashlar_text_sampler **out) {
    ashlar_text_sampler *s;
    ASHLAR_HOST_NEW(s, 1, "no host memory for a sampler");
    s->model = model;
    s->count = config->count == 0 ? 1 : config->count;
    s->is_bf16 = config->is_bf16;
    if (model->rnn->backend == &ashlar__rnn_backend_cpu) {
        s->decoder = &ashlar__rnn_loops_of(model->config.dtype)->decoder;
    }
    ASHLAR_HAND_OUT(build(s, config), s, ashlar__text_sampler_destroy, out);
}

void ashlar__text_sampler_destroy(ashlar_text_sampler *s) {
    if (s == NULL) {
        return;
    }
    /* Cannot fail: build() took this block, or it is NULL. */
    ASHLAR_IGNORE(ashlar_free(s->model->allocator, s->memory));
    for (size_t i = 0; s->drawers != NULL && i < s->count; i++) {
        ashlar_sampler_destroy(s->drawers[i].sampler);
    }
    ashlar__host_free(s->drawers);
    ashlar__host_free(s->decoder == NULL ? s->logits : NULL);
    ashlar__host_free(s->tokens);
    ashlar__host_free(s->ones);
    ashlar__host_free(s->call);
    ashlar__host_free(s);
}

/* ---- a step ---- */

static ashlar_status feed_embedding(const ashlar_text_sampler *s, const int32_t *symbols) {
    const ashlar_model *m = s->model;
    const ashlar_embedding_args args = {
        .steps = 1,
        .batch = s->count,
        .lengths = array(s, LENGTHS),
        .classes = m->config.classes,
        .width = m->config.embedding,
        .tokens = array(s, TOKENS),
        .table = m->parameters.embedding,
        .out = array(s, X),
    };
    ASHLAR_TRY(ashlar_copy_to_device(m->device, array(s, TOKENS), symbols,
                                     s->count * sizeof *symbols, m->stream));
    return ashlar_embedding_forward(m->ops, &args, m->stream);
}

static ashlar_status feed_rnn(const ashlar_text_sampler *s) {
    const ashlar_rnn_batch batch = {.steps = 1, .batch = s->count, .lengths = s->ones};
    const ashlar_rnn_buffers buffers = {
        .work = array(s, WORK),
        .x = array(s, X),
        .hx = state(s, s->now, 0),
        .cx = state(s, s->now, 1),
        .weights = s->model->parameters.stack,
        .y = array(s, Y),
        .hy = state(s, !s->now, 0),
        .cy = state(s, !s->now, 1),
    };
    return ashlar_rnn_forward(s->model->rnn, &batch, &buffers, s->model->stream);
}

/* May run again, as part of a graph, so it changes nothing that it reads. */
static void run_step(void *copied) {
    const decode_call *const call = copied;
    ashlar_decode_args args = call->args;
    args.tokens = call->tokens;
    args.model.layout = &call->layout;
    call->decoder->step(&args);
}

static ashlar_status feed_decoder(const ashlar_text_sampler *s, const int32_t *symbols) {
    decode_call *const call = s->call;
    call->args.h = state(s, s->now, 0);
    call->args.c = state(s, s->now, 1);
    call->args.next_h = state(s, !s->now, 0);
    call->args.next_c = state(s, !s->now, 1);
    memcpy(call->tokens, symbols, s->count * sizeof *symbols);
    return launch(s, run_step, sizeof *call + s->count * sizeof *symbols);
}

/* The states move on only if the symbols were read. */
static ashlar_status feed(ashlar_text_sampler *s, const int32_t *symbols) {
    if (s->decoder != NULL) {
        ASHLAR_TRY(feed_decoder(s, symbols));
    } else {
        ASHLAR_TRY(feed_embedding(s, symbols));
        ASHLAR_TRY(feed_rnn(s));
    }
    s->now = !s->now;
    return ASHLAR_OK;
}

ashlar_status ashlar__text_sampler_read(ashlar_text_sampler *s, int32_t symbol) {
    for (size_t i = 0; i < s->count; i++) {
        s->tokens[i] = symbol;
    }
    return feed(s, s->tokens);
}

static ashlar_status compute_logits(const ashlar_text_sampler *s) {
    const ashlar_model *m = s->model;
    const ashlar_linear_args linear = {
        .rows = s->count,
        .in = ashlar_rnn_layout_of(m->rnn)->output,
        .out = m->config.classes,
        .x = array(s, Y),
        .weight = m->parameters.weight,
        .bias = m->parameters.bias,
        .y = array(s, LOGITS),
    };
    return ashlar_linear_forward(m->ops, &linear, m->stream);
}

/* Wait until the logits of the next symbols are in s->logits. */
static ashlar_status read_logits(const ashlar_text_sampler *s) {
    const ashlar_model *m = s->model;
    const size_t bytes = s->count * m->config.classes * ashlar_dtype_bytes(m->config.dtype);
    if (s->decoder == NULL) { /* else the step has made them */
        ASHLAR_TRY(compute_logits(s));
        ASHLAR_TRY(ashlar_copy_to_host(m->device, s->logits, array(s, LOGITS), bytes, m->stream));
    }
    return ashlar_stream_synchronize(m->device, m->stream);
}

static void draw_one(void *context, size_t i) {
    const ashlar_text_sampler *const s = context;
    const ashlar_model_config *const c = &s->model->config;
    drawer *const d = &s->drawers[i];
    d->status = ashlar__sampler_draw_anywhere(
        d->sampler, c->dtype, s->logits + i * c->classes * ashlar_dtype_bytes(c->dtype), d->number,
        &s->tokens[i]);
}

ashlar_status ashlar__text_sampler_next(ashlar_text_sampler *s, int32_t *symbols) {
    ASHLAR_TRY(read_logits(s));
    for (size_t i = 0; i < s->count; i++) {
        s->drawers[i].number = ashlar__random_uniform(&s->drawers[i].random);
    }
    ashlar__workers_run(s->count, draw_one, s);
    for (size_t i = 0; i < s->count; i++) {
        if (s->drawers[i].status != ASHLAR_OK) {
            draw_one(s, i); /* again, since the detail is the calling thread's */
            return s->drawers[i].status;
        }
    }
    ASHLAR_TRY(feed(s, s->tokens));
    memcpy(symbols, s->tokens, s->count * sizeof *symbols);
    return ASHLAR_OK;
}
