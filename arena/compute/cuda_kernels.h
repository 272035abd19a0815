/*
 * cuda_kernels.h - compiled kernels of one image, loaded into a device's context (internal).
 */
#ifndef ASHLAR_CUDA_KERNELS_H
#define ASHLAR_CUDA_KERNELS_H

#include <stddef.h>

#include "allocator/device/device_impl.h"

/* A compiled image, as long as the process lives. */
typedef struct ashlar_cuda_image {
    const char *what; /* for messages: "optimizer" */
    const unsigned long long *image; /* begins with 0: the build had no compiler for it */
} ashlar_cuda_image;

/*
 * Load `image` and find `count` kernels in it.
 *
 * Ownership: *module is the caller's, to be unloaded.
 * Errors:    ASHLAR_ENOTSUP (none for this device, or this driver), ASHLAR_EDRIVER, ASHLAR_ENOMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__cuda_kernels_load(ashlar_device *device,
                                                          const ashlar_cuda_image *image,
                                                          const char *const *names, size_t count,
                                                          cu_module *module, cu_function *kernels);

/* Waits for the device first: queued kernels still need their code. */
void ashlar__cuda_kernels_unload(ashlar_device *device, cu_module module);

/*
 * Queue a kernel whose one parameter is *param, which is read before the call returns. With 0
 * blocks nothing is launched. Call it inside the device's context.
 *
 * Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM, with the kernel's name.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__cuda_kernels_launch(ashlar_device *device,
                                                            cu_function kernel, const char *name,
                                                            size_t blocks, unsigned threads,
                                                            const void *param,
                                                            ashlar_stream stream);

#endif /* ASHLAR_CUDA_KERNELS_H */
