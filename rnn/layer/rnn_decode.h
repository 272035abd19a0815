/* rnn_decode.h - one time step of a language model on the CPU: embedding, layers and linear layer
 * in one call, with weights that were packed once (internal).
 *
 * A pass of few rows (rnn_cpu.h, blas.h) packs weights anew or reads them as they are, and is
 * queued operation by operation. Text is written step by step with the same weights, so here they
 * are packed before the first step, each thread always reads the same part of a matrix, which its
 * core's cache may keep, and a layer's two products are one piece of work.
 *
 * The logits and states have the bits of one long forward pass over the same tokens (with 4 rows or
 * more), whatever the batch, and with any number of threads.
 *
 * The packed weights are the stack's prepared ones (rnn_prepared.h), and behind them the linear
 * layer's W^T in panels.
 */
#ifndef ASHLAR_RNN_DECODE_H
#define ASHLAR_RNN_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/rnn.h>

#include "rnn/layer/rnn_prepared.h"

/* A model's weights, in plain memory. All elements are of type layout->config.dtype. */
typedef struct ashlar_decode_model {
    const ashlar_rnn_layout *layout; /* of one direction */
    size_t classes;                  /* V */
    bool is_bf16;                    /* packed matrices are bf16; only for fp32 */
    const void *table;               /* [V, I] */
    const void *stack;               /* packed order, rnn_layout.h */
    const void *weight;              /* [V, P] of the linear layer */
    const void *bias;                /* [V] */
    void *packed;                    /* ashlar__decode_packed_bytes(), aligned to 64 bytes */
} ashlar_decode_model;

/* A step. No function here allocates, fails or keeps anything. */
typedef struct ashlar_decode_args {
    ashlar_decode_model model;
    size_t batch;          /* B, 1.. */
    const int32_t *tokens; /* [B], each 0 .. V-1 */
    const void *h, *c;     /* before the step: [L, B, P] and [L, B, H]; c for an LSTM only */
    void *next_h, *next_c; /* after it; apart from the others */
    void *logits;          /* [B, V] */
    void *work;            /* ashlar__decode_work_bytes(), aligned to 64 bytes */
} ashlar_decode_args;

/* Bytes of packed weights, and of work for a batch. They fit in a size_t if the stack, the linear
 * layer and a step's own buffers do. */
size_t ashlar__decode_packed_bytes(const ashlar_rnn_layout *layout, bool is_bf16, size_t classes);
size_t ashlar__decode_work_bytes(const ashlar_rnn_layout *layout, size_t batch);

/* Where the parts of work lie, offsets in bytes. */
typedef struct ashlar_decode_work {
    size_t x;     /* [B, I] */
    size_t gates; /* [B, K] */
    size_t sums;  /* GRU: [B, 3H], R h */
    size_t full;  /* with a projection: [B, H], h' before it */
    size_t end;
} ashlar_decode_work;
ashlar_decode_work ashlar__decode_work(const ashlar_rnn_layout *layout, size_t batch);

/* The functions of an element type and an instruction set (meson.build).
 *
 * pack   read the weights, and fill model->packed
 * step   one time step. Threads: any, on distinct outputs and work; the workers share it */
typedef struct ashlar_decoder {
    void (*pack)(const ashlar_decode_model *model);
    void (*step)(const ashlar_decode_args *args);
} ashlar_decoder;

#define ASHLAR_DECLARE_DECODERS(set)                       \
    extern const ashlar_decoder ashlar__decoder_f32_##set; \
    extern const ashlar_decoder ashlar__decoder_f64_##set;
ASHLAR_DECLARE_DECODERS(baseline)
ASHLAR_DECLARE_DECODERS(avx2)
ASHLAR_DECLARE_DECODERS(avx512)
ASHLAR_DECLARE_DECODERS(neon)

/* The functions of a type, for the best set that this processor can run. NULL: the CPU does not
 * compute in that type. */
const ashlar_decoder *ashlar__decoder_of(ashlar_dtype dtype);

#endif /* ASHLAR_RNN_DECODE_H */
