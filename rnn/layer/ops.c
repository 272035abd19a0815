/* ops.c - the operations of a model around its layers: checks arguments, and calls a back end. */
#include "rnn/layer/ops_backend.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"

ashlar_status ashlar__ops_create(ashlar_device *device, ashlar_dtype dtype, ashlar_ops **out) {
    ashlar_device_info info;
    ashlar_device_get_info(device, &info);
    const ashlar_ops_backend *backend =
        info.kind == ASHLAR_DEVICE_CUDA ? &ashlar__ops_backend_cuda : &ashlar__ops_backend_cpu;
    ASHLAR_TRY(backend->check(dtype));
    ashlar_ops *ops;
    ASHLAR_HOST_NEW(ops, 1, "no host memory for a model's operations");
    *ops = (ashlar_ops){.device = device, .backend = backend, .dtype = dtype};
    const ashlar_status status = backend->open != NULL ? backend->open(ops) : ASHLAR_OK;
    ASHLAR_HAND_OUT(status, ops, ashlar__host_free, out);
}

void ashlar__ops_destroy(ashlar_ops *ops) {
    if (ops == NULL) {
        return;
    }
    if (ops->backend->close != NULL) {
        ops->backend->close(ops);
    }
    ashlar__host_free(ops);
}

size_t ashlar__ops_loss_work_bytes(const ashlar_ops *ops, size_t positions) {
    return ops->backend->loss_work_bytes(positions);
}

#define DEFINE_OP(op, kind)                                                                 \
    ashlar_status ashlar__ops_##op(const ashlar_ops *ops, const ashlar_##kind##_args *args, \
                                   ashlar_stream stream) {                                  \
        return ops->backend->op(ops, args, stream);                                         \
    }
ASHLAR_OPS_MAP(DEFINE_OP)
