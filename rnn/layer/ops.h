/* ops.h - a model's operations besides recurrent layers, queued on a stream: embedding, linear
 * layer, loss, and small operations between them (internal).
 *
 * Batches are padded and time-major, as in rnn.h: [T, B, ...], lengths[B], each 0..T. Positions
 * past a length are neither read nor counted. All pointers in the structs are to device memory;
 * void pointers are to elements of the type that the ops were created for. A call copies its
 * struct.
 *
 * Outputs are overwritten unless the field's comment says ADDED TO. An output must not overlap an
 * input unless the field's comment allows it.
 *
 * Stream: all work is queued.  Threads: any.  Errors: ASHLAR_EDRIVER, ASHLAR_EHOSTMEM; nothing is
 * queued then, except that on a CUDA device the first parts of an operation may be. The same
 * arguments give the same bits: sums run in a fixed order. */
#ifndef ASHLAR_OPS_H
#define ASHLAR_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/device.h>
#include <ashlar/dtype.h>

typedef struct ashlar_ops ashlar_ops;

/* Create the operations of a device, on elements of one type. A CUDA device uses the build's
 * kernels and cuBLAS (libcublas.so.13 or .so.12, or the file that the environment variable
 * ASHLAR_CUBLAS names), which multiplies fp32 in fp32. Destroying them waits for a CUDA device.
 *
 * Ownership: the caller owns *out; the device must outlive it.
 * Errors:    ASHLAR_ENOTSUP (a CUDA device in a build without nvcc, or without cuBLAS; a type
 *            that the device cannot compute in: on the CPU all but F32 and F64),
 *            ASHLAR_EHOSTMEM; on a CUDA device also ASHLAR_EDRIVER, ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__ops_create(ashlar_device *device, ashlar_dtype dtype,
                                                   ashlar_ops **out);
void ashlar__ops_destroy(ashlar_ops *ops); /* NULL is allowed */

/* The operations: name, arguments. Each is queued by ashlar__ops_NAME(ops, args, stream).
 *
 *   embedding_forward    for each position, out = the row of the table that its token names
 *   embedding_backward   for each position, add its row of dout to its token's row of dtable, in
 *                        the order of positions; to keep that order, a CUDA device compares every
 *                        token with every row: V * T * B comparisons
 *   linear_forward       y = x weight^T + bias
 *   linear_backward      dx = dy weight, dweight += dy^T x, dbias += the sum of dy's rows
 *   loss                 loss += weight * the sum over all valid positions of
 *                        -log softmax(logits)[target], in nats; dlogits is the gradient of the
 *                        addend, times the scale. With weight 0 the addend is the mean over the
 *                        valid positions, of which there must be at least one
 *   columns              to = from: copies some columns of one matrix to columns of another
 *   argmax               for each row, label = the class of the largest value, the first if several
 *                        are equal. A NaN is never the largest; if all are NaN, the label is 0 */
#define ASHLAR_OPS_MAP(X)            \
    X(embedding_forward, embedding)  \
    X(embedding_backward, embedding) \
    X(linear_forward, linear)        \
    X(linear_backward, linear)       \
    X(loss, loss)                    \
    X(columns, columns)              \
    X(argmax, argmax)

typedef struct ashlar_embedding_args {
    size_t steps;           /* T */
    size_t batch;           /* B */
    const int32_t *lengths; /* [B] */
    size_t classes;         /* V */
    size_t width;           /* E */
    const int32_t *tokens;  /* [T, B], each 0..V-1 up to its length (asserted on the CPU) */
    const void *table;      /* [V, E], forward */
    void *out;              /* [T, B, E], forward; 0 past the lengths */
    const void *dout;       /* [T, B, E], backward */
    void *dtable;           /* [V, E], backward, ADDED TO */
} ashlar_embedding_args;

/* All rows take part, padding included, so padding must not hold a NaN or an infinity. */
typedef struct ashlar_linear_args {
    size_t rows;        /* N */
    size_t in;          /* I */
    size_t out;         /* O */
    const void *x;      /* [N, I] */
    const void *weight; /* [O, I] */
    const void *bias;   /* [O], forward; NULL = none */
    void *y;            /* [N, O], forward */
    const void *dy;     /* [N, O], backward */
    void *dx;           /* [N, I], backward; NULL = not wanted */
    void *dweight;      /* [O, I], backward, ADDED TO; NULL = not wanted */
    void *dbias;        /* [O], backward, ADDED TO; NULL = not wanted */
} ashlar_linear_args;

typedef struct ashlar_loss_args {
    size_t steps;           /* T */
    size_t batch;           /* B */
    const int32_t *lengths; /* [B] */
    size_t classes;         /* V, 1.. */
    const void *logits;     /* [T, B, V] */
    const int32_t *targets; /* [T, B], each 0..V-1 up to its length (asserted on the CPU) */
    double weight;          /* of each position; 0 means 1 / the number of valid positions */
    void *dlogits;          /* [T, B, V], may be logits; 0 past the lengths; NULL = not wanted */
    const double *scale;    /* dlogits is multiplied by *scale; NULL means 1 */
    void *work;             /* scratch of ashlar__ops_loss_work_bytes() bytes */
    double *loss;           /* ADDED TO */
} ashlar_loss_args;

/* The bytes of scratch for a loss over `positions` = T * B. If 0, work may be NULL. */
size_t ashlar__ops_loss_work_bytes(const ashlar_ops *ops, size_t positions);

typedef struct ashlar_columns_args {
    size_t rows;      /* N */
    size_t width;     /* of a copied row, in elements */
    const void *from; /* [N, width], rows `from_stride` elements apart */
    size_t from_stride;
    void *to; /* [N, width], rows `to_stride` elements apart */
    size_t to_stride;
} ashlar_columns_args;

typedef struct ashlar_argmax_args {
    size_t rows;        /* N */
    size_t classes;     /* V, 1.. */
    const void *logits; /* [N, V] */
    int32_t *labels;    /* [N] */
} ashlar_argmax_args;

#define ASHLAR_OPS_DECLARE(op, kind)                  \
    ASHLAR_MUST_CHECK ashlar_status ashlar__ops_##op( \
        const ashlar_ops *ops, const ashlar_##kind##_args *args, ashlar_stream stream);
ASHLAR_OPS_MAP(ASHLAR_OPS_DECLARE)

#endif /* ASHLAR_OPS_H */
