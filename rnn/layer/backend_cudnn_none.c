/* backend_cudnn_none.c - the CUDA back end of a build without cuDNN: refuses every rnn. */
#include "rnn/layer/backend.h"

#include "allocator/base/error.h"

static ashlar_status refuse(const ashlar_rnn_layout *layout) {
    (void)layout;
    return ashlar__fail(ASHLAR_ENOTSUP,
                        "rnn: this build has no back end for CUDA devices: build with "
                        "-Dcuda=enabled -Dcudnn=enabled where the headers of CUDA and of cuDNN 9 "
                        "are, or use the software device, ASHLAR_DEVICE=soft");
}

/* check() refuses every rnn, so no other function is ever called. */
const ashlar_rnn_backend ashlar__rnn_backend_cudnn = {.name = "none", .check = refuse};
