/* text_model.h - the character model, declared on the engine: embedding, recurrent layers, linear
 * layer, softmax cross-entropy (internal). */
#ifndef ASHLAR_TEXT_MODEL_H
#define ASHLAR_TEXT_MODEL_H

#include <ashlar/model.h>

typedef struct ashlar_text_model_config {
    size_t classes;   /* V, symbols of the vocabulary */
    size_t embedding; /* E */
    size_t hidden;    /* H */
    size_t layers;    /* L */
    ashlar_rnn_cell cell;
    size_t projection;  /* P, as in rnn.h; 0: no projection, and P = H */
    double dropout;     /* 0 .. < 1, between layers, in training only */
    ashlar_dtype dtype; /* of weights and activations */
    ashlar_rnn_algorithm algorithm;
    ashlar_rnn_math math;
} ashlar_text_model_config;

/* The model's inputs and its output, by their numbers. */
enum { ASHLAR_TEXT_TOKENS, ASHLAR_TEXT_TARGETS, ASHLAR_TEXT_INPUT_COUNT };
enum { ASHLAR_TEXT_LOGITS, ASHLAR_TEXT_OUTPUT_COUNT };

/* Declare the model and commit it with `regions`; its weights are 0. Their names are
 * "embedding.weight", those of ashlar_rnn_declare() behind the cell's name, "linear.weight" and
 * "linear.bias". Ownership: the caller's. Errors: those of ashlar_model_commit(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__text_model_create(ashlar_allocator *allocator,
                                                          ashlar_stream stream,
                                                          const ashlar_text_model_config *config,
                                                          unsigned regions, ashlar_model **out);

#endif /* ASHLAR_TEXT_MODEL_H */
