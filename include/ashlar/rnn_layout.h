/* rnn_layout.h - where cuDNN's packed order places each weight of an RNN stack.
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
 * tried; tests/rnn/layer/test_rnn_cudnn_real.c compares again if cuDNN is installed.
 *
 * Gates are in the order i f g o (LSTM) and r z n (GRU), as in PyTorch: each tensor is, byte for
 * byte, the PyTorch parameter that ashlar_rnn_declare() names. */
#ifndef ASHLAR_RNN_LAYOUT_H
#define ASHLAR_RNN_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/dtype.h>
#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

/* Name, gates, text. With s = W x + bW and u = R h + bR for each gate:
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

/* Which of cuDNN's algorithms computes the stack. The CPU has one of its own, and refuses what
 * these refuse. The persistent ones keep weights in the GPU's multiprocessors. They need
 * ASHLAR_RNN_BIAS_DOUBLE, no projection, and batches in which all sequences have `steps` time
 * steps, or may run that many (padding_is_free in rnn.h); F64 needs PERSIST_DYNAMIC. cuDNN may
 * refuse other sizes and GPUs as well.
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

/* With only input, hidden and layers set, it describes PyTorch's nn.LSTM(input, hidden, layers).
 * These three must be given. */
typedef struct ashlar_rnn_config {
    size_t input;  /* I, 1.. */
    size_t hidden; /* H, 1.. */
    size_t layers; /* L, 1.. */
    ashlar_dtype dtype;
    ashlar_rnn_cell cell;
    ashlar_rnn_bias bias;
    size_t directions; /* D; 0 and 1: forward, 2: forward and reverse */
    size_t projection; /* P, 1 .. H-1, LSTM only; 0: none */
    double dropout;    /* [0, 1): share of the outputs between layers that training zeroes */
    ashlar_rnn_math math;
    ashlar_rnn_algorithm algorithm;
} ashlar_rnn_config;

/* The tensors of one pseudo-layer. Gates are contiguous, so each matrix takes one product for all
 * of them. */
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

/* The cell called `name`. Errors: ASHLAR_EINVAL (no such cell); the detail lists the names. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_rnn_cell_parse(const char *name,
                                                                 ashlar_rnn_cell *out);

ASHLAR_END_DECLS

#endif /* ASHLAR_RNN_LAYOUT_H */
