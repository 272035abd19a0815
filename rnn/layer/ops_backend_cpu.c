/* ops_backend_cpu.c - the model's operations on the CPU, queued as host functions. */
#include "rnn/layer/ops_backend.h"

#include "allocator/base/error.h"
#include "rnn/layer/ops_cpu.h"

static ashlar_status check(ashlar_dtype dtype) {
    return dtype == ASHLAR_F32 || dtype == ASHLAR_F64
               ? ASHLAR_OK
               : ashlar__fail(
                     ASHLAR_ENOTSUP,
                     "ops: the CPU computes in ASHLAR_F32 and ASHLAR_F64 only; ASHLAR_%s is "
                     "for GPUs",
                     ashlar_dtype_name(dtype));
}

static size_t loss_work_bytes(size_t positions) {
    (void)positions;
    return 0;
}

/* A function of the back end that queues the operation. ashlar_launch() copies the arguments. */
#define DEFINE_OP(op, kind)                                                                    \
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

ASHLAR_OPS_MAP(DEFINE_OP)

#define ROW(op, kind) .op = queue_##op,
const ashlar_ops_backend ashlar__ops_backend_cpu = {
    .name = "cpu", .check = check, .loss_work_bytes = loss_work_bytes, ASHLAR_OPS_MAP(ROW)};
