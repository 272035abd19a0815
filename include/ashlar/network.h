/* network.h - a whole recurrent network, with one call for a training step and one for a
 * prediction: an embedding or plain inputs, a stack of recurrent layers, a linear layer, a loss.
 *
 *     x = embedding[tokens], or the inputs    y, h = RNN(x)    outputs = (y, or the last h) W^T + b
 *
 * It is made of the parts of rnn.h and model.h, which a program may put together otherwise. All
 * weights lie in one arena, under PyTorch's names, so that optimizer.h, checkpoint.h and reduce.h
 * work on them. Each call takes its buffers from the allocator and gives them back before it
 * returns, so that plan.h and warmup.h can serve them from a plan: after the warm-up they need no
 * call of the driver.
 *
 * Threads: one at a time per network.
 * Stream:  all calls on one stream, or on streams that wait for each other: on a CUDA device they
 *          share the workspace that the network takes for cuBLAS. */
#ifndef ASHLAR_NETWORK_H
#define ASHLAR_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/arena.h>
#include <ashlar/model.h>
#include <ashlar/rnn_layout.h>

ASHLAR_BEGIN_DECLS

typedef struct ashlar_network ashlar_network;

typedef enum ashlar_network_loss {
    ASHLAR_NETWORK_CROSS_ENTROPY, /* targets are classes 0..O-1; negative: ignored */
    ASHLAR_NETWORK_SQUARED_ERROR, /* targets are vectors of O elements */
    ASHLAR_NETWORK_LOSS_COUNT
} ashlar_network_loss;

typedef struct ashlar_network_config {
    ashlar_rnn_config layers; /* input, hidden and layers must be given */
    size_t classes;           /* V, of an embedding in layers.input dimensions; 0: no embedding */
    size_t outputs;           /* O, 1.. */
    ashlar_network_loss loss; /* the mean over the valid positions or elements (model.h) */
    bool last_only; /* one output for each sequence, from its last state; else one for each
                     * position */
} ashlar_network_config;

/* A padded batch. Nothing is read past the lengths. With last_only, T is 1 in the shapes of targets
 * and outputs. */
typedef struct ashlar_network_batch {
    size_t steps;           /* T, 1.. */
    size_t batch;           /* B, 1.. */
    const int32_t *lengths; /* [B] in host memory, each 1..T, copied; NULL: all are T */
    const void *inputs;     /* device: tokens int32 [T, B], or without an embedding [T, B, I] */
    const void *targets;    /* device: int32 [T, B], or [T, B, O]; step only */
    double *loss;           /* device; step only */
    const double *scale;    /* device: multiplies the loss's gradient; NULL: 1; step only */
    void *outputs;          /* device: [T, B, O]; step: may be NULL */
    uint64_t dropout_seed;  /* as in ashlar_rnn_batch */
    bool accumulates;       /* step: gradients and loss are added to what is there; else they are
                             * cleared first */
} ashlar_network_batch;

/* Make a network and take memory for its weights, which are 0 until they are drawn, loaded or
 * copied. Their names: "embedding.weight", those of ashlar_rnn_declare() behind the cell's name,
 * "linear.weight", "linear.bias".
 *
 * regions   of the arena: ASHLAR_REGIONS_INFERENCE, ASHLAR_REGIONS_ALL, or what
 *           ashlar_optimizer_regions() says
 *
 * Ownership: the caller owns *out; the allocator must outlive it.
 * Stream:    the regions are cleared on `stream`.
 * Errors:    ASHLAR_EINVAL (config), and those of ashlar_rnn_create(), ashlar_ops_create() and
 *            ashlar_arena_commit(). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_network_create(ashlar_allocator *allocator, const ashlar_network_config *config,
                      unsigned regions, ashlar_stream stream, ashlar_network **out);
ASHLAR_API void ashlar_network_destroy(ashlar_network *network); /* NULL is allowed */

/* The arena of the weights. Ownership: the network's. */
ASHLAR_API ashlar_arena *ashlar_network_arena(const ashlar_network *network);

/* Draw all weights. Stream, errors, cost: as ashlar_init_weights(). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_network_init(ashlar_network *network,
                                                               ashlar_init_rule rule, uint64_t seed,
                                                               ashlar_stream stream);

/* Queue one of:
 *
 *   step      forward and backward: gradients go to the arena's gradient region, the mean loss to
 *             *loss
 *   predict   forward only: outputs, without dropout
 *
 * Stream: queued; buffers are taken for `stream`, and given back before the call returns. It cannot
 *         be captured, since the lengths are copied from the host: ASHLAR_EINVAL.
 * Errors: ASHLAR_EINVAL (steps, batch, a length outside 1..T, a buffer that is NULL or, on a
 *         software device, in the wrong memory: the detail names it; step: the arena has no
 *         gradients), ASHLAR_EOVERFLOW, and those of ashlar_alloc(), ashlar_rnn_forward() and the
 *         operations of model.h. Some gradients may have been written then. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_network_step(ashlar_network *network,
                                                               const ashlar_network_batch *batch,
                                                               ashlar_stream stream);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_network_predict(ashlar_network *network,
                                                                  const ashlar_network_batch *batch,
                                                                  ashlar_stream stream);

/* Prepare the recurrent layers' weights for predictions (ashlar_rnn_prepare()), which pays before
 * several with the same weights. Predictions read the weights that were prepared last, also if they
 * have been loaded or set anew since: then prepare them again. ashlar_network_step() ends this;
 * predictions after it read the weights themselves. Memory for it is taken once, and kept until the
 * network is destroyed.
 *
 * Stream: queued; let predictions on other streams wait for it.  Threads: one at a time.
 * Errors: those of ashlar_alloc() and ashlar_rnn_prepare(); predictions then read the weights
 *         themselves. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_network_prepare(ashlar_network *network,
                                                                  ashlar_stream stream);

ASHLAR_END_DECLS

#endif /* ASHLAR_NETWORK_H */
