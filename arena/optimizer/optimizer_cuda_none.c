/* CUDA kernels of the optimizer, in a build that has none. */
#include "allocator/base/error.h"
#include "arena/optimizer/optimizer_impl.h"

static ashlar_status refuse(void) {
    return ashlar_fail(ASHLAR_ENOTSUP, "optimizer: this build has no CUDA kernels; build where "
                                       "nvcc is on the PATH, or use a software device");
}

ashlar_status ashlar_optimizer_cuda_open(ashlar_device *device, ashlar_optimizer_cuda **out) {
    (void)device;
    (void)out;
    return refuse();
}

void ashlar_optimizer_cuda_close(ashlar_optimizer_cuda *cuda) {
    (void)cuda;
}

ashlar_status ashlar_optimizer_cuda_run(ashlar_optimizer_cuda *cuda,
                                        const ashlar_optimizer_job *job, ashlar_stream stream) {
    (void)cuda;
    (void)job;
    (void)stream;
    return refuse();
}
