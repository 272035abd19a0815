/* ops.c - the operations of a model around its layers: chooses a back end, and queues them on the
 * CPU as host functions. */
#include "rnn/layer/ops_backend.h"

#include "allocator/base/host.h"
#include "rnn/layer/ops_cpu.h"

static ashlar_status check_cpu(ashlar_dtype dtype) {
    return dtype == ASHLAR_F32 || dtype == ASHLAR_F64
               ? ASHLAR_OK
               : ashlar__fail(
                     ASHLAR_ENOTSUP,
                     "ops: the CPU computes in ASHLAR_F32 and ASHLAR_F64 only; ASHLAR_%s is "
                     "for GPUs",
                     ashlar_dtype_name(dtype));
}

static size_t no_work_bytes(size_t positions) {
    (void)positions;
    return 0;
}

/* A function of the back end that queues the operation. ashlar_launch() copies the arguments. */
#define QUEUE_OP(op, kind)                                                                     \
    static void run_##op##_f32(void *args) {                                                   \
        ashlar__##op##_f32(args);                                                              \
    }                                                                                          \
    static void run_##op##_f64(void *args) {                                                   \
        ashlar__##op##_f64(args);                                                              \
    }                                                                                          \
    static ashlar_status queue_##op(const ashlar_ops *ops, const ashlar_##kind##_args *args,   \
                                    ashlar_stream stream) {                                    \
        return ashlar_launch(ops->device, stream,                                              \
                             ops->dtype == ASHLAR_F32 ? run_##op##_f32 : run_##op##_f64, args, \
                             sizeof *args);                                                    \
    }

ASHLAR_OPS_MAP(QUEUE_OP)

#define ROW(op, kind) .op = queue_##op,
const ashlar_ops_backend ashlar__ops_backend_cpu = {
    .name = "cpu", .check = check_cpu, .loss_work_bytes = no_work_bytes, ASHLAR_OPS_MAP(ROW)};

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
