/*
 * model.h - what a model has besides recurrent layers: embedding, linear layer, losses, argmax,
 * sampling, and the first values of weights.
 *
 * As in rnn.h every buffer is the caller's, and forward and backward are calls of their own that
 * are queued on a stream. Batches are padded and time-major: [T, B, ...], with the lengths of the B
 * sequences. Positions past a length are neither read nor counted. What is to be added up over
 * several steps (gradients of weights, a loss) is ADDED TO; clear it by ashlar_fill() before.
 *
 * A model is an arena of weights, an ashlar_rnn, an ashlar_ops, and a function that calls them; the
 * usual one, made of these parts, is ashlar_network, at the end of this file.
 */
#ifndef ASHLAR_MODEL_H
#define ASHLAR_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/rnn.h>

ASHLAR_BEGIN_DECLS

/* ---- operations on a device ---- */

typedef struct ashlar_ops ashlar_ops;

/* Make the operations of a device on elements of one type. A software device computes on the CPU; a
 * CUDA device uses the build's kernels and cuBLAS (libcublas.so.13 or .so.12, or the file that the
 * environment's ASHLAR_CUBLAS names), which multiplies fp32 in fp32. An ashlar_ops holds no weights
 * and no memory of an allocator, but may be given some: ashlar_ops_set_work().
 *
 * Ownership: the caller owns *out; the device must outlive it. ashlar_ops_destroy() waits for a
 *            CUDA device; NULL is allowed.
 * Threads:   any.
 * Errors:    ASHLAR_ENOTSUP (a CUDA device in a build without nvcc, or without cuBLAS; a type that
 *            the device cannot compute in: on the CPU all but F32 and F64), ASHLAR_EHOSTMEM; on a
 *            CUDA device also ASHLAR_EDRIVER, ASHLAR_ENOMEM. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_ops_create(ashlar_device *device,
                                                             ashlar_dtype dtype, ashlar_ops **out);
ASHLAR_API void ashlar_ops_destroy(ashlar_ops *ops);

/* Give the operations device memory to work in. Without it cuBLAS takes memory from the driver
 * itself, at the first products and whenever it likes, and embedding_backward compares more (see
 * there). All linear layers and embeddings of `ops` must then be queued on one stream, or on
 * streams that wait for each other, for they use the same memory.
 *
 * ashlar_ops_work_bytes(): how much is of use: 0 on a software device; on a CUDA device what
 * cuBLAS's documentation recommends, 4 MiB, or 32 MiB from compute capability 9.0 on.
 *
 * work    device memory, aligned to 256 bytes, which must outlive `ops` or the next call of this;
 *         NULL: none from here on
 * bytes   the size of `work`; less than ashlar_ops_work_bytes() makes products slower
 *
 * Ownership: the caller's. Work that is queued still uses the memory before it.
 * Threads:   no other call with `ops` may be under way.
 * Errors:    ASHLAR_EINVAL (not aligned; 0 bytes of memory). */
ASHLAR_API size_t ashlar_ops_work_bytes(const ashlar_ops *ops);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_ops_set_work(ashlar_ops *ops, void *work,
                                                               size_t bytes);

/* The structures below hold the arguments of one operation. All pointers in them are to device
 * memory; void pointers are to elements of the ops' type. The call copies its structure; buffers
 * are in use until the queued work has run. Each call uses only the fields whose comment names it.
 * Outputs are overwritten unless the comment says ADDED TO. An output must not overlap an input
 * unless the comment allows it.
 *
 * Of all these operations:
 *
 *   Stream:  queued on `stream`; the host does not wait. They may be captured.
 *   Threads: any.
 *   Errors:  ASHLAR_EINVAL (a size of 0; a buffer that the call needs is NULL or, on a software
 *            device, one that is neither device memory nor page-locked: the detail names it),
 *            ASHLAR_EOVERFLOW (too large for cuBLAS), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM. Nothing
 *            is queued then, except that on a CUDA device the first parts of an operation may be.
 *   Results: the same arguments give the same bits: sums run in a fixed order. */

typedef struct ashlar_embedding_args {
    size_t steps;           /* T, 1.. */
    size_t batch;           /* B, 1.. */
    const int32_t *lengths; /* [B], each 0..T; NULL: all are T */
    size_t classes;         /* V, 1.. */
    size_t width;           /* E, 1.. */
    const int32_t *tokens;  /* [T, B], each 0..V-1 up to its length (asserted on the CPU) */
    const void *table;      /* [V, E]    forward */
    void *out;              /* [T, B, E] forward; 0 past the lengths */
    const void *dout;       /* [T, B, E] backward */
    void *dtable;           /* [V, E]    backward; ADDED TO */
} ashlar_embedding_args;

/* Forward: out = the row of the table that the position's token names. Backward: add each row of
 * dout to its token's row of dtable, in the order of positions.
 *
 * Cost: to keep that order, a CUDA device compares every token with every row, V * T * B times. If
 * that is much, and 4 * (V + T * B) bytes fit the memory of ashlar_ops_set_work(), it links the
 * positions of each token first, which takes time in T * B alone. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_embedding_forward(
    const ashlar_ops *ops, const ashlar_embedding_args *args, ashlar_stream stream);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_embedding_backward(
    const ashlar_ops *ops, const ashlar_embedding_args *args, ashlar_stream stream);

/* A padded batch [T, B, I] is a matrix of T * B rows. All rows take part, those past a length too,
 * so padding must hold neither NaN nor infinity. */
typedef struct ashlar_linear_args {
    size_t rows;        /* N, 1.. */
    size_t in;          /* I, 1.. */
    size_t out;         /* O, 1.. */
    const void *x;      /* [N, I] forward; backward, if dweight is wanted */
    const void *weight; /* [O, I] forward; backward, if dx is wanted */
    const void *bias;   /* [O]    forward; NULL: none */
    void *y;            /* [N, O] forward */
    const void *dy;     /* [N, O] backward */
    void *dx;           /* [N, I] backward; NULL: not wanted */
    void *dweight;      /* [O, I] backward; ADDED TO; NULL: not wanted */
    void *dbias;        /* [O]    backward; ADDED TO; NULL: not wanted */
} ashlar_linear_args;

/* Forward: y = x weight^T + bias. Backward: dx = dy weight, dweight += dy^T x, dbias += the sum of
 * dy's rows. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_linear_forward(const ashlar_ops *ops,
                                                                 const ashlar_linear_args *args,
                                                                 ashlar_stream stream);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_linear_backward(const ashlar_ops *ops,
                                                                  const ashlar_linear_args *args,
                                                                  ashlar_stream stream);

/* Forward and backward of a loss are one call: the gradient of the logits, or of the outputs, comes
 * with it. A position is valid if it lies before its sequence's end and, for cross-entropy, its
 * target is not negative (PyTorch's ignore_index is -100). Where none is valid, nothing is added
 * to the loss. */
typedef struct ashlar_cross_entropy_args {
    size_t steps;           /* T, 1.. */
    size_t batch;           /* B, 1.. */
    const int32_t *lengths; /* [B], each 0..T; NULL: all are T */
    size_t classes;         /* V, 1.. */
    const void *logits;     /* [T, B, V] */
    const int32_t *targets; /* [T, B], below V (asserted on the CPU); negative: ignored */
    double weight; /* of each valid position; 0: 1 / their number, so that loss is a mean */
    const double *weight_at; /* device memory from which the weight is read when the pass runs, for
                              * a step that is captured once; NULL: `weight` is used */
    void *dlogits;           /* [T, B, V], may be logits; 0 where not valid; NULL: not wanted */
    const double *scale;     /* multiplies dlogits, for loss scaling; NULL: 1 */
    void *work;              /* scratch of ashlar_loss_work_bytes() bytes; NULL if that is 0 */
    double *loss;            /* ADDED TO */
    double *losses;          /* [T, B]: each position's loss, before the weight; 0 where not valid;
                              * NULL: not wanted */
} ashlar_cross_entropy_args;

/* loss += weight * the sum over the valid positions of -log softmax(logits)[target], in nats;
 * dlogits = the gradient of what is added, times the scale. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_cross_entropy(
    const ashlar_ops *ops, const ashlar_cross_entropy_args *args, ashlar_stream stream);

typedef struct ashlar_squared_error_args {
    size_t steps;           /* T, 1.. */
    size_t batch;           /* B, 1.. */
    const int32_t *lengths; /* [B], each 0..T; NULL: all are T */
    size_t width;           /* O, 1.. */
    const void *outputs;    /* [T, B, O] */
    const void *targets;    /* [T, B, O] */
    double weight;          /* of each valid element; 0: 1 / their number: the mean squared error */
    void *doutputs;         /* [T, B, O], may be outputs; 0 past the lengths; NULL: not wanted */
    const double *scale;    /* multiplies doutputs; NULL: 1 */
    void *work;             /* scratch of ashlar_loss_work_bytes() bytes; NULL if that is 0 */
    double *loss;           /* ADDED TO */
    double *losses;         /* [T, B]: each position's sum of squares, before the weight; 0 past the
                             * lengths; NULL: not wanted */
} ashlar_squared_error_args;

/* loss += weight * the sum of (outputs - targets)^2 over the valid elements; doutputs = the
 * gradient of what is added, times the scale. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_squared_error(
    const ashlar_ops *ops, const ashlar_squared_error_args *args, ashlar_stream stream);

/* The bytes of scratch for a loss over `positions` = T * B; grows with them. Threads: any. */
ASHLAR_API size_t ashlar_loss_work_bytes(const ashlar_ops *ops, size_t positions);

typedef struct ashlar_argmax_args {
    size_t rows;        /* N, 1.. */
    size_t classes;     /* V, 1.. */
    const void *logits; /* [N, V] */
    int32_t *labels;    /* [N] */
} ashlar_argmax_args;

/* label = the class of the row's largest value, the first if several are equal. A NaN is never the
 * largest; if all are NaN, the label is 0. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_argmax(const ashlar_ops *ops,
                                                         const ashlar_argmax_args *args,
                                                         ashlar_stream stream);

typedef struct ashlar_columns_args {
    size_t rows;        /* N, 1.. */
    size_t width;       /* of a copied row, in elements, 1.. */
    const void *from;   /* [N, width], rows `from_stride` elements apart */
    size_t from_stride; /* at least width */
    void *to;           /* [N, width], rows `to_stride` elements apart */
    size_t to_stride;   /* at least width */
} ashlar_columns_args;

/* Copy some columns of one matrix to columns of another: this joins two inputs side by side, and
 * splits the gradient of the joined input again. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_copy_columns(const ashlar_ops *ops,
                                                               const ashlar_columns_args *args,
                                                               ashlar_stream stream);

/* ---- sampling, on the host ---- */

/* A draw depends on nothing but its configuration, the logits and one number: the same seed gives
 * the same text on every device that computes the same logits. The class with the larger logit is
 * likelier; of equal logits, the one with the lower number. Temperature first gives each class its
 * probability, then top_k drops classes, then top_p does; those kept keep their ratios. */
typedef struct ashlar_sampling_config {
    double temperature; /* >= 0; the lower, the likelier are likely classes; 1: as the logits say;
                         * 0: always draw the likeliest */
    size_t top_k;       /* keep the top_k likeliest classes; 0: all */
    double top_p;       /* of the classes that top_k keeps, keep the fewest likeliest ones, at least
                         * one, that have this share of the probability; 0 and 1: all */
} ashlar_sampling_config;

typedef struct ashlar_sampler ashlar_sampler;

/* Make a sampler among `classes` classes, 1 .. 2^31. It has host memory only.
 *
 * Ownership: the caller owns *out.
 * Errors:    ASHLAR_EINVAL (config, classes), ASHLAR_EHOSTMEM. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_sampler_create(const ashlar_sampling_config *config, size_t classes, ashlar_sampler **out);
ASHLAR_API void ashlar_sampler_destroy(ashlar_sampler *sampler); /* NULL is allowed */

/* Draw a class.
 *
 * logits   [V] of type `dtype`, in host memory: ashlar_copy_to_host(), ashlar_stream_synchronize()
 * number   in [0, 1), from a generator of the program's. The kept classes divide this range among
 *          them, in the order of their numbers, in proportion to their probabilities; the class
 *          whose part contains `number` is drawn
 *
 * Threads: one at a time per sampler.
 * Errors:  ASHLAR_EINVAL (number, dtype, logits in a software device's memory), ASHLAR_EFORMAT (a
 *          logit is not finite): *out unchanged.
 * Cost:    O(V); with top_k or top_p a sort. Takes no memory. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_sampler_draw(ashlar_sampler *sampler,
                                                               ashlar_dtype dtype,
                                                               const void *logits, double number,
                                                               int32_t *out);

/* ---- first values of weights ---- */

/* How weights are drawn. Both rules draw a recurrent stack uniformly from +-1/sqrt(H), and a linear
 * layer, with its bias, from +-1/sqrt(I). They differ in the rest:
 *
 *              embedding                           forget gate of an LSTM
 *   ASHLAR     uniform in +-sqrt(3), deviation 1   its bias (of two the first) is raised by 1, so
 *                                                  that cells remember from the start
 *   PYTORCH    normal, deviation 1                 its bias stays as drawn */
typedef enum ashlar_init_rule {
    ASHLAR_INIT_ASHLAR,
    ASHLAR_INIT_PYTORCH,
    ASHLAR_INIT_RULE_COUNT
} ashlar_init_rule;

typedef enum ashlar_part_kind {
    ASHLAR_PART_RNN,       /* a stack, as ashlar_rnn_declare() has declared it */
    ASHLAR_PART_LINEAR,    /* a weight [O, I], and as the next tensor its bias [O] */
    ASHLAR_PART_WEIGHT,    /* a weight [O, I] without a bias */
    ASHLAR_PART_EMBEDDING, /* a table [V, E] */
    ASHLAR_PART_KIND_COUNT
} ashlar_part_kind;

/* A part of a model, in an arena. */
typedef struct ashlar_part {
    ashlar_part_kind kind;
    size_t first;                    /* the number of its first tensor */
    const ashlar_rnn_layout *layout; /* of a stack: ashlar_rnn_layout_of(); else NULL */
} ashlar_part;

/* Draw the first values of the parts, in their order, from one sequence of random numbers, and copy
 * them into the arena's parameters. Tensors of no part keep their values.
 *
 * arena    committed
 * parts    [count]; not read after the call
 * seed     any; on one kind of processor the same seed gives the same weights, on every device
 *
 * Threads: as the arena's.
 * Stream:  a copy for each part is queued on `stream`.
 * Errors:  ASHLAR_EINVAL (not committed; rule; a part that is not in the arena as its kind says:
 *          the detail gives its number), ASHLAR_EHOSTMEM, ASHLAR_EDRIVER; some parts may have their
 *          values then.
 * Cost:    host memory for the largest part, for the length of the call. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_init_weights(ashlar_arena *arena,
                                                               ashlar_init_rule rule,
                                                               const ashlar_part *parts,
                                                               size_t count, uint64_t seed,
                                                               ashlar_stream stream);

/* ---- a whole network ---- */

/*
 * A whole recurrent network, with one call for a training step and one for a prediction: an
 * embedding or plain inputs, a stack of recurrent layers, a linear layer, a loss.
 *
 *     x = embedding[tokens], or the inputs    y, h = RNN(x)    outputs = (y, or the last h) W^T + b
 *
 * It is made of rnn.h's layers and the operations above, which a program may put together
 * otherwise. All weights lie in one arena, under PyTorch's names, so that optimizer.h, arena.h and
 * reduce.h work on them. Each call takes its buffers from the allocator and gives them back before
 * it returns, so that a plan (plan.h) can serve them: after the warm-up they need no driver call.
 *
 * Threads: one at a time per network.
 * Stream:  all calls on one stream, or on streams that wait for each other: on a CUDA device they
 *          share the workspace that the network takes for cuBLAS.
 */

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
    ashlar_network_loss loss; /* the mean over the valid positions or elements */
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
 *         operations above. Some gradients may have been written then. */
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

#endif /* ASHLAR_MODEL_H */
