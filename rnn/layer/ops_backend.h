/* ops_backend.h - the functions of a compute back end for a model's operations around the RNN
 * (internal). There is one function for each operation of ops.h, with the same contract. */
#ifndef ASHLAR_OPS_BACKEND_H
#define ASHLAR_OPS_BACKEND_H

#include "rnn/layer/ops.h"

typedef struct ashlar_ops_backend {
    const char *name;
    /* Set ops->state; the other fields of *ops are set already. open and close may be NULL. */
    ashlar_status (*open)(ashlar_ops *ops);
    void (*close)(ashlar_ops *ops);
    /* Whether the back end can compute in a type. Errors: ASHLAR_ENOTSUP. */
    ashlar_status (*check)(ashlar_dtype dtype);
    size_t (*loss_work_bytes)(size_t positions);
    size_t (*work_bytes)(const ashlar_ops *ops);
#define ASHLAR_OPS_FIELD(op, kind) \
    ashlar_status (*op)(const ashlar_ops *, const ashlar_##kind##_args *, ashlar_stream);
    ASHLAR_OPS_MAP(ASHLAR_OPS_FIELD)
} ashlar_ops_backend;

struct ashlar_ops {
    ashlar_device *device;             /* const */
    const ashlar_ops_backend *backend; /* const */
    ashlar_dtype dtype;                /* const */
    void *state;                       /* the back end's own */
    void *work;                        /* of ashlar_ops_set_work(); NULL: none */
    size_t work_bytes;
};

/* The CPU: operations are host functions in stream order, on a software device's memory. */
extern const ashlar_ops_backend ashlar__ops_backend_cpu;

/* CUDA devices: kernels and cuBLAS. In a build without kernels, check() refuses every type. */
extern const ashlar_ops_backend ashlar__ops_backend_cuda;

#endif /* ASHLAR_OPS_BACKEND_H */
