/* model.h - the character model: embedding, recurrent stack, linear layer, softmax (internal).
 *
 *     x = embedding[token]    y = RNN(x)    logits = y W^T + b    loss = cross-entropy(logits)
 *
 * All weights lie in one arena. Every buffer of a step is allocated anew and freed as soon as the
 * step is done with it, as in a training loop written in C.
 *
 * Threads: one at a time per model. */
#ifndef ASHLAR_TEXT_MODEL_H
#define ASHLAR_TEXT_MODEL_H

#include <ashlar/allocator.h>
#include <ashlar/arena.h>
#include <ashlar/model.h>
#include <ashlar/rnn.h>

#include "allocator/base/random.h"

/* ---- buffer source ---- */

/*
 * Where the buffers of a step come from, and who is told of them (internal).
 */

/* What a step asks for. */
typedef struct ashlar_buffer_request {
    const char *name; /* static */
    size_t bytes;
    ashlar_tag tag;
    bool is_backward; /* asked for after the step's forward pass */
} ashlar_buffer_request;

/* What is called in place of ashlar_alloc_tagged() (take) and ashlar_free() (give), with the same
 * contracts. take or give NULL: the allocator's own function is called. */
typedef struct ashlar_buffer_hooks {
    ashlar_status (*take)(void *context, const ashlar_buffer_request *request,
                          ashlar_allocator *allocator, ashlar_stream stream, void **out);
    ashlar_status (*give)(void *context, ashlar_allocator *allocator, void *ptr);
    /* A training step, with the statistics behind it, and once before the first; NULL: not wanted.
     */
    void (*queued)(void *context, size_t step, const ashlar_stats *stats);
    void *context;
} ashlar_buffer_hooks;

/* Where all steps of a task take their buffers from. */
typedef struct ashlar_buffer_source {
    const ashlar_buffer_hooks *hooks; /* NULL: the allocator's own functions */
    uint64_t address_sum;             /* a checksum of the addresses that steps and dry runs got */
} ashlar_buffer_source;

/* Take a buffer. source NULL: by the allocator's own function. */
static inline ASHLAR_MUST_CHECK ashlar_status ashlar__buffer_take(ashlar_buffer_source *source,
                                                                  const ashlar_buffer_request *r,
                                                                  ashlar_allocator *base,
                                                                  ashlar_stream stream,
                                                                  void **out) {
    const ashlar_buffer_hooks *hooks = source != NULL ? source->hooks : NULL;
    const ashlar_status status = hooks != NULL && hooks->take != NULL
                                     ? hooks->take(hooks->context, r, base, stream, out)
                                     : ashlar_alloc_tagged(base, r->bytes, r->tag, stream, out);
    if (status == ASHLAR_OK && source != NULL) {
        source->address_sum = ashlar__random_mix(source->address_sum + (uintptr_t)*out);
    }
    return status;
}

/* Give a buffer back in stream order: queued work may still use it. ptr may be NULL. */
static inline ASHLAR_MUST_CHECK ashlar_status ashlar__buffer_give(ashlar_buffer_source *source,
                                                                  ashlar_allocator *base,
                                                                  void *ptr) {
    const ashlar_buffer_hooks *hooks = source != NULL ? source->hooks : NULL;
    return hooks != NULL && hooks->give != NULL && ptr != NULL
               ? hooks->give(hooks->context, base, ptr)
               : ashlar_free(base, ptr);
}

/* ---- weights ---- */

/*
 * A model's weights as one list: declared in an arena, bound to the model's views, and
 * drawn (internal).
 */

/* A matrix [rows, cols], a bias [rows] or a stack of layers. */
typedef struct ashlar_weight {
    const char *name; /* of the tensor; of a stack: a prefix of the cell's name */
    size_t rank;      /* 2: a matrix, 1: a bias, 0: a stack */
    size_t rows, cols;
    const ashlar_rnn *stack;
    ashlar_part_kind kind;        /* how it is drawn; a bias goes with the weight before it */
    void **parameter, **gradient; /* the model's views */
} ashlar_weight;

enum { ASHLAR_WEIGHTS_MAX = 8 };

typedef struct ashlar_weights {
    ashlar_allocator *allocator;
    ashlar_stream stream;
    ashlar_dtype dtype;
    size_t count;
    ashlar_weight list[ASHLAR_WEIGHTS_MAX]; /* in the arena's order */
} ashlar_weights;

/* Create an arena of these weights, and bind the views. After a failure *arena is set, too, if the
 * arena was made by then; the caller destroys it. Errors: those of ashlar_arena_commit(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__weights_open(const ashlar_weights *weights,
                                                     unsigned regions, ashlar_arena **arena);

/* Draw all weights from `seed`, by ASHLAR_INIT_ASHLAR (<ashlar/model.h>). Stream: waits for it.
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__weights_draw(const ashlar_weights *weights,
                                                     ashlar_arena *arena, uint64_t seed);

typedef struct ashlar_model_config {
    size_t classes;   /* V, symbols of the vocabulary */
    size_t embedding; /* E */
    size_t hidden;    /* H */
    size_t layers;    /* L */
    ashlar_rnn_cell cell;
    size_t projection;  /* P, as in rnn_layout.h; 0: no projection, and P = H */
    double dropout;     /* probability 0 .. < 1, between layers, in training only */
    ashlar_dtype dtype; /* of weights and buffers */
    ashlar_rnn_algorithm algorithm;
    ashlar_rnn_math math;
} ashlar_model_config;

/* Views into the arena, which ashlar_arena_check() checks. Elements are of the model's type. */
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
    ashlar_stream stream; /* the model queues all its work here */
    ashlar_rnn *rnn;
    ashlar_ops *ops;
    void *work; /* of ops; NULL: they need none */
    ashlar_arena *arena;
    ashlar_model_views parameters;
    ashlar_model_views gradients; /* NULL pointers in a model for inference */
    const double *loss_scale;     /* multiplies the loss's gradient; in device memory; NULL: 1 */
    uint64_t dropout_seed;        /* for the next step; the trainer sets it before each step */
    size_t dropout_first, dropout_stride; /* as in ashlar_rnn_batch; set likewise */
    const uint64_t *seed_at; /* device: added to dropout_seed, if lengths are read there, too */
    ashlar_buffer_source *source; /* of the steps' buffers; NULL: the allocator */
} ashlar_model;

/* Whether a forward pass with a reserve drops outputs. */
static inline bool ashlar__model_drops(const ashlar_model *model) {
    return model->config.dropout > 0 && model->config.layers > 1;
}

/* Bytes of every buffer of one step. `reserve` and `work`, which the back end determines, need not
 * grow with the number of steps: see ashlar_rnn_sizes(). */
typedef struct ashlar_step_sizes {
    size_t x;      /* x, and dx too: [T, B, E] */
    size_t y;      /* y, and dy too: [T, B, P] */
    size_t logits; /* [T, B, V]; dlogits replace the logits */
    size_t reserve;
    size_t work;
    size_t loss_work; /* 0: the back end's loss needs none */
    bool keeps_y;     /* whether backward reads y: ashlar_rnn_backward_reads_output() */
    size_t state;     /* one set of states: h [L, B, P], then for the LSTM c [L, B, H] */
    size_t cells;     /* offset of c in a set, in bytes */
    size_t states;    /* the sets at chunk borders and two for gradients; 0: only one chunk */
} ashlar_step_sizes;

/* What one step works on: some time steps of some sequences, as batcher.h lays them out.
 * Divided into ceil(T / C) chunks of C steps, a window needs memory for one chunk and for the
 * states at the borders between chunks. A first forward pass keeps only these states. Then each
 * chunk runs forward and backward, the last one first. */
typedef struct ashlar_model_window {
    size_t steps;               /* T, 1.. */
    size_t count;               /* B, 1.. */
    size_t chunk;               /* C; 0: not split into chunks */
    const int32_t *inputs;      /* [T, B] in device memory */
    const int32_t *targets;     /* [T, B] in device memory */
    const int32_t *lengths;     /* [chunks, B] in device memory, each 0 .. the chunk's steps */
    const int32_t *rnn_lengths; /* `lengths` on the host, with 1 for each 0; read during the call */
    const int32_t *rnn_lengths_at; /* rnn_lengths in device memory, read when the work runs, so that
                                    * the work can be captured; NULL: read those on the host */
    double weight;              /* of each position's loss; 0, without chunks only: 1 / tokens */
    const double *weight_at;    /* the weight in device memory; NULL: take `weight` */
    const void *first;          /* the set of states before the window; NULL: zeros */
    void *last;                 /* receives the set after the window; NULL: not wanted */
    bool is_test; /* only compute the loss, without dropout, in the buffers of a training step. If
                   * the model has dropout, let `sizes` be those of the longest window: with others
                   * one more buffer may be taken */
} ashlar_model_window;

/* Build the model and take memory for its weights from `allocator`. The weights are 0 until they
 * are initialised or loaded.
 *
 * regions   of the arena: ASHLAR_REGIONS_INFERENCE, or ASHLAR_REGIONS_ALL for training
 *
 * Ownership: *out is the caller's; the allocator and the stream must outlive it.
 * Errors:    ASHLAR_EINVAL, ASHLAR_EOVERFLOW (config), ASHLAR_ENOTSUP (a CUDA device),
 *            ASHLAR_ENOMEM, ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__model_create(ashlar_allocator *allocator,
                                                     ashlar_stream stream,
                                                     const ashlar_model_config *config,
                                                     unsigned regions, ashlar_model **out);
void ashlar__model_destroy(ashlar_model *model); /* NULL is allowed */

/* Fill the weights from `seed`, all uniform: recurrent layers in +-1/sqrt(H) and the linear layer
 * in +-1/sqrt(P), as PyTorch does; the embedding in +-sqrt(3), a standard deviation of 1 (PyTorch
 * draws it from a normal distribution). In an LSTM the first of each forget gate's two biases is
 * raised by 1. */
ASHLAR_MUST_CHECK ashlar_status ashlar__model_init_weights(ashlar_model *model, uint64_t seed);

/* Sizes of a step of `steps` x `batch` without chunks. Errors: ASHLAR_EINVAL, ASHLAR_EOVERFLOW. */
ASHLAR_MUST_CHECK ashlar_status ashlar__model_sizes(const ashlar_model *model, size_t steps,
                                                    size_t batch, ashlar_step_sizes *sizes);

/* The same in chunks of `chunk` time steps; 0: without chunks. Errors: as above. */
ASHLAR_MUST_CHECK ashlar_status ashlar__model_chunk_sizes(const ashlar_model *model, size_t steps,
                                                          size_t batch, size_t chunk,
                                                          ashlar_step_sizes *sizes);

/* Queue forward and backward of a window. Gradients are ADDED to the arena's gradient region, and
 * the loss, weight * the sum over all positions, to *loss.
 *
 * sizes   at least those of the window's shape; a warm-up uses larger ones
 * loss    device memory
 *
 * Errors: those of ashlar_alloc(), ashlar_launch(), ashlar_rnn_forward(). All buffers are
 *         given back, also on failure. */
ASHLAR_MUST_CHECK ashlar_status ashlar__model_step(ashlar_model *model,
                                                   const ashlar_model_window *window,
                                                   const ashlar_step_sizes *sizes, double *loss);

/* The most bytes that a step of these sizes holds at once, each buffer rounded up as in a plan. */
uint64_t ashlar__model_step_peak(bool in_chunks, const ashlar_step_sizes *sizes);

/* Take and give back every buffer of a step of these sizes, in the step's order, without its work.
 * Errors: those of ashlar_alloc(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__model_dry_run(ashlar_model *model, bool in_chunks,
                                                      const ashlar_step_sizes *sizes);

#endif /* ASHLAR_TEXT_MODEL_H */
