/* ops_backend_cuda_none.c - the CUDA back end of a build without kernels: refuses every type. */
#include "rnn/layer/ops_backend.h"

#include "allocator/base/error.h"

static ashlar_status refuse(ashlar_dtype dtype) {
    (void)dtype;
    return ashlar__fail(ASHLAR_ENOTSUP,
                        "ops: this build has no CUDA kernels: build with -Dcuda=enabled where nvcc "
                        "is on the PATH, or use the software device, ASHLAR_DEVICE=soft");
}

/* check() refuses every type, so no other function is ever called. */
const ashlar_ops_backend ashlar__ops_backend_cuda = {.name = "none", .check = refuse};
