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
 * below says when.
 *
 * Threads: one at a time per tagger. */
#ifndef ASHLAR_TAGGER_H
#define ASHLAR_TAGGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <ashlar/allocator.h>
#include <ashlar/arena.h>
#include <ashlar/model.h>
#include <ashlar/rnn.h>

#include "rnn/data/tagger_corpus.h"
#include "rnn/model/model.h"

/* ---- tagger memory ---- */

/*
 * The buffers that a step of the tagger takes, the phases that need them, and the
 * memory that a training needs (internal).
 *
 * One table lists all buffers: the step and its dry run follow it, the estimate adds it up. The
 * estimate is computed from the configuration and the shape of the largest batch, without an
 * allocator, so that an allocator's real use can be compared with it:
 *
 *     needed = bytes of the arena's regions + of the batches in device memory
 *            + the most that a step's buffers hold in one phase
 */

/* The phases of a step, in order: name, description.
 *
 * A buffer is taken when its first phase begins and given back when its last one ends. With label
 * feedback, TOKEN runs once for each of the T tokens; each run takes and gives back the buffers
 * whose only phase is TOKEN. Without label feedback, LABEL does the same work for all tokens at
 * once.
 *
 * On a CUDA device backward reads the outputs, which therefore live until CHAR_WEIGHTS and
 * WORD_WEIGHTS. */
#define ASHLAR_TAGGER_PHASE_MAP(X)                             \
    X(CHAR_FORWARD, "characters, forward")                     \
    X(CONCAT, "join words and spellings")                      \
    X(WORD_FORWARD, "words, forward")                          \
    X(LABEL, "linear layer and loss, both ways")               \
    X(TOKEN, "the same token by token")                        \
    X(WORD_BACKWARD, "words, backward to the data")            \
    X(WORD_WEIGHTS, "words, backward to the weights")          \
    X(SPLIT, "split words and spellings")                      \
    X(CHAR_BACKWARD, "characters, backward to the data")       \
    X(CHAR_EMBEDDING, "characters, backward to the embedding") \
    X(CHAR_WEIGHTS, "characters, backward to the weights")

#define ASHLAR_TAGGER_PHASE_ENUM(name, text) ASHLAR_TAGGER_##name,
typedef enum ashlar_tagger_phase {
    ASHLAR_TAGGER_PHASE_MAP(ASHLAR_TAGGER_PHASE_ENUM) ASHLAR_TAGGER_PHASE_COUNT
} ashlar_tagger_phase;

/* Name, text, shape, tag, first and last phase of every buffer. T, B and C are as in
 * tagger_corpus.h, the other letters as in tagger.h. Elements are of the tagger's type unless the
 * shape says int32. The batch itself is not listed: it is there before the step begins. */
#define ASHLAR_TAGGER_BUFFER_MAP(X)                                                                \
    X(CHAR_INPUTS, "characters' vectors", "[C, T*B, E_c]", ACTIVATIONS, CHAR_FORWARD,              \
      CHAR_WEIGHTS)                                                                                \
    X(CHAR_RESERVE, "characters' reserve", "of the RNN", SAVED, CHAR_FORWARD, CHAR_WEIGHTS)        \
    X(CHAR_OUTPUTS, "characters' outputs", "[C, T*B, D*H_c]", ACTIVATIONS, CHAR_FORWARD,           \
      CHAR_FORWARD)                                                                                \
    X(CHAR_STATES, "characters' last states", "[D, T*B, H_c]", ACTIVATIONS, CHAR_FORWARD, CONCAT)  \
    X(CHAR_FORWARD_WORK, "workspace, CHAR_FORWARD", "of the RNN", WORKSPACE, CHAR_FORWARD,         \
      CHAR_FORWARD)                                                                                \
    X(WORD_VECTORS, "words' vectors", "[T, B, E_w]", ACTIVATIONS, CONCAT, CONCAT)                  \
    X(WORD_INPUTS, "words with spellings", "[T, B, E_w + D*H_c]", ACTIVATIONS, CONCAT,             \
      WORD_WEIGHTS)                                                                                \
    X(WORD_RESERVE, "words' reserve", "of the RNN", SAVED, WORD_FORWARD, WORD_WEIGHTS)             \
    X(WORD_OUTPUTS, "words' outputs", "[T, B, D*P]", ACTIVATIONS, WORD_FORWARD, TOKEN)             \
    X(WORD_FORWARD_WORK, "workspace, WORD_FORWARD", "of the RNN", WORKSPACE, WORD_FORWARD,         \
      WORD_FORWARD)                                                                                \
    X(LABELS, "predicted labels", "int32 [T, B]", ACTIVATIONS, LABEL, TOKEN)                       \
    X(WORD_DOUTPUTS, "their gradient", "[T, B, D*P]", ACTIVATIONS, LABEL, WORD_BACKWARD)           \
    X(LOGITS, "logits", "[T, B, K]", ACTIVATIONS, LABEL, LABEL)                                    \
    X(LOSS_WORK, "workspace, loss", "of the loss", WORKSPACE, LABEL, LABEL)                        \
    X(TOKEN_LABELS, "a token's label vectors", "[B, F]", ACTIVATIONS, TOKEN, TOKEN)                \
    X(TOKEN_INPUTS, "outputs with those", "[B, D*P + F]", ACTIVATIONS, TOKEN, TOKEN)               \
    X(TOKEN_LOGITS, "a token's logits", "[B, K]", ACTIVATIONS, TOKEN, TOKEN)                       \
    X(TOKEN_WORK, "workspace, a token's loss", "of the loss", WORKSPACE, TOKEN, TOKEN)             \
    X(TOKEN_DINPUTS, "gradient of outputs with labels", "[B, D*P + F]", ACTIVATIONS, TOKEN, TOKEN) \
    X(WORD_DINPUTS, "gradient of words with spellings", "[T, B, E_w + D*H_c]", ACTIVATIONS,        \
      WORD_BACKWARD, SPLIT)                                                                        \
    X(WORD_BACKWARD_WORK, "workspace, WORD_BACKWARD", "of the RNN", WORKSPACE, WORD_BACKWARD,      \
      WORD_BACKWARD)                                                                               \
    X(WORD_WEIGHTS_WORK, "workspace, WORD_WEIGHTS", "of the RNN", WORKSPACE, WORD_WEIGHTS,         \
      WORD_WEIGHTS)                                                                                \
    X(WORD_DVECTORS, "gradient of words' vectors", "[T, B, E_w]", ACTIVATIONS, SPLIT, SPLIT)       \
    X(CHAR_DSTATES, "gradient of the last states", "[D, T*B, H_c]", ACTIVATIONS, SPLIT,            \
      CHAR_BACKWARD)                                                                               \
    X(CHAR_BACKWARD_WORK, "workspace, CHAR_BACKWARD", "of the RNN", WORKSPACE, CHAR_BACKWARD,      \
      CHAR_BACKWARD)                                                                               \
    X(CHAR_DINPUTS, "gradient of characters' vectors", "[C, T*B, E_c]", ACTIVATIONS,               \
      CHAR_BACKWARD, CHAR_EMBEDDING)                                                               \
    X(CHAR_WEIGHTS_WORK, "workspace, CHAR_WEIGHTS", "of the RNN", WORKSPACE, CHAR_WEIGHTS,         \
      CHAR_WEIGHTS)

#define ASHLAR_TAGGER_BUFFER_ENUM(name, ...) ASHLAR_TAGGER_BUFFER_##name,
typedef enum ashlar_tagger_buffer {
    ASHLAR_TAGGER_BUFFER_MAP(ASHLAR_TAGGER_BUFFER_ENUM) ASHLAR_TAGGER_BUFFER_COUNT
} ashlar_tagger_buffer;

typedef struct ashlar_tagger_buffer_info {
    const char *text;
    ashlar_tag tag;
    ashlar_tagger_phase first, last;
} ashlar_tagger_buffer_info;

extern const ashlar_tagger_buffer_info ashlar__tagger_buffers[ASHLAR_TAGGER_BUFFER_COUNT];

/* Bytes of every buffer of a step; a buffer of 0 bytes is not taken. */
typedef struct ashlar_tagger_bytes {
    size_t of[ASHLAR_TAGGER_BUFFER_COUNT];
    size_t steps;       /* T: how often TOKEN runs in a dry run */
    bool keeps_outputs; /* for backward; see ashlar_rnn_backward_reads_output() */
} ashlar_tagger_bytes;

/* A buffer's last phase: the one in the table, or a later one for outputs that backward reads. */
ashlar_tagger_phase ashlar__tagger_last_phase(const ashlar_tagger_bytes *bytes,
                                              ashlar_tagger_buffer buffer);

/* Bytes of all buffers that are live in a phase. */
size_t ashlar__tagger_bytes_at(const ashlar_tagger_bytes *bytes, ashlar_tagger_phase phase);

/* The phase that needs the most bytes; if several do, the first of these. */
ashlar_tagger_phase ashlar__tagger_peak_phase(const ashlar_tagger_bytes *bytes);

typedef struct ashlar_tagger ashlar_tagger; /* tagger.h */

typedef struct ashlar_tagger_estimate {
    const ashlar_tagger *tagger;
    ashlar_tagger_shape shape;
    ashlar_tagger_bytes buffers;
    ashlar_tagger_phase peak;
    size_t weights_bytes; /* of all regions of the arena */
    size_t batches_bytes; /* of all batches in device memory */
    size_t step_bytes;    /* of a step's buffers, at the peak */
    size_t needed_bytes;
} ashlar_tagger_estimate;

/* Estimate the memory of a training whose largest batch has `shape`.
 *
 * batches   how many are in device memory at once: this step's, and those being copied
 *
 * Ownership: the tagger must outlive *out.  Errors: those of ashlar__tagger_sizes(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_estimate_make(const ashlar_tagger *tagger,
                                                             const ashlar_tagger_shape *shape,
                                                             size_t batches,
                                                             ashlar_tagger_estimate *out);

/* Print every region and buffer with its bytes and phases, then the needed bytes beside the
 * measured ones.
 *
 * measured_bytes   taken from the device; 0: not measured */
void ashlar__tagger_estimate_print(FILE *out, const ashlar_tagger_estimate *estimate,
                                   uint64_t measured_bytes);

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
