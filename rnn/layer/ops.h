/*
 * ops.h - what models need beside recurrent layers, queued on a stream: embedding, linear layer,
 * loss, and the small things between them (internal).
 *
 * Batches are padded and time-major, as in rnn.h: [T, B, ...], lengths[B], each 0..T. Positions
 * past a length are neither read nor counted. All pointers are to device memory, the elements
 * behind the void ones of the type that the ops were created for; the structs themselves are
 * copied by the call.
 *
 * Outputs are overwritten unless a field says ADDED TO, and overlap no input unless it says so.
 *
 * Stream: all is queued.  Threads: any.  Errors: ASHLAR_EDRIVER, ASHLAR_EHOSTMEM; nothing is
 * queued then, but by an operation of several parts on a CUDA device the first of them may be. The
 * same arguments give the same bits: sums run in a fixed order.
 */
#ifndef ASHLAR_OPS_H
#define ASHLAR_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/device.h>
#include <ashlar/dtype.h>

typedef struct ashlar_ops ashlar_ops;

/*
 * The operations of a device, on elements of one type: on a CUDA device by kernels of the build
 * and by cuBLAS (libcublas.so.13 or .so.12, or the file that the environment's ASHLAR_CUBLAS
 * names), whose products of fp32 are in fp32. Waits for the device on destruction there.
 *
 * Ownership: *out is the caller's; the device must outlive it.
 * Errors:    ASHLAR_ENOTSUP (a CUDA device in a build without nvcc, or without cuBLAS; a type
 *            that the device has no arithmetic for: on the CPU all but F32 and F64),
 *            ASHLAR_EHOSTMEM; on a CUDA device ASHLAR_EDRIVER, ASHLAR_ENOMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__ops_create(ashlar_device *device, ashlar_dtype dtype,
                                                   ashlar_ops **out);
void ashlar__ops_destroy(ashlar_ops *ops); /* NULL is allowed */

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

/* out = the table's row of each token. */
ASHLAR_MUST_CHECK ashlar_status ashlar__ops_embedding_forward(const ashlar_ops *ops,
                                                              const ashlar_embedding_args *args,
                                                              ashlar_stream stream);
/*
 * dtable += dout, row by row in the order of the tokens. A CUDA device looks at every token for
 * every row of the table, V * T * B comparisons, so that the order is always the same.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__ops_embedding_backward(const ashlar_ops *ops,
                                                               const ashlar_embedding_args *args,
                                                               ashlar_stream stream);

/* Every row is used: padding must hold numbers. */
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

/* y = x weight^T + bias. */
ASHLAR_MUST_CHECK ashlar_status ashlar__ops_linear_forward(const ashlar_ops *ops,
                                                           const ashlar_linear_args *args,
                                                           ashlar_stream stream);
/* dx = dy weight, dweight += dy^T x, dbias += the sum of dy's rows. */
ASHLAR_MUST_CHECK ashlar_status ashlar__ops_linear_backward(const ashlar_ops *ops,
                                                            const ashlar_linear_args *args,
                                                            ashlar_stream stream);

typedef struct ashlar_loss_args {
    size_t steps;           /* T */
    size_t batch;           /* B */
    const int32_t *lengths; /* [B] */
    size_t classes;         /* V, 1.. */
    const void *logits;     /* [T, B, V] */
    const int32_t *targets; /* [T, B], each 0..V-1 up to its length (asserted on the CPU) */
    double weight;          /* of each position; 0 stands for 1 / the number of valid ones */
    void *dlogits;          /* [T, B, V], may be logits; 0 past the lengths; NULL = not wanted */
    const double *scale;    /* what dlogits is multiplied by; NULL stands for 1 */
    void *work;             /* ashlar__ops_loss_work_bytes(); scratch */
    double *loss;           /* ADDED TO */
} ashlar_loss_args;

/*
 * loss += weight * the sum over all valid positions of -log softmax(logits)[target], in nats;
 * dlogits is the gradient of what is added, times the scale. With the weight left 0 that is the
 * mean, and at least one position must be valid.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__ops_loss(const ashlar_ops *ops,
                                                 const ashlar_loss_args *args,
                                                 ashlar_stream stream);

/* Scratch of a loss over `positions` = T * B; 0: none, work may be NULL. */
size_t ashlar__ops_loss_work_bytes(const ashlar_ops *ops, size_t positions);

typedef struct ashlar_columns_args {
    size_t rows;      /* N */
    size_t width;     /* of what is copied, in elements */
    const void *from; /* [N, width], rows `from_stride` elements apart */
    size_t from_stride;
    void *to; /* [N, width], rows `to_stride` elements apart */
    size_t to_stride;
    bool adds; /* to is ADDED TO */
} ashlar_columns_args;

/* to = from, or to += from: some columns of a matrix from, or into, some of another. */
ASHLAR_MUST_CHECK ashlar_status ashlar__ops_columns(const ashlar_ops *ops,
                                                    const ashlar_columns_args *args,
                                                    ashlar_stream stream);

typedef struct ashlar_argmax_args {
    size_t rows;        /* N */
    size_t classes;     /* V, 1.. */
    const void *logits; /* [N, V] */
    int32_t *labels;    /* [N] */
} ashlar_argmax_args;

/* labels = the class of the largest value of each row, the first of several; 0 where all are NaN.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__ops_argmax(const ashlar_ops *ops,
                                                   const ashlar_argmax_args *args,
                                                   ashlar_stream stream);

#endif /* ASHLAR_OPS_H */
