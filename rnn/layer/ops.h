/* ops.h - the operations of a model around its layers, whose contracts are in <ashlar/model.h>:
 * their list, their back ends, and the CPU's functions (internal; C and CUDA C). */
#ifndef ASHLAR_OPS_H
#define ASHLAR_OPS_H

#include <ashlar/model.h>

#include "allocator/base/compiler.h"

/* The operations: name, arguments. A program queues one by ashlar_NAME(ops, args, stream), which
 * checks its arguments. */
#define ASHLAR_OPS_PUBLIC_MAP(X)     \
    X(embedding_forward, embedding)  \
    X(embedding_backward, embedding) \
    X(linear_forward, linear)        \
    X(linear_backward, linear)       \
    X(cross_entropy, cross_entropy)  \
    X(squared_error, squared_error)  \
    X(copy_columns, columns)         \
    X(argmax, argmax)

/* Those of a model's engine alone; their arguments are below. */
#define ASHLAR_OPS_INTERNAL_MAP(X) \
    X(map, map)                    \
    X(scale_rows, scale_rows)      \
    X(row_products, row_products)  \
    X(softmax, softmax)            \
    X(softmax_back, softmax_back)  \
    X(drop, drop)                  \
    X(pool, pool)                  \
    X(pool_back, pool_back)        \
    X(swap, swap)                  \
    X(clip_lengths, clip_lengths)  \
    X(add_losses, add_losses)

#define ASHLAR_OPS_MAP(X)    \
    ASHLAR_OPS_PUBLIC_MAP(X) \
    ASHLAR_OPS_INTERNAL_MAP(X)

/*
 * The arguments of the internal operations, in the manner of <ashlar/model.h>. An output is added
 * to if `adds` says so, and else overwritten; it overlaps an input only where the comment allows
 * it. Positions past a length are not read.
 */

typedef enum ashlar_map_kind {
    ASHLAR_MAP_COPY, /* a */
    ASHLAR_MAP_ADD,  /* a + b */
    ASHLAR_MAP_MULTIPLY,
    ASHLAR_MAP_TANH, /* of a */
    ASHLAR_MAP_RELU,
    ASHLAR_MAP_SIGMOID,
    ASHLAR_MAP_TANH_BACK, /* the gradient: a is the function's result, b the gradient of that */
    ASHLAR_MAP_RELU_BACK,
    ASHLAR_MAP_SIGMOID_BACK,
    ASHLAR_MAP_KIND_COUNT
} ashlar_map_kind;

typedef struct ashlar_map_args {
    ashlar_map_kind kind;
    size_t count;  /* N, 1.. */
    const void *a; /* [N] */
    const void *b; /* [N] for ADD, MULTIPLY, and gradients */
    void *out;     /* [N], may be a or b */
    bool adds;
} ashlar_map_args;

/* out[r, j] = a[r, j] * scale[r], and 0 in a row past a length. */
typedef struct ashlar_scale_rows_args {
    size_t rows;       /* N, 1..; with lengths T * B */
    size_t width;      /* of a row, 1.. */
    const void *a;     /* [N, width] */
    const void *scale; /* [N]; NULL: all 1 */
    void *out;         /* [N, width], may be a */
    bool adds;
    size_t steps;           /* T; with lengths */
    size_t batch;           /* B; with lengths */
    const int32_t *lengths; /* [B], each 0..T; NULL: every row counts */
    bool is_past;           /* the rows past the lengths count instead, and the others are 0 */
} ashlar_scale_rows_args;

/* out[r] = the sum over j of a[r, j] * b[r, j]. */
typedef struct ashlar_row_products_args {
    size_t rows;   /* N, 1.. */
    size_t width;  /* of a row, 1.. */
    const void *a; /* [N, width] */
    const void *b; /* [N, width] */
    void *out;     /* [N] */
    bool adds;
} ashlar_row_products_args;

/* y = softmax(x / temperature): each row sums to 1. */
typedef struct ashlar_softmax_args {
    size_t rows;        /* N, 1.. */
    size_t width;       /* of a row, 1.. */
    const void *x;      /* [N, width] */
    void *y;            /* [N, width], may be x */
    double temperature; /* below 1 sharpens, above 1 flattens; 0: 1 */
} ashlar_softmax_args;

/* dx = y * (dy - the sum of dy * y), with temperature 1. */
typedef struct ashlar_softmax_back_args {
    size_t rows;    /* N, 1.. */
    size_t width;   /* of a row, 1.. */
    const void *y;  /* [N, width] */
    const void *dy; /* [N, width] */
    void *dx;       /* [N, width], may be dy */
    bool adds;
} ashlar_softmax_back_args;

/* out = a / (1 - rate), and 0 where the element is dropped (dropout.h). The gradient is the same
 * operation. */
typedef struct ashlar_drop_args {
    size_t steps;            /* T, 1.. */
    size_t batch;            /* B, 1.. */
    size_t width;            /* of a row, 1.. */
    double rate;             /* 0 <= rate < 1 */
    uint64_t seed;           /* the same one drops the same elements */
    const uint64_t *seed_at; /* device memory; added to the seed when the pass runs; NULL: 0 */
    uint32_t site;           /* which dropout of the model, below 2^31 */
    size_t first;            /* row b is sequence first + b * stride */
    size_t stride;           /* 0: 1 */
    const void *a;           /* [T, B, width] */
    void *out;               /* [T, B, width], may be a */
    bool adds;
} ashlar_drop_args;

/* Forward: y = one row of each sequence's; a sequence of length 0 gives 0. */
typedef struct ashlar_pool_args {
    ashlar_pool_kind kind;
    size_t steps;           /* T, 1.. */
    size_t batch;           /* B, 1.. */
    size_t width;           /* W, 1.. */
    const int32_t *lengths; /* [B], each 0..T; NULL: all are T */
    const void *x;          /* [T, B, W] forward; backward of MAX */
    void *y;                /* [B, W]    forward; backward of MAX, read */
    const void *dy;         /* [B, W]    backward */
    void *dx;               /* [T, B, W] backward; 0 past the lengths, unless it adds */
    bool adds;
} ashlar_pool_args;

typedef ashlar_pool_args ashlar_pool_back_args;

/* to[i, o, j] = from[o, i, j]. */
typedef struct ashlar_swap_args {
    size_t outer, inner; /* O, I, 1.. */
    size_t width;        /* of a row, 1.. */
    const void *from;    /* [O, I, width] */
    void *to;            /* [I, O, width] */
    bool adds;
} ashlar_swap_args;

/* out[b] = lengths[b] - first, but at least `least` and at most `steps`: the lengths of a piece of
 * time. */
typedef struct ashlar_clip_lengths_args {
    size_t batch;           /* B, 1.. */
    size_t first;           /* the piece's first position */
    size_t steps;           /* of the piece */
    size_t least;           /* 0..steps */
    const int32_t *lengths; /* [B]; NULL: all are `whole` */
    size_t whole;
    int32_t *out; /* [B], may be lengths */
} ashlar_clip_lengths_args;

/* loss += weight * factor * the sum of the positions' losses, in the bits in which the loss of all
 * of them would be added. The parts of a batch compute theirs with a `loss` of NULL, which a
 * program may not give. */
typedef struct ashlar_add_losses_args {
    size_t positions;        /* N, 1.. */
    double *losses;          /* [N] */
    double weight;           /* of each position */
    const double *weight_at; /* as of ashlar_cross_entropy_args */
    double factor;           /* > 0 */
    double *loss;            /* ADDED TO */
} ashlar_add_losses_args;

ASHLAR_SHARED_FN int32_t ashlar__clip_length(const ashlar_clip_lengths_args *args, size_t b) {
    const size_t length = args->lengths == NULL ? args->whole : (size_t)args->lengths[b];
    const size_t left = length > args->first ? length - args->first : 0;
    const size_t most = left < args->steps ? left : args->steps;
    return (int32_t)(most > args->least ? most : args->least);
}

/* Take what the operations can use of device memory, for calls ordered with `stream`, and give it
 * to them. *work is the caller's, to be freed after `ops`; unchanged where they need none. Errors:
 * those of ashlar_alloc(). */
ASHLAR_BEGIN_DECLS
ASHLAR_MUST_CHECK ashlar_status ashlar__ops_take_work(ashlar_ops *ops, ashlar_allocator *allocator,
                                                      ashlar_stream stream, void **work);

/* Queue an operation whose arguments are known to be right. Stream, threads, results: as the public
 * operations; errors: only those of queueing. */
#define ASHLAR_OPS_DECLARE(op, kind)                  \
    ASHLAR_MUST_CHECK ashlar_status ashlar__ops_##op( \
        const ashlar_ops *ops, const ashlar_##kind##_args *args, ashlar_stream stream);
ASHLAR_OPS_MAP(ASHLAR_OPS_DECLARE)
ASHLAR_END_DECLS

typedef struct ashlar_ops_backend {
    const char *name;
    /* open sets ops->state; the other fields are set already. open and close may be NULL. */
    ashlar_status (*open)(ashlar_ops *ops);
    void (*close)(ashlar_ops *ops);
    /* Check that the back end can compute in a type. Errors: ASHLAR_ENOTSUP. */
    ashlar_status (*check)(ashlar_dtype dtype);
    size_t (*loss_work_bytes)(size_t positions);
    size_t (*work_bytes)(const ashlar_ops *ops);
#define ASHLAR_OPS_FIELD(op, kind) \
    ashlar_status (*op)(const ashlar_ops *, const ashlar_##kind##_args *, ashlar_stream);
    ASHLAR_OPS_MAP(ASHLAR_OPS_FIELD)
} ashlar_ops_backend;

struct ashlar_ops {
    ashlar_device *device;
    const ashlar_ops_backend *backend;
    ashlar_dtype dtype;
    void *state; /* the back end's; it alone knows the type */
    void *work;  /* set by ashlar_ops_set_work(); NULL: none */
    size_t work_bytes;
};

/* The CPU: operations are host functions in stream order, on a software device's memory. */
extern const ashlar_ops_backend ashlar__ops_backend_cpu;

/* CUDA devices: kernels and cuBLAS. In a build without kernels, check() refuses every type. */
extern const ashlar_ops_backend ashlar__ops_backend_cuda;

/*
 * The operations on plain memory. The elements behind the arguments' void pointers are float for
 * _f32 and double for _f64. No function here allocates or fails. Threads: any, on distinct outputs;
 * the work is shared by the workers (workers.h). The same arguments give the same bits, with any
 * number of threads (see blas.h): sums run in the order of the rows.
 */

#define ASHLAR_OPS_DECLARE_CPU(op, kind)                       \
    void ashlar__##op##_f32(const ashlar_##kind##_args *args); \
    void ashlar__##op##_f64(const ashlar_##kind##_args *args);
ASHLAR_OPS_MAP(ASHLAR_OPS_DECLARE_CPU)

#endif /* ASHLAR_OPS_H */
