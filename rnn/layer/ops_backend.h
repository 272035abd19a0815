/*
 * ops_backend.h - what a compute back end does for a model beside its recurrent layers (internal).
 *
 * One function for each of ops.h, with its contract.
 */
#ifndef ASHLAR_OPS_BACKEND_H
#define ASHLAR_OPS_BACKEND_H

#include "rnn/layer/ops.h"

typedef struct ashlar_ops_backend {
    const char *name;
    /* Fill in ops->state, whose device, backend and type are set. NULL: there is nothing to do. */
    ashlar_status (*open)(ashlar_ops *ops);
    void (*close)(ashlar_ops *ops);
    /* Errors: ASHLAR_ENOTSUP, a type that there is no arithmetic for. */
    ashlar_status (*check)(ashlar_dtype dtype);
    size_t (*loss_work_bytes)(size_t positions);
    ashlar_status (*embedding_forward)(const ashlar_ops *, const ashlar_embedding_args *,
                                       ashlar_stream);
    ashlar_status (*embedding_backward)(const ashlar_ops *, const ashlar_embedding_args *,
                                        ashlar_stream);
    ashlar_status (*linear_forward)(const ashlar_ops *, const ashlar_linear_args *, ashlar_stream);
    ashlar_status (*linear_backward)(const ashlar_ops *, const ashlar_linear_args *, ashlar_stream);
    ashlar_status (*loss)(const ashlar_ops *, const ashlar_loss_args *, ashlar_stream);
    ashlar_status (*columns)(const ashlar_ops *, const ashlar_columns_args *, ashlar_stream);
    ashlar_status (*argmax)(const ashlar_ops *, const ashlar_argmax_args *, ashlar_stream);
} ashlar_ops_backend;

struct ashlar_ops {
    ashlar_device *device;             /* const */
    const ashlar_ops_backend *backend; /* const */
    ashlar_dtype dtype;                /* const */
    void *state;                       /* the back end's own */
};

/* The CPU: operations are host functions in stream order, on a software device's memory. */
extern const ashlar_ops_backend ashlar__ops_backend_cpu;

/* CUDA devices: kernels and cuBLAS; in a build without them it refuses all. */
extern const ashlar_ops_backend ashlar__ops_backend_cuda;

#endif /* ASHLAR_OPS_BACKEND_H */
