/*
 * model.h - the character model: embedding, recurrent stack, linear layer, softmax (internal).
 *
 *     x = embedding[token]    y = RNN(x)    logits = y W^T + b    loss = cross-entropy(logits)
 *
 * All weights lie in one arena; every buffer of a step comes from the allocator afresh, and goes
 * back as soon as the step is done with it, as a C training loop would do it.
 *
 * Threads: one at a time per model.
 */
#ifndef ASHLAR_MODEL_H
#define ASHLAR_MODEL_H

#include <ashlar/arena.h>
#include <ashlar/rnn.h>

#include "batcher.h"
#include "ops.h"

typedef struct ashlar_model_config {
    size_t classes;   /* V, symbols of the vocabulary */
    size_t embedding; /* E */
    size_t hidden;    /* H */
    size_t layers;    /* L */
    ashlar_rnn_cell cell;
    size_t projection; /* 0: none, and P = H; else P, as in rnn_layout.h */
    double dropout;    /* between layers, in training */
} ashlar_model_config;

/* Views into the arena, watched by ashlar_arena_check(). All fp32. */
typedef struct ashlar_model_views {
    void *embedding; /* [V, E] */
    void *stack;     /* the recurrent layers, in cuDNN's packed order */
    void *weight;    /* [V, P] of the linear layer */
    void *bias;      /* [V] */
} ashlar_model_views;

typedef struct ashlar_model {
    ashlar_model_config config;
    ashlar_device *device;
    ashlar_allocator *allocator;
    ashlar_stream stream; /* everything of the model is queued here */
    ashlar_rnn *rnn;
    ashlar_ops *ops;
    ashlar_arena *arena;
    ashlar_model_views parameters;
    ashlar_model_views gradients; /* NULL pointers in a model for inference */
    const double *loss_scale;     /* device memory: times the loss's gradient; NULL stands for 1 */
    uint64_t dropout_seed;        /* of the next step; the trainer changes it for each */
} ashlar_model;

/* Bytes of every buffer of one step. Fields that depend on the length only through the back end
 * need not grow with it: see ashlar_rnn_sizes(). */
typedef struct ashlar_step_sizes {
    size_t grid;    /* inputs, and targets: int32 [T, B] */
    size_t lengths; /* int32 [B] */
    size_t x;       /* [T, B, E], and dx */
    size_t y;       /* [T, B, P], and dy */
    size_t logits;  /* [T, B, V], and dlogits in the same place */
    size_t reserve;
    size_t work;
    size_t loss_work; /* 0: the back end's loss needs none */
} ashlar_step_sizes;

/* What a step leaves in device memory for the host to read. */
typedef struct ashlar_step_results {
    double loss; /* mean over the batch's tokens, nats */
} ashlar_step_results;

/*
 * Build the model and take its weights from `allocator`: zeros, to be initialised or loaded.
 *
 * regions   of the arena: ASHLAR_REGIONS_INFERENCE, or ASHLAR_REGIONS_ALL for training
 *
 * Ownership: *out is the caller's; the allocator and the stream must outlive it.
 * Errors:    ASHLAR_EINVAL, ASHLAR_EOVERFLOW (config), ASHLAR_ENOTSUP (a CUDA device),
 *            ASHLAR_ENOMEM, ASHLAR_EHOSTMEM, ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_model_create(ashlar_allocator *allocator,
                                                    ashlar_stream stream,
                                                    const ashlar_model_config *config,
                                                    unsigned regions, ashlar_model **out);
void ashlar_model_destroy(ashlar_model *model); /* NULL is allowed */

/*
 * Fill the weights from `seed`: uniform in +-1/sqrt(hidden), as PyTorch does for recurrent layers
 * and for this linear layer; the embedding in +-sqrt(3), a standard deviation of 1 (PyTorch draws
 * it from a normal distribution); an LSTM's forget gates' biases raised by 1 in all.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_model_init_weights(ashlar_model *model, uint64_t seed);

/* The buffers of a step of T x B. Errors: ASHLAR_EINVAL, ASHLAR_EOVERFLOW. */
ASHLAR_MUST_CHECK ashlar_status ashlar_model_sizes(const ashlar_model *model, size_t steps,
                                                   size_t batch, ashlar_step_sizes *sizes);

/*
 * Queue forward and backward of one batch, gradients into the arena's gradient region (overwritten,
 * not added to).
 *
 * batch     host memory; where it is page-locked, untouched until the stream has passed the step
 * count     B, the sequences of the batch
 * sizes     at least those of the batch's shape; larger ones are what a warm-up uses
 * results   device memory; the step writes ->loss there
 *
 * Errors: those of ashlar_alloc(), ashlar_launch(), ashlar_rnn_forward(). All buffers are returned.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_model_step(ashlar_model *model, const ashlar_batch *batch,
                                                  size_t count, const ashlar_step_sizes *sizes,
                                                  ashlar_step_results *results);

/*
 * Take and give back every buffer of a step of these sizes, in the step's order, without its work:
 * what a step needs from the allocator, and nothing else. Errors: those of ashlar_alloc().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_model_rehearse(ashlar_model *model,
                                                      const ashlar_step_sizes *sizes);

#endif /* ASHLAR_MODEL_H */
