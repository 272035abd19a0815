/* backend_none.c - the back ends for CUDA devices in a build without cuDNN or without kernels: they
 * refuse every rnn or every element type, so their other functions are never called. */
#include "allocator/base/error.h"
#include "rnn/layer/backend.h"
#include "rnn/layer/ops.h"

#if !defined ASHLAR_HAVE_CUDNN
static ashlar_status refuse_rnn(const ashlar_rnn_layout *layout) {
    (void)layout;
    return ashlar__fail(ASHLAR_ENOTSUP,
                        "rnn: this build has no back end for CUDA devices: build with "
                        "-Dcuda=enabled -Dcudnn=enabled where the headers of CUDA and of cuDNN 9 "
                        "are, or use the software device, ASHLAR_DEVICE=soft");
}

const ashlar_rnn_backend ashlar__rnn_backend_cudnn = {.name = "none", .check = refuse_rnn};
#endif

#if !defined ASHLAR_HAVE_OPS_CUDA
static ashlar_status refuse_ops(ashlar_dtype dtype) {
    (void)dtype;
    return ashlar__fail(ASHLAR_ENOTSUP,
                        "ops: this build has no CUDA kernels: build with -Dcuda=enabled where nvcc "
                        "is on the PATH, or use the software device, ASHLAR_DEVICE=soft");
}

const ashlar_ops_backend ashlar__ops_backend_cuda = {.name = "none", .check = refuse_ops};
#endif
