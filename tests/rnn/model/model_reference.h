/*
 * model_reference.h - the model in double precision, for tests: its parts' own functions (which
 * have tests of their own) put together a second time.
 */
#ifndef ASHLAR_MODEL_REFERENCE_H
#define ASHLAR_MODEL_REFERENCE_H

#include "tests/rnn/model/model_fixture.h"

#include "rnn/layer/ops.h"
#include "rnn/layer/rnn_cpu.h"

/* The arena's tensors: the embedding, the stack's, then the linear layer's two. */
enum { TENSOR_EMBEDDING, TENSOR_STACK };

static inline size_t tensor_weight(void) {
    return ashlar_arena_tensor_count(model->arena) - 2;
}

static inline size_t tensor_bias(void) {
    return ashlar_arena_tensor_count(model->arena) - 1;
}

/* Parameters and gradients, [region_count()], placed as in the arena. */
typedef struct reference {
    double *parameters;
    double *gradients;
    double loss;
} reference;

static inline double *zeros(size_t count) {
    double *out = aligned_alloc(64, (count * sizeof *out + 63) / 64 * 64);
    for (size_t i = 0; i < count; i++) {
        out[i] = 0;
    }
    return out;
}

static inline void open_reference(reference *r) {
    *r = (reference){zeros(region_count()), zeros(region_count()), 0};
    for (size_t i = 0; i < region_count(); i++) {
        r->parameters[i] = (double)region_of(ASHLAR_REGION_PARAMETERS)[i];
    }
}

static inline void close_reference(reference *r) {
    free(r->parameters);
    free(r->gradients);
}

/* Where a tensor lies in `values`. */
static inline double *tensor_in(double *values, size_t tensor) {
    ashlar_tensor_info info;
    ashlar_arena_tensor(model->arena, tensor, &info);
    return values + info.offset[ASHLAR_LAYOUT_STORAGE] / sizeof(float);
}

typedef struct reference_step {
    ashlar_rnn_layout layout;
    ashlar_embedding_args embedding;
    ashlar_rnn_cpu_args rnn;
    ashlar_linear_args linear;
    ashlar_cross_entropy_args loss;
} reference_step;

static inline void reference_arguments(reference *r, const made_batch *made, reference_step *s) {
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(model->rnn);
    ashlar_rnn_config config = layout->config;
    const size_t steps = made->batch.steps, count = made->count, rows = steps * count;
    size_t reserve = 0, work = 0;
    config.dtype = ASHLAR_F64;
    CHECK(ashlar_rnn_layout_init(&s->layout, &config) == ASHLAR_OK);
    CHECK(ashlar__rnn_cpu_sizes(&s->layout, steps, count, true, &reserve, &work) == ASHLAR_OK);
    double *x = zeros(rows * EMBEDDING), *dx = zeros(rows * EMBEDDING),
           *y = zeros(rows * layout->output), *dy = zeros(rows * layout->output),
           *logits = zeros(rows * CLASSES);
    s->embedding = (ashlar_embedding_args){steps, count, made->lengths, CLASSES, EMBEDDING,
                                           made->inputs, tensor_in(r->parameters, TENSOR_EMBEDDING),
                                           x, dx, tensor_in(r->gradients, TENSOR_EMBEDDING)};
    s->rnn = (ashlar_rnn_cpu_args){.layout = &s->layout,
                                   .steps = steps,
                                   .batch = count,
                                   .lengths = made->lengths,
                                   .dropout_seed = model->dropout_seed,
                                   .b = {.reserve = zeros(reserve / 8 + 1),
                                         .work = zeros(work / 8 + 1),
                                         .x = x,
                                         .weights = tensor_in(r->parameters, TENSOR_STACK),
                                         .y = y,
                                         .dy = dy,
                                         .dx = dx,
                                         .dweights = tensor_in(r->gradients, TENSOR_STACK)}};
    s->linear = (ashlar_linear_args){rows, layout->output, CLASSES, y,
                                     tensor_in(r->parameters, tensor_weight()),
                                     tensor_in(r->parameters, tensor_bias()), logits, logits, dy,
                                     tensor_in(r->gradients, tensor_weight()),
                                     tensor_in(r->gradients, tensor_bias())};
    s->loss = (ashlar_cross_entropy_args){.steps = steps,
                                          .batch = count,
                                          .lengths = made->lengths,
                                          .classes = CLASSES,
                                          .logits = logits,
                                          .targets = made->targets,
                                          .dlogits = logits};
}

static inline void close_reference_step(const reference_step *s) {
    void *const owned[] = {s->embedding.out, (void *)(uintptr_t)s->embedding.dout,
                           s->rnn.b.reserve, s->rnn.b.work,
                           s->rnn.b.y,       s->linear.y,
                           s->linear.dx};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) {
        free(owned[i]);
    }
}

/* Loss and gradients of one batch. */
static inline void run_reference(reference *r, const made_batch *made) {
    reference_step s;
    for (size_t i = 0; i < region_count(); i++) {
        r->gradients[i] = 0;
    }
    reference_arguments(r, made, &s);
    ashlar__embedding_forward_f64(&s.embedding);
    ashlar__rnn_loops_of(ASHLAR_F64)->passes[ASHLAR_RNN_FORWARD](&s.rnn);
    ashlar__linear_forward_f64(&s.linear);
    r->loss = 0;
    s.loss.loss = &r->loss;
    ashlar__cross_entropy_f64(&s.loss);
    ashlar__linear_backward_f64(&s.linear);
    ashlar__rnn_loops_of(ASHLAR_F64)->passes[ASHLAR_RNN_BACKWARD_DATA](&s.rnn);
    ashlar__rnn_loops_of(ASHLAR_F64)->passes[ASHLAR_RNN_BACKWARD_WEIGHTS](&s.rnn);
    ashlar__embedding_backward_f64(&s.embedding);
    close_reference_step(&s);
}

#endif /* ASHLAR_MODEL_REFERENCE_H */
