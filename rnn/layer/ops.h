/* ops.h - the operations of a model around its layers, whose contracts are in <ashlar/model.h>:
 * their list, their back ends, and the CPU's functions (internal; C and CUDA C). */
#ifndef ASHLAR_OPS_H
#define ASHLAR_OPS_H

#include <ashlar/model.h>

/* The operations: name, arguments. A program queues one by ashlar_NAME(ops, args, stream). */
#define ASHLAR_OPS_MAP(X)            \
    X(embedding_forward, embedding)  \
    X(embedding_backward, embedding) \
    X(linear_forward, linear)        \
    X(linear_backward, linear)       \
    X(cross_entropy, cross_entropy)  \
    X(squared_error, squared_error)  \
    X(copy_columns, columns)         \
    X(argmax, argmax)

/* Allocate the workspace that the operations can use, and set it (ashlar_ops_set_work()); later
 * calls must be ordered with `stream`. The caller owns *work and frees it after `ops`; it is
 * unchanged if they need none. Errors: those of ashlar_alloc(). */
ASHLAR_BEGIN_DECLS
ASHLAR_MUST_CHECK ashlar_status ashlar__ops_take_work(ashlar_ops *ops, ashlar_allocator *allocator,
                                                      ashlar_stream stream, void **work);
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

typedef struct ashlar_softmax_args {
    size_t rows;        /* N */
    size_t classes;     /* V, 1.. */
    double temperature; /* > 0: below 1 sharpens, above 1 flattens */
    const void *logits; /* [N, V] */
    void *probs;        /* [N, V], may be the same memory as logits */
} ashlar_softmax_args;

/* probs = softmax(logits / temperature), each row sums to 1. */
void ashlar__softmax_f32(const ashlar_softmax_args *args);
void ashlar__softmax_f64(const ashlar_softmax_args *args);

#endif /* ASHLAR_OPS_H */
