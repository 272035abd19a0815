/* ops_cuda.h - the CUDA kernels for the operations of ops.h: names, arguments, thread blocks
 * (internal; C and CUDA C). */
#ifndef ASHLAR_OPS_CUDA_H
#define ASHLAR_OPS_CUDA_H

#include "rnn/layer/ops.h"

/* X(kernel, arguments). Each kernel exists for every element type, as ashlar_kernel_<kernel>_<type>
 * with a type of f32, f64, f16, bf16. It has one parameter, the arguments, no dynamic shared
 * memory, and blocks of THREADS. Narrow types are computed in float, and rounded once.
 *
 *   embedding_forward    a block for each PIECE elements of out
 *   embedding_backward   a block for each class and each THREADS columns of dtable
 *   embedding_add        the same after embedding_link, in a block for each position and each
 *                        THREADS columns
 *   bias_forward         a block for each PIECE elements of y: y = bias
 *   bias_backward        a block for each COLUMNS of dbias: dbias += the sum of dy's rows
 *   cross_entropy        a block for each position: dlogits, and its part of the loss
 *   squared_error        a block for each position: doutputs, and its part of the loss
 *   copy_columns         a block for each PIECE elements of to
 *   argmax               a block for each row
 *
 * and for all types, in one block each; the first two with the arguments of cross_entropy:
 *
 *   loss_count           the number of valid positions; if the weight is 0, it is 1 / that number
 *   loss_sum             loss += weight * the sum of the positions' parts
 *   embedding_link       link the positions of each token, in their order
 *
 * In a loss's work, an array of doubles, element 0 is that number. The parts follow, unless the
 * caller wants them in `losses`. */
#define ASHLAR_OPS_KERNEL_MAP(X)     \
    X(embedding_forward, embedding)  \
    X(embedding_backward, embedding) \
    X(embedding_add, chain)          \
    X(bias_forward, linear)          \
    X(bias_backward, linear)         \
    X(cross_entropy, cross_entropy)  \
    X(squared_error, squared_error)  \
    X(copy_columns, columns)         \
    X(argmax, argmax)

/* The positions of each token as a chain. A link is the next position plus 1, or 0, and has FIRST
 * in the first of its chain; that of a position without a token is 0. */
typedef struct ashlar_chain_args {
    ashlar_embedding_args embedding;
    uint32_t *newest; /* [V], 0 before: the last position of each token so far, plus 1 */
    uint32_t *links;  /* [T, B] */
} ashlar_chain_args;

#define ASHLAR_OPS_FIRST ((uint32_t)1 << 31)

enum {
    ASHLAR_OPS_THREADS = 128,
    ASHLAR_OPS_PIECE = 8 * ASHLAR_OPS_THREADS,
    ASHLAR_OPS_COLUMNS = 8,
};

#endif /* ASHLAR_OPS_CUDA_H */
