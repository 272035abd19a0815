/* cuda_kernels.h - loads kernels that were compiled with the library into a device's context, and
 * launches them (internal). */
#ifndef ASHLAR_CUDA_KERNELS_H
#define ASHLAR_CUDA_KERNELS_H

#include <stddef.h>

#include "allocator/device/device_impl.h"

/* A fat binary of CUDA kernels, which the build embedded in the library as a constant array. */
typedef struct ashlar_cuda_image {
    const char *what;                /* for messages: "optimizer" */
    const unsigned long long *image; /* if its first word is 0, the build had no CUDA compiler */
} ashlar_cuda_image;

/* Load `image` and find `count` kernels in it. Errors: ASHLAR_ENOTSUP (the image is empty, or has
 * no code for this device or driver), ASHLAR_EDRIVER, ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cuda_kernels_load(ashlar_device *device,
                                                          const ashlar_cuda_image *image,
                                                          const char *const *names, size_t count,
                                                          cu_module *module, cu_function *kernels);

/* Unload a module. Waits for the device first, because queued kernels still need their code. */
void ashlar__cuda_kernels_unload(ashlar_device *device, cu_module module);

/* Queue a kernel whose only parameter is *param, which is read before the call returns. The
 * device's context must be current. Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cuda_kernels_launch(ashlar_device *device,
                                                            cu_function kernel, const char *name,
                                                            size_t blocks, unsigned threads,
                                                            const void *param,
                                                            ashlar_stream stream);

#endif /* ASHLAR_CUDA_KERNELS_H */
