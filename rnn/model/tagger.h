/* tagger.h - a model that tags words by the words themselves and by their spelling (internal).
 *
 *     each word        vectors of its characters -> RNN -> last state of each direction
 *     each sentence    its words' vectors, with the states of their characters
 *                      -> RNN -> linear layer -> log-softmax
 *
 * With label feedback the linear layer also reads a vector of the label predicted for the previous
 * word (zeros for the first word), so that words are labelled one after the other. The gradient
 * treats the fed-back label as a constant. Training, too, feeds back the predicted label, not the
 * right one.
 *
 * All weights lie in one arena, under PyTorch's names:
 *
 *     char_embedding.weight [A, E_c]    char_lstm.* (or char_gru.* ...), input E_c, hidden H_c
 *     word_embedding.weight [V, E_w]    lstm.* (or gru.* ...), input E_w + D*H_c, hidden H
 *     label_embedding.weight [K, F]     linear.weight [K, D*P + F], linear.bias [K]
 *
 * Every buffer of a step is allocated anew and freed as soon as the step is done with it; the table
 * in tagger_memory.h says when.
 *
 * Threads: one at a time per tagger. */
#ifndef ASHLAR_TAGGER_H
#define ASHLAR_TAGGER_H

#include <ashlar/arena.h>
#include <ashlar/model.h>
#include <ashlar/rnn.h>

#include "rnn/data/tagger_batch.h"
#include "rnn/model/buffer_source.h"
#include "rnn/model/tagger_memory.h"

typedef struct ashlar_tagger_config {
    size_t words;               /* V, number of words */
    size_t characters;          /* A, number of characters */
    size_t tags;                /* K, number of tags */
    size_t word_embedding;      /* E_w */
    size_t character_embedding; /* E_c */
    size_t character_hidden;    /* H_c, of each direction */
    size_t hidden;              /* H, of each direction */
    size_t layers;              /* L, of the words' RNN; the characters' RNN has one */
    ashlar_rnn_cell cell;       /* of both RNNs */
    size_t projection;          /* P, of the words' RNN; 0: no projection, and P = H */
    double dropout;             /* between layers of the words' RNN, in training only */
    size_t directions;          /* D, of both RNNs; 1 or 2 */
    size_t label_embedding;     /* F; 0: no label is fed back */
    ashlar_dtype dtype;
    ashlar_rnn_algorithm algorithm;
    ashlar_rnn_math math;
} ashlar_tagger_config;

/* Views into the arena, which ashlar_arena_check() checks. Elements are of the config's type. */
typedef struct ashlar_tagger_views {
    void *character_embedding, *character_stack;
    void *word_embedding, *word_stack;
    void *label_embedding; /* NULL without feedback */
    void *weight, *bias;
} ashlar_tagger_views;

typedef struct ashlar_tagger {
    ashlar_tagger_config config;
    ashlar_device *device;
    ashlar_allocator *allocator;
    ashlar_stream stream; /* the tagger queues all its work here */
    ashlar_rnn *character_rnn, *word_rnn;
    ashlar_rnn *word_rnn_predict; /* word_rnn without dropout, for predictions */
    ashlar_ops *ops;
    void *work; /* of ops; NULL: they need none */
    ashlar_arena *arena;
    ashlar_tagger_views parameters;
    ashlar_tagger_views gradients; /* NULL pointers in a tagger for inference */
    const double *loss_scale;      /* multiplies the loss's gradient; in device memory; NULL: 1 */
    uint64_t dropout_seed;         /* for the next step; the trainer sets it before each step */
    size_t dropout_first, dropout_stride; /* as in ashlar_rnn_batch; set likewise */
    /* In device memory. weight_at: the weight of each word's loss, in place of the step's argument;
     * seed_at: what is added to dropout_seed. With these, a step's calls depend on nothing but its
     * batch's shape, and can be captured. Both NULL: not wanted */
    const double *weight_at;
    const uint64_t *seed_at;
    ashlar_buffer_source *source; /* of the steps' buffers; NULL: the allocator */
} ashlar_tagger;

/* As ashlar__model_create(), ashlar__model_init_weights() and ashlar__model_sizes() (model.h). The
 * linear layer's initial weights are in +-1/sqrt(number of its inputs). */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_create(ashlar_allocator *allocator,
                                                      ashlar_stream stream,
                                                      const ashlar_tagger_config *config,
                                                      unsigned regions, ashlar_tagger **out);
void ashlar__tagger_destroy(ashlar_tagger *tagger); /* NULL is allowed */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_init_weights(ashlar_tagger *tagger, uint64_t seed);
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_sizes(const ashlar_tagger *tagger,
                                                     const ashlar_tagger_shape *shape,
                                                     ashlar_tagger_bytes *sizes);

/* Queue forward and backward of one batch, as ashlar__model_step() does of a window.
 *
 * batch    the call reads batch->data, the queued work reads batch->device: the caller must have
 *          queued the copy from the one to the other
 * weight   of each word's loss; 0 stands for 1 / batch->tokens */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_step(ashlar_tagger *tagger,
                                                    const ashlar_tagger_batch *batch,
                                                    const ashlar_tagger_bytes *sizes, double weight,
                                                    double *loss);

/* Queue forward only, and the copy of the predicted labels [T, B] to the host; labels past a
 * sentence's end are undefined. It takes the same buffers as a training step, so that the plan of a
 * training step serves it too. Dropout is off.
 *
 * loss     device memory, ADDED TO: the mean over the batch's words
 * labels   [T, B], host memory; valid after the caller has waited for the stream */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_predict(ashlar_tagger *tagger,
                                                       const ashlar_tagger_batch *batch,
                                                       const ashlar_tagger_bytes *sizes,
                                                       double *loss, int32_t *labels);

/* Take and give back every buffer of a step of these sizes, in the step's order, without its work.
 * Errors: those of ashlar_alloc(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_dry_run(ashlar_tagger *tagger,
                                                       const ashlar_tagger_bytes *sizes);

#endif /* ASHLAR_TAGGER_H */
