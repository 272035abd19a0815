/*
 * model.h - what a model has besides recurrent layers: embedding, linear layer, losses, argmax,
 * sampling, and the first values of weights.
 *
 * As in rnn.h every buffer is the caller's, and forward and backward are calls of their own that
 * are queued on a stream. Batches are padded and time-major: [T, B, ...], with the lengths of the B
 * sequences. Positions past a length are neither read nor counted. What is to be added up over
 * several steps (gradients of weights, a loss) is ADDED TO; clear it by ashlar_fill() before.
 *
 * A model is an arena of weights, an ashlar_rnn, an ashlar_ops, and a function that calls them. An
 * ashlar_model is such a one made from a list of operations: "whole models", below.
 */
#ifndef ASHLAR_MODEL_H
#define ASHLAR_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/optimizer.h>
#include <ashlar/plan.h>
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
 * Errors:    ASHLAR_EINVAL (no type), ASHLAR_ENOTSUP (a CUDA device in a build without nvcc, or
 *            without cuBLAS; a type that the device cannot compute in: on the CPU all but F32 and
 *            F64), ASHLAR_EHOSTMEM; on a CUDA device also ASHLAR_EDRIVER, ASHLAR_ENOMEM. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_ops_create(ashlar_device *device,
                                                             ashlar_dtype dtype, ashlar_ops **out);
ASHLAR_API void ashlar_ops_destroy(ashlar_ops *ops);

/* How much device memory operations work in. */
typedef struct ashlar_ops_need {
    size_t work_bytes; /* that is of use to ashlar_ops_set_work(): 0 on a software device; on a CUDA
                        * device what cuBLAS's documentation recommends, 4 MiB, or 32 MiB from
                        * compute capability 9.0 on */
    size_t loss_work_bytes; /* of scratch for a loss */
} ashlar_ops_need;

/* positions   T * B of the loss, with which its scratch grows
 *
 * Threads: any. */
ASHLAR_API ashlar_ops_need ashlar_ops_get_need(const ashlar_ops *ops, size_t positions);

/* Give the operations device memory to work in. Without it cuBLAS takes memory from the driver
 * itself, at the first products and whenever it likes, and embedding_backward compares more (see
 * there). All linear layers and embeddings of `ops` must then be queued on one stream, or on
 * streams that wait for each other, for they use the same memory.
 *
 * work    device memory, aligned to 256 bytes, which must outlive `ops` or the next call of this;
 *         NULL: none from here on
 * bytes   the size of `work`; less than ashlar_ops_need.work_bytes makes products slower
 *
 * Ownership: the caller's. Work that is queued still uses the memory before it.
 * Threads:   no other call with `ops` may be under way.
 * Errors:    ASHLAR_EINVAL (not aligned; 0 bytes of memory). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_ops_set_work(ashlar_ops *ops, void *work,
                                                               size_t bytes);

/* How a software device computes. */
typedef struct ashlar_cpu_info {
    size_t threads;       /* that share its work, in the whole process */
    const char *products; /* the name of its matrix products: "built-in, AVX2 and FMA" */
} ashlar_cpu_info;

ASHLAR_API ashlar_cpu_info ashlar_cpu_get_info(void);

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
 *            device, one that is neither device memory nor page-locked, or not aligned: the detail
 *            names it), ASHLAR_EOVERFLOW (too large for cuBLAS), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM.
 *            Nothing is queued then, except that on a CUDA device the first parts of an operation
 *            may be.
 *   Results: the same arguments give the same bits: sums run in a fixed order. */

typedef struct ashlar_embedding_args {
    size_t steps;           /* T, 1.. */
    size_t batch;           /* B, 1.. */
    const int32_t *lengths; /* [B], each 0..T; NULL: all are T */
    size_t classes;         /* V, 1.. */
    size_t width;           /* E, 1.. */
    const int32_t *tokens;  /* [T, B], each 0..V-1 up to its length: see below */
    const void *table;      /* [V, E]    forward */
    void *out;              /* [T, B, E] forward; 0 past the lengths */
    const void *dout;       /* [T, B, E] backward */
    void *dtable;           /* [V, E]    backward; ADDED TO */
} ashlar_embedding_args;

/* Forward: out = the row of the table that the position's token names. Backward: add each row of
 * dout to its token's row of dtable, in the order of positions.
 *
 * A token that is no class is found when the work runs: a software device is lost then, and its
 * later calls fail with ASHLAR_EDRIVER and a line that says so. A CUDA device skips such rows.
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
 * with it. A position is valid if it lies before its sequence's end, its own weight or mask is not
 * 0 and, for cross-entropy, its target is not negative (PyTorch's ignore_index is -100). Where none
 * is valid, nothing is added to the loss. */
typedef struct ashlar_cross_entropy_args {
    size_t steps;           /* T, 1.. */
    size_t batch;           /* B, 1.. */
    const int32_t *lengths; /* [B], each 0..T; NULL: all are T */
    size_t classes;         /* V, 1.. */
    const void *logits;     /* [T, B, V] */
    const int32_t *targets; /* [T, B], below V: see below; negative: ignored */
    double weight; /* of each valid position; 0: 1 / their number, or with weights of their own or
                    * of their targets 1 / the sum of these, so that loss is a mean */
    const double *weight_at; /* device memory from which the weight is read when the pass runs, for
                              * a step that is captured once; NULL: `weight` is used */
    void *dlogits;           /* [T, B, V], may be logits; 0 where not valid; NULL: not wanted */
    const double *scale;     /* multiplies dlogits, for loss scaling; NULL: 1 */
    void *work; /* scratch of loss_work_bytes (ashlar_ops_get_need()); NULL if that is 0 */
    double *loss;            /* ADDED TO */
    double *losses;          /* [T, B]: each position's loss, before the weight; 0 where not valid;
                              * NULL: not wanted */
    const void *class_weights;    /* [V], each >= 0: of positions with the class as their target;
                                   * NULL: all 1 */
    const void *position_weights; /* [T, B], each >= 0; NULL: all 1 */
    double smoothing;             /* 0..1: how much of each target is spread over all classes */
    double factor;                /* multiplies loss and gradient, as one of several losses; 0: 1 */
} ashlar_cross_entropy_args;

/* loss += weight * the sum over the valid positions of -log softmax(logits)[target], in nats, times
 * the position's and the class's weight; dlogits = the gradient of what is added, times the scale.
 * Smoothing s and class weights c are those of PyTorch's CrossEntropyLoss: with p =
 * softmax(logits), a position's loss is -(1 - s) c[target] log p[target] - s / V * the sum over v
 * of c[v] log p[v]. A target of V and more has the effect of a token that is no class.
 *
 * Errors: also ASHLAR_EINVAL (smoothing). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_cross_entropy(
    const ashlar_ops *ops, const ashlar_cross_entropy_args *args, ashlar_stream stream);

/* The loss of an output x whose target is z. */
typedef enum ashlar_element_loss {
    ASHLAR_ELEMENT_SQUARED, /* (x - z)^2 */
    ASHLAR_ELEMENT_HUBER,   /* (x - z)^2 / 2 up to |x - z| = delta, and straight lines beyond:
                             * delta * (|x - z| - delta / 2) */
    ASHLAR_ELEMENT_BINARY,  /* binary cross-entropy of the logit x, with a target in 0..1:
                             * -z log sigmoid(x) - (1 - z) log(1 - sigmoid(x)) */
    ASHLAR_ELEMENT_LOSS_COUNT
} ashlar_element_loss;

typedef struct ashlar_squared_error_args {
    size_t steps;           /* T, 1.. */
    size_t batch;           /* B, 1.. */
    const int32_t *lengths; /* [B], each 0..T; NULL: all are T */
    size_t width;           /* O, 1.. */
    const void *outputs;    /* [T, B, O] */
    const void *targets;    /* [T, B, O] */
    double weight;          /* of each valid element; 0: 1 / their number: the mean */
    void *doutputs;         /* [T, B, O], may be outputs; 0 where not valid; NULL: not wanted */
    const double *scale;    /* multiplies doutputs; NULL: 1 */
    void *work; /* scratch of loss_work_bytes (ashlar_ops_get_need()); NULL if that is 0 */
    double *loss;           /* ADDED TO */
    double *losses;         /* [T, B]: each position's sum of losses, before the weight; 0 where not
                             * valid; NULL: not wanted */
    ashlar_element_loss kind;
    double delta;     /* of HUBER, > 0 */
    const void *mask; /* [T, B], of elements: positions with 0 are not valid; NULL: all are */
    const double *weight_at; /* as of ashlar_cross_entropy_args */
    double factor;           /* likewise */
} ashlar_squared_error_args;

/* loss += weight * the sum of the valid elements' losses; doutputs = the gradient of what is added,
 * times the scale.
 *
 * Errors: also ASHLAR_EINVAL (kind, delta). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_squared_error(
    const ashlar_ops *ops, const ashlar_squared_error_args *args, ashlar_stream stream);

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
    bool adds;          /* whether `to` is ADDED TO */
} ashlar_columns_args;

/* Copy some columns of one matrix to columns of another: this joins two inputs side by side, and
 * splits the gradient of the joined input again. A whole array is one row: so one may be added to
 * another, each sum rounded once. */
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

/* Draw a class from each of several rows of logits, on all threads: the next symbol of each of
 * several texts.
 *
 * samplers   [count], for as many classes each
 * logits     [count, V] of type `dtype`, in host memory: ashlar_copy_to_host(),
 *            ashlar_stream_synchronize()
 * numbers    [count], each in [0, 1), from a generator of the program's. The kept classes divide
 *            this range among them, in the order of their numbers, in proportion to their
 *            probabilities; the class whose part contains the number is drawn
 * out        [count]
 *
 * Threads: one at a time per sampler.
 * Errors:  ASHLAR_EINVAL (a number, dtype, logits in a software device's memory), ASHLAR_EFORMAT (a
 *          logit is not finite), of the first row that has one: its *out is unchanged, the others
 *          are drawn.
 * Cost:    O(V) for each; with top_k or top_p a sort. Takes no memory. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_sampler_draw(ashlar_sampler *const *samplers,
                                                               size_t count, ashlar_dtype dtype,
                                                               const void *logits,
                                                               const double *numbers, int32_t *out);

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

/* ---- whole models ---- */

/*
 * A model is a list of operations on named tensors. It is declared once; then each walk over the
 * list does one thing with a batch: train, compute the loss, predict, or only take and give back
 * the memory that one of these takes.
 *
 *     ashlar_model_create(allocator, ASHLAR_F32, &model);
 *     tokens = ashlar_model_input(model, "tokens", ASHLAR_AXIS_TIME, 0);
 *     targets = ashlar_model_input(model, "targets", ASHLAR_AXIS_TIME, 0);
 *     x = ashlar_model_embedding(model, "embedding", tokens, V, E);
 *     y = ashlar_model_rnn(model, "lstm", x, &config, NULL).y;
 *     logits = ashlar_model_linear(model, "linear", y, V, true);
 *     ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY, logits, targets, NULL);
 *     ashlar_model_commit(model, ASHLAR_REGIONS_ALL, stream);
 *     ...
 *     ashlar_model_run(model, ASHLAR_WALK_TRAIN, &batch, stream);
 *
 * SHAPES. A tensor lies on an axis of time, [T, B, width], or on none, [B, width]: T and B are each
 * batch's own, the width is the model's. A model may have several axes, as a translation has one
 * for each language. An axis may lie within another one, as characters within words: each of the
 * T * B words is a sequence of characters then, so a tensor there is [C, T * B, width], and its
 * last valid position, [T * B, width], lies on the axis of words.
 *
 * MEMORY. When a tensor is first and last used follows from the list, so each walk packs all its
 * buffers into one block of device memory (ashlar_pack()), which it takes from the allocator and
 * gives back before it returns. ashlar_model_get_need() tells its size. Two batches of the same
 * shape have the same offsets. ashlar_model_dry_run() is the dry run of a warm-up.
 *
 * ERRORS WHILE DECLARING. The first one is kept: later declarations return NULL and change nothing,
 * NULL is allowed as a tensor, and ashlar_model_commit() returns the error, whose detail names the
 * operation. So a model can be declared without a check behind each line.
 *
 * Threads: one at a time per model.
 * Stream:  walks on one stream, or on streams that wait for each other: on a CUDA device they share
 *          the workspace that the model takes for cuBLAS.
 */

typedef struct ashlar_model ashlar_model;
typedef struct ashlar_tensor ashlar_tensor; /* its model owns it */

/* An axis of time; those above ASHLAR_AXIS_TIME are made by ashlar_model_axis(). */
typedef unsigned ashlar_axis;
enum { ASHLAR_AXIS_NONE, ASHLAR_AXIS_TIME, ASHLAR_AXIS_MAX = 8 };

/* Make a model without operations, whose weights and activations are of one type.
 *
 * Ownership: the caller owns *out; the allocator must outlive it. ashlar_model_destroy() frees all
 *            of it in stream order; NULL is allowed.
 * Errors:    those of ashlar_ops_create(); ASHLAR_EHOSTMEM. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_model_create(ashlar_allocator *allocator,
                                                               ashlar_dtype dtype,
                                                               ashlar_model **out);
ASHLAR_API void ashlar_model_destroy(ashlar_model *model);

/* Make another axis of time.
 *
 * within   the axis whose positions are the new one's sequences; ASHLAR_AXIS_NONE: the new axis has
 *          the batch's B sequences, too */
ASHLAR_API ashlar_axis ashlar_model_axis(ashlar_model *model, ashlar_axis within);

/* ---- declaring operations: each returns its output ---- */

/* What each batch gives: int32 tokens (width 0, one for each position) or vectors. */
ASHLAR_API ashlar_tensor *ashlar_model_input(ashlar_model *model, const char *name,
                                             ashlar_axis axis, size_t width);

/* Layers. `name` begins the names of their weights, which are PyTorch's: name.weight, name.bias,
 * those of ashlar_rnn_declare(). Two layers of one name and shape have the same weights, whose
 * gradients add up. An embedding's weight is_elementwise in its tensor's options, so that MUON
 * updates it as ADAMW does; which linear layer is the output layer the model does not know:
 * ashlar_arena_set_options(). */
ASHLAR_API ashlar_tensor *ashlar_model_embedding(ashlar_model *model, const char *name,
                                                 ashlar_tensor *tokens, size_t classes,
                                                 size_t width);
ASHLAR_API ashlar_tensor *ashlar_model_linear(ashlar_model *model, const char *name,
                                              ashlar_tensor *x, size_t width, bool has_bias);

/* The states of a recurrent layer before the first step: another layer's, or an input on no axis of
 * width L*D*P (for c: L*D*H). NULL: zeros. Where a batch gives `before`, that counts instead. */
typedef struct ashlar_rnn_states {
    ashlar_tensor *h, *c; /* c: LSTM */
} ashlar_rnn_states;

typedef struct ashlar_rnn_result {
    ashlar_tensor *y; /* [T, B, D*P] */
    ashlar_tensor *h; /* [L*D, B, P], the states after each sequence's last step */
    ashlar_tensor *c; /* [L*D, B, H]; NULL unless LSTM */
} ashlar_rnn_result;

/* config->input and dtype: those of x, or 0. states NULL: zeros. */
ASHLAR_API ashlar_rnn_result ashlar_model_rnn(ashlar_model *model, const char *name,
                                              ashlar_tensor *x, const ashlar_rnn_config *config,
                                              const ashlar_rnn_states *states);

/* Let a weight be another one: `tensor`, of a layer that is declared later, is `is`, of one that is
 * declared already, and so has its gradient, too. As in "linear.weight", "embedding.weight". */
ASHLAR_API void ashlar_model_tie(ashlar_model *model, const char *tensor, const char *is);

/* Element by element. Of add and multiply both operands have one shape, or b is [.., 1]: one factor
 * for each position (multiply only). */
typedef enum ashlar_element_kind {
    ASHLAR_ELEMENT_ADD,
    ASHLAR_ELEMENT_MULTIPLY,
    ASHLAR_ELEMENT_TANH,
    ASHLAR_ELEMENT_RELU,
    ASHLAR_ELEMENT_SIGMOID,
    ASHLAR_ELEMENT_SOFTMAX, /* over the width */
    ASHLAR_ELEMENT_MASK,    /* 0 past the lengths */
    ASHLAR_ELEMENT_KIND_COUNT
} ashlar_element_kind;

ASHLAR_API ashlar_tensor *ashlar_model_element(ashlar_model *model, ashlar_element_kind kind,
                                               ashlar_tensor *a, ashlar_tensor *b);

/* In training, zero a share `rate` of the elements and multiply the others by 1 / (1 - rate). */
ASHLAR_API ashlar_tensor *ashlar_model_dropout(ashlar_model *model, ashlar_tensor *x, double rate);

/* Join two tensors side by side; take `width` columns from `first` on. */
ASHLAR_API ashlar_tensor *ashlar_model_concatenate(ashlar_model *model, ashlar_tensor *a,
                                                   ashlar_tensor *b);
ASHLAR_API ashlar_tensor *ashlar_model_slice(ashlar_model *model, ashlar_tensor *x, size_t first,
                                             size_t width);

/* One row for each sequence: its last valid position's, or the mean or maximum over the valid ones.
 * The result lies on the axis that x's axis is within. */
typedef enum ashlar_pool_kind {
    ASHLAR_POOL_LAST,
    ASHLAR_POOL_MEAN,
    ASHLAR_POOL_MAX,
    ASHLAR_POOL_KIND_COUNT
} ashlar_pool_kind;

ASHLAR_API ashlar_tensor *ashlar_model_pool(ashlar_model *model, ashlar_pool_kind kind,
                                            ashlar_tensor *x);

/* The states h of the last layer, [B, D*P]: what a classifier reads. */
ASHLAR_API ashlar_tensor *ashlar_model_last_layer(ashlar_model *model, ashlar_tensor *h);

/* The class of the largest value, an int32 for each position. */
ASHLAR_API ashlar_tensor *ashlar_model_argmax(ashlar_model *model, ashlar_tensor *x);

/* Losses. Each adds its weighted mean over the valid positions, or elements, to the batch's loss.
 * No gradient goes to the targets, whoever computes them. */
typedef enum ashlar_loss_kind {
    ASHLAR_LOSS_CROSS_ENTROPY, /* targets: classes; negative: not valid */
    ASHLAR_LOSS_SQUARED,       /* targets: of x's shape, as for the rest */
    ASHLAR_LOSS_HUBER,
    ASHLAR_LOSS_BINARY, /* binary cross-entropy of logits */
    ASHLAR_LOSS_KIND_COUNT
} ashlar_loss_kind;

typedef struct ashlar_loss_options {
    ashlar_tensor *position_weights; /* [T, B, 1]; of the losses but cross-entropy only whether one
                                      * is 0, and the position not valid; NULL: all 1 */
    const double *class_weights;     /* of cross-entropy: [V] in host memory, copied; NULL: all 1 */
    double smoothing;                /* of cross-entropy's labels, 0 .. < 1 */
    double delta;                    /* of the Huber loss; 0 stands for 1 */
    double factor;                   /* of this loss among several; 0 stands for 1 */
} ashlar_loss_options;

ASHLAR_API void ashlar_model_loss(ashlar_model *model, ashlar_loss_kind kind, ashlar_tensor *x,
                                  ashlar_tensor *targets, const ashlar_loss_options *options);

/* A loop over the steps of an axis: a body of operations that is repeated for each of them, from
 * the first to the last or, is_reversed, the other way round, with values that go on from one step
 * to the next. This says what no recurrent layer can: a decoder that reads what it predicted, a
 * label that goes into the layer of words, attention (ashlar_loop_use() of what it looks at, and an
 * operation of the caller's).
 *
 *     body = ashlar_model_loop(model, ASHLAR_AXIS_TIME, false);
 *     x = ashlar_loop_step(body, words);                 one step of a tensor on the axis: [B, E]
 *     label = ashlar_loop_carried(body, NULL, 0);        the step before's; 0 before the first
 *     e = ashlar_model_embedding(body, "labels", label, K, F);
 *     ...                                                operations on `body`, on no axis of time
 *     logits = ashlar_model_linear(body, "linear", y, K, true);
 *     ashlar_loop_carry(body, label, ashlar_model_argmax(body, logits));
 *     all = ashlar_loop_end(body, logits);               [T, B, K], a tensor of `model`
 *
 * A recurrent layer on no axis of time takes one step: give it states that are carried. Weights are
 * the model's, also those of the body. Where a sequence is shorter than the axis, what it carries
 * stays as it is on the steps past its length; integers need not.
 *
 * Cost: linear in the steps, in time, and in memory in what backward needs of each. */

/* Begin a loop. The axis lies within none. The body is the model's; it has no inputs, losses and
 * outputs of its own. */
ASHLAR_API ashlar_model *ashlar_model_loop(ashlar_model *model, ashlar_axis axis, bool is_reversed);

/* What the body reads of the model around it: each step's part of a tensor on the loop's axis; a
 * tensor as it is, in each step. */
ASHLAR_API ashlar_tensor *ashlar_loop_step(ashlar_model *body, ashlar_tensor *tensor);
ASHLAR_API ashlar_tensor *ashlar_loop_use(ashlar_model *body, ashlar_tensor *tensor);

/* A value that is carried, [B, width], or an int32 [B] where width is 0: before the first step
 * `initial`, of the model around, or 0 where that is NULL. An initial int32 that is an input lies
 * in device memory, not page-locked. For states of layers, give an initial one or the width L*D*P.
 * _carry() says what it is from the next step on. */
ASHLAR_API ashlar_tensor *ashlar_loop_carried(ashlar_model *body, ashlar_tensor *initial,
                                              size_t width);
ASHLAR_API void ashlar_loop_carry(ashlar_model *body, ashlar_tensor *carried, ashlar_tensor *next);

/* Have the steps' values of a tensor collected in one of the model around, on the loop's axis:
 * _collect() for all but the last, _end() for the last. A loop has at most
 * ASHLAR_OPERATION_OUTPUTS of them; those of _collect() come with _end(). */
ASHLAR_API void ashlar_loop_collect(ashlar_model *body, ashlar_tensor *tensor, ashlar_tensor **out);
ASHLAR_API ashlar_tensor *ashlar_loop_end(ashlar_model *body, ashlar_tensor *tensor);

/* Let walks hand a tensor out: to batch->outputs[i] for the i-th tensor so declared. */
ASHLAR_API void ashlar_model_output(ashlar_model *model, ashlar_tensor *tensor);

/* ---- an operation of the caller's ---- */

enum {
    ASHLAR_OPERATION_INPUTS = 8,
    ASHLAR_OPERATION_OUTPUTS = 4,
    ASHLAR_OPERATION_WEIGHTS = 2,
};

/* How long an axis is in a batch. */
typedef struct ashlar_extent {
    size_t steps;              /* T; of no axis 1 */
    size_t rows;               /* sequences: B, or the positions of the axis that it is within */
    const int32_t *lengths;    /* [rows] in host memory; NULL: all are `steps` */
    const int32_t *lengths_at; /* the same in device memory */
} ashlar_extent;

/* An input or output in one call. Elements are of the model's type; int32 if width is 0. */
typedef struct ashlar_operand_data {
    ashlar_extent extent;
    size_t width;
    void *value;    /* [steps, rows, width] */
    void *gradient; /* of an input: to be written; NULL: not wanted. Of an output: to be read;
                     * NULL: zeros */
} ashlar_operand_data;

typedef struct ashlar_weight_data {
    size_t rows, width;
    void *value;
    void *gradient; /* ADD TO it; NULL: not wanted */
} ashlar_weight_data;

typedef enum ashlar_phase {
    ASHLAR_PHASE_FORWARD,
    ASHLAR_PHASE_BACKWARD, /* to the inputs, and the weights if `has_weights_phase` is not set */
    ASHLAR_PHASE_BACKWARD_WEIGHTS, /* directly behind it, when the outputs' gradients are gone */
    ASHLAR_PHASE_COUNT
} ashlar_phase;

/* What one call works on. Pointers are to device memory. In a call of `sizes` only the shapes are
 * set. */
typedef struct ashlar_operation_call {
    ashlar_phase phase;
    bool trains;       /* dropout applies */
    bool has_backward; /* a backward phase follows, or this is one; `kept` is there */
    ashlar_operand_data inputs[ASHLAR_OPERATION_INPUTS];
    ashlar_operand_data outputs[ASHLAR_OPERATION_OUTPUTS];
    ashlar_weight_data weights[ASHLAR_OPERATION_WEIGHTS];
    void *kept;              /* from forward to the last phase of backward */
    void *work;              /* for the length of the call */
    uint64_t seed;           /* of this step */
    const uint64_t *seed_at; /* NULL, or what is added to the seed when the work runs */
    size_t sequence_first, sequence_stride; /* as dropout_first and dropout_stride in rnn.h */
    /* Of a loss. Its gradients are written in the forward phase, where wanted */
    double weight;           /* of each valid position; 0: 1 / their number */
    const double *weight_at; /* NULL, or where the weight is when the work runs */
    const double *scale;     /* multiplies the gradient; NULL: 1 */
    double *loss;            /* ADD TO it */
    bool is_replayed;        /* forward runs twice, and must draw the same again */
    const void *engine;      /* for operations of the engine's own */
    /* States that go from one call to the next, if the operation carries some: before and after
     * this call, and their gradients. NULL: zeros, or not wanted */
    const void *before;
    void *after;
    const void *after_gradient;
    void *before_gradient;
} ashlar_operation_call;

typedef struct ashlar_operation_sizes {
    size_t kept_bytes;
    size_t work_bytes[ASHLAR_PHASE_COUNT];
    size_t carried_bytes;
} ashlar_operation_sizes;

typedef struct ashlar_operation {
    const char *name;
    /* The sizes for a call's shapes; of gradients it is only told whether they are wanted (not
     * NULL). NULL: all are 0. */
    ashlar_status (*sizes)(void *user, const ashlar_operation_call *call,
                           ashlar_operation_sizes *out);
    /* Queue a phase on `stream`. */
    ashlar_status (*queue)(void *user, const ashlar_operation_call *call, ashlar_stream stream);
    void *user;
    void (*destroy)(void *user); /* with the model; NULL: nothing to do */
    bool is_loss;                /* no output and no backward phase */
    bool has_weights_phase;
    bool carries;      /* states from one call to the next */
    bool is_local;     /* on an axis of time, what it computes at a step depends on nothing but that
                        * step of its inputs and what is carried: chunks can be cut */
    size_t most_steps; /* of a call; batches of more are cut into chunks; 0: any number */
    unsigned constant_inputs;  /* bit i: no gradient goes to input i */
    unsigned optional_outputs; /* bit i: where nobody reads output i, its value is NULL */
    /* Bit i: backward reads the value of input i, of output i; and it reads that of input i only
     * for the weights' gradient. */
    unsigned reads_inputs, reads_outputs, reads_inputs_for_weights;
    /* Output 0 may lie where input 0 does; the gradient of input 0 where that of output 0 does, or
     * of a loss where input 0 does. */
    bool value_in_place, gradient_in_place;
} ashlar_operation;

/* What an operation reads, makes and trains. Weights are [rows, width]; width 0: [rows]. */
typedef struct ashlar_operation_shape {
    size_t input_count, output_count, weight_count;
    ashlar_tensor *inputs[ASHLAR_OPERATION_INPUTS];
    ashlar_axis axes[ASHLAR_OPERATION_OUTPUTS];
    size_t widths[ASHLAR_OPERATION_OUTPUTS];
    const char *weight_names[ASHLAR_OPERATION_WEIGHTS];
    size_t weight_rows[ASHLAR_OPERATION_WEIGHTS], weight_widths[ASHLAR_OPERATION_WEIGHTS];
} ashlar_operation_shape;

/* Add an operation.
 *
 * shape     of its inputs, whose gradients are wanted if they have any, outputs and weights
 * outputs   receives the outputs, of `widths` on `axes`; 0: int32. A loss has none. NULL: not
 *           wanted
 *
 * Ownership: the operation is the model's from the call on, also if that fails: `destroy` is
 *            called. */
ASHLAR_API void ashlar_model_operation(ashlar_model *model, const ashlar_operation *operation,
                                       const ashlar_operation_shape *shape,
                                       ashlar_tensor *outputs[ASHLAR_OPERATION_OUTPUTS]);

/* ---- weights ---- */

/* End the declarations: make the arena, and take memory for the weights, which are 0.
 *
 * regions   of the arena: ASHLAR_REGIONS_INFERENCE, or to train ASHLAR_REGIONS_TRAINING
 *
 * Stream: the regions are cleared on `stream`.
 * Errors: the first of the declarations'; those of ashlar_arena_commit(). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_model_commit(ashlar_model *model,
                                                               unsigned regions,
                                                               ashlar_stream stream);

/* The arena of the weights, to which buckets may be given before commit. Ownership: the model's. */
ASHLAR_API ashlar_arena *ashlar_model_arena(const ashlar_model *model);

/* Draw all weights, as ashlar_init_weights() in the order of the layers. Biases of layers whose
 * matrix is tied to another layer's stay 0, as do vectors of the caller's operations. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_model_init(ashlar_model *model,
                                                             ashlar_init_rule rule, uint64_t seed,
                                                             ashlar_stream stream);

/* Freeze or unfreeze the weights whose names begin with `prefix`, a recurrent layer's all together,
 * between two steps: their gradients are not computed, nor what only these need, and the tensors of
 * the arena are frozen too, so that optimizers leave them alone (ashlar_optimizer_follow()): keep
 * `is_frozen` of ashlar_arena_tensor() where you set their other options; a training walk refuses a
 * tensor that is frozen here alone. A captured walk stays as it was. Errors: ASHLAR_EINVAL (no
 * weight has such a name). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_model_freeze(ashlar_model *model,
                                                               const char *prefix, bool is_frozen);

/* ---- walks ---- */

typedef enum ashlar_walk {
    ASHLAR_WALK_TRAIN,   /* forward, losses, backward: ADDS TO gradients and loss */
    ASHLAR_WALK_TEST,    /* forward and losses, without dropout: ADDS TO the loss */
    ASHLAR_WALK_PREDICT, /* what the outputs need, without dropout */
    ASHLAR_WALK_COUNT
} ashlar_walk;

/* A padded batch. Tokens past the lengths are not read. Vectors there must be finite, unless only
 * recurrent layers, losses and pools read them: ASHLAR_ELEMENT_MASK makes them 0. */
typedef struct ashlar_model_batch {
    size_t batch;              /* B, 1.. */
    size_t steps;              /* T of ASHLAR_AXIS_TIME */
    const int32_t *lengths;    /* [B], its lengths, in host memory; NULL: all are T */
    const int32_t *lengths_at; /* the same in device memory; NULL: the walk copies them there.
                                * Without `lengths` only with seed_at */
    struct {
        size_t steps;
        const int32_t *lengths, *lengths_at;
    } axes[ASHLAR_AXIS_MAX];      /* those above ASHLAR_AXIS_TIME, at their numbers */
    const void *const *inputs;    /* [inputs] in the order of declaration, device memory */
    void *const *outputs;         /* [outputs], device memory; NULL, or an element NULL: not wanted.
                                   * PREDICT needs one */
    void *const *input_gradients; /* [inputs], device memory; NULL as for outputs; TRAIN */
    double *loss;                 /* device; TRAIN and TEST */
    const double *scale;          /* device: multiplies the gradients; NULL: 1 */
    double weight;           /* of each valid position of the losses; 0: 1 / their number in this
                              * batch. Give 1 / that of all where a step has several batches, and
                              * with chunks */
    const double *weight_at; /* device: the weight, read when the work runs; NULL: `weight` */
    uint64_t seed; /* of dropout; 0: drawn, another one for each walk, from a sequence that
                    * ashlar_training_save() saves with the arena. cuDNN's dropout has a sequence
                    * of its own, which begins anew with ashlar_model_set_seed() */
    const uint64_t *seed_at; /* device: added to the seed, read when the work runs. With this,
                              * recurrent layers read lengths_at alone, so that the walk can be
                              * captured and serve other lengths */
    size_t sequence_first, sequence_stride; /* as dropout_first and dropout_stride in rnn.h; on an
                                             * axis within another one dropout zeroes others */
    size_t chunk;  /* TRAIN, TEST: time steps of a chunk; 0: not in chunks. In training each chunk
                    * goes forward, and then, from the last to the first, backward; what it keeps
                    * meanwhile lies where `memory` has room for it. Losses of ashlar_model_loss()
                    * are added up in the order of time, with the bits that they have without
                    * chunks, for which the walk keeps 8 bytes of each position */
    size_t memory; /* TRAIN: bytes of device memory that the walk may work in. As much as has no
                    * room there goes to page-locked host memory in between, or is computed again,
                    * with the same results to the bit. 0: without chunks all that it needs; with
                    * chunks the least, so that each goes forward twice. Page-locked memory, two
                    * streams and events are taken by ashlar_model_warmup(), or else by the first
                    * walks that need them: run one of the largest before you capture. Less than
                    * the least is ASHLAR_ENOMEM, which names it: ashlar_model_get_tiers() */
    /* The states of all recurrent layers, to go on from one batch to the next of a longer text: as
     * a batch before this one left them, and where this one shall leave them. Device memory of
     * carried_bytes (ashlar_model_get_need()) that do not overlap. NULL: as declared; not wanted.
     * What a loop carries is not among them: let it begin with an input, and hand its last value,
     * by ASHLAR_POOL_LAST, out */
    const void *before;
    void *after;
    void **address; /* receives the address of the block that the walk works in: see
                     * ashlar_model_dry_run(). NULL: not wanted */
} ashlar_model_batch;

/* Queue a walk.
 *
 * Stream: queued; the memory is taken for `stream`.
 * Errors: ASHLAR_EINVAL (not committed; a size; a length outside 1..T; a weight that is negative or
 *         not finite; a buffer that is NULL or, on a software device, in the wrong memory or not
 *         aligned: the detail names it; before and after overlap; TRAIN: no gradients in the arena;
 *         chunks without a weight, or of a model that cannot be cut), ASHLAR_EOVERFLOW,
 *         ASHLAR_EHOSTMEM, and those of ashlar_alloc() and of the operations. Some gradients may
 *         have been written then.
 * Cost:   a shape of batch that is new is packed first, in up to 20 ms. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_model_run(ashlar_model *model, ashlar_walk walk,
                                                            const ashlar_model_batch *batch,
                                                            ashlar_stream stream);

/* Prepare the weights for walks of TEST and PREDICT: recurrent and linear layers read copies from
 * here on, in the order in which the processor's products read them. It pays where weights stay the
 * same for several walks, most of all for walks of one step that go on from the states before
 * (batch->before and after): text, or the answers to a stream, take three quarters of the time. The
 * copies are read until the next walk of TRAIN, or ashlar_model_init(); once the weights change in
 * another way (an optimizer, a checkpoint), prepare anew. Results have the bits of a walk without,
 * if that has at least 4 time steps and 4 rows.
 *
 * to_bf16   round the copies of matrices to bf16, which halves what a walk of one step reads:
 *           results have three digits. Only a software device reads an fp32 model so
 *
 * Stream: queued.
 * Errors: ASHLAR_EINVAL (not committed; to_bf16), ASHLAR_EOVERFLOW, ASHLAR_EDRIVER,
 *         ASHLAR_EHOSTMEM, and those of ashlar_alloc().
 * Cost:   on a software device about as much memory as the weights, given back at that walk. A CUDA
 *         device reads weights as they are; nothing happens there. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_model_prepare(ashlar_model *model, bool to_bf16,
                                                                ashlar_stream stream);

/* A training step: clear the loss and the gradients, walk, update the weights.
 *
 * optimizer   of the model's arena, else ASHLAR_EINVAL; the step decides by itself
 *             (ashlar_optimizer_step(), scale 1)
 *
 * Stream, errors: those of ashlar_model_run() and ashlar_optimizer_step(). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_model_step(ashlar_model *model,
                                                             ashlar_optimizer *optimizer,
                                                             const ashlar_model_batch *batch,
                                                             double learning_rate,
                                                             ashlar_stream stream);

/* Warm up for every length up to the largest batch's (ashlar_allocator_warmup()), and seal the
 * allocator: from then on each walk, and each ashlar_model_step(), is a step of the allocator by
 * itself, on `stream`, and no batch of at most these sizes takes memory of the driver. Of `largest`
 * only sizes are read, and whether pointers are NULL. Other axes than ASHLAR_AXIS_TIME have their
 * length in each dry run. A program whose steps take memory beside the model's warms up itself, by
 * ashlar_model_dry_run().
 *
 * report   NULL: not wanted
 *
 * Errors: those of ashlar_allocator_warmup() and ashlar_model_dry_run(). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_model_warmup(ashlar_model *model,
                                                               const ashlar_model_batch *largest,
                                                               ashlar_stream stream,
                                                               ashlar_warmup_report *report);

/* How a training begins. */
typedef struct ashlar_model_start_options {
    ashlar_optimizer_config optimizer;
    ashlar_init_rule rule;
    uint64_t seed;                   /* of the weights that are drawn, and of dropout */
    const char *file;                /* whose weights take the place of those drawn; NULL: none */
    const ashlar_load_options *load; /* of the file; NULL: all fields 0 */
} ashlar_model_start_options;

/* Start to train a model that is declared: ashlar_model_commit(), ashlar_model_init(),
 * ashlar_checkpoint_load() if there is a file, ashlar_optimizer_create() and ashlar_model_warmup(),
 * for a program that does nothing of its own in between.
 *
 * options   NULL: all fields 0
 * largest   as of ashlar_model_warmup()
 *
 * Ownership: the caller owns *out; the model must outlive it.
 * Stream:    as of these calls; waits for `stream` if there is a file.
 * Errors:    those of these calls. The optimizer's values are checked and the file is opened first;
 *            after a later error the model may be committed, and can only be destroyed. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_model_start(ashlar_model *model, const ashlar_model_start_options *options,
                   const ashlar_model_batch *largest, ashlar_stream stream, ashlar_optimizer **out);

/* Take and give back the memory of such a walk. Of the batch only sizes are read, and whether
 * pointers are NULL.
 *
 * address   receives the block's address: where it is that of a walk that was captured
 *           (batch->address), the graph can be launched. NULL: not wanted
 *
 * Errors: as above. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_model_dry_run(ashlar_model *model,
                                                                ashlar_walk walk,
                                                                const ashlar_model_batch *batch,
                                                                ashlar_stream stream,
                                                                void **address);

/* From here on walks whose seed is not given draw theirs from the sequence that begins with `seed`,
 * on a CUDA device also cuDNN's dropout.
 *
 * Stream: queued; it must not be capturing.
 * Errors: those of cuDNN: ASHLAR_EDRIVER. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_model_set_seed(ashlar_model *model, uint64_t seed,
                                                                 ashlar_stream stream);

/* The memory of a walk. */
typedef struct ashlar_model_need {
    size_t plan_bytes;    /* of its block */
    size_t bound_bytes;   /* the most that is live at once: no plan is smaller */
    size_t carried_bytes; /* of batch->before and after */
    size_t phases;        /* operations queued */
} ashlar_model_need;

ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_model_get_need(ashlar_model *model,
                                                                 ashlar_walk walk,
                                                                 const ashlar_model_batch *batch,
                                                                 ashlar_model_need *out);

/* How fast a device works, from which the tiers of a walk in too little memory are chosen. 0: about
 * as an H200 does. Results do not depend on it. */
typedef struct ashlar_model_rates {
    double flops;                 /* in a second */
    double memory_bytes;          /* read and written in a second, on the device */
    double out_bytes, back_bytes; /* copied in a second to page-locked memory, and back */
} ashlar_model_rates;

/* Choose by these rates from here on. Errors: ASHLAR_EINVAL (negative, or not finite). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_model_set_rates(ashlar_model *model,
                                                                  const ashlar_model_rates *rates);

/* What becomes, between its forward and its backward pass, of what a training walk keeps. */
typedef struct ashlar_model_tiers {
    size_t resident_bytes, host_bytes, recomputed_bytes;
    size_t least_bytes; /* no walk with less memory: batch->memory */
    double seconds;     /* that it is expected to take */
    double time;        /* the same, of the time with enough memory */
    double copy_bytes;  /* in a second, to page-locked memory or back, whichever is less */
} ashlar_model_tiers;

/* Choose, or tell what was chosen for batches of this shape. Errors: as of ashlar_model_run(). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_model_get_tiers(ashlar_model *model,
                                                                  const ashlar_model_batch *batch,
                                                                  ashlar_model_tiers *out);

/* The driver calls of the model's walks so far that put such copies in order. */
ASHLAR_API uint64_t ashlar_model_event_calls(const ashlar_model *model);

/* A buffer of a walk. It is live in the phases first .. last. One that is on the host in between is
 * listed twice. */
typedef struct ashlar_model_buffer {
    const char *operation; /* that it belongs to */
    const char *role;      /* static: "value", "gradient", "kept", "workspace", ... */
    size_t offset, bytes;
    size_t first, last;
} ashlar_model_buffer;

/* List the buffers of a walk.
 *
 * out     [capacity]; NULL: only count them
 * count   receives their number; those that `out` has no room for are left out */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_model_list_buffers(ashlar_model *model, ashlar_walk walk, const ashlar_model_batch *batch,
                          ashlar_model_buffer *out, size_t capacity, size_t *count);

ASHLAR_END_DECLS

#endif /* ASHLAR_MODEL_H */
