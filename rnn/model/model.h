/*
 * model.h - the character model: embedding, recurrent stack, linear layer, softmax (internal).
 *
 *     x = embedding[token]    y = RNN(x)    logits = y W^T + b    loss = cross-entropy(logits)
 *
 * All weights lie in one arena. Every buffer of a step is allocated anew and freed as soon as the
 * step is done with it, as in a training loop written in C.
 *
 * Threads: one at a time per model.
 */
#ifndef ASHLAR_MODEL_H
#define ASHLAR_MODEL_H

#include <ashlar/arena.h>
#include <ashlar/rnn.h>

#include "rnn/layer/ops.h"

typedef struct ashlar_model_config {
    size_t classes;   /* V, symbols of the vocabulary */
    size_t embedding; /* E */
    size_t hidden;    /* H */
    size_t layers;    /* L */
    ashlar_rnn_cell cell;
    size_t projection;  /* 0: none, and P = H; else P, as in rnn_layout.h */
    double dropout;     /* between layers, in training */
    ashlar_dtype dtype; /* of weights and buffers */
} ashlar_model_config;

/* Views into the arena, watched by ashlar_arena_check(). All of the model's type. */
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

/* Bytes of every buffer of one step. What the back end asks for need not grow with the length: see
 * ashlar_rnn_sizes(). */
typedef struct ashlar_step_sizes {
    size_t x;      /* [T, B, E], and dx */
    size_t y;      /* [T, B, P], and dy */
    size_t logits; /* [T, B, V], and dlogits in the same place */
    size_t reserve;
    size_t work;
    size_t loss_work; /* 0: the back end's loss needs none */
    bool keeps_y;     /* until the end of backward: ashlar_rnn_backward_reads_output() */
    size_t state;     /* one set of states: h [L, B, P], then for the LSTM c [L, B, H] */
    size_t cells;     /* the offset of c in a set */
    size_t states;    /* sets at the borders of chunks, and gradients; 0: there are no borders */
} ashlar_step_sizes;

/*
 * What one step works on: some time steps of some sequences, as batch_split.h lays them out. Split
 * into ceil(T / C) chunks of C steps, it needs the memory of one chunk and of the states between
 * them: forward keeps only those states, and each chunk runs once more before its backward pass.
 */
typedef struct ashlar_model_window {
    size_t steps;               /* T, 1.. */
    size_t count;               /* B, 1.. */
    size_t chunk;               /* C; 0: all at once */
    const int32_t *inputs;      /* [T, B] in device memory */
    const int32_t *targets;     /* [T, B] in device memory */
    const int32_t *lengths;     /* [chunks, B] in device memory, each 0 .. the chunk's steps */
    const int32_t *rnn_lengths; /* the same in host memory, 1 where that is 0; read by the call */
    double weight;              /* of each position; 0: 1 / their number, only without chunks */
    const void *first;          /* the set of states before the window; NULL: zeros */
    void *last;                 /* receives the set behind the window; NULL: not wanted */
} ashlar_model_window;

/*
 * Build the model and take its weights from `allocator`: zeros, to be initialised or loaded.
 *
 * regions   of the arena: ASHLAR_REGIONS_INFERENCE, or ASHLAR_REGIONS_ALL for training
 *
 * Ownership: *out is the caller's; the allocator and the stream must outlive it.
 * Errors:    ASHLAR_EINVAL, ASHLAR_EOVERFLOW (config), ASHLAR_ENOTSUP (a CUDA device),
 *            ASHLAR_ENOMEM, ASHLAR_EHOSTMEM, ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__model_create(ashlar_allocator *allocator,
                                                     ashlar_stream stream,
                                                     const ashlar_model_config *config,
                                                     unsigned regions, ashlar_model **out);
void ashlar__model_destroy(ashlar_model *model); /* NULL is allowed */

/*
 * Fill the weights from `seed`: uniform in +-1/sqrt(hidden), as PyTorch does for recurrent layers
 * and for this linear layer; the embedding in +-sqrt(3), a standard deviation of 1 (PyTorch draws
 * it from a normal distribution); an LSTM's forget gates' biases raised by 1 in all.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__model_init_weights(ashlar_model *model, uint64_t seed);

/* The buffers of a step of T x B, all at once. Errors: ASHLAR_EINVAL, ASHLAR_EOVERFLOW. */
ASHLAR_MUST_CHECK ashlar_status ashlar__model_sizes(const ashlar_model *model, size_t steps,
                                                    size_t batch, ashlar_step_sizes *sizes);

/* The same in chunks; 0: all at once. Errors: as above. */
ASHLAR_MUST_CHECK ashlar_status ashlar__model_chunk_sizes(const ashlar_model *model, size_t steps,
                                                          size_t batch, size_t chunk,
                                                          ashlar_step_sizes *sizes);

/*
 * Queue forward and backward of a window. Gradients are ADDED to the arena's gradient region, and
 * the loss, weight * the sum over all positions, to *loss.
 *
 * sizes   at least those of the window's shape; larger ones are what a warm-up uses
 * loss    device memory
 *
 * Errors: those of ashlar_alloc(), ashlar_launch(), ashlar_rnn_forward(). All buffers are returned.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__model_step(ashlar_model *model,
                                                   const ashlar_model_window *window,
                                                   const ashlar_step_sizes *sizes, double *loss);

/* The most that a step of these sizes holds at once, in blocks of the plan's granularity. */
uint64_t ashlar__model_step_peak(bool in_chunks, const ashlar_step_sizes *sizes);

/*
 * Take and give back every buffer of a step of these sizes, in the step's order, without its work:
 * what a step needs from the allocator, and nothing else. Errors: those of ashlar_alloc().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__model_dry_run(ashlar_model *model, bool in_chunks,
                                                      const ashlar_step_sizes *sizes);

#endif /* ASHLAR_MODEL_H */
