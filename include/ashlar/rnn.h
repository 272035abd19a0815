/*
 * rnn.h - recurrent layers on an arena's packed weights, queued on a stream.
 *
 * The calls and their order are cuDNN's: forward, backward_data, backward_weights. All three share
 * one reserve buffer, and each call uses a work buffer. The caller supplies every buffer, so that
 * all memory of a step comes from one allocator.
 */
#ifndef ASHLAR_RNN_H
#define ASHLAR_RNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/arena.h>

ASHLAR_BEGIN_DECLS

/* ---- where the weights lie ---- */

/*
 * The weights of an RNN stack lie in cuDNN's packed order.
 *
 * Element offsets in a stack of L layers in D directions, with input width I, hidden width H, G
 * gates, a state of P elements (the projection's width; P = H without projection) and N_b biases
 * per gate row:
 *
 *     in(0) = I, in(l > 0) = D*P         every layer above the first reads all directions
 *     pseudo-layer p = l*D + d           layer l in direction d (0 forward, 1 reverse)
 *     matrices of p        W [G, H, in(l)], R [G, H, P], with a projection also Wp [P, H];
 *                          row-major, rows = outputs
 *     base(p)            = sum over q < p of the elements of q's matrices
 *     biases of p        = base(L*D) + p * N_b*G*H: bW [G, H], then bR [G, H], where they exist
 *     elements           = base(L*D) + L*D * N_b*G*H
 *
 * So the matrices of all pseudo-layers come first, then all biases, without padding. cuDNN does not
 * document this order, but cudnnGetRNNWeightParams of cuDNN 9 returned it for every configuration
 * tried; tests/rnn/cuda/test_rnn_cudnn_real.c compares again if cuDNN is installed.
 *
 * Gates are in the order i f g o (LSTM) and r z n (GRU), as in PyTorch: each tensor is, byte for
 * byte, the PyTorch parameter that ashlar_rnn_declare() names.
 */

/* One row per cell: name, number of gates, text. With s = W x + bW and u = R h + bR for each gate:
 *
 *     LSTM         i, f, o = sigmoid(s + u)   g = tanh(s + u)
 *                  c' = f c + i g             h' = o tanh(c'), with a projection Wp (o tanh(c'))
 *     GRU          r, z = sigmoid(s + u)      n = tanh(s + r u)      h' = (1 - z) n + z h
 *     TANH, RELU   h' = tanh(s + u)           h' = max(0, s + u) */
#define ASHLAR_RNN_CELL_MAP(X) \
    X(LSTM, 4, "lstm")         \
    X(GRU, 3, "gru")           \
    X(TANH, 1, "tanh")         \
    X(RELU, 1, "relu")

#define ASHLAR_RNN_CELL_ENUM(name, gates, text) ASHLAR_RNN_##name,
typedef enum ashlar_rnn_cell {
    ASHLAR_RNN_CELL_MAP(ASHLAR_RNN_CELL_ENUM) ASHLAR_RNN_CELL_COUNT
} ashlar_rnn_cell;

/* Which biases a stack has; the formulas take missing ones as zero. */
typedef enum ashlar_rnn_bias {
    ASHLAR_RNN_BIAS_DOUBLE, /* bW and bR */
    ASHLAR_RNN_BIAS_NONE,
    ASHLAR_RNN_BIAS_INPUT,     /* bW */
    ASHLAR_RNN_BIAS_RECURRENT, /* bR */
    ASHLAR_RNN_BIAS_COUNT
} ashlar_rnn_bias;

/* How cuDNN multiplies fp32 matrices. Ignored for other types and on the CPU. */
typedef enum ashlar_rnn_math {
    ASHLAR_RNN_MATH_FMA,  /* in fp32; differs from the CPU only by rounding */
    ASHLAR_RNN_MATH_TF32, /* factors rounded to 10 bits of mantissa, if the GPU can: faster */
    ASHLAR_RNN_MATH_COUNT
} ashlar_rnn_math;

/* Which of cuDNN's algorithms computes the stack. The CPU has one of its own, but refuses what the
 * chosen one refuses. The persistent ones keep weights in the GPU's multiprocessors. They need
 * ASHLAR_RNN_BIAS_DOUBLE, no projection, and batches in which all sequences have `steps` time
 * steps, or may run that many (padding_is_free in ashlar_rnn_batch); F64 needs PERSIST_DYNAMIC.
 * cuDNN may refuse other sizes and GPUs as well.
 *
 * AUTO takes a persistent one where it is allowed and PyTorch's rule says that it is faster (small
 * H; on some GPUs one layer in F16), for each batch anew, and STANDARD elsewhere. Its reserve and
 * work have room for both. */
typedef enum ashlar_rnn_algorithm {
    ASHLAR_RNN_STANDARD,
    ASHLAR_RNN_PERSIST_STATIC,
    ASHLAR_RNN_PERSIST_DYNAMIC, /* compiled anew for each batch size */
    ASHLAR_RNN_PERSIST_SMALL,   /* for small H */
    ASHLAR_RNN_AUTO,
    ASHLAR_RNN_ALGORITHM_COUNT
} ashlar_rnn_algorithm;

/* A stack of layers. With only input, hidden and layers set, which must be given, it is PyTorch's
 * nn.LSTM(input, hidden, layers). */
typedef struct ashlar_rnn_config {
    size_t input;  /* I, 1.. */
    size_t hidden; /* H, 1.. */
    size_t layers; /* L, 1.. */
    ashlar_dtype dtype;
    ashlar_rnn_cell cell;
    ashlar_rnn_bias bias;
    size_t directions; /* D; 0 and 1: forward, 2: forward and reverse */
    size_t projection; /* P, 1 .. H-1, LSTM only; 0: none */
    double dropout;    /* [0, 1): share of outputs between layers that training zeroes; L = 1: 0 */
    ashlar_rnn_math math;
    ashlar_rnn_algorithm algorithm;
} ashlar_rnn_config;

/* The tensors of one pseudo-layer. The gates' rows of a matrix follow each other, so one matrix
 * product computes all gates. */
typedef enum ashlar_rnn_tensor {
    ASHLAR_RNN_W,  /* [G*H, in(l)] */
    ASHLAR_RNN_R,  /* [G*H, P] */
    ASHLAR_RNN_BW, /* [G*H] */
    ASHLAR_RNN_BR, /* [G*H] */
    ASHLAR_RNN_WP, /* [P, H] */
    ASHLAR_RNN_TENSOR_COUNT
} ashlar_rnn_tensor;

typedef struct ashlar_rnn_view {
    size_t offset; /* elements from the start of the stack */
    size_t rows;   /* 0: there is no such tensor, and the other fields are 0 as well */
    size_t cols;   /* 1 for a bias */
} ashlar_rnn_view;

typedef struct ashlar_rnn_layout {
    ashlar_rnn_config config; /* as given, with directions 1 or 2 */
    size_t gates;             /* G */
    size_t state;             /* P */
    size_t output;            /* D*P, the width of y */
    size_t pseudo_layers;     /* L*D */
    size_t elements;          /* of the whole stack; below 2^31 */
} ashlar_rnn_layout;

/* Check `config` and compute its layout.
 *
 * Errors: ASHLAR_EINVAL (a dimension of 0, an unknown type, cell, bias, math or algorithm, more
 *         than 2 directions, a projection without LSTM or not below hidden, a dropout outside its
 *         range), ASHLAR_EOVERFLOW (2^31 elements or more: cuDNN 9.19 counts them in 32 bits and
 *         then reports a wrong size as a success).
 * Threads: any; touches only its arguments. *layout is written only on ASHLAR_OK. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_rnn_layout_init(ashlar_rnn_layout *layout,
                                                                  const ashlar_rnn_config *config);

/* Where one tensor lies. Requires pseudo_layer < layout->pseudo_layers and a valid tensor. */
ASHLAR_API ashlar_rnn_view ashlar_rnn_layout_view(const ashlar_rnn_layout *layout,
                                                  size_t pseudo_layer, ashlar_rnn_tensor tensor);

/* "lstm", "gru", "tanh", "relu"; NULL for any other value. */
ASHLAR_API const char *ashlar_rnn_cell_name(ashlar_rnn_cell cell);

/* ---- layers ---- */

typedef struct ashlar_rnn ashlar_rnn;

/* A padded batch: sequence b has lengths[b] of `steps` time steps.
 *
 * cuDNN takes up to 65,535 time steps at once. A model (model.h) cuts a longer batch into chunks. */
typedef struct ashlar_rnn_batch {
    size_t steps;           /* T, 1.. */
    size_t batch;           /* B, 1.. */
    const int32_t *lengths; /* [B] in host memory, each 1..T, any order; copied by each call */
    bool dropout_restarts; /* true: equal seeds zero equal outputs, since the call sets up all of
                            * cuDNN's random states again. On the CPU that is always so */
    uint64_t dropout_seed; /* training forward: decides which outputs dropout zeroes; pass another
                            * seed in each step. On a CUDA device only the seed of an rnn's first
                            * such call counts, and later calls continue its random sequence,
                            * unless dropout_restarts is set */
    /* For a part of a batch, so that dropout zeroes what it would zero in the whole one: sequence b
     * of the part is sequence dropout_first + b * dropout_stride of the whole. 0 and 0 stand for 0
     * and 1, the only values on a CUDA device. The same in all passes */
    size_t dropout_first, dropout_stride;
    /* The caller promises that past the lengths x is finite, dy is 0 and y is not needed, and
     * passes no hy, cy, dhy and dcy. Then cuDNN may compute all sequences for `steps` steps, as
     * persistent algorithms demand, with the same gradients; y past the lengths is finite. Only a
     * stack in one direction, and not with ReLU, whose states may grow without bound, does so. The
     * same in all passes */
    bool padding_is_free;
    /* x, y, dy and dx have no padding: they are [N, I] and [N, D*P], with N the sum of the lengths,
     * none of which is longer than the one before it. Row by row they have the sequences that reach
     * a step, step by step, as PyTorch's PackedSequence has. On the CPU only. The same in all
     * passes */
    bool is_packed;
} ashlar_rnn_batch;

/* The buffers of the three calls, in device memory, with elements of the layout's type. The letters
 * of the shapes are those of "where the weights lie", above; states are in the order of
 * pseudo-layers. Each call uses only the fields whose comment names the call; fields marked LSTM
 * are used only for that cell.
 * Outputs are overwritten, except dweights, which is added to. No output may overlap another output
 * or an input. All buffers are in use until the queued work has run.
 *
 * On a CUDA device the backward calls also read y, hx and cx: pass the same buffers as in forward,
 * which nothing queued before backward_weights may change. */
typedef struct ashlar_rnn_buffers {
    void *reserve; /* all calls; forward: NULL for inference */
    void *work;    /* all calls; scratch */

    const void *x;       /* [T, B, I]   forward, backward_weights; not read past the lengths */
    const void *hx;      /* [L*D, B, P] forward; NULL: zeros */
    const void *cx;      /* [L*D, B, H] forward, LSTM; NULL: zeros */
    const void *weights; /* the stack's weights, in packed order; forward, backward_data */
    void *y;             /* [T, B, D*P] forward; 0 past the lengths; direction 0 first in a row */
    void *hy;            /* [L*D, B, P] forward; may be NULL */
    void *cy;            /* [L*D, B, H] forward, LSTM; may be NULL */

    const void *dy;  /* [T, B, D*P] backward_data; not read past the lengths; NULL: zeros */
    const void *dhy; /* [L*D, B, P] backward_data; NULL: zeros */
    const void *dcy; /* [L*D, B, H] backward_data, LSTM; NULL: zeros */
    void *dx;        /* [T, B, I]   backward_data; 0 past the lengths; may be NULL */
    void *dhx;       /* [L*D, B, P] backward_data; may be NULL */
    void *dcx;       /* [L*D, B, H] backward_data, LSTM; may be NULL */

    void *dweights; /* packed like `weights`; backward_weights; ADDED to */

    const void *prepared; /* forward: what ashlar_rnn_prepare() made of `weights`; may be NULL */
} ashlar_rnn_buffers;

/* Make a stack of recurrent layers, computed on a software device, or without one, by the CPU, on a
 * CUDA device by cuDNN 9 (libcudnn.so.9, or the file that the environment's ASHLAR_CUDNN names). An
 * rnn holds no weights. On a CUDA device it holds a cuDNN handle and, with dropout, cuDNN's random
 * states (some MiB); only this call takes their memory from the driver. It also checks that cuDNN
 * expects every weight where ashlar_rnn_layout_view() says that it lies.
 *
 * device   NULL: the CPU, with no device: buffers are host memory of any kind, such as the tensors
 *          of another library, `reserve`, `work` and `prepared` aligned to 64 bytes; a pass has run
 *          when its call returns, and its stream is NULL
 *
 * Ownership: *out is the caller's; the device must outlive it.
 * Threads:   any. With cuDNN, calls on one rnn wait for each other; with dropout, queue its
 *            training forwards on one stream, or on streams that wait for each other.
 * Errors:    those of ashlar_rnn_layout_init(); ASHLAR_ENOTSUP (a CUDA device in a build without
 *            cuDNN's headers, or without its library; a type that the device cannot compute in: the
 *            CPU computes in F32 and F64 only; an algorithm that does not support this stack; a
 *            cuDNN that orders weights differently); ASHLAR_EINVAL (on the CPU: the environment's
 *            ASHLAR_THREADS is not a number of threads); ASHLAR_EHOSTMEM; with cuDNN ASHLAR_ENOMEM,
 *            ASHLAR_EDRIVER. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_rnn_create(ashlar_device *device,
                                                             const ashlar_rnn_config *config,
                                                             ashlar_rnn **out);
ASHLAR_API void ashlar_rnn_destroy(ashlar_rnn *rnn); /* NULL is allowed; may wait for the device */

/* The layout of the rnn's weights. Ownership: the rnn's.  Threads: any. */
ASHLAR_API const ashlar_rnn_layout *ashlar_rnn_layout_of(const ashlar_rnn *rnn);

/* Declare a stack's weights in an arena, as one group in packed order, under PyTorch's names:
 * prefix + ".weight_ih_l0", ".weight_hh_l0", ".bias_ih_l0", ".bias_hh_l0", ".weight_hr_l0" (the
 * projection) for layer 0, and so on; "_reverse" is appended for the reverse direction. Tensors
 * that the stack does not have are left out. *first gets the first tensor's number, whose address
 * (ashlar_arena_view()) is the `weights` of ashlar_rnn_buffers.
 *
 * Each tensor has PyTorch's shape, order of gates and order of elements, so that PyTorch can load a
 * checkpoint of the arena; only the order of the tensors in memory is cuDNN's. A stack with
 * ASHLAR_RNN_BIAS_DOUBLE is PyTorch's module with bias=True, with ASHLAR_RNN_BIAS_NONE the one with
 * bias=False. PyTorch has no module with a single bias: use bias=True, and zeros for the missing
 * tensors.
 *
 * Errors: those of ashlar_arena_add_group(). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_rnn_declare(ashlar_arena *arena,
                                                              const char *prefix,
                                                              const ashlar_rnn_layout *layout,
                                                              size_t *first);

/* The bytes that the buffers `reserve` and `work` need for one batch; `reserve` needs 0 for
 * inference, and `work` may need more than for training: take the larger for both. A longer batch
 * may need fewer bytes (with cuDNN): for buffers that suit all lengths up to a maximum, take the
 * largest result over these lengths.
 *
 * Errors: ASHLAR_EINVAL (steps, batch), ASHLAR_EOVERFLOW, with cuDNN also those of
 *         ashlar_rnn_forward(), and ASHLAR_ENOTSUP (more than 65,535 steps). The results are
 * written only on ASHLAR_OK. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_rnn_sizes(const ashlar_rnn *rnn, size_t steps,
                                                            size_t batch, bool training,
                                                            size_t *reserve_bytes,
                                                            size_t *work_bytes);

/* Prepare weights for forward passes: bring them into the order in which the back end's products
 * read them, which else each pass does anew. It pays where weights stay the same for several
 * passes, most of all with few sequences: one sequence of 64 steps through an LSTM of 1024 units
 * takes four fifths of the time. Pass `prepared` to ashlar_rnn_forward() with the same `weights`;
 * once these change, prepare anew.
 *
 * The CPU needs about as many bytes as the weights have; `work` is as large as without. cuDNN reads
 * weights as they are, so there the bytes are 0, and ashlar_rnn_prepare() does nothing. Outputs
 * have the same bits as without, if there are at least 4 time steps and 4 rows (time steps of all
 * sequences).
 *
 * prepared  device memory of ashlar_rnn_prepared_bytes(), aligned to 64 bytes; NULL if these are 0.
 *           In use until the queued work has run
 *
 * Stream: queued.  Threads: any.  Ownership: the caller's; nothing keeps it.
 * Errors: ASHLAR_EINVAL (weights or prepared NULL, or not memory of a software device),
 *         ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. */
ASHLAR_API size_t ashlar_rnn_prepared_bytes(const ashlar_rnn *rnn);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_rnn_prepare(const ashlar_rnn *rnn,
                                                              const void *weights, void *prepared,
                                                              ashlar_stream stream);

/* Queue one of the three passes. ashlar_rnn_buffers says what each reads and writes.
 *
 * A reserve serves one ashlar_rnn_backward_data(), which overwrites what forward left in it, and
 * behind that any number of backward_weights. The CPU asks when a pass runs: one that finds another
 * reserve does not run, and the device's later calls fail with ASHLAR_EDRIVER and a line that says
 * so; without a device, the call itself fails with ASHLAR_EINVAL. cuDNN does not ask.
 *
 * Stream: queued. With cuDNN and dropout, neither the first training forward nor any with
 *         dropout_restarts may be captured.
 * Threads: any.
 * Errors: ASHLAR_EINVAL (steps, batch, a length outside 1..T, a missing buffer; on a software
 *         device also a buffer that is neither device memory nor page-locked, and lengths in device
 *         memory: the detail names it; without a device a buffer that is not aligned),
 *         ASHLAR_EOVERFLOW (steps, batch), ASHLAR_ENOTSUP (lengths that a persistent algorithm or
 *         chunks do not take; is_packed on a CUDA device), ASHLAR_EHOSTMEM, ASHLAR_EDRIVER; with
 *         cuDNN also ASHLAR_ENOTSUP (sizes that the algorithm does not support), ASHLAR_ENOMEM. On
 *         failure no output is written, except that dx may be filled with zeros, and that some
 *         chunks of a long pass may have run. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_rnn_forward(const ashlar_rnn *rnn,
                                                              const ashlar_rnn_batch *batch,
                                                              const ashlar_rnn_buffers *buffers,
                                                              ashlar_stream stream);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_rnn_backward_data(const ashlar_rnn *rnn, const ashlar_rnn_batch *batch,
                         const ashlar_rnn_buffers *buffers, ashlar_stream stream);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_rnn_backward_weights(const ashlar_rnn *rnn, const ashlar_rnn_batch *batch,
                            const ashlar_rnn_buffers *buffers, ashlar_stream stream);

ASHLAR_END_DECLS

#endif /* ASHLAR_RNN_H */
