/*
 * rnn_layout.h - where each weight of an RNN stack lies in cuDNN's packed order.
 *
 * Element offsets of one stack of L layers, input width I, hidden width H, G gates (LSTM: 4, in
 * the order i f g o), one direction, two biases:
 *
 *     in(0) = I, in(l > 0) = H
 *     matrices of layer l    W [G, H, in(l)] then R [G, H, H], row-major, rows = outputs
 *     base(l)              = sum over k < l of G*H*(in(k) + H)
 *     biases of layer l    = base(L) + l * 2*G*H: bW [G, H] then bR [G, H]
 *     elements             = base(L) + L * 2*G*H
 *
 * so all matrices of all layers come first, then all biases; no padding anywhere. cuDNN does not
 * document this order; it is what cudnnGetRNNWeightParams of cuDNN 9 returns for every
 * configuration asked (tests/test_rnn_layout_cudnn.c asks it again where cuDNN is installed).
 */
#ifndef ASHLAR_RNN_LAYOUT_H
#define ASHLAR_RNN_LAYOUT_H

#include <stddef.h>

#include <ashlar/dtype.h>
#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

enum { ASHLAR_LSTM_GATES = 4 };

typedef struct ashlar_rnn_config {
    size_t input;       /* I, 1.. */
    size_t hidden;      /* H, 1.. */
    size_t layers;      /* L, 1.. */
    ashlar_dtype dtype;
} ashlar_rnn_config;

/* One layer's four tensors. All gates of one are contiguous, so each is one matrix product. */
typedef enum ashlar_rnn_tensor {
    ASHLAR_RNN_W,  /* [G*H, in(l)] */
    ASHLAR_RNN_R,  /* [G*H, H] */
    ASHLAR_RNN_BW, /* [G*H] */
    ASHLAR_RNN_BR, /* [G*H] */
    ASHLAR_RNN_TENSOR_COUNT
} ashlar_rnn_tensor;

typedef struct ashlar_rnn_view {
    size_t offset; /* elements from the start of the stack */
    size_t rows;   /* G*H */
    size_t cols;   /* in(l), H, or 1 for a bias */
} ashlar_rnn_view;

typedef struct ashlar_rnn_layout {
    ashlar_rnn_config config;
    size_t elements; /* of the whole stack; below 2^31 */
} ashlar_rnn_layout;

/*
 * Check `config` and compute its layout.
 *
 * Errors: ASHLAR_EINVAL (a dimension of 0, an unknown type), ASHLAR_EOVERFLOW (2^31 elements or
 *         more: cuDNN 9.19 counts them in 32 bits and then reports a wrong size as a success).
 * Threads: any; touches only its arguments. *layout is written only on ASHLAR_OK.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_rnn_layout_init(ashlar_rnn_layout *layout,
                                                       const ashlar_rnn_config *config);

/* Where one tensor lies. Requires layer < layers and a valid tensor. */
ASHLAR_API ashlar_rnn_view ashlar_rnn_layout_view(const ashlar_rnn_layout *layout, size_t layer,
                                       ashlar_rnn_tensor tensor);

ASHLAR_END_DECLS

#endif /* ASHLAR_RNN_LAYOUT_H */
