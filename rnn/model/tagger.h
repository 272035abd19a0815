/*
 * tagger.h - a model that tags words by what they are and how they are spelt (internal).
 *
 *     of each word        its characters' vectors -> RNN, its last states of each direction
 *     of each sentence    words' vectors beside those states -> RNN -> linear layer -> log-softmax
 *
 * With label feedback the linear layer also reads a vector of the label predicted for the word
 * before (zeros for the first), so that words are labelled one after the other. In the gradient
 * that label is a constant. Training, too, feeds back the predicted label, not the right one.
 *
 * All weights lie in one arena, under PyTorch's names:
 *
 *     char_embedding.weight [A, E_c]    char_lstm.* (or char_gru.* ...), input E_c, hidden H_c
 *     word_embedding.weight [V, E_w]    lstm.* (or gru.* ...), input E_w + D*H_c, hidden H
 *     label_embedding.weight [K, F]     linear.weight [K, D*P + F], linear.bias [K]
 *
 * Every buffer of a step is allocated anew and freed as soon as the step is done with it;
 * tagger_memory.h says when, for the step, its dry run and the estimate alike.
 *
 * Threads: one at a time per tagger.
 */
#ifndef ASHLAR_TAGGER_H
#define ASHLAR_TAGGER_H

#include <ashlar/arena.h>
#include <ashlar/rnn.h>

#include "rnn/layer/ops.h"
#include "rnn/data/tagger_batch.h"
#include "rnn/model/tagger_memory.h"

typedef struct ashlar_tagger_config {
    size_t words;               /* V, symbols of the vocabularies */
    size_t characters;          /* A */
    size_t tags;                /* K */
    size_t word_embedding;      /* E_w */
    size_t character_embedding; /* E_c */
    size_t character_hidden;    /* H_c, of each direction */
    size_t hidden;              /* H, of each direction */
    size_t layers;              /* L, of words; of characters there is one */
    ashlar_rnn_cell cell;       /* of both */
    size_t projection;          /* of words; 0: none, and P = H */
    double dropout;             /* between layers, in training */
    size_t directions;          /* D, of both; 1 or 2 */
    size_t label_embedding;     /* F; 0: no label is fed back */
    ashlar_dtype dtype;
} ashlar_tagger_config;

/* Views into the arena, watched by ashlar_arena_check(); elements of the config's type. */
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
    ashlar_stream stream; /* everything of the tagger is queued here */
    ashlar_rnn *character_rnn, *word_rnn;
    ashlar_rnn *word_rnn_predict; /* the same without dropout, to predict with */
    ashlar_ops *ops;
    ashlar_arena *arena;
    ashlar_tagger_views parameters;
    ashlar_tagger_views gradients; /* NULL pointers in a tagger for inference */
    const double *loss_scale;      /* device memory: times the loss's gradient; NULL stands for 1 */
    uint64_t dropout_seed;         /* of the next step; the trainer changes it for each */
} ashlar_tagger;

/*
 * Build the tagger and take its weights from `allocator`: zeros, to be initialised or loaded.
 *
 * regions   of the arena, with those of parameters and, for steps that train, gradients
 *
 * Ownership: *out is the caller's; the allocator and the stream must outlive it.
 * Errors:    ASHLAR_EINVAL, ASHLAR_EOVERFLOW (config), ASHLAR_ENOTSUP (a device or type without a
 *            back end), ASHLAR_ENOMEM, ASHLAR_EHOSTMEM, ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_create(ashlar_allocator *allocator,
                                                      ashlar_stream stream,
                                                      const ashlar_tagger_config *config,
                                                      unsigned regions, ashlar_tagger **out);
void ashlar__tagger_destroy(ashlar_tagger *tagger); /* NULL is allowed */

/*
 * Fill the weights from `seed`, uniform as PyTorch does: recurrent layers in +-1/sqrt(hidden), the
 * linear layer in +-1/sqrt(input), embeddings in +-sqrt(3), a standard deviation of 1; an LSTM's
 * forget gates' biases raised by 1 in all.
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER.  Stream: waits for it.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_init_weights(ashlar_tagger *tagger, uint64_t seed);

/*
 * Bytes of every buffer of a step of that shape.
 *
 * Errors: ASHLAR_EINVAL (a 0 in the shape), ASHLAR_EOVERFLOW. *sizes is written only on ASHLAR_OK.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_sizes(const ashlar_tagger *tagger,
                                                     const ashlar_tagger_shape *shape,
                                                     ashlar_tagger_bytes *sizes);

/*
 * Queue forward and backward of one batch.
 *
 * batch    the call reads its data, the stream its device memory: the caller has queued the copy
 *          from one to the other
 * sizes    at least those of the batch's shape; larger ones are what a warm-up uses
 * weight   of each word's loss; 0 stands for 1 / batch->tokens
 * loss     device memory, ADDED TO, as the arena's gradient region is: the caller clears both
 *
 * Errors: those of ashlar_alloc(), ashlar_launch(), ashlar_rnn_forward(). All buffers are returned.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_step(ashlar_tagger *tagger,
                                                    const ashlar_tagger_batch *batch,
                                                    const ashlar_tagger_bytes *sizes, double weight,
                                                    double *loss);

/*
 * Queue forward only, and the copy of the predicted labels [T, B] to the host; labels past a
 * sentence's end mean nothing. It takes the buffers of a training step, so that a plan of those
 * serves it. No output is dropped.
 *
 * loss     device memory, ADDED TO: the mean over the batch's words
 * labels   [T, B], host memory; valid once the stream has been waited for
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_predict(ashlar_tagger *tagger,
                                                       const ashlar_tagger_batch *batch,
                                                       const ashlar_tagger_bytes *sizes,
                                                       double *loss, int32_t *labels);

/*
 * Take and give back every buffer of a step of these sizes, in the step's order, without its work.
 * Errors: those of ashlar_alloc().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_dry_run(ashlar_tagger *tagger,
                                                       const ashlar_tagger_bytes *sizes);

#endif /* ASHLAR_TAGGER_H */
